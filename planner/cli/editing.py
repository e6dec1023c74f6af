"""Commands that edit a flow in the YAML: the edited text is planned, approved, written, then applied."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from planner.cli.apply import execute
from planner.cli.apply_view import ApplyView
from planner.cli.known import flow_of
from planner.cli.pipeline import apply_plan, see
from planner.cli.plan_output import show_plan
from planner.cli.validate import checked
from planner.config.edit.flow_key import with_state
from planner.config.files import in_form_of, text_to_edit, write_edited
from planner.model.address import flow_address
from planner.model.change import Action
from planner.model.diagnostic import ExitCode, Failure, SourceLocation, error
from planner.model.plan import Plan
from planner.model.topology import Flow, FlowState, Topology
from planner.plan import with_diagnostics
from planner.plan.guards.transitions import may_follow


@dataclass(frozen=True, slots=True)
class FlowCommandOptions:
    """The options that all of these commands have."""

    path: Path
    var_files: Sequence[Path]
    auto_approve: bool
    lock_timeout: int
    timeout: int
    as_json: bool
    wait: bool = True
    given_up: str | None = None  # a cluster that is not waited for as long as the others
    must_copy: bool = False  # it is not complete while a partition of the flows waits for a decision


def apply_with_state(name: str, state: FlowState, how: FlowCommandOptions) -> int:
    return apply_with_states({name: state}, how)


def apply_with_states(states: Mapping[str, FlowState], how: FlowCommandOptions) -> int:
    topology = checked(how.path, how.var_files).topology
    after: dict[Path, str] = {}
    for name, state in states.items():
        flow = flow_of(topology, name)
        if flow.source is None:
            raise Failure(error(f"flow.{name} stands in no file"))
        file = Path(flow.source.file)
        text = after.get(file) or text_to_edit(file)
        after[file] = text if flow.state is state else _edited(text, flow, state, flow.source)
    return apply_edited(after, states, how, lambda edited: _really(edited, states))


def apply_edited(
    after: Mapping[Path, str],
    flows: Iterable[str],
    how: FlowCommandOptions,
    right: Callable[[Topology], None],
) -> int:
    """Plans the edited texts, shows the plan, asks, writes the files, and applies.

    `flows` are those that it is about; `right` raises Failure where the edit is not what was meant. The files
    are written when all that could still refuse the plan was asked, right before its first step.
    """
    before = {file: file.read_bytes() for file in after}
    changed = {
        file: in_form_of(before[file], text) for file, text in after.items() if text != text_to_edit(file)
    }
    loaded = checked(how.path, how.var_files, edited=after)
    right(loaded.topology)
    seen = see(loaded.topology, how.timeout, how.given_up)
    plan = with_diagnostics(apply_plan(seen), loaded.warnings)
    show_plan(plan, as_json=how.as_json)
    return execute(
        plan,
        how.path,
        auto_approve=how.auto_approve,
        lock_timeout=how.lock_timeout,
        timeout=how.timeout,
        view=ApplyView(as_json=how.as_json),
        wait=how.wait,
        ask_of=set(flows) if how.must_copy else (),
        write=partial(write_edited, before, changed) if changed and _known(plan, flows) else None,
    )


def _known(plan: Plan, flows: Iterable[str]) -> bool:
    """Whether the destination of any could be read: else nothing came of the edit."""
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


def _really(topology: Topology, states: Mapping[str, FlowState]) -> None:
    for name, state in states.items():
        if topology.flows[name].state is not state:
            raise Failure(error(f"the state of flow {name} comes from elsewhere", "edit it by hand"))


def wrong_state(flow: Flow, wanted: str) -> Failure:
    return Failure(
        error(
            f"flow.{flow.name} is {flow.state.value} and can't be {wanted}",
            may_follow(flow.state),
            source=flow.source,
            exit=ExitCode.REFUSED,
        ),
    )
