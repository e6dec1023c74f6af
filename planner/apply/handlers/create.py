"""Create topics, and see them everywhere before the next step may use them."""

from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import Future

from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import ConfigEntry, ConfigResource, ResourceType, TopicMetadata
from confluent_kafka.cimpl import NewTopic

from planner.apply.context import ApplyContext
from planner.apply.retry import REQUEST_SECONDS, attempt
from planner.apply.visibility import await_everywhere, led
from planner.diff.values import readable, same_value
from planner.kafka import explain
from planner.model.outcome import DONE, RequestResult, Result, failed
from planner.model.step import CreateTopic

_BROKERS_OWN = -1


def perform(hands: ApplyContext, steps: Sequence[CreateTopic]) -> dict[str, RequestResult]:
    """Creates the topics. One that exists as wanted is success: an earlier answer may have been lost."""
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
        futures = hands.client.create_topics(
            wanted, operation_timeout=REQUEST_SECONDS, request_timeout=REQUEST_SECONDS
        )
        return {step.id: futures[step.topic] for step in some}

    def judge(step: CreateTopic, failure: KafkaException) -> RequestResult:
        if failure.args[0].code() == KafkaError.TOPIC_ALREADY_EXISTS:
            existed.add(step.id)
            return DONE  # until it is visible and was compared
        return failed(explain(failure))

    verdicts = attempt(steps, send, judge, hands.guard)
    there = [step for step in steps if verdicts[step.id].result is Result.DONE]
    expected = {step.topic: 1 if step.id in existed else step.partitions or 1 for step in there}
    waiting = await_everywhere(hands, set(expected), led(expected))
    for step in there:
        if step.topic in waiting:
            what = "it exists already" if step.id in existed else "created"
            verdicts[step.id] = failed(f"{what}, but not everywhere yet: {waiting[step.topic]}; apply again")
    compared = [step for step in there if step.id in existed and step.topic not in waiting]
    return verdicts | (_as_wanted(hands, compared) if compared else {})


def _as_wanted(hands: ApplyContext, steps: Sequence[CreateTopic]) -> dict[str, RequestResult]:
    """Compares topics that exist already with what their steps would have created."""
    resources = {step.id: ConfigResource(ResourceType.TOPIC, step.topic) for step in steps}
    try:
        known = hands.client.list_topics(timeout=REQUEST_SECONDS).topics
        answers = hands.client.describe_configs(list(resources.values()), request_timeout=REQUEST_SECONDS)
    except KafkaException as failure:
        return {step.id: _not_compared(failure) for step in steps}
    verdicts: dict[str, RequestResult] = {}
    for step in steps:
        try:
            entries: Mapping[str, ConfigEntry] = answers[resources[step.id]].result()
        except KafkaException as failure:
            verdicts[step.id] = _not_compared(failure)
            continue
        different = list(differences(step, known.get(step.topic), entries))
        verdicts[step.id] = (
            failed(f"it exists already, otherwise than planned: {'; '.join(different)}; plan again")
            if different
            else DONE
        )
    return verdicts


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
