"""Topics that more than one copy ends in: a collision, one record over two ways, or a merge that is meant."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations

from planner.graph.provenance import ReplicationLoop
from planner.graph.topic_graph import CopyEdge, TopicNode


@dataclass(frozen=True, slots=True)
class TopicMerge:
    """Two copies that end in one topic."""

    node: TopicNode
    one: CopyEdge
    other: CopyEdge

    @property
    def flows(self) -> tuple[str, str]:
        return self.one.flow, self.other.flow


@dataclass(frozen=True, slots=True)
class TopicMerges:
    """`collisions`: different records under one name. `two_ways`: the same record, twice."""

    collisions: tuple[TopicMerge, ...]
    duplicate_paths: tuple[TopicMerge, ...]
    native_only: frozenset[str]  # flows that leave to the direct flows what those bring


def merges_of(
    edges: Sequence[CopyEdge], loops: Sequence[ReplicationLoop], unfiltered: frozenset[str]
) -> TopicMerges:
    """`unfiltered` flows cannot tell a native record from a copied one: their provenance is off by wish."""
    into: dict[TopicNode, list[CopyEdge]] = {}
    for edge in edges:
        into.setdefault(edge.destination, []).append(edge)
    crowded = {node: found for node, found in into.items() if len(found) > 1}
    if not crowded:
        return TopicMerges((), (), frozenset())
    place = {node: at for at, one in enumerate(loops) for node in one.nodes}
    collisions, twice = [], []
    for node, found in sorted(crowded.items()):
        ancestors = {edge.source: _ancestors(edge.source, node, into) for edge in found}
        for one, other in combinations(found, 2):
            merge = TopicMerge(node, one, other)
            if one.source == other.source:
                collisions.append(merge)
            elif ancestors[one.source] & ancestors[other.source]:
                twice.append(merge)
            elif not _in_one_loop(place, one.source, other.source, node):
                collisions.append(merge)
    native = _native_only(edges, into, twice) - unfiltered
    left = [merge for merge in twice if not set(merge.flows) <= native]
    return TopicMerges(tuple(collisions), tuple(left), native)


def _in_one_loop(place: Mapping[TopicNode, int], *nodes: TopicNode) -> bool:
    """Whether all of them come round to each other: one topic, held at several clusters."""
    loops = {place.get(node) for node in nodes}
    return len(loops) == 1 and None not in loops


def _ancestors(
    node: TopicNode, without: TopicNode, into: Mapping[TopicNode, Sequence[CopyEdge]]
) -> frozenset[TopicNode]:
    """The node itself, and all that reaches it on ways that avoid `without`."""
    seen = {node}
    waiting = [node]
    while waiting:
        for edge in into.get(waiting.pop(), ()):
            if edge.source not in seen and edge.source != without:
                seen.add(edge.source)
                waiting.append(edge.source)
    return frozenset(seen)


def _native_only(
    edges: Sequence[CopyEdge], into: Mapping[TopicNode, Sequence[CopyEdge]], twice: Sequence[TopicMerge]
) -> frozenset[str]:
    """Flows into a topic that a record reaches over two ways, where a direct flow brings every record.

    Such a flow may copy only what was born at its source. It may not if any topic of it has to pass on
    records that no direct flow brings.
    """
    suspects = {name for merge in twice for name in merge.flows}
    passing_on = set()
    for edge in edges:
        if edge.flow not in suspects or edge.flow in passing_on:
            continue
        direct = {one.source for one in into[edge.destination]}
        if not _ancestors(edge.source, edge.destination, into) <= direct:
            passing_on.add(edge.flow)
    return frozenset(suspects - passing_on)
