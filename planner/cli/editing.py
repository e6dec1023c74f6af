"""Commands that edit a flow's state in the YAML, then plan and apply: shown, asked about, taken back."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from planner.cli.apply import approve, execute
from planner.cli.apply_view import View
from planner.cli.pipeline import apply_plan, see
from planner.cli.plan_output import print_plan
from planner.cli.validate import checked
from planner.declare.edit import with_state
from planner.declare.hints import nearest
from planner.model.address import flow_address
from planner.model.change import Action
from planner.model.diagnostic import ExitCode, Failure, error
from planner.model.plan import Plan
from planner.model.topology import Flow, FlowState, Topology


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


def flow_of(topology: Topology, name: str) -> Flow:
    if name not in topology.flows:
        near = nearest(name, topology.flows)
        raise Failure(
            error(f"there is no flow {name} in this topology", f"did you mean {near}?" if near else "")
        )
    return topology.flows[name]


def apply_with_state(name: str, state: FlowState, how: How) -> int:
    """The file is as it was unless the plan was approved and can be applied."""
    flow = flow_of(checked(how.path, how.var_files).topology, name)
    if flow.source is None:
        raise Failure(error(f"flow.{name} stands in no file"))
    file = Path(flow.source.file)
    before = file.read_bytes()
    text = before.decode()
    after = text if flow.state is state else with_state(text, name, state.value)
    if after is None:
        raise Failure(
            error(
                f"{file}: the place where flow {name} is written is not found",
                f"write state: {state.value} there, then run repl apply",
                source=flow.source,
            )
        )
    kept = False
    try:
        file.write_text(after, encoding="utf-8")
        topology = checked(how.path, how.var_files).topology
        _really(topology, name, state)
        plan = apply_plan(see(topology, how.timeout))
        if not how.as_json:
            print_plan(plan)
        if plan.applyable and not how.auto_approve:
            approve(plan)
        kept = not plan.errored and _known(plan, name)
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
            file.write_bytes(before)


def _known(plan: Plan, name: str) -> bool:
    """Whether the flow's destination could be read: else nothing came of the edit."""
    unknown = [one for one in plan.changes if one.action is Action.UNKNOWN]
    return all(one.address != flow_address(name) for one in unknown)


def _really(topology: Topology, name: str, state: FlowState) -> None:
    if topology.flows[name].state is not state:
        raise Failure(error(f"the state of flow {name} comes from elsewhere", "edit it by hand"))


def wrong_state(flow: Flow, wanted: str) -> Failure:
    return Failure(
        error(
            f"flow.{flow.name} is {flow.state.value} and can't be {wanted}",
            "look at repl status",
            source=flow.source,
            exit=ExitCode.REFUSED,
        ),
    )
