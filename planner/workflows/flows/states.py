"""Edits of a flow's state in the YAML: the edited text is planned, approved, written, then applied.

`repl pause` stops copying, and `repl resume` continues where the flow stopped. With `accept_loss` a resumed
flow continues behind records that are lost; nothing else is passed over.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import groupby
from pathlib import Path

from planner.apply.handlers.jobs import StoppedPartitions, accept_loss
from planner.config.edit import with_state
from planner.config.files import in_form_of, text_to_edit, write_edited
from planner.graph.messages import few
from planner.model.address import flow_address
from planner.model.diagnostic import Diagnostic, ExitCode, Failure, SourceLocation, error, warning
from planner.model.plan import Action, Plan
from planner.model.topology import RUNNING, Flow, FlowState, Topology
from planner.plan import with_diagnostics
from planner.plan.transitions import may_follow
from planner.workflows.applying.apply import ApplyResult, execute
from planner.workflows.clusters import endpoints_of
from planner.workflows.interaction import (
    UNATTENDED,
    ApproveLoss,
    Interaction,
    LossAccepted,
    Noticed,
    PlanReady,
)
from planner.workflows.plans import apply_plan, see
from planner.workflows.topology import ChangeRequest, FlowRequest, checked, job_flow_of
from runtime.contract.records.job_status import PartitionState, PartitionStatus
from runtime.contract.views.status_view import next_step


def apply_with_states(
    states: Mapping[str, FlowState],
    request: ChangeRequest,
    interaction: Interaction,
    *,
    given_up: str | None = None,
    must_copy: bool = False,
) -> ApplyResult:
    """Writes the state of each flow into the topology, and applies the edited topology."""
    topology = checked(request.path, request.var_files).topology
    after: dict[Path, str] = {}
    for name, state in states.items():
        flow = job_flow_of(topology, name)
        if flow.source is None:
            raise Failure(error(f"flow.{name} is in no file"))
        file = Path(flow.source.file)
        text = after.get(file) or text_to_edit(file)
        after[file] = text if flow.state is state else _edited(text, flow, state, flow.source)
    return apply_edited(
        after,
        states,
        request,
        interaction,
        lambda edited: _check_states(edited, states),
        given_up=given_up,
        must_copy=must_copy,
    )


def apply_edited(
    after: Mapping[Path, str],
    flows: Iterable[str],
    request: ChangeRequest,
    interaction: Interaction,
    check: Callable[[Topology], None],
    *,
    given_up: str | None = None,
    must_copy: bool = False,
) -> ApplyResult:
    """Plans the edited texts, asks, writes the files right before the first step, and applies.

    `flows` are the edited ones. `check` raises Failure where the edit has not the intended effect.
    `given_up` is a cluster that is waited for only briefly. With `must_copy`, the apply is not complete while
    a partition of the flows waits for a decision.
    """
    before = {file: file.read_bytes() for file in after}
    changed = {
        file: in_form_of(before[file], text) for file, text in after.items() if text != text_to_edit(file)
    }
    loaded = checked(request.path, request.var_files, edited=after)
    check(loaded.topology)
    seen = see(loaded.topology, request.timeout_ms, given_up, interaction.progress)
    plan = with_diagnostics(apply_plan(seen), loaded.warnings)
    interaction.progress(PlanReady(plan))
    return execute(
        plan,
        request,
        interaction,
        wait_for=set(flows) if must_copy else (),
        write=partial(write_edited, before, changed) if changed and _known(plan, flows) else None,
    )


def _known(plan: Plan, flows: Iterable[str]) -> bool:
    """Whether the destination of any flow could be read: otherwise the edit changes nothing."""
    unknown = {one.address for one in plan.changes if one.action is Action.UNKNOWN}
    return any(flow_address(name) not in unknown for name in flows)


def _edited(text: str, flow: Flow, state: FlowState, source: SourceLocation) -> str:
    after = with_state(text, flow.name, state.value)
    if after is None:
        raise Failure(
            error(
                f"{source.file}: the place where flow {flow.name} is written is not found",
                f"write state: {state.value} there, then run repl apply",
                source=source,
            )
        )
    return after


def _check_states(topology: Topology, states: Mapping[str, FlowState]) -> None:
    for name, state in states.items():
        if topology.job_flows[name].state is not state:
            raise Failure(error(f"the state of flow {name} is set elsewhere", "edit it by hand"))


def wrong_state(flow: Flow, wanted: str) -> Failure:
    """Returns the refusal of a state that may not follow the flow's own."""
    return Failure(
        error(
            f"flow.{flow.name} is {flow.state.value} and can't be {wanted}",
            may_follow(flow.state),
            source=flow.source,
            exit=ExitCode.REFUSED,
        ),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class ResumeRequest(FlowRequest):
    """A request to resume a flow; with `accept_loss` also behind the records that it lost."""

    accept_loss: bool = False


def pause(request: FlowRequest, interaction: Interaction = UNATTENDED) -> ApplyResult:
    """Writes `state: paused` into the topology and applies it. The job continues with its other flows."""
    flow = job_flow_of(checked(request.path, request.var_files).topology, request.flow)
    if flow.state not in RUNNING:
        raise wrong_state(flow, "paused")
    return apply_with_states({flow.name: FlowState.PAUSED}, request, interaction)


def resume(request: ResumeRequest, interaction: Interaction = UNATTENDED) -> ApplyResult:
    """Writes `state: active` into the topology and applies it.

    The result is incomplete while a partition of the flow waits for a decision, unless its loss is accepted.
    """
    flow = job_flow_of(checked(request.path, request.var_files).topology, request.flow)
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
