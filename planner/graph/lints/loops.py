"""Topics that more than one copy ends in, and lints of loops: records that are copied back or copied twice.

Where copies meet there is a collision, one record over two paths, or an intended merge: topics that several
clusters hold as one.
"""

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from itertools import combinations

from msgspec import Struct

from planner.graph.messages import counted, flow_diagnostic
from planner.graph.replication_graph import CopyEdge, ReplicationGraph, ReplicationLoop, TopicNode
from planner.model.diagnostic import Diagnostic, error, note, warning
from planner.model.topology import Provenance


class TopicMerge(Struct, frozen=True):
    """Two copies that end in the same topic."""

    node: TopicNode
    one: CopyEdge
    other: CopyEdge

    @property
    def flows(self) -> tuple[str, str]:
        return self.one.flow, self.other.flow


class TopicMerges(Struct, frozen=True):
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


def provenance_of_loops(graph: ReplicationGraph, loops: Sequence[ReplicationLoop]) -> Iterator[Diagnostic]:
    """Yields an error for each flow whose provenance can't prevent a loop."""
    for names, found in _by_flows(loops):
        flows = [graph.flow(name) for name in names]
        what = f"{_of(graph, found)} can come back over {', '.join(f'flow.{name}' for name in names)}"
        modes = {flow.provenance for flow in flows}
        longer = any(one.longer for one in found)
        for flow in flows:
            if flow.provenance is Provenance.OFF:
                way_out = (
                    f"set provenance of flow.{flow.name} to auto, or give its topics other names: rename"
                )
                summary = f"{what}, and provenance is off: records would be copied in an endless loop"
                code = "loop-without-provenance"
            elif flow.provenance is Provenance.BATCH and longer:
                way_out = f"set provenance of flow.{flow.name} to auto, which means headers here"
                summary = f"{what}, which goes over more than two clusters: batch provenance can't prevent it"
                code = "loop-too-long-for-batch"
            elif flow.provenance is Provenance.BATCH and Provenance.HEADERS in modes:
                way_out = "set them all to auto, or all to headers"
                summary = (
                    f"{what}, some with batch and some with headers: neither would recognise the other's"
                    " records"
                )
                code = "loop-with-mixed-provenance"
            else:
                continue
            yield flow_diagnostic(error, flow, summary, way_out, code)


def identity_merges(graph: ReplicationGraph, loops: Sequence[ReplicationLoop]) -> Iterator[Diagnostic]:
    """Yields a message for topics that have one name at several clusters and are written at each."""
    for names, found in _by_flows(loops):
        flows = [graph.flow(name) for name in names]
        synced = [flow for flow in flows if flow.groups.sync]
        clusters = sorted({node.cluster for one in found for node in one.nodes})
        what = f"held, and perhaps written, at both {' and '.join(clusters)} (an identity merge): "
        if synced:
            follows = (
                "group offsets can't be translated exactly there: the smallest offset over the origins is"
                " used, so a group that moves reads some records again and skips none; for exact offsets, use"
                ' rename: "{source}.{topic}"'
            )
            yield flow_diagnostic(warning, synced[0], what + _of(graph, found), follows, "identity-merge")
        else:
            follows = "settings are not mirrored between these topics; declare them at each cluster"
            yield flow_diagnostic(note, flows[0], what + _of(graph, found), follows, "identity-merge")


def duplicate_paths(graph: ReplicationGraph, found: Sequence[TopicMerge]) -> Iterator[Diagnostic]:
    """Yields a warning where the same record reaches a topic over two flows."""
    pairs: defaultdict[tuple[str, str], list[TopicMerge]] = defaultdict(list)
    for merge in found:
        pairs[merge.flows].append(merge)
    for (one, other), merges in sorted(pairs.items()):
        flow = graph.flow(one)
        existing = [merge.node.topic for merge in merges if merge.node not in graph.sampled.nodes]
        topics = counted(existing) if existing else "a topic that both take"
        yield flow_diagnostic(
            warning,
            flow,
            f"records of {topics} reach {merges[0].node.cluster} over flow.{one} and over flow.{other}: the"
            " same record would be copied twice",
            "exclude the topic in one of the flows, or remove the flow with the longer path",
            "two-ways",
        )


def _by_flows(loops: Sequence[ReplicationLoop]) -> list[tuple[list[str], list[ReplicationLoop]]]:
    found: defaultdict[tuple[str, ...], list[ReplicationLoop]] = defaultdict(list)
    for one in loops:
        found[tuple(sorted(one.flows))].append(one)
    return [(list(names), found[names]) for names in sorted(found)]


def _of(graph: ReplicationGraph, found: Sequence[ReplicationLoop]) -> str:
    """Returns the topics of the loops; if only a regex is known, a phrase for them."""
    existing = {node.topic for one in found for node in one.nodes if node not in graph.sampled.nodes}
    return counted(existing) if existing else "a topic that all of them take"
