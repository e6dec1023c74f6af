"""`repl failover` and `repl failback`: a cluster is given up, and returns.

Failover: the flows of the cluster end with what arrived, and groups move to the destinations. Failback:
records that were written at the destination return, then the flows run as before. A failback is an edit of
the topology: it adds a flow in the reverse direction (NAME-back), or resumes it. `switch_back` then promotes
it and activates the original flow.
"""

import asyncio
import dataclasses
from collections.abc import Collection, Iterable, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from planner.config.edit import with_reverse_flow
from planner.graph.cutovers import WaveTopics, stops_jobs
from planner.graph.routes import Failback, pending_failbacks, resumed_failbacks, without_covered
from planner.model.diagnostic import ExitCode, Failure, error
from planner.model.plan import ApplyResult
from planner.model.topology import Flow, Topology
from planner.plan.transitions import may_follow
from planner.workflows.audit.access import flow_accesses
from planner.workflows.audit.waves import waves_seen
from planner.workflows.edge import Workflow
from planner.workflows.flows.edits import TopologyEdits, apply_edited, check_state, states_edited
from planner.workflows.flows.ending import (
    Rehearsal,
    copied,
    drained,
    group_losses,
    read_subscriptions,
    status_of,
    warn_of_unread_replays,
)
from planner.workflows.flows.fence import check_jobs_may_write, warn_of_rules_that_stay
from planner.workflows.flows.wave_edits import fence_edit, promoted_after_return, return_edit
from planner.workflows.interaction import (
    UNATTENDED,
    FlowLosses,
    FlowsEnded,
    Interaction,
    ProgressHandler,
    UnsentRecords,
    silent,
)
from planner.workflows.observing import observe
from planner.workflows.preflight import schema_registries
from planner.workflows.requests import CutoverRequest, FailbackRequest, FailoverRequest
from planner.workflows.topology import cluster_of, job_flow_of, load_and_lint

if TYPE_CHECKING:
    from runtime.contract.results.failover import SchemaCheck
    from runtime.contract.results.groups import FlowLoss
    from runtime.contract.results.status import ReplicationStatus


# How long a failover waits for a job's next heartbeat: one that died with its cluster misses some meanwhile,
# so that the plan sees it dead.
_SILENT_S = 3.5


@Workflow
async def failover(request: FailoverRequest, interaction: Interaction = UNATTENDED) -> ApplyResult:
    """Ends every flow out of a cluster with what arrived, and moves its groups to the destination.

    Reports the cost before it asks. Writes `state: failed_over` into the topology. After an interruption the
    same request finishes the rest. Consumers must read the destination with isolation.level=read_committed.
    """
    topology = load_and_lint(request).topology
    flows, before = await _ending(topology, request, interaction.progress)
    edits = states_edited({flow.name: "failed_over" for flow in flows}, request)
    applied = await apply_edited(edits, request, interaction, given_up=request.cluster)
    if not applied.complete:
        return applied
    after = await status_of(topology, request.timeout_s, given_up=request.cluster)
    lost = _losses(_left(flows, before), after, before)
    return await report_end(topology, flows, applied, lost, request.timeout_s, interaction.progress)


async def report_end(
    topology: Topology,
    flows: Sequence[Flow],
    applied: ApplyResult,
    lost: "tuple[FlowLoss, ...]",
    timeout_s: float,
    progress: ProgressHandler,
) -> ApplyResult:
    """Reports the loss, then reads what the groups subscribe to. An interruption meanwhile hides no loss."""
    progress(FlowsEnded(lost))
    groups = await read_subscriptions(topology, flows, timeout_s, progress)
    return dataclasses.replace(applied, lost=lost, subscriptions=groups)


@Workflow
async def rehearse_failover(request: FailoverRequest, progress: ProgressHandler = silent) -> Rehearsal:
    """Returns what a failover would cost. It changes nothing."""
    topology = load_and_lint(request).topology
    flows, status = await _ending(topology, request, progress)
    left = _left(flows, status)
    jobs = {flow.job for flow in left}
    return Rehearsal.of(
        topology,
        await group_losses(topology, left, request.timeout_s),
        losses=_losses(left, status),
        jobs=tuple((job.name, job.up) for job in status.jobs if job.name in jobs),
        schemas=await _schemas(topology, flows, request.timeout_s),
    )


async def _ending(
    topology: Topology, request: FailoverRequest, progress: ProgressHandler
) -> "tuple[list[Flow], ReplicationStatus]":
    """Returns the flows that a failover ends or has ended, with the status before, and reports the cost.

    Records that are still on their way count as lost. Failure where no flow can fail over. A promotion that
    is not complete can: its source may be gone.
    """
    cluster = request.cluster
    cluster_of(topology, cluster)
    out = [flow for _, flow in sorted(topology.flows.items()) if flow.source_cluster == cluster]
    if not out:
        raise Failure(error(f"no flow out of {cluster} can fail over: there are none", "look at repl status"))
    jobs = {flow.job for flow in out}
    status = await status_of(topology, request.timeout_s, _SILENT_S, given_up=cluster, until_alive=jobs)
    left = _left(out, status)
    flows = [flow for flow in out if flow in left or flow.state != "promoted"]
    if not flows:
        cannot = f"no flow out of {cluster} can fail over: they are promoted already"
        raise Failure(error(cannot, may_follow("promoted"), exit=ExitCode.REFUSED))
    progress(FlowLosses(cluster, _losses(left, status), status.at_ms))
    return flows, status


def _left(flows: Iterable[Flow], status: "ReplicationStatus") -> list[Flow]:
    """Returns the flows whose end is not complete.

    A file says `failed_over` before the flow has ended, so the ledger decides. Where it does not say so, the
    declared state does: a promoted flow without a generation never copied.
    """
    ended = {flow.name for flow in status.flows if flow.ended or flow.generation is None}
    return [flow for flow in flows if flow.runs or flow.name not in ended]


def _losses(
    flows: Iterable[Flow], status: "ReplicationStatus", before: "ReplicationStatus | None" = None
) -> "tuple[FlowLoss, ...]":
    """Returns what has not arrived of these flows.

    After a failover it is what had not arrived when the last transaction ended, by the ends `before`.
    """
    from runtime.contract.results.groups import loss_of, with_ends_of

    health = {flow.name: flow for flow in status.flows}
    seen = [health[flow.name] for flow in flows]
    if before is None:
        return tuple(loss_of(flow, status.at_ms) for flow in seen)
    older = {flow.name: flow for flow in before.flows}
    ended = (with_ends_of(flow, older[flow.name], before.at_ms) for flow in seen)
    return tuple(loss_of(flow, before.at_ms) for flow in ended)


async def _schemas(topology: Topology, flows: Iterable[Flow], timeout_s: float) -> "tuple[SchemaCheck, ...]":
    """Returns for each flow that syncs schemas whether the destination has what its records need."""
    from runtime.audit.schema_check import check_schemas

    synced = [flow for flow in flows if flow.schemas.sync]
    accesses = flow_accesses(topology, synced, timeout_s, source_may_be_gone=True)
    registries = schema_registries(topology, Path.cwd()) if synced else {}
    checks = (
        check_schemas(
            access, flow.schemas, registries[flow.source_cluster], registries[flow.destination_cluster]
        )
        for flow, access in zip(synced, accesses, strict=True)
    )
    return tuple(await asyncio.gather(*checks))


async def without_others(
    topology: Topology, coming: Iterable[Failback], timeout_s: float, progress: ProgressHandler
) -> list[Failback]:
    """Leaves out of new reverse flows the topics that other flows copy back already."""
    listed = list(coming)
    if all(failback.back is not None for failback in listed):
        return listed
    observed = await observe(topology, timeout_s, progress=progress)
    names = {
        name: frozenset(live.topics) if (live := observed.reachable(name)) is not None else frozenset()
        for name in observed.clusters
    }
    return [
        without_covered(
            failback, topology, names[failback.flow.source_cluster], names[failback.flow.destination_cluster]
        )
        if failback.back is None
        else failback
        for failback in listed
    ]


def failback_edit(edits: TopologyEdits, topology: Topology, failbacks: Sequence[Failback]) -> None:
    """Writes the reverse flow of each flow beside it, or that the existing one is active."""
    edits.set_states((failback.back, "active") for failback in failbacks if failback.back is not None)
    for failback in failbacks:
        flow = failback.flow
        if failback.back is not None:
            continue
        _refuse_taken(failback, topology)
        edits.edit(
            flow.source,
            partial(_with_reverse_flow, failback),
            f"add a flow with reverse_of: {flow.name}, from and to swapped, by hand; then run this again",
            f"nothing can be written beside flow {flow.name}",
            partial(check_state, failback.name, "active"),
        )
        edits.flows.append(failback.name)


def _with_reverse_flow(failback: Failback, text: str) -> str | None:
    return with_reverse_flow(
        text,
        failback.flow.name,
        failback.name,
        failback.exclude,
        job=failback.job,
        groups=not failback.covered,
    )


def _refuse_taken(failback: Failback, topology: Topology) -> None:
    other = topology.flows.get(failback.name)
    if other is not None:
        original = failback.flow.name
        raise Failure(
            error(
                f"the reverse flow of {original} would be {failback.name}, and another flow has that name",
                f"rename that flow, or write the reverse flow yourself, with reverse_of: {original}",
                source=other.source,
            )
        )


@Workflow
async def failback(request: FailbackRequest, interaction: Interaction = UNATTENDED) -> ApplyResult:
    """Copies back what was written at the destination since the flows out of the cluster ended.

    Reports the records that were never sent, writes the reverse flows into the topology, applies, and waits
    until they have copied everything. After an interruption the same request continues.
    """
    topology = load_and_lint(request).topology
    cluster_of(topology, request.cluster)
    failbacks = pending_failbacks(topology, request.cluster)
    if not failbacks:
        raise _nothing_ended(topology, request.cluster)
    applied = await copy_back(topology, failbacks, request, interaction)
    if applied.complete and any(failback.flow.reverse_of is None for failback in failbacks):
        at = failbacks[0].flow.destination_cluster
        next_step = f"stop the producers at {at}, then repl failback {request.cluster} --switch"
        interaction.progress(f"Next: {next_step}")
    return applied


async def copy_back(
    topology: Topology,
    failbacks: Sequence[Failback],
    request: FailbackRequest | CutoverRequest,
    interaction: Interaction,
) -> ApplyResult:
    """Runs the reverse flows of some flows that ended, until everything is copied back.

    A fence that would keep the job from writing at the source is removed by the same plan.
    """
    status = await status_of(topology, request.timeout_s)
    _report_unsent(status, failbacks, interaction.progress)
    failbacks = await without_others(topology, failbacks, request.timeout_s, interaction.progress)
    waves = _returning_waves(topology, status, failbacks)
    fenced = [wave for wave in waves if wave.wave.fenced and stops_jobs(wave, topology)]
    edits = TopologyEdits()
    failback_edit(edits, topology, failbacks)
    fence_edit(edits, fenced, fenced=False)
    applied = await apply_edited(edits, request, interaction, check_plan=partial(check_jobs_may_write, waves))
    if applied.complete and request.wait:
        edited = load_and_lint(request).topology
        for failback in failbacks:
            back = edited.flows[failback.name]
            await copied(edited, back, request.copied_within_ms / 1000, interaction.progress)
            interaction.progress(f"flow.{back.name}: all records are copied back")
    return applied


def _returning_waves(
    topology: Topology, status: "ReplicationStatus", failbacks: Iterable[Failback]
) -> list[WaveTopics]:
    """Returns the waves of cutovers whose topics all return with these flows."""
    returning = {failback.flow.name for failback in failbacks}
    return [
        wave
        for cutover in topology.cutovers
        for wave in waves_seen(cutover, topology, status)
        if wave.topics and wave.topics.keys() <= returning
    ]


@Workflow
async def switch_back(request: FailbackRequest, interaction: Interaction = UNATTENDED) -> ApplyResult:
    """Promotes the reverse flows, moves the groups, and activates the flows out of the cluster again.

    Producers at the other cluster must be stopped before. Waits until everything is copied back.
    """
    topology = load_and_lint(request).topology
    cluster_of(topology, request.cluster)
    failbacks = failbacks_to_switch(topology, request.cluster)
    return await switch_flows(topology, failbacks, request, interaction)


async def switch_flows(
    topology: Topology,
    failbacks: Sequence[Failback],
    request: FailbackRequest | CutoverRequest,
    interaction: Interaction,
) -> ApplyResult:
    """Promotes the reverse flows of some flows and activates these.

    Waves of cutovers return with their flows: fences are removed, and their topics are copied again. What
    was promoted beside the waves stays so.
    """
    _check_copied_back(failbacks)
    backs = [failback.back for failback in failbacks if failback.back is not None]
    for back in backs:
        if back.state == "active":
            await drained(topology, back, request.copied_within_ms / 1000, interaction.progress)
    await warn_of_unread_replays(topology, backs, request.timeout_s, interaction.progress)
    topology = load_and_lint(request).topology  # someone may have edited it meanwhile
    status = await status_of(topology, request.timeout_s)
    waves = _returning_waves(topology, status, failbacks)
    edits = TopologyEdits()
    fence_edit(edits, [wave for wave in waves if wave.wave.fenced], fenced=False)
    return_edit(edits, topology, promoted_after_return(topology, waves, status))
    edits.set_states(
        [(job_flow_of(topology, back.name), "promoted") for back in backs]
        + [(job_flow_of(topology, failback.flow.name), "active") for failback in failbacks]
    )
    applied = await apply_edited(
        edits, request, interaction, check_plan=partial(warn_of_rules_that_stay, waves, interaction.progress)
    )
    if not applied.complete:
        return applied
    groups = await read_subscriptions(topology, backs, request.timeout_s, interaction.progress)
    return dataclasses.replace(applied, subscriptions=groups)


def failbacks_to_switch(
    topology: Topology, cluster: str, flows: Collection[str] | None = None
) -> list[Failback]:
    """Returns the flows to switch: those that ended, else those that a switch has made active already.

    `flows` limits that to some flows. Failure where there are none.
    """
    pending, resumed = pending_failbacks(topology, cluster), resumed_failbacks(topology, cluster)
    ended = [failback for failback in pending if failback.flow.reverse_of is None]
    for failbacks in (ended, resumed):
        chosen = [failback for failback in failbacks if flows is None or failback.flow.name in flows]
        if chosen:
            return chosen
    raise _nothing_ended(topology, cluster)


def _check_copied_back(failbacks: Iterable[Failback]) -> None:
    """Failure where a reverse flow is not there, or ended before it had copied everything back."""
    for failback in failbacks:
        if failback.back is None:
            raise Failure(
                error(
                    f"nothing of flow.{failback.flow.name} was copied back yet",
                    f"begin with repl failback {failback.flow.source_cluster}",
                    source=failback.flow.source,
                    exit=ExitCode.REFUSED,
                )
            )
        if failback.back.state == "failed_over":
            raise Failure(
                error(
                    f"flow.{failback.back.name} failed over before all records were copied back",
                    f"once {failback.back.source_cluster} is back:"
                    f" repl failback {failback.back.source_cluster}",
                    source=failback.back.source,
                    exit=ExitCode.REFUSED,
                )
            )


def _nothing_ended(topology: Topology, cluster: str) -> Failure:
    runs = any(flow.source_cluster == cluster and flow.runs for flow in topology.flows.values())
    why = f"no flow out of {cluster} was promoted or failed over"
    if not runs:
        return Failure(error(why, "look at repl status"))
    return Failure(error(why, may_follow("active"), exit=ExitCode.REFUSED))


def _report_unsent(
    status: "ReplicationStatus", failbacks: Sequence[Failback], progress: ProgressHandler
) -> None:
    """Reports what the old source holds and never sent. Failure where a cluster does not answer."""
    seen = {flow.name: flow for flow in status.flows}
    for failback in failbacks:
        flow = seen[failback.flow.name]
        if not flow.source_answers or not flow.destination_answers:
            raise Failure(
                error(
                    f"nothing can be copied back to {flow.source} yet: {flow.why}",
                    f"{flow.source} and {flow.destination} must both answer",
                    source=failback.flow.source,
                )
            )
    new = [
        failback.flow.name
        for failback in failbacks
        if failback.back is None or failback.back.state != "active"
    ]
    unsent: dict[str, dict[str, int]] = {}
    for name in new:
        topics = seen[name].topics
        records = {topic.topic: max(topic.lag_records or 0, topic.records_behind) for topic in topics}
        unsent[name] = {topic: count for topic, count in records.items() if count}
    if unsent:
        progress(UnsentRecords(failbacks[0].flow.source_cluster, unsent))
