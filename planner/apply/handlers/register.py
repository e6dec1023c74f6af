"""Writes and removes registry entries, after the change that they describe."""

from collections.abc import Collection, Mapping, Sequence

from msgspec.structs import replace

from planner.apply.context import ApplyContext, wait_while_missing
from planner.kafka.failures import ClusterFailure, RequestRefused
from planner.kafka.topics import topic_id_text
from planner.model.address import Address, Kind
from planner.model.observed import ID, RegistryEntry
from planner.model.step import DONE, Result, StepResult, failed
from planner.plan.steps.registry import Disown, Own
from runtime.kafka.protocol.metadata import AnyMetadataRequest


async def own(context: ApplyContext, steps: Sequence[Own]) -> dict[str, StepResult]:
    """Registers objects. A topic that this plan created gets its id only now."""
    if (stop_reason := await context.guard.stop_reason()) is not None:
        return {step.id: StepResult(Result.NOT_STARTED, stop_reason) for step in steps}
    created = [step for step in steps if step.address.kind is Kind.TOPIC and ID not in step.entry.spec]
    ids, unread = await _await_topic_ids(context, {step.address.name for step in created})
    results = {
        step.id: failed(f"the topic's id could not be read: {unread[step.address.name]}")
        for step in created
        if step.address.name in unread
    }
    readable = [step for step in steps if step.id not in results]
    entries = []
    for step in readable:
        is_new = step.address.kind is Kind.TOPIC and ids.get(step.address.name)
        spec = {**step.entry.spec, ID: ids[step.address.name]} if is_new else step.entry.spec
        entries.append(replace(step.entry, spec=spec, plan=context.plan_digest, at_ms=context.now_ms()))
    return {**results, **await _write(context, readable, own=entries)}


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
    left = sorted(topics)

    async def missing() -> dict[str, str]:
        nonlocal left
        for name in left:
            unread.pop(name, None)
        try:
            described = (await context.client.ask(AnyMetadataRequest(left))).topics if left else ()
        except ClusterFailure as failure:
            unread.update(dict.fromkeys(left, failure))
        else:
            ids.update({topic.name: topic_id_text(topic.id) for topic in described if not topic.error})
            unread.update({topic.name: RequestRefused(topic.error) for topic in described if topic.error})
        left = [name for name in left if name in unread and unread[name].transient_for_new_topic]
        return {name: unread[name].why for name in left}

    await wait_while_missing(context, missing)
    return ids, {name: failure.explained for name, failure in unread.items()}


async def _write(
    context: ApplyContext,
    steps: Sequence[Own] | Sequence[Disown],
    own: Sequence[RegistryEntry] = (),
    disown: Sequence[Address] = (),
) -> dict[str, StepResult]:
    if (stop_reason := await context.guard.before_request()) is not None:
        return {step.id: StepResult(Result.NOT_STARTED, stop_reason) for step in steps}
    try:
        await context.write_registry(own, disown)
    except ClusterFailure as failure:
        return {step.id: failed(f"the registry was not written: {failure.explained}") for step in steps}
    return {step.id: DONE for step in steps}
