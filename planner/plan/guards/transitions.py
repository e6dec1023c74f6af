"""Which states of a flow may follow which. An out-of-date file never undoes a failover."""

from collections.abc import Iterable, Iterator, Mapping, Sequence

from planner.diff.compare import changed_fields
from planner.diff.destination_jobs import destination_jobs, elsewhere, wanted_jobs
from planner.diff.spec_values import flow_values
from planner.graph.routes import opposite_of
from planner.model.address import Kind, flow_address
from planner.model.change import Action, Change
from planner.model.desired import Desired
from planner.model.diagnostic import Diagnostic, ExitCode, error
from planner.model.observed import Observed
from planner.model.topology import RUNNING, Flow, FlowState, Topology
from runtime.contract.records.failback import can_start_failback
from runtime.contract.records.ledger import Generation

NEXT = {
    FlowState.ACTIVE: "paused, promoted or failed_over",
    FlowState.PAUSED: "active, promoted or failed_over",
}


def transitions(changes: Sequence[Change], topology: Topology, observed: Observed) -> Iterator[Diagnostic]:
    """Yields a refusal for each flow that can't change to its new state."""
    states = dict(_states(changes))
    for change in changes:
        flow = topology.flows.get(change.address.name) if change.address.kind is Kind.FLOW else None
        before = _before(change)
        if flow is None or before is None:
            continue
        if change.action is Action.REPLACE:
            if before not in RUNNING or flow.state not in RUNNING:
                yield _ends_and_moves(change, before, flow)
            continue
        if before in RUNNING:
            continue
        restarts = flow.restart_from is not None and any(
            one.path == ("restart_from",) for one in change.fields
        )
        may_restart = restarts or _may_restart(flow, topology, states, observed)
        if flow.state is not FlowState.ACTIVE or not may_restart:
            yield error(
                f"was {before.value}, and can't become {flow.state.value}",
                _way_out(before, flow),
                address=str(change.address),
                source=flow.source,
                code="transition",
                exit=ExitCode.REFUSED,
            )


def _before(change: Change) -> FlowState | None:
    """Returns the flow's state before the change; None if the state does not change."""
    if change.action not in (Action.UPDATE, Action.REPLACE):
        return None
    return next((FlowState(str(one.old)) for one in change.fields if one.path == ("state",)), None)


def _ends_and_moves(change: Change, before: FlowState, flow: Flow) -> Diagnostic:
    """Refuses to end a flow and move it in one plan: the ledger of its end stays at the old destination."""
    old = next((str(one.old) for one in change.fields if one.path == ("to",)), "")
    return error(
        f"was {before.value} at {old}, and can't become {flow.state.value} at {flow.destination_cluster}",
        f"give the flow to {flow.destination_cluster} a name of its own"
        if before not in RUNNING
        else f"let it end at {old} first: with to: {old} and state: {flow.state.value}",
        address=str(change.address),
        source=flow.source,
        code="transition",
        exit=ExitCode.REFUSED,
    )


def _states(changes: Iterable[Change]) -> Iterator[tuple[str, FlowState]]:
    """Yields the flows with their present states."""
    for change in changes:
        if change.address.kind is Kind.FLOW and change.before is not None:
            yield change.address.name, FlowState(str(change.before["state"]))


def _may_restart(flow: Flow, topology: Topology, states: Mapping[str, FlowState], observed: Observed) -> bool:
    """Returns whether the flow may run again because its opposite ended.

    The opposite must have started where this flow ended. Only the ledgers tell that: an out-of-date file
    looks the same.
    """
    opposite = opposite_of(flow, topology)
    before = states.get(opposite.name) if opposite is not None else None
    if opposite is None or before is None or opposite.state in RUNNING:
        return False
    if before in RUNNING:
        return flow.reverse_of is None
    mine, theirs = _generation(flow, observed), _generation(opposite, observed)
    return mine is not None and theirs is not None and can_start_failback(mine, theirs)


def _generation(flow: Flow, observed: Observed) -> Generation | None:
    cluster = observed.reachable(flow.destination_cluster)
    return cluster.generations.get(flow.name) if cluster is not None else None


def may_follow(state: FlowState) -> str:
    """Returns the legal next states of a state, as a clause."""
    legal = NEXT.get(state, "active, over a promoted reverse flow (repl failback) or with restart_from")
    return f"from {state.value} a flow becomes {legal}"


def _way_out(before: FlowState, flow: Flow) -> str:
    """Returns the hint for a flow that ended. From a running state every transition is legal."""
    stay = f"write state: {before.value} (if somebody did that and this file is older, bring it up to date)"
    back = (
        "from there a flow becomes active again over a promoted reverse flow"
        f" (repl failback {flow.source_cluster}, then --switch) or with a new restart_from"
    )
    return f"{stay}; {back}" if flow.state in RUNNING else f"{stay}; {back} only"


def changes_of_silent_sources(
    desired: Desired, observed: Observed, changes: Sequence[Change]
) -> Iterator[Change]:
    """Yields what would change for flows whose source does not answer, for the guards alone.

    Nothing is planned for these flows, but their job gets the new spec. An out-of-date file is refused here
    too: otherwise it would undo a failover as soon as the source answers again.
    """
    unknown = {one.address for one in changes if one.action is Action.UNKNOWN}
    found = destination_jobs(observed)
    for job, destination in wanted_jobs(desired):
        for flow in job.spec.flows if job.spec is not None and destination in found else ():
            address = flow_address(flow.name)
            before = elsewhere(address, destination, desired.topology, found)
            held = next((one for one in (found[destination], *before) if one.flow_entry(flow.name)), None)
            known = (held or found[destination]).flow(flow.name, job.job.name)
            if address in unknown and known is not None:
                fields = changed_fields(flow_values(known[0]), flow_values(flow))
                action = Action.REPLACE if held in before else Action.UPDATE
                yield Change(address, action, "its source does not answer", fields)
