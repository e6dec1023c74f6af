"""Creates, grows and deletes topics, alters their configs, and moves their replicas.

Each handler waits until every broker shows the result, or until the replicas are in sync.
"""

import asyncio
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from functools import partial

from planner.apply.context import (
    ApplyContext,
    has_leaders,
    is_gone,
    refusal_is_final,
    send_with_retries,
    wait_until_visible,
    wait_while_missing,
)
from planner.diff.values import same_value
from planner.kafka.client import BrokerConnection
from planner.kafka.failures import ClusterFailure, RequestRefused
from planner.kafka.topics import describe_topic, topic_id_text
from planner.model.observed import ConfigSource, ObservedTopic
from planner.model.step import DONE, Result, StepResult, failed
from planner.plan.object_kind import differences
from planner.plan.steps.topics import (
    AlterConfigs,
    CreateTopic,
    DeleteTopic,
    GrowPartitions,
    Reassign,
    topic_facts,
)
from runtime.kafka.errors import ErrorCode
from runtime.kafka.protocol.metadata import AnyMetadataRequest, TopicMetadata


async def create(context: ApplyContext, steps: Sequence[CreateTopic]) -> dict[str, StepResult]:
    """Creates the topics. A topic that exists as wanted is a success: an earlier answer may
    have been lost.
    """
    existed: set[str] = set()

    async def classify(step: CreateTopic, refused: RequestRefused) -> StepResult:
        if refused.code is ErrorCode.TOPIC_ALREADY_EXISTS:
            existed.add(step.id)
            return DONE  # replaced below, once it is visible and was compared
        return failed(refused.why)

    results = await send_with_retries(steps, context.send, classify, context.guard)
    created = [step for step in steps if results[step.id].result is Result.DONE]
    expected = {step.topic: 1 if step.id in existed else step.partitions or 1 for step in created}
    waiting = await wait_until_visible(context, set(expected), has_leaders(expected))
    for step in created:
        if step.topic in waiting:
            what = "it exists already" if step.id in existed else "created"
            results[step.id] = _not_everywhere(what, waiting[step.topic])
        elif step.id in existed:
            results[step.id] = await _as_wanted(context, step)
    return results


def _not_everywhere(what: str, why: str) -> StepResult:
    return failed(f"{what}, but not at every broker yet: {why}; apply again")


async def _as_wanted(context: ApplyContext, step: CreateTopic) -> StepResult:
    """Compares a topic that exists already with what its step would have created."""
    try:
        shown = await _shown_topics(context, [step.topic])
        config = await describe_topic(context.client, step.topic)
    except ClusterFailure as failure:
        return failed(f"it exists already, and could not be compared: {failure.explained}; apply again")
    partitions = shown[step.topic].partitions if step.topic in shown else {}
    replicas = tuple(tuple(partitions[number].replicas) for number in sorted(partitions))
    now = topic_facts(ObservedTopic(step.topic, "", replicas, config), step.keys)
    if different := "; ".join(differences(step.left, now, left=True)):
        return failed(f"it exists already and differs from the plan: {different}; plan again")
    return DONE


async def grow(context: ApplyContext, steps: Sequence[GrowPartitions]) -> dict[str, StepResult]:
    """Adds partitions. A topic that has the wanted number already is a success."""

    async def classify(step: GrowPartitions, refused: RequestRefused) -> StepResult:
        if refused.code is ErrorCode.INVALID_PARTITIONS:
            with suppress(ClusterFailure):
                topic = (await _shown_topics(context, [step.topic])).get(step.topic)
                if topic is not None and len(topic.partitions) == step.new:
                    return DONE
        return failed(refused.why)

    results = await send_with_retries(steps, context.send, classify, context.guard)
    grown = [step for step in steps if results[step.id].result is Result.DONE]
    counts = {step.topic: step.new for step in grown}
    waiting = await wait_until_visible(context, counts.keys(), has_leaders(counts))
    return results | {
        step.id: _not_everywhere("grown", waiting[step.topic]) for step in grown if step.topic in waiting
    }


async def delete(context: ApplyContext, steps: Sequence[DeleteTopic]) -> dict[str, StepResult]:
    """Deletes the topics with the planned ids, and no other topics of the same names.

    The ids are compared before every attempt, and the request names the id where the broker takes it (Kafka
    2.8 or newer). Topics of older clusters have no id: there the name alone decides.
    """

    async def classify(_step: DeleteTopic, refused: RequestRefused) -> StepResult:
        is_missing = refused.code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        return DONE if is_missing else failed(refused.explained)

    check = partial(_other_topics, context)
    results = await send_with_retries(steps, context.send, classify, context.guard, check=check)
    deleted = {step.topic: step.topic_id for step in steps if results[step.id].result is Result.DONE}
    waiting = await wait_until_visible(context, deleted.keys(), is_gone(deleted))
    shown = failed("deleted, but a broker still shows it; apply again")
    return results | {step.id: shown for step in steps if step.topic in waiting}


async def _other_topics(context: ApplyContext, steps: Sequence[DeleteTopic]) -> dict[str, ClusterFailure]:
    """Returns why a topic of a step is not to be deleted: it is gone, or another one has its name."""
    shown = await _shown_topics(context, [step.topic for step in steps])
    why: dict[str, ClusterFailure] = {}
    for step in steps:
        topic = shown.get(step.topic)
        if topic is None:
            why[step.id] = RequestRefused(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        elif topic.error and not topic.partitions:
            why[step.id] = RequestRefused(topic.error)
        elif (live := topic_id_text(topic.id)) != step.topic_id:
            another = f"another topic has this name now: id {live}, planned {step.topic_id}"
            why[step.id] = ClusterFailure(another, "plan again")
    return why


async def alter_configs(context: ApplyContext, steps: Sequence[AlterConfigs]) -> dict[str, StepResult]:
    """Alters the configs, and waits until every live broker shows the new values."""
    requests: list[Sequence[AlterConfigs]] = []

    async def send(batch: Sequence[AlterConfigs]) -> Mapping[str, RequestRefused]:
        requests.append(batch)
        return await context.send(batch)

    results = await send_with_retries(steps, send, refusal_is_final, context.guard)
    for request in requests:
        done = [step for step in request if results[step.id].result is Result.DONE]
        if done and await wait_while_missing(context, partial(_not_shown, context, done[-1])):
            results |= {
                step.id: failed("set, but not every broker shows it yet; apply again") for step in done
            }
    return results


async def _not_shown(context: ApplyContext, step: AlterConfigs) -> dict[str, str]:
    """Returns the step's topic where a live broker does not show the new values.

    The changes of one request are one batch in the brokers' metadata log, so one topic stands for all of
    them.
    """
    try:
        brokers = await context.each_broker()
        shown = await asyncio.gather(*(_broker_shows(step, broker) for broker in brokers.values()))
    except ClusterFailure as failure:
        return {step.topic: failure.why}
    return {} if all(shown) else {step.topic: "a broker does not show it yet"}


async def _broker_shows(step: AlterConfigs, broker: BrokerConnection) -> bool:
    """Returns whether this broker shows the step's values. Raises ClusterFailure where it does not answer."""
    config = await describe_topic(broker, step.topic)
    explicit = {key for key, value in config.items() if value.source is ConfigSource.TOPIC}
    # Brokers never return a sensitive value.
    values = all(
        key in explicit and (config[key].sensitive or same_value(key, config[key].value, value))
        for key, value in step.set.items()
    )
    return values and not explicit & set(step.unset)


MOVE_SECONDS = 3_600.0
PROGRESS_SECONDS = 30.0
_MOVE_PAUSE = 0.5


async def reassign(context: ApplyContext, steps: Sequence[Reassign]) -> dict[str, StepResult]:
    """Sends the reassignment and waits until it is done. Sending it twice is no error."""
    results = await send_with_retries(steps, context.send, refusal_is_final, context.guard)
    moving_steps = [step for step in steps if results[step.id] == DONE]
    return results | await await_moved(context, moving_steps)


async def await_moved(
    context: ApplyContext, steps: Sequence[Reassign], within_s: float = MOVE_SECONDS
) -> dict[str, StepResult]:
    """Waits until the replicas of all these topics are in sync where the plan wants them.

    A cluster that does not answer for a while ends nothing. The deadline moves on with every topic that is
    done, since brokers move topics one after the other.
    """
    left = {step.id: step for step in steps}
    results: dict[str, StepResult] = {}
    deadline = time.monotonic() + within_s
    shown_at = time.monotonic()
    silent = ""
    while left:
        topics: Mapping[str, TopicMetadata] = {}
        silent_now = ""
        try:
            topics = await _shown_topics(context, [step.topic for step in left.values()])
        except ClusterFailure as failure:
            silent_now = failure.why
        moved = [step for step in left.values() if not moving(step, topics.get(step.topic))]
        if moved and not silent_now:
            results.update({step.id: DONE for step in moved})
            left = {step_id: step for step_id, step in left.items() if step_id not in results}
            deadline = time.monotonic() + within_s
        whys = {
            step.id: _describe_missing(step, topics.get(step.topic), silent_now) for step in left.values()
        }
        if left and (stop_reason := await context.guard.stop_reason()) is not None:
            return results | {
                step_id: failed(f"{why}; the brokers continue: {stop_reason}")
                for step_id, why in whys.items()
            }
        if time.monotonic() > deadline:
            late = f"after {within_s:.0f} s"
            return results | {
                step_id: failed(f"{why}, {late}; the brokers continue") for step_id, why in whys.items()
            }
        if silent_now != silent or time.monotonic() - shown_at > PROGRESS_SECONDS:
            silent, shown_at = silent_now, time.monotonic()
            for step in left.values():
                context.tools.on_wait(step, whys[step.id])
        if left:
            await asyncio.sleep(_MOVE_PAUSE)
    return results


async def _shown_topics(context: ApplyContext, names: Sequence[str]) -> dict[str, TopicMetadata]:
    """Returns the topics as a broker shows them. Raises ClusterFailure."""
    return {topic.name: topic for topic in (await context.client.ask(AnyMetadataRequest(names))).topics}


def moving(step: Reassign, metadata: TopicMetadata | None) -> list[int]:
    """Returns the partitions whose replicas are not yet the wanted ones, all in sync."""
    partitions = metadata.partitions if metadata is not None else {}
    return [
        number
        for number, wanted in enumerate(step.replicas)
        if number not in partitions
        or set(partitions[number].replicas) != set(wanted)
        or not set(partitions[number].in_sync) >= set(wanted)
    ]


def _describe_missing(step: Reassign, metadata: TopicMetadata | None, silent: str) -> str:
    if silent:
        return f"the replicas may still be moving, and {step.cluster} does not answer ({silent})"
    left = moving(step, metadata)
    named = ", ".join(map(str, left[:5])) + (f" and {len(left) - 5} more" if len(left) > 5 else "")
    return f"the replicas of {len(left)} of {len(step.replicas)} partitions are still moving ({named})"
