"""`repl failover`: gives up a cluster. Its flows end with what arrived; groups move to the destinations."""

import asyncio
from dataclasses import dataclass
from typing import TYPE_CHECKING

from planner.model.diagnostic import ExitCode, Failure, error
from planner.model.topology import Flow, FlowState, Topology
from planner.plan.transitions import may_follow
from planner.workflows.applying.apply import ApplyResult
from planner.workflows.flows.ending import group_losses, report_subscriptions
from planner.workflows.flows.states import apply_with_states
from planner.workflows.interaction import (
    UNATTENDED,
    FailoverCost,
    Interaction,
    ProgressHandler,
    RecordsLost,
    silent,
)
from planner.workflows.topology import ChangeRequest, checked, cluster_of

if TYPE_CHECKING:
    from runtime.contract.views.groups_view import FlowLoss, GroupLoss, GroupTopics
    from runtime.contract.views.status_view import StatusView

# How long the status is measured before a failover: a job that died with its cluster misses some heartbeats
# meanwhile, so that the plan sees it dead.
MEASURED_S = 3.5
_MAY_FAIL_OVER = (FlowState.ACTIVE, FlowState.PAUSED, FlowState.FAILED_OVER)


@dataclass(frozen=True, slots=True, kw_only=True)
class FailoverRequest(ChangeRequest):
    """A request to end every flow out of `cluster`, which need not answer."""

    cluster: str


@dataclass(frozen=True, slots=True)
class FailoverResult:
    """The apply, what had not arrived, and what the groups subscribe to; both empty if it is incomplete."""

    applied: ApplyResult
    lost: "tuple[FlowLoss, ...]" = ()
    subscriptions: "tuple[GroupTopics, ...]" = ()


@dataclass(frozen=True, slots=True)
class FailoverRehearsal:
    """What a failover would cost: records by flow, the position of each group, and the jobs that end flows.

    `jobs` says of each job whether it runs; one that does not run is started first.
    """

    losses: "tuple[FlowLoss, ...]"
    groups: "tuple[GroupLoss, ...]"
    subscriptions: "tuple[GroupTopics, ...]"
    jobs: tuple[tuple[str, bool], ...]


def failover(request: FailoverRequest, interaction: Interaction = UNATTENDED) -> FailoverResult:
    """Ends every flow out of a cluster with what arrived, and moves its groups to the destination.

    Reports the cost before it asks. Writes `state: failed_over` into the topology. After an interruption the
    same request finishes the rest. Consumers must read the destination with isolation.level=read_committed.
    """
    topology = checked(request.path, request.var_files).topology
    flows = leaving(topology, request.cluster)
    before, _ = _cost(topology, flows, request.timeout_ms, interaction.progress)
    states = {flow.name: FlowState.FAILED_OVER for flow in flows}
    applied = apply_with_states(states, request, interaction, given_up=request.cluster)
    if not applied.complete:
        return FailoverResult(applied)
    lost = _lost(topology, flows, before, request.timeout_ms, interaction.progress)
    groups = report_subscriptions(topology, flows, request.timeout_ms, interaction.progress)
    return FailoverResult(applied, lost, groups)


def rehearse_failover(request: FailoverRequest, progress: ProgressHandler = silent) -> FailoverRehearsal:
    """Returns what a failover would cost. It changes nothing."""
    from runtime.contract.views.groups_view import GroupTopics

    topology = checked(request.path, request.var_files).topology
    flows = leaving(topology, request.cluster)
    status, losses = _cost(topology, flows, request.timeout_ms, progress)
    groups = group_losses(topology, flows, request.timeout_ms / 1000)
    destinations = {flow.name: flow.destination_cluster for flow in flows}
    names = {flow.job for flow in flows if flow.state is not FlowState.FAILED_OVER}
    return FailoverRehearsal(
        losses,
        tuple(groups),
        tuple(
            GroupTopics(flow=one.flow, group=one.group, cluster=destinations[one.flow], topics=one.topics)
            for one in groups
        ),
        tuple((job.name, job.up) for job in status.jobs if job.name in names),
    )


def leaving(topology: Topology, cluster: str) -> list[Flow]:
    """Returns the flows out of a cluster that a failover ends, or has ended. Failure where there are none."""
    cluster_of(topology, cluster)
    out = [flow for _, flow in sorted(topology.flows.items()) if flow.source_cluster == cluster]
    flows = [flow for flow in out if flow.state in _MAY_FAIL_OVER]
    if not flows:
        raise _none(cluster, promoted=bool(out))
    return flows


def _none(cluster: str, *, promoted: bool) -> Failure:
    cannot = f"no flow out of {cluster} can fail over"
    if not promoted:
        return Failure(error(f"{cannot}: there are none", "look at repl status"))
    may = may_follow(FlowState.PROMOTED)
    return Failure(error(f"{cannot}: they are promoted already", may, exit=ExitCode.REFUSED))


def _cost(
    topology: Topology, flows: list[Flow], timeout_ms: int, progress: ProgressHandler
) -> "tuple[StatusView, tuple[FlowLoss, ...]]":
    """Before the failover, records that are still on their way count as lost."""
    from runtime.contract.views.groups_view import loss_of

    cluster, names = flows[0].source_cluster, _not_yet(flows)
    status = _status(topology, cluster, timeout_ms, MEASURED_S)
    losses = tuple(loss_of(flow, status.at_ms) for flow in status.flows if flow.name in names)
    progress(FailoverCost(cluster, losses, status.at_ms))
    return status, losses


def _lost(
    topology: Topology,
    flows: list[Flow],
    before: "StatusView",
    timeout_ms: int,
    progress: ProgressHandler,
) -> "tuple[FlowLoss, ...]":
    """After the failover: what had not arrived when the last transaction ended."""
    from runtime.contract.views.groups_view import loss_of, with_ends_of

    after = _status(topology, flows[0].source_cluster, timeout_ms, 0)
    names, older = _not_yet(flows), {flow.name: flow for flow in before.flows}
    lost = tuple(
        loss_of(with_ends_of(flow, older[flow.name], before.at_ms), before.at_ms)
        for flow in after.flows
        if flow.name in names
    )
    progress(RecordsLost(lost, after.at_ms))
    return lost


def _not_yet(flows: list[Flow]) -> set[str]:
    """Returns the flows that this failover ends, without those that failed over before."""
    return {flow.name for flow in flows if flow.state is not FlowState.FAILED_OVER}


def _status(topology: Topology, given_up: str, timeout_ms: int, over_s: float) -> "StatusView":
    from planner.workflows.audit.requests import status_request
    from runtime.audit.status.reader import read_status

    return asyncio.run(read_status(status_request(topology, given_up), over_s, timeout_ms / 1000))
