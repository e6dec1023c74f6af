"""`repl failback`: records that were written at the destination return, then the flows run as before.

A failback adds a flow in the reverse direction (NAME-back), or resumes it. `switch_back` then promotes it and
activates the original flow.
"""

import asyncio
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from planner.graph.routes import Failback, pending_failbacks, resumed_failbacks
from planner.model.diagnostic import ExitCode, Failure, error
from planner.model.topology import RUNNING, FlowState, Topology
from planner.plan.transitions import may_follow
from planner.workflows.applying.apply import ApplyResult
from planner.workflows.flows.copied import copied, drained
from planner.workflows.flows.editing import apply_edited, apply_with_states
from planner.workflows.flows.failback_edit import check_failback_edit, with_failback_flows, without_others
from planner.workflows.flows.rehearsal import report_subscriptions
from planner.workflows.interaction import (
    UNATTENDED,
    CopyCompleted,
    Interaction,
    ProgressHandler,
    UnsentRecords,
    UnsentRecordsFound,
)
from planner.workflows.topology import ChangeRequest, checked, cluster_of

if TYPE_CHECKING:
    from runtime.contract.views.loss_view import GroupTopics
    from runtime.contract.views.status_view import TopicStatusView


@dataclass(frozen=True, slots=True, kw_only=True)
class FailbackRequest(ChangeRequest):
    """A request to return to `cluster`, out of which flows were promoted or failed over.

    `copied_within_ms`: how long to wait until everything is copied; with `wait` False that is not awaited.
    """

    cluster: str
    copied_within_ms: int = 600_000


@dataclass(frozen=True, slots=True)
class FailbackResult:
    """The apply, and the clusters: the flows' source, and the one where producers are still running.

    `subscriptions`: what the consumers of each group subscribe to after a switch.
    """

    applied: ApplyResult
    cluster: str
    destination: str
    switch_follows: bool = False
    subscriptions: "tuple[GroupTopics, ...]" = ()


def failback(request: FailbackRequest, interaction: Interaction = UNATTENDED) -> FailbackResult:
    """Copies back what was written at the destination since the flows out of the cluster ended.

    Reports the records that were never sent, writes the reverse flows into the topology, applies, and waits
    until they have copied everything. After an interruption the same request continues.
    """
    topology = checked(request.path, request.var_files).topology
    cluster_of(topology, request.cluster)
    found = pending_failbacks(topology, request.cluster)
    if not found:
        raise _nothing_ended(topology, request.cluster)
    _report_unsent(topology, found, request, interaction.progress)
    found = without_others(topology, found, request.timeout_ms, interaction.progress)
    applied = apply_edited(
        with_failback_flows(topology, found),
        [one.name for one in found],
        request,
        interaction,
        lambda edited: check_failback_edit(edited, found),
    )
    destination = found[0].flow.destination_cluster
    if not applied.complete:
        return FailbackResult(applied, request.cluster, destination)
    if request.wait:
        _await_copies(request, found, interaction.progress)
    switch_follows = any(one.flow.reverse_of is None for one in found)
    return FailbackResult(applied, request.cluster, destination, switch_follows)


def _await_copies(request: FailbackRequest, found: Iterable[Failback], progress: ProgressHandler) -> None:
    topology = checked(request.path, request.var_files).topology
    seconds = request.copied_within_ms / 1000
    for one in found:
        asyncio.run(copied(topology, topology.flows[one.name], seconds, _timed_out, progress))
        progress(CopyCompleted(one.name))


def switch_back(request: FailbackRequest, interaction: Interaction = UNATTENDED) -> FailbackResult:
    """Promotes the reverse flows, moves the groups, and activates the flows out of the cluster again.

    Producers at the other cluster must be stopped before. Waits until everything is copied back.
    """
    topology = checked(request.path, request.var_files).topology
    cluster_of(topology, request.cluster)
    states: dict[str, FlowState] = {}
    found = _to_switch(topology, request.cluster)
    for one in found:
        assert one.back is not None
        if one.back.state is FlowState.ACTIVE:
            asyncio.run(drained(topology, one.back, request.copied_within_ms / 1000, interaction.progress))
        states |= {one.back.name: FlowState.PROMOTED, one.flow.name: FlowState.ACTIVE}
    applied = apply_with_states(states, request, interaction)
    destination = found[0].flow.destination_cluster
    if not applied.complete:
        return FailbackResult(applied, request.cluster, destination)
    backs = [one.back for one in found if one.back is not None]
    groups = report_subscriptions(topology, backs, request.timeout_ms, interaction.progress)
    return FailbackResult(applied, request.cluster, destination, subscriptions=groups)


def _to_switch(topology: Topology, cluster: str) -> Sequence[Failback]:
    ended = [one for one in pending_failbacks(topology, cluster) if one.flow.reverse_of is None]
    found = ended or resumed_failbacks(topology, cluster)
    if not found:
        raise _nothing_ended(topology, cluster)
    for one in found:
        if one.back is None:
            raise Failure(
                error(
                    f"nothing of flow.{one.flow.name} was copied back yet",
                    f"begin with repl failback {cluster}",
                    source=one.flow.source,
                    exit=ExitCode.REFUSED,
                )
            )
        if one.back.state is FlowState.FAILED_OVER:
            raise Failure(
                error(
                    f"flow.{one.back.name} failed over before all records were copied back",
                    f"once {one.back.source_cluster} is back: repl failback {one.back.source_cluster}",
                    source=one.back.source,
                    exit=ExitCode.REFUSED,
                )
            )
    return found


def _nothing_ended(topology: Topology, cluster: str) -> Failure:
    runs = any(flow.source_cluster == cluster and flow.state in RUNNING for flow in topology.flows.values())
    why = f"no flow out of {cluster} was promoted or failed over"
    if not runs:
        return Failure(error(why, "look at repl status"))
    return Failure(error(why, may_follow(FlowState.ACTIVE), exit=ExitCode.REFUSED))


def _timed_out(name: str, seconds: float, left: str) -> Failure:
    return Failure(
        error(
            f"flow.{name}: records are left to copy back after {seconds:.0f} s, it keeps copying: {left}",
            "run the same command again to wait on, or look at repl status",
        )
    )


def _report_unsent(
    topology: Topology, found: Sequence[Failback], request: FailbackRequest, progress: ProgressHandler
) -> None:
    """Reports what the old source holds and never sent. Failure where a cluster does not answer."""
    from planner.workflows.audit.requests import status_request
    from runtime.audit.status.reader import read_status

    status = asyncio.run(read_status(status_request(topology), 0, request.timeout_ms / 1000))
    seen = {flow.name: flow for flow in status.flows}
    for one in found:
        flow = seen[one.flow.name]
        if not flow.source_answers or not flow.destination_answers:
            raise Failure(
                error(
                    f"nothing can be copied back to {flow.source} yet: {flow.why}",
                    f"{flow.source} and {flow.destination} must both answer",
                    source=one.flow.source,
                )
            )
    new = [one for one in found if one.back is None or one.back.state is not FlowState.ACTIVE]
    unsent = [UnsentRecords(one.flow.name, _unsent(seen[one.flow.name].topics)) for one in new]
    if unsent:
        progress(UnsentRecordsFound(found[0].flow.source_cluster, tuple(unsent)))


def _unsent(topics: "Sequence[TopicStatusView]") -> dict[str, int]:
    return {topic.topic: records for topic in topics if (records := _unsent_of(topic))}


def _unsent_of(topic: "TopicStatusView") -> int:
    """Counts also what topics hold that were promoted on their own, whose lag is not counted any more."""
    beyond = (
        max(one.source_end - one.position, 0)
        for one in topic.partitions
        if one.source_end is not None and one.position is not None
    )
    return max(topic.lag_records or 0, sum(beyond))
