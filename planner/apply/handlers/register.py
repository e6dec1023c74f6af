"""Writes and removes registry entries, after the change that they describe."""

import time
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace

from confluent_kafka import KafkaError, KafkaException, TopicCollection

from planner.apply.context import (
    FIRST_PAUSE,
    LONGEST_PAUSE,
    PROPAGATION_SECONDS,
    REQUEST_SECONDS,
    ApplyContext,
)
from planner.kafka import explain, is_transient, topic_id_text
from planner.model.address import Address, Kind
from planner.model.observed import ID, RegistryEntry
from planner.model.step import DONE, RequestResult, Result, failed
from planner.plan.steps.registry import Disown, Own


def own(context: ApplyContext, steps: Sequence[Own]) -> dict[str, RequestResult]:
    """Registers objects. A topic that this plan created gets its id only now."""
    if (stop_reason := context.guard.before_request()) is not None:
        return {step.id: RequestResult(Result.NOT_STARTED, stop_reason) for step in steps}
    created = [step for step in steps if step.address.kind is Kind.TOPIC and ID not in step.entry.spec]
    ids, unread = _await_topic_ids(context, {step.address.name for step in created})
    results = {
        step.id: failed(f"the topic's id could not be read: {unread[step.address.name]}")
        for step in created
        if step.address.name in unread
    }
    known = [step for step in steps if step.id not in results]
    entries = [_with_apply_facts(context, step.entry, ids) for step in known]
    return {**results, **_write(context, known, own=entries)}


def disown(context: ApplyContext, steps: Sequence[Disown]) -> dict[str, RequestResult]:
    """Removes registry entries."""
    return _write(context, steps, disown=[step.address for step in steps])


def _await_topic_ids(
    context: ApplyContext, topics: Collection[str]
) -> tuple[Mapping[str, str], Mapping[str, str]]:
    """Returns topic ids, by which a recreated topic is recognised, and why some could not be read.

    Any broker may answer, also one that did not know the topic when it was awaited. Therefore this asks
    again.
    """
    ids: dict[str, str] = {}
    unread: dict[str, KafkaException] = {}
    deadline = time.monotonic() + PROPAGATION_SECONDS
    pause = FIRST_PAUSE
    left: Collection[str] = topics
    while left:
        found, failures = _read_topic_ids(context, left)
        ids.update(found)
        unread = {name: failure for name, failure in unread.items() if name not in left} | failures
        left = [name for name, failure in failures.items() if _may_appear(failure)]
        if time.monotonic() > deadline or context.guard.stop_reason() is not None:
            break
        if left:
            time.sleep(pause)
            pause = min(pause * 2, LONGEST_PAUSE)
    return ids, {name: explain(failure) for name, failure in unread.items()}


def _may_appear(failure: KafkaException) -> bool:
    return failure.args[0].code() == KafkaError.UNKNOWN_TOPIC_OR_PART or is_transient(failure)


def _read_topic_ids(
    context: ApplyContext, topics: Collection[str]
) -> tuple[dict[str, str], dict[str, KafkaException]]:
    answers = context.client.describe_topics(TopicCollection(sorted(topics)), request_timeout=REQUEST_SECONDS)
    ids: dict[str, str] = {}
    unread: dict[str, KafkaException] = {}
    for name, answer in answers.items():
        try:
            ids[name] = topic_id_text(answer.result().topic_id)
        except KafkaException as failure:
            unread[name] = failure
    return ids, unread


def _with_apply_facts(context: ApplyContext, entry: RegistryEntry, ids: Mapping[str, str]) -> RegistryEntry:
    """Returns the entry with the plan's digest, the time, and the id of a newly created topic."""
    found = ids.get(entry.address.name) if entry.address.kind is Kind.TOPIC else None
    spec = {**entry.spec, ID: found} if found else entry.spec
    return replace(entry, spec=spec, plan=context.plan_digest, at_ms=context.now_ms())


def _write(
    context: ApplyContext,
    steps: Sequence[Own] | Sequence[Disown],
    own: Sequence[RegistryEntry] = (),
    disown: Sequence[Address] = (),
) -> dict[str, RequestResult]:
    if (stop_reason := context.guard.before_request()) is not None:
        return {step.id: RequestResult(Result.NOT_STARTED, stop_reason) for step in steps}
    try:
        context.registry.write(own=own, disown=disown)
    except (KafkaException, TimeoutError) as failure:
        return {step.id: failed(f"the registry was not written: {explain(failure)}") for step in steps}
    return {step.id: DONE for step in steps}
