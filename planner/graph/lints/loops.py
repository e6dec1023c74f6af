"""Records that come home or come twice, and topics that are one at several clusters."""

from collections import defaultdict
from collections.abc import Iterator, Sequence

from planner.graph.merges import TopicMerge
from planner.graph.messages import counted, of_flow
from planner.graph.provenance import ReplicationLoop
from planner.graph.replication_graph import ReplicationGraph
from planner.model.diagnostic import Diagnostic, error, note, warning
from planner.model.topology import Provenance


def loops(world: ReplicationGraph, rounds: Sequence[ReplicationLoop]) -> Iterator[Diagnostic]:
    for names, found in _by_flows(rounds):
        flows = [world.flow(name) for name in names]
        what = f"{_of(world, found)} can come home over {', '.join(f'flow.{name}' for name in names)}"
        modes = {flow.provenance for flow in flows}
        longer = any(one.longer for one in found)
        for flow in flows:
            if flow.provenance is Provenance.OFF:
                way_out = (
                    f"set provenance of flow.{flow.name} to auto, or give its topics other names: rename"
                )
                summary = f"{what}, and provenance is off: copied records would be copied back, without end"
                code = "loop-without-provenance"
            elif flow.provenance is Provenance.BATCH and longer:
                way_out = f"set provenance of flow.{flow.name} to auto, which comes to headers here"
                summary = f"{what}, which is longer than there and back: batch provenance cannot cut it"
                code = "loop-too-long-for-batch"
            elif flow.provenance is Provenance.BATCH and Provenance.HEADERS in modes:
                way_out = "set them all to auto, or all to headers"
                summary = (
                    f"{what}, some with batch and some with headers: neither would know the other's records"
                )
                code = "loop-with-mixed-provenance"
            else:
                continue
            yield of_flow(error, flow, summary, way_out, code)


def identity_merges(world: ReplicationGraph, rounds: Sequence[ReplicationLoop]) -> Iterator[Diagnostic]:
    for names, found in _by_flows(rounds):
        flows = [world.flow(name) for name in names]
        synced = [flow for flow in flows if flow.groups.sync]
        clusters = sorted({node.cluster for one in found for node in one.nodes})
        what = f"held, and perhaps written, at {' and '.join(clusters)} alike (an identity merge): "
        if synced:
            follows = (
                "the offsets of groups have no exact translation there: the smallest over the origins is"
                " used, so a group that moves reads some records again and skips none; for exact offsets"
                ' rename: "{source}.{topic}"'
            )
            yield of_flow(warning, synced[0], what + _of(world, found), follows, "identity-merge")
        else:
            follows = "settings are not mirrored between topics that are one; declare them at each cluster"
            yield of_flow(note, flows[0], what + _of(world, found), follows, "identity-merge")


def two_ways(world: ReplicationGraph, found: Sequence[TopicMerge]) -> Iterator[Diagnostic]:
    pairs: defaultdict[tuple[str, str], list[TopicMerge]] = defaultdict(list)
    for merge in found:
        pairs[merge.flows].append(merge)
    for (one, other), merges in sorted(pairs.items()):
        flow = world.flow(one)
        real = [merge.node.topic for merge in merges if merge.node not in world.imagined.nodes]
        topics = counted(real) if real else "a topic that both take"
        yield of_flow(
            warning,
            flow,
            f"records of {topics} reach {merges[0].node.cluster} over flow.{one} and over flow.{other}: the"
            " same record would be there twice",
            "exclude the topic in one of the flows, or leave out the flow that takes the longer way",
            "two-ways",
        )


def _by_flows(rounds: Sequence[ReplicationLoop]) -> list[tuple[list[str], list[ReplicationLoop]]]:
    found: defaultdict[tuple[str, ...], list[ReplicationLoop]] = defaultdict(list)
    for one in rounds:
        found[tuple(sorted(one.flows))].append(one)
    return [(list(names), found[names]) for names in sorted(found)]


def _of(world: ReplicationGraph, found: Sequence[ReplicationLoop]) -> str:
    """The topics; where only a regex is known, what it stands for."""
    real = {node.topic for one in found for node in one.nodes if node not in world.imagined.nodes}
    return counted(real) if real else "a topic that all of them take"
