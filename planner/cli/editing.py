"""Commands that edit a flow's state in the YAML, then plan and apply: shown, asked about, taken back."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from planner.cli.apply import approve, execute
from planner.cli.apply_view import View
from planner.cli.known import flow_of
from planner.cli.pipeline import apply_plan, see
from planner.cli.plan_output import print_plan
from planner.cli.validate import checked
from planner.declare.edit import with_state
from planner.declare.files import in_form_of, text_to_edit
from planner.model.address import flow_address
from planner.model.change import Action
from planner.model.diagnostic import ExitCode, Failure, Source, error
from planner.model.plan import Plan
from planner.model.topology import Flow, FlowState, Topology
from planner.plan.transitions import may_follow


@dataclass(frozen=True, slots=True)
class How:
    """The options that all of these commands have."""

    path: Path
    var_files: Sequence[Path]
    auto_approve: bool
    lock_timeout: int
    timeout: int
    as_json: bool
    wait: bool = True
    given_up: str | None = None  # a cluster that is not waited for as long as the others


def apply_with_state(name: str, state: FlowState, how: How) -> int:
    return apply_with_states({name: state}, how)


def apply_with_states(states: Mapping[str, FlowState], how: How) -> int:
    """The files are as they were unless the plan was approved and can be applied."""
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
    after: Mapping[Path, str], flows: Iterable[str], how: How, right: Callable[[Topology], None]
) -> int:
    """`flows` are those that it is about; `right` raises Failure where the edit is not what was meant."""
    before = {file: file.read_bytes() for file in after}
    kept = False
    try:
        for file, text in after.items():
            if text != text_to_edit(file):
                file.write_bytes(in_form_of(before[file], text))
        topology = checked(how.path, how.var_files).topology
        right(topology)
        plan = apply_plan(see(topology, how.timeout, how.given_up))
        if not how.as_json:
            print_plan(plan)
        if plan.applyable and not how.auto_approve:
            approve(plan)
        kept = not plan.errored and _known(plan, flows)
        return execute(
            plan,
            how.path,
            auto_approve=True,
            lock_timeout=how.lock_timeout,
            timeout=how.timeout,
            view=View(as_json=how.as_json),
            wait=how.wait,
        )
    finally:
        if not kept:
            for file, text_before in before.items():
                file.write_bytes(text_before)


def _known(plan: Plan, flows: Iterable[str]) -> bool:
    """Whether the destination of any could be read: else nothing came of the edit."""
    unknown = {one.address for one in plan.changes if one.action is Action.UNKNOWN}
    return any(flow_address(name) not in unknown for name in flows)


def _edited(text: str, flow: Flow, state: FlowState, source: Source) -> str:
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
