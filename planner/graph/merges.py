"""Topics that more than one copy ends in: a collision, one record over two paths, or an intended merge."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations

from planner.graph.provenance import ReplicationLoop
from planner.graph.topic_graph import CopyEdge, TopicNode


@dataclass(frozen=True, slots=True)
class TopicMerge:
    """Two copies that end in the same topic."""

    node: TopicNode
    one: CopyEdge
    other: CopyEdge

    @property
    def flows(self) -> tuple[str, str]:
        return self.one.flow, self.other.flow


@dataclass(frozen=True, slots=True)
class TopicMerges:
    """`collisions`: different records under one name. `duplicate_paths`: the same record twice."""

    collisions: tuple[TopicMerge, ...]
    duplicate_paths: tuple[TopicMerge, ...]
    native_only: frozenset[str]  # flows that copy no record which a direct flow brings


def merges_of(
    edges: Sequence[CopyEdge], loops: Sequence[ReplicationLoop], unfiltered: frozenset[str]
) -> TopicMerges:
    """Returns the merges of all topics. `unfiltered` flows have provenance off, so they can't
    filter copies.
    """
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
    """Returns whether all topics are in the same loop: one topic that several clusters hold."""
    loops = {place.get(node) for node in nodes}
    return len(loops) == 1 and None not in loops


def _ancestors(
    node: TopicNode, without: TopicNode, into: Mapping[TopicNode, Sequence[CopyEdge]]
) -> frozenset[TopicNode]:
    """Returns the topic itself and every topic that reaches it on a path that avoids `without`."""
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
    """Returns the flows that may copy only records produced at their own source.

    Such a flow writes a topic that a record reaches over two paths, where a direct flow brings every record.
    It is not such a flow if one of its topics has to pass on records that no direct flow brings.
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
