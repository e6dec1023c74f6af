"""`repl failover` and `repl failback`: a cluster is given up, and returns.

Failover: the flows of the cluster end with what arrived, and groups move to the destinations. Failback:
records that were written at the destination return, then the flows run as before. A failback is an edit of
the topology: it adds a flow in the reverse direction (NAME-back), or resumes it. `switch_back` then promotes
it and activates the original flow.
"""

import asyncio
from collections.abc import Collection, Iterable, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from msgspec import Struct

from planner.config.edit import with_reverse_flow
from planner.graph.cutovers import WaveTopics, stops_jobs
from planner.graph.routes import Failback, pending_failbacks, resumed_failbacks, without_covered
from planner.model.diagnostic import ExitCode, Failure, error
from planner.model.topology import Flow, Topology
from planner.plan.transitions import may_follow
from planner.workflows.applying.apply import ApplyResult
from planner.workflows.audit.access import flow_accesses
from planner.workflows.audit.waves import waves_seen
from planner.workflows.edge import Workflow
from planner.workflows.flows.ending import (
    copied,
    drained,
    group_losses,
    report_subscriptions,
    status_of,
    subscriptions_after,
    warn_of_unread_replays,
)
from planner.workflows.flows.fence import check_jobs_may_write, warn_of_rules_that_stay
from planner.workflows.flows.states import apply_edited, apply_with_states, edit_flow, in_state
from planner.workflows.flows.wave_edits import (
    check_fenced,
    check_returned,
    fence_edit,
    promoted_after_return,
    return_edit,
)
from planner.workflows.interaction import (
    UNATTENDED,
    FlowLosses,
    Interaction,
    ProgressHandler,
    ProgressText,
    UnsentRecords,
    silent,
)
from planner.workflows.observing import observe
from planner.workflows.preflight import schema_registries
from planner.workflows.requests import CutoverRequest, FailbackRequest, FailoverRequest
from planner.workflows.topology import checked, cluster_of
from runtime.contract.spec.flow import ENDED, RUNNING, FlowState

if TYPE_CHECKING:
    from runtime.contract.results.failover import SchemaCheck
    from runtime.contract.results.groups import FlowLoss, GroupLoss, GroupTopics
    from runtime.contract.results.status import FlowHealth, ReplicationStatus


# How long a failover waits for a job's next heartbeat: one that died with its cluster misses some meanwhile,
# so that the plan sees it dead.
_SILENT_S = 3.5


class FailoverResult(Struct, frozen=True):
    """The apply, what had not arrived, and what the groups subscribe to; both empty if it is incomplete."""

    applied: ApplyResult
    lost: "tuple[FlowLoss, ...]" = ()
    subscriptions: "tuple[GroupTopics, ...]" = ()


class FailoverRehearsal(Struct, frozen=True):
    """What a failover would cost: records by flow, the position of each group, and the jobs that end flows.

    `jobs` says of each job whether it runs; one that does not run is started first. `schemas` says of each
    flow that syncs schemas whether they are at its destination.
    """

    losses: "tuple[FlowLoss, ...]"
    groups: "tuple[GroupLoss, ...]"
    subscriptions: "tuple[GroupTopics, ...]"
    jobs: tuple[tuple[str, bool], ...]
    schemas: "tuple[SchemaCheck, ...]" = ()


@Workflow
async def failover(request: FailoverRequest, interaction: Interaction = UNATTENDED) -> FailoverResult:
    """Ends every flow out of a cluster with what arrived, and moves its groups to the destination.

    Reports the cost before it asks. Writes `state: failed_over` into the topology. After an interruption the
    same request finishes the rest. Consumers must read the destination with isolation.level=read_committed.
    """
    topology = checked(request.path, request.var_files).topology
    cost = await _cost(topology, request, interaction.progress)
    flows = cost.flows
    states: dict[str, FlowState] = {flow.name: "failed_over" for flow in flows}
    applied = await apply_with_states(states, request, interaction, given_up=request.cluster)
    if not applied.complete:
        return FailoverResult(applied)
    lost = await _lost(topology, cost, request.timeout_ms, interaction.progress)
    groups = await report_subscriptions(topology, flows, request.timeout_ms, interaction.progress)
    return FailoverResult(applied, lost, groups)


@Workflow
async def rehearse_failover(
    request: FailoverRequest, progress: ProgressHandler = silent
) -> FailoverRehearsal:
    """Returns what a failover would cost. It changes nothing."""
    topology = checked(request.path, request.var_files).topology
    cost = await _cost(topology, request, progress)
    groups = await group_losses(topology, cost.left, request.timeout_ms / 1000)
    names = {flow.job for flow in cost.left}
    return FailoverRehearsal(
        cost.losses,
        tuple(groups),
        subscriptions_after(topology, groups),
        tuple((job.name, job.up) for job in cost.status.jobs if job.name in names),
        await _schemas(topology, cost.flows, request.timeout_ms),
    )


async def _schemas(topology: Topology, flows: Iterable[Flow], timeout_ms: int) -> "tuple[SchemaCheck, ...]":
    """Returns for each flow that syncs schemas whether the destination has what its records need."""
    from runtime.audit.schema_check import check_schemas

    synced = [flow for flow in flows if flow.schemas.sync]
    accesses = flow_accesses(topology, synced, timeout_ms / 1000, source_may_be_gone=True)
    registries = schema_registries(topology, Path.cwd()) if synced else {}
    checks = (
        check_schemas(
            access, flow.schemas, registries[flow.source_cluster], registries[flow.destination_cluster]
        )
        for flow, access in zip(synced, accesses, strict=True)
    )
    return tuple(await asyncio.gather(*checks))


class _Cost(Struct, frozen=True):
    """The status before a failover, the flows that it ends or has ended, and what the rest of them costs.

    `left` are the flows whose end is not complete. A file says `failed_over` before the flow has ended, so
    the ledger decides.
    """

    status: "ReplicationStatus"
    flows: tuple[Flow, ...]
    left: tuple[Flow, ...]
    losses: "tuple[FlowLoss, ...]"


async def _cost(topology: Topology, request: FailoverRequest, progress: ProgressHandler) -> _Cost:
    """Before the failover, records that are still on their way count as lost.

    Failure where no flow can fail over. A promotion that is not complete can: its source may be gone.
    """
    from runtime.contract.results.groups import loss_of

    cluster = request.cluster
    cluster_of(topology, cluster)
    out = [flow for _, flow in sorted(topology.flows.items()) if flow.source_cluster == cluster]
    if not out:
        raise Failure(error(f"no flow out of {cluster} can fail over: there are none", "look at repl status"))
    jobs = {flow.job for flow in out}
    status = await status_of(topology, request.timeout_ms, _SILENT_S, given_up=cluster, until_alive=jobs)
    health = {flow.name: flow for flow in status.flows}
    left = tuple(flow for flow in out if not _has_ended(flow, health[flow.name]))
    flows = tuple(flow for flow in out if flow in left or flow.state != "promoted")
    if not flows:
        cannot = f"no flow out of {cluster} can fail over: they are promoted already"
        raise Failure(error(cannot, may_follow("promoted"), exit=ExitCode.REFUSED))
    losses = tuple(loss_of(health[flow.name], status.at_ms) for flow in left)
    progress(FlowLosses(losses, status.at_ms, cluster))
    return _Cost(status, flows, left, losses)


def _has_ended(flow: Flow, health: "FlowHealth") -> bool:
    """Returns whether the end of a flow is complete; where the ledger does not say so, by its declared state.

    A promoted flow without a generation never copied.
    """
    return flow.state in ENDED and (health.ended or health.generation is None)


async def _lost(
    topology: Topology, cost: _Cost, timeout_ms: int, progress: ProgressHandler
) -> "tuple[FlowLoss, ...]":
    """After the failover: what had not arrived when the last transaction ended."""
    from runtime.contract.results.groups import loss_of, with_ends_of

    before, names = cost.status, {flow.name for flow in cost.left}
    older = {flow.name: flow for flow in before.flows}
    after = await status_of(topology, timeout_ms, given_up=cost.flows[0].source_cluster)
    lost = tuple(
        loss_of(with_ends_of(flow, older[flow.name], before.at_ms), before.at_ms)
        for flow in after.flows
        if flow.name in names
    )
    progress(FlowLosses(lost, after.at_ms))
    return lost


async def without_others(
    topology: Topology, coming: Iterable[Failback], timeout_ms: int, progress: ProgressHandler
) -> list[Failback]:
    """Leaves out of new reverse flows the topics that other flows copy back already."""
    listed = list(coming)
    if all(failback.back is not None for failback in listed):
        return listed
    observed = await observe(topology, timeout_ms, progress=progress)
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


def with_failback_flows(topology: Topology, failbacks: Iterable[Failback]) -> dict[Path, str]:
    """Returns the edited text of each file, also of files that stay as they are."""
    after: dict[Path, str] = {}
    for failback in failbacks:
        beside = failback.back or failback.flow
        if failback.back is None:
            _refuse_taken(failback, topology)
        edit_flow(
            after,
            beside,
            partial(_with_failback, failback),
            f"add a flow with reverse_of: {beside.name}, from and to swapped, by hand; then run this again",
            f"nothing can be written beside flow {beside.name}",
        )
    return after


def _with_failback(failback: Failback, text: str) -> str | None:
    """Returns the text with the reverse flow, or with the existing one active."""
    flow, back = failback.flow, failback.back
    if back is not None:
        return in_state(back, "active", text)
    return with_reverse_flow(
        text, flow.name, failback.name, failback.exclude, job=failback.job, groups=not failback.covered
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


def check_failback_edit(topology: Topology, failbacks: Iterable[Failback]) -> None:
    """Failure where the edit has not the intended effect."""
    for failback in failbacks:
        back = topology.flows.get(failback.name)
        if back is None or back.state != "active":
            raise Failure(error(f"the state of flow {failback.name} is set elsewhere", "edit it by hand"))


class FailbackResult(Struct, frozen=True):
    """The apply, and the clusters: the flows' source, and the one where producers are still running.

    `subscriptions`: what the consumers of each group subscribe to after a switch.
    """

    applied: ApplyResult
    cluster: str
    destination: str
    switch_follows: bool = False
    subscriptions: "tuple[GroupTopics, ...]" = ()


@Workflow
async def failback(request: FailbackRequest, interaction: Interaction = UNATTENDED) -> FailbackResult:
    """Copies back what was written at the destination since the flows out of the cluster ended.

    Reports the records that were never sent, writes the reverse flows into the topology, applies, and waits
    until they have copied everything. After an interruption the same request continues.
    """
    topology = checked(request.path, request.var_files).topology
    cluster_of(topology, request.cluster)
    failbacks = pending_failbacks(topology, request.cluster)
    if not failbacks:
        raise _nothing_ended(topology, request.cluster)
    return await copy_back(topology, failbacks, request, interaction)


async def copy_back(
    topology: Topology,
    failbacks: Sequence[Failback],
    request: FailbackRequest | CutoverRequest,
    interaction: Interaction,
) -> FailbackResult:
    """Runs the reverse flows of some flows that ended, until everything is copied back.

    A fence that would keep the job from writing at the source is removed by the same plan.
    """
    status = await status_of(topology, request.timeout_ms)
    _report_unsent(status, failbacks, interaction.progress)
    failbacks = await without_others(topology, failbacks, request.timeout_ms, interaction.progress)
    waves = _returning_waves(topology, status, failbacks)
    fenced = [wave for wave in waves if wave.wave.fenced and stops_jobs(wave, topology)]
    edits = with_failback_flows(topology, failbacks)
    fence_edit(edits, fenced, fenced=False)

    def check(edited: Topology) -> None:
        check_failback_edit(edited, failbacks)
        check_fenced(fenced, edited, fenced=False)

    names = [failback.name for failback in failbacks]
    check_plan = partial(check_jobs_may_write, waves)
    applied = await apply_edited(edits, names, request, interaction, check, check_plan=check_plan)
    cluster, destination = failbacks[0].flow.source_cluster, failbacks[0].flow.destination_cluster
    if not applied.complete:
        return FailbackResult(applied, cluster, destination)
    if request.wait:
        edited = checked(request.path, request.var_files).topology
        for failback in failbacks:
            back = edited.flows[failback.name]
            await copied(edited, back, request.copied_within_ms / 1000, interaction.progress)
            interaction.progress(ProgressText(f"flow.{back.name}: all records are copied back"))
    switch_follows = any(failback.flow.reverse_of is None for failback in failbacks)
    return FailbackResult(applied, cluster, destination, switch_follows)


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
async def switch_back(request: FailbackRequest, interaction: Interaction = UNATTENDED) -> FailbackResult:
    """Promotes the reverse flows, moves the groups, and activates the flows out of the cluster again.

    Producers at the other cluster must be stopped before. Waits until everything is copied back.
    """
    topology = checked(request.path, request.var_files).topology
    cluster_of(topology, request.cluster)
    failbacks = failbacks_to_switch(topology, request.cluster)
    return await switch_flows(topology, failbacks, request, interaction)


async def switch_flows(
    topology: Topology,
    failbacks: Sequence[Failback],
    request: FailbackRequest | CutoverRequest,
    interaction: Interaction,
) -> FailbackResult:
    """Promotes the reverse flows of some flows and activates these.

    Waves of cutovers return with their flows: fences are removed, and their topics are copied again. What
    was promoted beside the waves stays so.
    """
    states: dict[str, FlowState] = {}
    _check_copied_back(failbacks)
    backs = [failback.back for failback in failbacks if failback.back is not None]
    for failback, back in zip(failbacks, backs, strict=True):
        if back.state == "active":
            await drained(topology, back, request.copied_within_ms / 1000, interaction.progress)
        states |= {back.name: "promoted", failback.flow.name: "active"}
    await warn_of_unread_replays(topology, backs, request.timeout_ms, interaction.progress)
    topology = checked(request.path, request.var_files).topology  # someone may have edited it meanwhile
    status = await status_of(topology, request.timeout_ms)
    waves = _returning_waves(topology, status, failbacks)
    promoted = promoted_after_return(topology, waves, status)
    fenced = [wave for wave in waves if wave.wave.fenced]
    edits: dict[Path, str] = {}
    fence_edit(edits, fenced, fenced=False)
    return_edit(edits, topology, promoted)

    def check(edited: Topology) -> None:
        check_fenced(fenced, edited, fenced=False)
        check_returned(promoted, edited)

    applied = await apply_with_states(
        states,
        request,
        interaction,
        edits=edits,
        check=check,
        check_plan=partial(warn_of_rules_that_stay, waves, interaction.progress),
    )
    cluster, destination = failbacks[0].flow.source_cluster, failbacks[0].flow.destination_cluster
    if not applied.complete:
        return FailbackResult(applied, cluster, destination)
    groups = await report_subscriptions(topology, backs, request.timeout_ms, interaction.progress)
    return FailbackResult(applied, cluster, destination, subscriptions=groups)


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
    runs = any(flow.source_cluster == cluster and flow.state in RUNNING for flow in topology.flows.values())
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
