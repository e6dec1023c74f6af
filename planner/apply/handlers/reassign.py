"""Moves replicas to the brokers in the plan, and waits until they are in sync there."""

import time
from collections.abc import Mapping, Sequence

from confluent_kafka import KafkaException
from confluent_kafka.admin import TopicMetadata

from planner.apply.context import ApplyContext
from planner.apply.retry import DEADLINE_SECONDS
from planner.kafka import ReassignmentFailure, explain, move_replicas
from planner.model.step import DONE, Reassign, RequestResult, Result, failed

MOVE_SECONDS = 3_600.0
PROGRESS_SECONDS = 30.0
_ANSWER_SECONDS = 30.0
_PAUSE = 0.5
_RETRY_PAUSE = 2.0


def perform(context: ApplyContext, steps: Sequence[Reassign]) -> dict[str, RequestResult]:
    """Sends the reassignment and waits until it is done."""
    refusal = _send(context, steps)
    return dict.fromkeys((step.id for step in steps), refusal) if refusal else await_moved(context, steps)


def _send(context: ApplyContext, steps: Sequence[Reassign]) -> RequestResult | None:
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
        known, silent_now = _topics(context, [step.topic for step in left.values()])
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
        time.sleep(_PAUSE)


def _topics(context: ApplyContext, names: Sequence[str]) -> tuple[Mapping[str, TopicMetadata], str]:
    """Returns the topics as a broker shows them; or nothing, and why no broker answers."""
    try:
        only = names[0] if len(names) == 1 else None
        return context.client.list_topics(only, timeout=_ANSWER_SECONDS).topics, ""
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
