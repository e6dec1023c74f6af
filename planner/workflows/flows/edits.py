"""Edits of the YAML: their text is planned, approved, written right before the first step, then applied."""

from collections.abc import Callable, Collection, Iterable, Mapping
from functools import partial
from pathlib import Path

from planner.config.edit import with_promoted, with_states
from planner.config.files import in_form_of, read_bytes, text_to_edit, write_edited
from planner.graph.messages import few
from planner.model.address import flow_address
from planner.model.change import Action
from planner.model.diagnostic import ExitCode, Failure, SourceLocation, error
from planner.model.plan import ApplyResult, Plan
from planner.model.topology import Flow, Topology
from planner.plan.make import with_diagnostics
from planner.plan.transitions import may_follow
from planner.workflows.applying.apply import execute
from planner.workflows.interaction import Interaction
from planner.workflows.plans import observe_and_plan
from planner.workflows.requests import ChangeRequest
from planner.workflows.topology import job_flow_of, load_and_lint
from runtime.contract.spec.flow import FlowState

Check = Callable[[Topology], None]
TextEdit = Callable[[str], str | None]


class TopologyEdits:
    """Edits of a topology that make one plan, each with the check that it has its effect.

    A key may be set elsewhere too, by an alias or by another file, so the edited topology is read again.
    `texts` are the edited files, also those that stay as they are; `before` are their bytes when they were
    first read. `flows` are the edited flows.
    """

    def __init__(self) -> None:
        self.before: dict[Path, bytes] = {}
        self.texts: dict[Path, str] = {}
        self.flows: list[str] = []
        self._checks: list[Check] = []

    def edit(
        self, source: SourceLocation | None, edit: TextEdit, hint: str, what: str, check: Check | None = None
    ) -> None:
        """Edits the file in which something is declared.

        Failure says `what`, where `edit` finds no place, and what to write by hand. `check` raises Failure
        where the edit has not its effect.
        """
        if source is None:
            raise Failure(error(what, hint))
        file = Path(source.file)
        if file not in self.before:
            self.before[file] = read_bytes(file)
            self.texts[file] = text_to_edit(self.before[file], file)
        edited = edit(self.texts[file])
        if edited is None:
            raise Failure(error(f"{file}: {what}", hint, source=source))
        self.texts[file] = edited
        if check is not None:
            self.check_also(check)

    def check_also(self, check: Check) -> None:
        """Adds a check of several edits together."""
        self._checks.append(check)

    def edit_flow(self, flow: Flow, edit: TextEdit, hint: str, check: Check | None) -> None:
        """Edits the file that declares a flow."""
        self.edit(flow.source, edit, hint, f"the place where flow {flow.name} is written is not found", check)
        self.flows.append(flow.name)

    def set_states(self, states: Iterable[tuple[Flow, FlowState]]) -> None:
        """Writes the states of flows, those in one file by one edit."""
        files: dict[str | None, list[tuple[Flow, FlowState]]] = {}
        for flow, state in states:
            files.setdefault(flow.source.file if flow.source is not None else None, []).append((flow, state))
        for listed in files.values():
            changed = {flow.name: state for flow, state in listed if flow.state != state}
            flows = "one of the flows" if len(listed) > 1 else "flow"
            names = few([flow.name for flow, _ in listed])
            written = few([f"state: {state} in {flow.name}" for flow, state in listed])
            self.edit(
                listed[0][0].source,
                partial(with_states, states=changed),
                f"write {written}, then run repl apply",
                f"the place where {flows} {names} is written is not found",
            )
            for flow, state in listed:
                self.check_also(partial(check_state, flow.name, state))
                self.flows.append(flow.name)

    def promote_topics(self, flow: Flow, pattern: str, check: Check | None = None) -> None:
        """Writes that the topics of a flow that match are promoted on their own."""
        self.edit_flow(
            flow,
            lambda text: text if pattern in flow.promoted else with_promoted(text, flow.name, pattern),
            f"write {pattern!r} under its promoted, then run repl apply",
            check,
        )

    def check(self, edited: Topology) -> None:
        """Failure where an edit has not its effect."""
        for check in self._checks:
            check(edited)


def check_state(flow: str, state: FlowState, edited: Topology) -> None:
    """Failure where an edit did not set the state of a flow."""
    if flow not in edited.job_flows or edited.job_flows[flow].state != state:
        raise Failure(error(f"the state of flow {flow} is set elsewhere", "edit it by hand"))


async def apply_edited(
    edits: TopologyEdits,
    request: ChangeRequest,
    interaction: Interaction,
    *,
    given_up: str | None = None,
    wait_for: Collection[str] = (),
    reviewed: Plan | None = None,
    check_plan: Callable[[Plan], None] = lambda _: None,
    decisive: Collection[str] | None = None,
) -> ApplyResult:
    """Plans the edited texts, asks, writes the files right before the first step, and applies.

    `check_plan` raises Failure where the plan may not be applied. `given_up` is a cluster that is waited for
    only briefly. The apply is not complete while a partition of the flows in `wait_for` waits for a decision.
    `reviewed` is a plan that was approved: a plan whose changes are all among its own does not ask again.
    Nothing is written where the plan can't change any of the `decisive` flows; without them, of those edited.
    """
    before = edits.before
    changed = {
        file: in_form_of(before[file], text)
        for file, text in edits.texts.items()
        if text != text_to_edit(before[file], file)
    }
    plan = await plan_edited(edits, request, interaction, given_up=given_up)
    check_plan(plan)
    unknown = {change.address for change in plan.changes if change.action is Action.UNKNOWN}
    flows = [flow_address(name) for name in (edits.flows if decisive is None else decisive)]
    can_apply = not flows or any(address not in unknown for address in flows)
    return await execute(
        plan,
        request,
        interaction,
        approved=reviewed is not None and is_part_of(plan, reviewed),
        wait_for=wait_for,
        write=partial(write_edited, before, changed) if changed and can_apply else None,
    )


async def plan_edited(
    edits: TopologyEdits, request: ChangeRequest, interaction: Interaction, *, given_up: str | None = None
) -> Plan:
    """Returns the plan of the edited texts. Failure where an edit has not its effect."""
    loaded = load_and_lint(request, edited=edits.texts)
    edits.check(loaded.topology)
    plan = await observe_and_plan(loaded.topology, request.timeout_s, interaction.progress, given_up=given_up)
    return with_diagnostics(plan, loaded.warnings)


def is_part_of(plan: Plan, reviewed: Plan) -> bool:
    """Returns whether every change of a plan was a change of the one that people reviewed."""
    reviewed_changes = {change.address: (change.action, change.fields) for change in reviewed.changes}
    return all(
        change.action in (Action.NO_OP, Action.UNKNOWN)
        or reviewed_changes.get(change.address) == (change.action, change.fields)
        for change in plan.changes
    )


def wrong_state(flow: Flow, wanted: str) -> Failure:
    """Returns the refusal of a state that may not follow the flow's own."""
    return Failure(
        error(
            f"flow.{flow.name} is {flow.state} and can't be {wanted}",
            may_follow(flow.state),
            source=flow.source,
            exit=ExitCode.REFUSED,
        ),
    )


def states_edited(states: Mapping[str, FlowState], request: ChangeRequest) -> TopologyEdits:
    """Returns the edits of the states of flows, of the topology as it is written now."""
    topology = load_and_lint(request).topology
    edits = TopologyEdits()
    edits.set_states((job_flow_of(topology, name), state) for name, state in states.items())
    return edits
