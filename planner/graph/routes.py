"""The flows of a topology as routes: what each takes, how it renames topics, and how it fails back."""

import re
from collections.abc import Collection, Iterable

from msgspec import Struct
from msgspec.structs import replace

from planner.model.topology import Flow, Selection, Topology
from runtime.contract.spec.jobspec import Route
from runtime.contract.spec.route import Router
from runtime.contract.spec.selection import (
    NamePatterns,
    SelectionResult,
    SelectionSpec,
    written_out,
)
from runtime.contract.spec.transform import QUARANTINE_PATTERN, QUARANTINE_SUFFIX


def router_of(topology: Topology) -> Router:
    """Returns a router over all flows of the topology."""
    return Router(route_of(flow, topology) for flow in topology.flows.values())


def route_of(flow: Flow, topology: Topology) -> Route:
    """Returns the flow's route. A reverse flow takes what its original copied and undoes its rename."""
    original = topology.flows.get(flow.reverse_of) if flow.reverse_of is not None else None
    hidden = _quarantines_at(flow, topology)
    if original is None:
        return Route(
            flow.name, flow.source_cluster, flow.destination_cluster, _rules(flow.topics, hidden), flow.rename
        )
    selection = SelectionSpec(flow.topics.include, flow.topics.exclude, default_exclude=False)
    return Route(
        flow.name,
        flow.source_cluster,
        flow.destination_cluster,
        selection,
        original.rename,
        undoes=_rules(original.topics, hidden),
        reverse_of=original.name,
    )


def _quarantines_at(flow: Flow, topology: Topology) -> tuple[str, ...]:
    """Returns what keeps a flow from copying quarantine topics: a pattern, or nothing where there are none.

    They are not data of the source. A flow that writes out the name of one takes it.
    """
    quarantining = flow.quarantines or any(
        other.quarantines and other.destination_cluster == flow.source_cluster
        for other in topology.flows.values()
    )
    named = any((written_out(entry) or "").endswith(QUARANTINE_SUFFIX) for entry in flow.topics.include)
    return (QUARANTINE_PATTERN,) if quarantining and not named else ()


def file_route(flow: Flow) -> Route:
    """Returns the route of a flow into or from an endpoint. One from files selects no topic."""
    return Route(flow.name, flow.source_cluster, flow.destination_cluster, _rules(flow.topics))


def opposite_of(flow: Flow, topology: Topology) -> Flow | None:
    """Returns the flow in the opposite direction: the reverse flow, or the flow that this one reverses."""
    if flow.reverse_of is not None:
        return topology.flows.get(flow.reverse_of)
    return next((other for other in topology.flows.values() if other.reverse_of == flow.name), None)


def reason_not_synced(flow: Flow, group: str) -> str:
    """Returns why the flow does not sync a group; "" if it does."""
    if not flow.groups.sync:
        return "groups.sync is off for this flow"
    match flow.groups.selector.answer(group):
        case SelectionResult.NAMED | SelectionResult.MATCHED:
            return ""
        case SelectionResult.DENIED:
            return "the default denials keep this group out of groups, unless its name is written out there"
        case SelectionResult.EXCLUDED:
            return "groups.exclude takes this group out"
        case _:
            return "groups.include does not match this group"


def _rules(selection: Selection, hidden: tuple[str, ...] = ()) -> SelectionSpec:
    return SelectionSpec(selection.include, (*selection.exclude, *hidden), selection.default_exclude)


class Failback(Struct, frozen=True):
    """A flow that ended, and its reverse flow (`back`) if one is declared.

    `exclude`: topics that other flows copy back already, by their names at the flow's destination; `covered`
    if these are all topics. `job`: the job that already copies into the cluster, if it has another name.
    """

    flow: Flow
    back: Flow | None = None
    exclude: tuple[str, ...] = ()
    covered: bool = False
    job: str = ""

    @property
    def name(self) -> str:
        return self.back.name if self.back is not None else f"{self.flow.name}-back"


def pending_failbacks(topology: Topology, cluster: str) -> list[Failback]:
    """Returns the flows out of a cluster that ended and have not failed back.

    A flow that came back over a promoted reverse flow is not among them.
    """
    jobs = {flow.job for flow in topology.flows.values() if flow.destination_cluster == cluster}
    job = min(jobs) if jobs and cluster not in jobs else ""
    return [
        Failback(flow, opposite_of(flow, topology), job=job)
        for _, flow in sorted(topology.flows.items())
        if flow.source_cluster == cluster
        and not flow.runs
        and not (flow.reverse_of is not None and flow.state == "promoted")
    ]


def resumed_failbacks(topology: Topology, cluster: str) -> list[Failback]:
    """Returns the flows out of a cluster that run again beside their reverse flow.

    Such a pair may be left over from a switch that was interrupted.
    """
    return [
        Failback(flow, back)
        for _, flow in sorted(topology.flows.items())
        if flow.source_cluster == cluster
        and flow.runs
        and (back := opposite_of(flow, topology)) is not None
        and back.reverse_of == flow.name
    ]


def without_covered(
    failback: Failback, topology: Topology, source_topics: Iterable[str], destination_topics: Iterable[str]
) -> Failback:
    """Returns the failback without the topics that other flows copy back already.

    `source_topics` and `destination_topics` are the topics at both sides of the flow. Two flows must not copy
    the same topic back. Where the other flows' patterns can be excluded as they are, topics that appear later
    are excluded too.
    """
    router = router_of(topology)
    route = router.routes[failback.flow.name]
    opposite = failback.flow.destination_cluster, failback.flow.source_cluster
    others = [
        other for other in topology.flows.values() if other.ends == opposite and other.reverse_of is None
    ]
    topics = {
        *source_topics,
        *(topic for name in destination_topics if (topic := route.source_topic(name)) is not None),
    }
    named = {
        name: topic
        for topic in topics
        if (name := router.destination_topic(failback.flow.name, topic)) is not None
    }
    covered = {
        name
        for name, topic in named.items()
        if any(router.destination_topic(other.name, name) == topic for other in others)
    }
    if not covered:
        return failback
    rules = tuple(dict.fromkeys(rule for other in others for rule in other.topics.include))
    left = named.keys() - covered
    whole = covered <= _matched(rules, covered) and not _matched(rules, left)
    exclude = rules if whole else tuple(re.escape(name) for name in sorted(covered))
    return replace(failback, exclude=exclude, covered=not left)


def _matched(rules: Collection[str], names: Iterable[str]) -> set[str]:
    selected = NamePatterns(rules)
    return {name for name in names if selected.match(name)}
