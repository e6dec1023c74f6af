"""`repl pause` and `repl resume`: a flow stops copying, and continues where it stopped.

With `accept_loss` a resumed flow continues behind records that are lost; nothing else is passed over.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import groupby

from planner.apply.job_control import StoppedPartitions, accept_loss
from planner.graph.messages import few
from planner.model.address import flow_address
from planner.model.diagnostic import Diagnostic, ExitCode, Failure, error, warning
from planner.model.topology import RUNNING, Flow, FlowState, Topology
from planner.workflows.applying.apply import ApplyResult
from planner.workflows.clusters import endpoints_of
from planner.workflows.flows.editing import apply_with_states, wrong_state
from planner.workflows.interaction import UNATTENDED, ApproveLoss, Interaction, LossAccepted, Noticed
from planner.workflows.topology import FlowRequest, checked, flow_of
from runtime.contract.records.status import PartitionState, PartitionStatus
from runtime.contract.views.status_view import next_step


@dataclass(frozen=True, slots=True, kw_only=True)
class ResumeRequest(FlowRequest):
    """A request to resume a flow; with `accept_loss` also behind the records that it lost."""

    accept_loss: bool = False


def pause(request: FlowRequest, interaction: Interaction = UNATTENDED) -> ApplyResult:
    """Writes `state: paused` into the topology and applies it. The job continues with its other flows."""
    flow = flow_of(checked(request.path, request.var_files).topology, request.flow)
    if flow.state not in RUNNING:
        raise wrong_state(flow, "paused")
    return apply_with_states({flow.name: FlowState.PAUSED}, request, interaction)


def resume(request: ResumeRequest, interaction: Interaction = UNATTENDED) -> ApplyResult:
    """Writes `state: active` into the topology and applies it.

    The result is incomplete while a partition of the flow waits for a decision, unless its loss is accepted.
    """
    flow = flow_of(checked(request.path, request.var_files).topology, request.flow)
    if flow.state not in RUNNING:
        raise wrong_state(flow, "resumed")
    applied = apply_with_states(
        {flow.name: FlowState.ACTIVE}, request, interaction, must_copy=not request.accept_loss
    )
    if request.accept_loss and applied.complete:
        resume_over_loss(checked(request.path, request.var_files).topology, flow, interaction)
    return applied


def resume_over_loss(topology: Topology, flow: Flow, interaction: Interaction) -> None:
    """Asks on its own, because an active flow has no plan that could be approved."""
    destination = topology.clusters[flow.destination_cluster]

    def approve(lost: Sequence[PartitionStatus]) -> None:
        interaction.require(ApproveLoss(flow.name, tuple(lost)))

    endpoint = endpoints_of([destination])[destination.name]
    report_loss(accept_loss(endpoint, flow.job, flow.name, approve), flow, interaction)


def report_loss(stopped: StoppedPartitions, flow: Flow, interaction: Interaction) -> None:
    """Reports what continues and what does not. Failure where nothing continues."""
    others = [*_others(stopped.others, flow)]
    if stopped.problem:
        raise Failure(error(f"flow.{flow.name}: {stopped.problem}", "look at repl status"))
    if not stopped.over_loss:
        nothing = error(
            f"flow.{flow.name}: none of its partitions is stopped over lost records", "look at repl status"
        )
        raise Failure(others or nothing)
    interaction.progress(LossAccepted(flow.name, stopped.over_loss))
    for one in others:
        interaction.progress(Noticed(warning(one.summary, one.way_out, address=one.address)))


def _others(stopped: Iterable[PartitionStatus], flow: Flow) -> list[Diagnostic]:
    """Returns one error for each state that is no loss."""
    by_state = sorted(stopped, key=lambda one: one.state)
    return [_other(state, list(found), flow) for state, found in groupby(by_state, lambda one: one.state)]


def _other(state: PartitionState, stopped: list[PartitionStatus], flow: Flow) -> Diagnostic:
    first = stopped[0]
    why = f" ({_name(first)}: {first.why})" if first.why else ""
    return error(
        f"{few([_name(one) for one in stopped])}: {state} is no loss that can be accepted{why}",
        next_step(state, flow.name, first.topic, first.partition),
        address=str(flow_address(flow.name)),
        exit=ExitCode.REFUSED,
    )


def _name(one: PartitionStatus) -> str:
    return f"{one.topic}-{one.partition}"
