"""Topics that more than one copy ends in, and lints of loops: records that are copied back or copied twice.

Where copies meet there is a collision, one record over two paths, or an intended merge: topics that several
clusters hold as one.
"""

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from itertools import combinations

from msgspec import Struct

from planner.graph.messages import counted, flow_diagnostic
from planner.graph.replication_graph import (
    CopyEdge,
    ReplicationGraph,
    ReplicationLoop,
    TopicNode,
    grouped,
)
from planner.model.diagnostic import Diagnostic, error, note, warning


class TopicMerge(Struct, frozen=True):
    """Two copies that end in the same topic: the same record `twice`, or different records under one name."""

    node: TopicNode
    first: CopyEdge
    second: CopyEdge
    twice: bool

    @property
    def flows(self) -> tuple[str, str]:
        return self.first.flow, self.second.flow


def merges_of(
    edges: Sequence[CopyEdge], loops: Sequence[ReplicationLoop], unfiltered: frozenset[str]
) -> tuple[list[TopicMerge], frozenset[str]]:
    """Returns the merges of all topics, and the flows that copy no record which a direct flow brings.

    `unfiltered` flows have provenance off, so they can't filter copies. What the other flows filter is no
    merge.
    """
    into = grouped(edges, lambda edge: edge.destination)
    crowded = {node: copies for node, copies in into.items() if len(copies) > 1}
    if not crowded:
        return [], frozenset()
    place = {node: at for at, loop in enumerate(loops) for node in loop.nodes}
    merges: list[TopicMerge] = []
    for node, copies in sorted(crowded.items()):
        ancestors = {edge.source: _ancestors(edge.source, node, into) for edge in copies}
        for first, second in combinations(copies, 2):
            # The loop that each topic is in: all in the same one are one topic that several clusters hold.
            loops_around = {place.get(topic) for topic in (first.source, second.source, node)}
            one_source = first.source == second.source
            twice = not one_source and bool(ancestors[first.source] & ancestors[second.source])
            if one_source or twice or len(loops_around) > 1 or None in loops_around:
                merges.append(TopicMerge(node, first, second, twice))
    native = _native_only(edges, into, [merge for merge in merges if merge.twice]) - unfiltered
    return [merge for merge in merges if not (merge.twice and set(merge.flows) <= native)], native


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
        direct = {copy.source for copy in into[edge.destination]}
        if not _ancestors(edge.source, edge.destination, into) <= direct:
            passing_on.add(edge.flow)
    return frozenset(suspects - passing_on)


def provenance_of_loops(graph: ReplicationGraph, loops: Sequence[ReplicationLoop]) -> Iterator[Diagnostic]:
    """Yields an error for each flow whose provenance can't prevent a loop."""
    for names, of_flows in _by_flows(loops):
        flows = [graph.flow(name) for name in names]
        what = f"{_of(graph, of_flows)} can come back over {', '.join(f'flow.{name}' for name in names)}"
        modes = {flow.provenance for flow in flows}
        longer = any(loop.longer for loop in of_flows)
        for flow in flows:
            if flow.provenance == "off":
                hint = f"set provenance of flow.{flow.name} to auto, or give its topics other names: rename"
                summary = f"{what}, and provenance is off: records would be copied in an endless loop"
                code = "loop-without-provenance"
            elif flow.provenance == "batch" and longer:
                hint = f"set provenance of flow.{flow.name} to auto, which means headers here"
                summary = f"{what}, which goes over more than two clusters: batch provenance can't prevent it"
                code = "loop-too-long-for-batch"
            elif flow.provenance == "batch" and "headers" in modes:
                hint = "set them all to auto, or all to headers"
                summary = (
                    f"{what}, some with batch and some with headers: neither would recognise the other's"
                    " records"
                )
                code = "loop-with-mixed-provenance"
            else:
                continue
            yield flow_diagnostic(error, flow, summary, hint, code)


def identity_merges(graph: ReplicationGraph, loops: Sequence[ReplicationLoop]) -> Iterator[Diagnostic]:
    """Yields a message for topics that have one name at several clusters and are written at each."""
    for names, of_flows in _by_flows(loops):
        flows = [graph.flow(name) for name in names]
        synced = [flow for flow in flows if flow.groups.sync]
        clusters = sorted({node.cluster for loop in of_flows for node in loop.nodes})
        what = f"held, and perhaps written, at both {' and '.join(clusters)} (an identity merge): "
        if synced:
            follows = (
                "group offsets can't be translated exactly there: the smallest offset over the origins is"
                " used, so a group that moves reads some records again and skips none; for exact offsets, use"
                ' rename: "{source}.{topic}"'
            )
            yield flow_diagnostic(warning, synced[0], what + _of(graph, of_flows), follows, "identity-merge")
        else:
            follows = "settings are not mirrored between these topics; declare them at each cluster"
            yield flow_diagnostic(note, flows[0], what + _of(graph, of_flows), follows, "identity-merge")


def duplicate_paths(graph: ReplicationGraph, merges: Sequence[TopicMerge]) -> Iterator[Diagnostic]:
    """Yields a warning where the same record reaches a topic over two flows."""
    pairs: defaultdict[tuple[str, str], list[TopicMerge]] = defaultdict(list)
    for merge in merges:
        pairs[merge.flows].append(merge)
    for (name, other), alike in sorted(pairs.items()):
        flow = graph.flow(name)
        existing = [merge.node.topic for merge in alike if merge.node not in graph.sampled.nodes]
        topics = counted(existing) if existing else "a topic that both take"
        yield flow_diagnostic(
            warning,
            flow,
            f"records of {topics} reach {alike[0].node.cluster} over flow.{name} and over flow.{other}: the"
            " same record would be copied twice",
            "exclude the topic in one of the flows, or remove the flow with the longer path",
            "two-ways",
        )


def _by_flows(loops: Sequence[ReplicationLoop]) -> list[tuple[list[str], list[ReplicationLoop]]]:
    by_flows: defaultdict[tuple[str, ...], list[ReplicationLoop]] = defaultdict(list)
    for loop in loops:
        by_flows[tuple(sorted(loop.flows))].append(loop)
    return [(list(names), by_flows[names]) for names in sorted(by_flows)]


def _of(graph: ReplicationGraph, loops: Sequence[ReplicationLoop]) -> str:
    """Returns the topics of the loops, or a phrase for them where no topic exists yet."""
    existing = {node.topic for loop in loops for node in loop.nodes if node not in graph.sampled.nodes}
    return counted(existing) if existing else "a topic that all of them take"
