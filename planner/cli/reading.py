"""One cluster of a topology → what `read` and `clients` ask of it."""

from collections.abc import Iterator
from contextlib import suppress

from planner.cli.known import cluster_of
from planner.cli.status_asking import reaches_of
from planner.model.diagnostic import Failure
from planner.model.topology import Topology
from runtime.audit.read.record_tracer import KnownCluster
from runtime.audit.read.records import ReadRecordsRequest


def read_asked(topology: Topology, name: str) -> ReadRecordsRequest:
    cluster = cluster_of(topology, name)
    pinned = {one.id: one.name for one in topology.clusters.values() if one.id is not None}
    others = dict(_others(topology, name))
    return ReadRecordsRequest(reaches_of([cluster])[name], _into(topology, name), pinned, others)


def _into(topology: Topology, name: str) -> dict[str, str]:
    """The flows into a cluster, and what each calls its source."""
    return {
        flow.name: flow.source_cluster for flow in topology.flows.values() if flow.destination_cluster == name
    }


def _others(topology: Topology, name: str) -> Iterator[tuple[str, KnownCluster]]:
    """Clusters that records may have come through. One whose secrets can't be had here is left out: it only
    adds to the answer.
    """
    for other in topology.clusters.values():
        if other.name != name:
            with suppress(Failure):
                yield other.name, KnownCluster(reaches_of([other])[other.name], _into(topology, other.name))
