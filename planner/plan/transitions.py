"""Which states of a flow may follow which. A failover is never undone by a file that is out of date."""

from collections.abc import Iterable, Iterator

from planner.model.address import Kind
from planner.model.change import Action, Change
from planner.model.diagnostic import Diagnostic, ExitCode, error
from planner.model.topology import Flow, FlowState, Topology

RUNNING = (FlowState.ACTIVE, FlowState.PAUSED)
NEXT = {
    FlowState.ACTIVE: "paused, promoted or failed_over",
    FlowState.PAUSED: "active, promoted or failed_over",
}


def transitions(changes: Iterable[Change], topology: Topology) -> Iterator[Diagnostic]:
    for change in changes:
        flow = topology.flows.get(change.address.name) if change.address.kind is Kind.FLOW else None
        before = _before(change)
        if flow is not None and before is not None and not _legal(before, flow, topology):
            yield error(
                f"was {before.value}, and can't become {flow.state.value}",
                _way_out(before, flow),
                address=str(change.address),
                source=flow.source,
                code="transition",
                exit=ExitCode.REFUSED,
            )


def _before(change: Change) -> FlowState | None:
    if change.action is not Action.UPDATE:
        return None
    return next((FlowState(str(one.old)) for one in change.fields if one.path == ("state",)), None)


def _legal(before: FlowState, flow: Flow, topology: Topology) -> bool:
    if before in RUNNING:
        return True
    return may_become_active(flow, topology)


def may_become_active(flow: Flow, topology: Topology) -> bool:
    """Again, after it, or topics of it, were promoted."""
    return flow.state is FlowState.ACTIVE and (
        flow.restart_from is not None or _came_home(flow.name, topology)
    )


def _came_home(flow: str, topology: Topology) -> bool:
    """Its reverse flow was promoted: everything that the other side wrote is home."""
    return any(one.reverse_of == flow and one.state is FlowState.PROMOTED for one in topology.flows.values())


def may_follow(state: FlowState) -> str:
    """The legal ways on from a state, for people."""
    legal = NEXT.get(state, "active, over a promoted way back (reverse_of) or with restart_from")
    return f"from {state.value} a flow becomes {legal}"


def _way_out(before: FlowState, flow: Flow) -> str:
    """From a running state everything is legal, so this speaks of flows that ended."""
    stay = f"write state: {before.value} (if somebody did that and this file is older, bring it up to date)"
    back = "from there a flow becomes active again over a promoted way back (reverse_of) or with restart_from"
    return f"{stay}; {back}" if flow.state in RUNNING else f"{stay}; {back} only"
