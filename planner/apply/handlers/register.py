"""Writes and removes registry entries, after the change that they describe."""

import asyncio
import time
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace

from planner.apply.context import FIRST_PAUSE, LONGEST_PAUSE, PROPAGATION_SECONDS, ApplyContext
from planner.kafka.failures import ClusterFailure, RequestRefused
from planner.kafka.topics import topic_id_text
from planner.model.address import Address, Kind
from planner.model.observed import ID, RegistryEntry
from planner.model.step import DONE, Result, StepResult, failed
from planner.plan.steps.registry import Disown, Own
from runtime.kafka.errors import ErrorCode
from runtime.kafka.protocol.metadata import AnyMetadataRequest


async def own(context: ApplyContext, steps: Sequence[Own]) -> dict[str, StepResult]:
    """Registers objects. A topic that this plan created gets its id only now."""
    if (stop_reason := await context.guard.before_request()) is not None:
        return {step.id: StepResult(Result.NOT_STARTED, stop_reason) for step in steps}
    created = [step for step in steps if step.address.kind is Kind.TOPIC and ID not in step.entry.spec]
    ids, unread = await _await_topic_ids(context, {step.address.name for step in created})
    results = {
        step.id: failed(f"the topic's id could not be read: {unread[step.address.name]}")
        for step in created
        if step.address.name in unread
    }
    known = [step for step in steps if step.id not in results]
    entries = [_with_apply_facts(context, step.entry, ids) for step in known]
    return {**results, **await _write(context, known, own=entries)}


async def disown(context: ApplyContext, steps: Sequence[Disown]) -> dict[str, StepResult]:
    """Removes registry entries."""
    return await _write(context, steps, disown=[step.address for step in steps])


async def _await_topic_ids(
    context: ApplyContext, topics: Collection[str]
) -> tuple[Mapping[str, str], Mapping[str, str]]:
    """Returns topic ids, by which a recreated topic is recognised, and why some could not be read.

    Any broker may answer, also one that did not know the topic when it was awaited. Therefore this asks
    again.
    """
    ids: dict[str, str] = {}
    unread: dict[str, ClusterFailure] = {}
    deadline = time.monotonic() + PROPAGATION_SECONDS
    pause = FIRST_PAUSE
    left: Collection[str] = topics
    while left:
        unread = {name: failure for name, failure in unread.items() if name not in left}
        try:
            described = (await context.client.ask(AnyMetadataRequest(sorted(left)))).topics
        except ClusterFailure as failure:
            unread |= dict.fromkeys(left, failure)
        else:
            ids |= {topic.name: topic_id_text(topic.id) for topic in described if not topic.error}
            unread |= {topic.name: RequestRefused(topic.error) for topic in described if topic.error}
        left = [name for name, failure in unread.items() if _may_appear(failure)]
        if time.monotonic() > deadline or await context.guard.stop_reason() is not None:
            break
        if left:
            await asyncio.sleep(pause)
            pause = min(pause * 2, LONGEST_PAUSE)
    return ids, {name: failure.why for name, failure in unread.items()}


def _may_appear(failure: ClusterFailure) -> bool:
    is_missing = isinstance(failure, RequestRefused) and failure.code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    return is_missing or failure.transient


def _with_apply_facts(context: ApplyContext, entry: RegistryEntry, ids: Mapping[str, str]) -> RegistryEntry:
    """Returns the entry with the plan's digest, the time, and the id of a newly created topic."""
    found = ids.get(entry.address.name) if entry.address.kind is Kind.TOPIC else None
    spec = {**entry.spec, ID: found} if found else entry.spec
    return replace(entry, spec=spec, plan=context.plan_digest, at_ms=context.now_ms())


async def _write(
    context: ApplyContext,
    steps: Sequence[Own] | Sequence[Disown],
    own: Sequence[RegistryEntry] = (),
    disown: Sequence[Address] = (),
) -> dict[str, StepResult]:
    if (stop_reason := await context.guard.before_request()) is not None:
        return {step.id: StepResult(Result.NOT_STARTED, stop_reason) for step in steps}
    try:
        await context.registry.write(own=own, disown=disown)
    except ClusterFailure as failure:
        return {step.id: failed(f"the registry was not written: {failure.why}") for step in steps}
    return {step.id: DONE for step in steps}
