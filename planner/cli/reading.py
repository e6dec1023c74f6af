"""One cluster of a topology → what `read` and `clients` ask of it."""

from planner.cli.known import cluster_of
from planner.cli.status_asking import reaches_of
from planner.model.topology import Topology
from runtime.audit.records import ReadAsked


def read_asked(topology: Topology, name: str) -> ReadAsked:
    cluster = cluster_of(topology, name)
    flows = {
        flow.name: flow.source_cluster for flow in topology.flows.values() if flow.destination_cluster == name
    }
    pinned = {one.id: one.name for one in topology.clusters.values() if one.id is not None}
    return ReadAsked(reaches_of([cluster])[name], flows, pinned)
