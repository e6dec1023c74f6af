"""The flows of a topology as routes: which topics each flow takes, and how it renames them."""

from planner.model.topology import RUNNING, Flow, Selection, Topology
from runtime.contract.spec.route import Route, Router
from runtime.contract.spec.selection import (
    GROUP_DENIALS,
    NamePatterns,
    SelectionResult,
    SelectionRules,
    Selector,
)


def router_of(topology: Topology) -> Router:
    """Returns a router over all flows of the topology."""
    return Router(route_of(flow, topology) for flow in topology.flows.values())


def route_of(flow: Flow, topology: Topology) -> Route:
    """Returns the flow's route. A reverse flow takes what its original copied and undoes its rename."""
    original = topology.flows.get(flow.reverse_of) if flow.reverse_of is not None else None
    if original is None:
        return Route(
            flow.name, flow.source_cluster, flow.destination_cluster, _rules(flow.topics), flow.rename
        )
    own = SelectionRules(flow.topics.include, flow.topics.exclude, default_exclude=False)
    return Route(
        flow.name,
        flow.source_cluster,
        flow.destination_cluster,
        own,
        original.rename,
        undoes=_rules(original.topics),
    )


def opposite_of(flow: Flow, topology: Topology) -> Flow | None:
    """Returns the flow in the opposite direction: the reverse flow, or the flow that this one reverses."""
    if flow.reverse_of is not None:
        return topology.flows.get(flow.reverse_of)
    return next((one for one in topology.flows.values() if one.reverse_of == flow.name), None)


def group_selector(flow: Flow) -> Selector:
    """Returns the rules by which the flow selects consumer groups."""
    select = flow.groups.select
    return Selector(SelectionRules(select.include, select.exclude, select.default_exclude, GROUP_DENIALS))


def reason_not_synced(flow: Flow, group: str) -> str:
    """Returns why the flow does not sync a group; "" if it does."""
    if not flow.groups.sync:
        return "groups.sync is off for this flow"
    match group_selector(flow).answer(group):
        case SelectionResult.NAMED | SelectionResult.MATCHED:
            return ""
        case SelectionResult.DENIED:
            return "the default denials keep this group out of groups, unless its name is written out there"
        case SelectionResult.EXCLUDED:
            return "groups.exclude takes this group out"
        case SelectionResult.OUTSIDE:
            return "groups.include does not match this group"


def _rules(selection: Selection) -> SelectionRules:
    return SelectionRules(selection.include, selection.exclude, selection.default_exclude)


class CopiedTopics:
    """What the flows copy now, without promoted and failed-over flows and topics."""

    def __init__(self, topology: Topology) -> None:
        self._promoted = {
            flow.name: NamePatterns(flow.promoted) for flow in topology.flows.values() if flow.promoted
        }
        self._running = {flow.name for flow in topology.flows.values() if flow.state in RUNNING}

    def is_running(self, flow: str) -> bool:
        """Returns whether the flow is active or paused."""
        return flow in self._running

    def copies(self, flow: str, topic: str) -> bool:
        """Returns whether the flow runs and the topic was not promoted."""
        return flow in self._running and not self.is_promoted(flow, topic)

    def is_promoted(self, flow: str, topic: str) -> bool:
        """Returns whether the topic was promoted on its own."""
        return flow in self._promoted and self._promoted[flow].match(topic)
