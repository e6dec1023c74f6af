"""Creates, grows and deletes topics, alters their configs, and moves their replicas.

Each handler waits until every broker shows the result, or until the replicas are in sync.
"""

import time
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import Future

from confluent_kafka import KafkaError, KafkaException, TopicCollection
from confluent_kafka.admin import (
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    ConfigSource,
    ResourceType,
    TopicMetadata,
)
from confluent_kafka.cimpl import NewPartitions, NewTopic

from planner.apply.context import (
    DEADLINE_SECONDS,
    FIRST_PAUSE,
    LONGEST_PAUSE,
    PROPAGATION_SECONDS,
    REQUEST_SECONDS,
    ApplyContext,
    error_is_final,
    has_leaders,
    is_gone,
    send_with_retries,
    wait_until_visible,
)
from planner.diff.values import readable, same_value
from planner.kafka import ReassignmentFailure, explain, move_replicas, topic_id_text
from planner.model.step import DONE, RequestResult, Result, failed
from planner.plan.steps.topics import AlterConfigs, CreateTopic, DeleteTopic, GrowPartitions, Reassign

_BROKERS_OWN = -1


def create(context: ApplyContext, steps: Sequence[CreateTopic]) -> dict[str, RequestResult]:
    """Creates the topics. A topic that exists as wanted is a success: an earlier answer may
    have been lost.
    """
    existed: set[str] = set()

    def send(some: Sequence[CreateTopic]) -> Mapping[str, "Future[None]"]:
        wanted = [
            NewTopic(
                step.topic,
                num_partitions=step.partitions or _BROKERS_OWN,
                replication_factor=step.replication or _BROKERS_OWN,
                config=dict(step.config),
            )
            for step in some
        ]
        futures = context.client.create_topics(
            wanted, operation_timeout=REQUEST_SECONDS, request_timeout=REQUEST_SECONDS
        )
        return {step.id: futures[step.topic] for step in some}

    def classify_error(step: CreateTopic, failure: KafkaException) -> RequestResult:
        if failure.args[0].code() == KafkaError.TOPIC_ALREADY_EXISTS:
            existed.add(step.id)
            return DONE  # replaced below, once it is visible and was compared
        return failed(explain(failure))

    results = send_with_retries(steps, send, classify_error, context.guard)
    created = [step for step in steps if results[step.id].result is Result.DONE]
    expected = {step.topic: 1 if step.id in existed else step.partitions or 1 for step in created}
    waiting = wait_until_visible(context, set(expected), has_leaders(expected))
    for step in created:
        if step.topic in waiting:
            what = "it exists already" if step.id in existed else "created"
            results[step.id] = failed(
                f"{what}, but not at every broker yet: {waiting[step.topic]}; apply again"
            )
    compared = [step for step in created if step.id in existed and step.topic not in waiting]
    return results | (_as_wanted(context, compared) if compared else {})


def _as_wanted(context: ApplyContext, steps: Sequence[CreateTopic]) -> dict[str, RequestResult]:
    """Compares topics that exist already with what their steps would have created."""
    resources = {step.id: ConfigResource(ResourceType.TOPIC, step.topic) for step in steps}
    try:
        known = context.client.list_topics(timeout=REQUEST_SECONDS).topics
        answers = context.client.describe_configs(list(resources.values()), request_timeout=REQUEST_SECONDS)
    except KafkaException as failure:
        return {step.id: _not_compared(failure) for step in steps}
    results: dict[str, RequestResult] = {}
    for step in steps:
        try:
            entries: Mapping[str, ConfigEntry] = answers[resources[step.id]].result()
        except KafkaException as failure:
            results[step.id] = _not_compared(failure)
            continue
        different = list(differences(step, known.get(step.topic), entries))
        results[step.id] = (
            failed(f"it exists already and differs from the plan: {'; '.join(different)}; plan again")
            if different
            else DONE
        )
    return results


def _not_compared(failure: KafkaException) -> RequestResult:
    return failed(f"it exists already, and could not be compared: {explain(failure)}; apply again")


def differences(
    step: CreateTopic, known: TopicMetadata | None, entries: Mapping[str, ConfigEntry]
) -> Iterator[str]:
    """Yields a sentence for each value in which a live topic is not as the step would have created it."""
    partitions = known.partitions if known is not None else {}
    if step.partitions is not None and len(partitions) != step.partitions:
        yield f"it has {len(partitions)} partitions instead of {step.partitions}"
    factors = sorted({len(one.replicas) for one in partitions.values()})
    if step.replication is not None and factors != [step.replication]:
        yield f"its replication is {' and '.join(map(str, factors))} instead of {step.replication}"
    for key, value in sorted(step.config.items()):
        entry = entries.get(key)
        if entry is not None and (entry.is_sensitive or same_value(key, entry.value, value)):
            continue
        found = "not set" if entry is None or entry.value is None else readable(key, entry.value)
        yield f"{key} is {found} instead of {readable(key, value)}"


def grow(context: ApplyContext, steps: Sequence[GrowPartitions]) -> dict[str, RequestResult]:
    """Adds partitions. A topic that has the wanted number already is a success."""

    def send(some: Sequence[GrowPartitions]) -> Mapping[str, "Future[None]"]:
        futures = context.client.create_partitions(
            [NewPartitions(step.topic, step.new) for step in some],
            operation_timeout=REQUEST_SECONDS,
            request_timeout=REQUEST_SECONDS,
        )
        return {step.id: futures[step.topic] for step in some}

    def classify_error(step: GrowPartitions, failure: KafkaException) -> RequestResult:
        if failure.args[0].code() == KafkaError.INVALID_PARTITIONS and _partitions(context, step) == step.new:
            return DONE
        return failed(explain(failure))

    results = send_with_retries(steps, send, classify_error, context.guard)
    grown = [step for step in steps if results[step.id].result is Result.DONE]
    waiting = wait_until_visible(
        context, {step.topic for step in grown}, has_leaders({step.topic: step.new for step in grown})
    )
    for step in grown:
        if step.topic in waiting:
            results[step.id] = failed(
                f"grown, but not at every broker yet: {waiting[step.topic]}; apply again"
            )
    return results


def _partitions(context: ApplyContext, step: GrowPartitions) -> int | None:
    try:
        return len(
            context.client.list_topics(step.topic, timeout=REQUEST_SECONDS).topics[step.topic].partitions
        )
    except KafkaException:
        return None


_UNKNOWN = (KafkaError.UNKNOWN_TOPIC_OR_PART, KafkaError._UNKNOWN_TOPIC)


def delete(context: ApplyContext, steps: Sequence[DeleteTopic]) -> dict[str, RequestResult]:
    """Deletes the topics with the planned ids, and no other topics of the same names."""

    def send(some: Sequence[DeleteTopic]) -> Mapping[str, "Future[None]"]:
        futures = context.client.delete_topics(
            [step.topic for step in some],
            operation_timeout=REQUEST_SECONDS,
            request_timeout=REQUEST_SECONDS,
        )
        return {step.id: futures[step.topic] for step in some}

    def classify_error(_step: DeleteTopic, failure: KafkaException) -> RequestResult:
        return DONE if failure.args[0].code() in _UNKNOWN else failed(explain(failure))

    results = _check_topic_ids(context, steps)
    still = [step for step in steps if step.id not in results]
    results.update(send_with_retries(still, send, classify_error, context.guard))
    deleted = [step for step in still if results[step.id].result is Result.DONE]
    waiting = wait_until_visible(context, {step.topic for step in deleted}, is_gone)
    for step in deleted:
        if step.topic in waiting:
            results[step.id] = failed("deleted, but a broker still shows it; apply again")
    return results


def _check_topic_ids(context: ApplyContext, steps: Sequence[DeleteTopic]) -> dict[str, RequestResult]:
    """Returns results for topics that must not be deleted any more or that are gone already."""
    topics = TopicCollection([step.topic for step in steps])
    answers = context.client.describe_topics(topics, request_timeout=REQUEST_SECONDS)
    results: dict[str, RequestResult] = {}
    for step in steps:
        try:
            found = topic_id_text(answers[step.topic].result().topic_id)
        except KafkaException as failure:
            known_gone = failure.args[0].code() in _UNKNOWN
            results[step.id] = DONE if known_gone else failed(explain(failure))
        else:
            if found != step.topic_id:
                why = f"another topic has this name now: id {found}, planned {step.topic_id}"
                results[step.id] = failed(f"{why}; plan again")
    return results


_ANSWER_SECONDS = 5.0


def resource_of(step: AlterConfigs) -> ConfigResource:
    """Returns the incremental changes of one topic."""
    entries = [
        ConfigEntry(key, value, incremental_operation=AlterConfigOpType.SET)
        for key, value in sorted(step.set.items())
    ]
    entries += [
        ConfigEntry(key, "", incremental_operation=AlterConfigOpType.DELETE) for key in sorted(step.unset)
    ]
    return ConfigResource(ResourceType.TOPIC, step.topic, incremental_configs=entries)


def alter_configs(context: ApplyContext, steps: Sequence[AlterConfigs]) -> dict[str, RequestResult]:
    """Alters the configs, and waits until every live broker shows the new values."""
    requests: list[Sequence[AlterConfigs]] = []

    def send(some: Sequence[AlterConfigs]) -> Mapping[str, "Future[None]"]:
        requests.append(some)
        wanted = {step.id: resource_of(step) for step in some}
        futures = context.client.incremental_alter_configs(
            list(wanted.values()), request_timeout=REQUEST_SECONDS
        )
        return {step_id: futures[resource] for step_id, resource in wanted.items()}

    results = send_with_retries(steps, send, error_is_final, context.guard)
    for request in requests:
        done = [step for step in request if results[step.id].result is Result.DONE]
        if done and not _wait_until_visible(context, done[-1]):
            results |= {
                step.id: failed("set, but not every broker shows it yet; apply again") for step in done
            }
    return results


def _wait_until_visible(context: ApplyContext, step: AlterConfigs) -> bool:
    """Waits until every live broker shows the new values.

    The changes of one request are one batch in the brokers' metadata log, so one topic stands for all of
    them.
    """
    deadline = time.monotonic() + PROPAGATION_SECONDS
    pause = FIRST_PAUSE
    while not _all_brokers_show(context, step):
        if time.monotonic() > deadline or context.guard.stop_reason() is not None:
            return False
        time.sleep(pause)
        pause = min(pause * 2, LONGEST_PAUSE)
    return True


def _all_brokers_show(context: ApplyContext, step: AlterConfigs) -> bool:
    try:
        return all(_broker_shows(context, step, broker) for broker in context.each_broker())
    except KafkaException:
        return False


def _broker_shows(context: ApplyContext, step: AlterConfigs, broker: int) -> bool:
    """Returns whether this broker shows the step's values."""
    resource = ConfigResource(ResourceType.TOPIC, step.topic)
    asked = context.client.describe_configs([resource], request_timeout=_ANSWER_SECONDS, broker=broker)
    entries: Mapping[str, ConfigEntry] = asked[resource].result()
    own = {key for key, entry in entries.items() if _is_topics_own(entry)}
    # Brokers never return a sensitive value.
    values = all(
        key in own and (entries[key].is_sensitive or same_value(key, entries[key].value, value))
        for key, value in step.set.items()
    )
    return values and not own & set(step.unset)


def _is_topics_own(entry: ConfigEntry) -> bool:
    return ConfigSource(entry.source) is ConfigSource.DYNAMIC_TOPIC_CONFIG


MOVE_SECONDS = 3_600.0
PROGRESS_SECONDS = 30.0
_MOVE_ANSWER_SECONDS = 30.0
_MOVE_PAUSE = 0.5
_RETRY_PAUSE = 2.0


def reassign(context: ApplyContext, steps: Sequence[Reassign]) -> dict[str, RequestResult]:
    """Sends the reassignment and waits until it is done."""
    refusal = _send_reassignment(context, steps)
    return dict.fromkeys((step.id for step in steps), refusal) if refusal else await_moved(context, steps)


def _send_reassignment(context: ApplyContext, steps: Sequence[Reassign]) -> RequestResult | None:
    """Sends the wanted replicas. Sending them twice is no error, so a transient failure is sent again."""
    wanted = {
        (step.topic, partition): replicas
        for step in steps
        for partition, replicas in enumerate(step.replicas)
    }
    deadline = time.monotonic() + DEADLINE_SECONDS
    while True:
        if (stop_reason := context.guard.before_request()) is not None:
            return RequestResult(Result.NOT_STARTED, stop_reason)
        try:
            move_replicas(context.endpoint, wanted)
        except ReassignmentFailure as failure:
            if not failure.transient or time.monotonic() > deadline:
                return failed(str(failure))
            time.sleep(_RETRY_PAUSE)
        else:
            return None


def await_moved(
    context: ApplyContext, steps: Sequence[Reassign], within_s: float = MOVE_SECONDS
) -> dict[str, RequestResult]:
    """Waits until the replicas of all these topics are in sync where the plan wants them.

    A cluster that does not answer for a while ends nothing. The deadline moves on with every topic that is
    done, since brokers move topics one after the other.
    """
    left = {step.id: step for step in steps}
    results: dict[str, RequestResult] = {}
    deadline = time.monotonic() + within_s
    shown_at = time.monotonic()
    silent = ""
    while True:
        known, silent_now = _shown_topics(context, [step.topic for step in left.values()])
        moved = [step for step in left.values() if not moving(step, known.get(step.topic))]
        if moved and not silent_now:
            results.update({step.id: DONE for step in moved})
            left = {step_id: step for step_id, step in left.items() if step_id not in results}
            deadline = time.monotonic() + within_s
        if not left:
            return results
        whys = {step.id: _describe_missing(step, known.get(step.topic), silent_now) for step in left.values()}
        if (stop_reason := context.guard.stop_reason()) is not None:
            return results | {
                one: failed(f"{why}; the brokers continue: {stop_reason}") for one, why in whys.items()
            }
        if time.monotonic() > deadline:
            late = f"after {within_s:.0f} s"
            return results | {
                one: failed(f"{why}, {late}; the brokers continue") for one, why in whys.items()
            }
        if silent_now != silent or time.monotonic() - shown_at > PROGRESS_SECONDS:
            silent, shown_at = silent_now, time.monotonic()
            for step in left.values():
                context.on_wait(step, whys[step.id])
        time.sleep(_MOVE_PAUSE)


def _shown_topics(context: ApplyContext, names: Sequence[str]) -> tuple[Mapping[str, TopicMetadata], str]:
    """Returns the topics as a broker shows them; or nothing, and why no broker answers."""
    try:
        only = names[0] if len(names) == 1 else None
        return context.client.list_topics(only, timeout=_MOVE_ANSWER_SECONDS).topics, ""
    except KafkaException as failure:
        return {}, explain(failure)


def moving(step: Reassign, known: TopicMetadata | None) -> list[int]:
    """Returns the partitions whose replicas are not yet the wanted ones, all in sync."""
    partitions = known.partitions if known is not None else {}
    return [
        number
        for number, wanted in enumerate(step.replicas)
        if number not in partitions
        or set(partitions[number].replicas) != set(wanted)
        or not set(partitions[number].isrs) >= set(wanted)
    ]


def _describe_missing(step: Reassign, known: TopicMetadata | None, silent: str) -> str:
    if silent:
        return f"the replicas may still be moving, and {step.cluster} does not answer ({silent})"
    left = moving(step, known)
    named = ", ".join(map(str, left[:5])) + (f" and {len(left) - 5} more" if len(left) > 5 else "")
    return f"the replicas of {len(left)} of {len(step.replicas)} partitions are still moving ({named})"
