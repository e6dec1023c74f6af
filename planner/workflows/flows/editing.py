"""Edits of a flow in the YAML: the edited text is planned, approved, written, then applied."""

from collections.abc import Callable, Iterable, Mapping
from functools import partial
from pathlib import Path

from planner.config.edit import with_state
from planner.config.files import in_form_of, text_to_edit, write_edited
from planner.model.address import flow_address
from planner.model.diagnostic import ExitCode, Failure, SourceLocation, error
from planner.model.plan import Action, Plan
from planner.model.topology import Flow, FlowState, Topology
from planner.plan import with_diagnostics
from planner.plan.transitions import may_follow
from planner.workflows.applying.apply import ApplyResult, execute
from planner.workflows.interaction import Interaction, PlanReady
from planner.workflows.planning.plans import apply_plan, see
from planner.workflows.topology import ChangeRequest, checked, flow_of


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
        flow = flow_of(topology, name)
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
        if topology.flows[name].state is not state:
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
