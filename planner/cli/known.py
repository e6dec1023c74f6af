"""What a command line names, looked up in the topology. Failure tells the nearest name, and those it has."""

from collections.abc import Mapping
from typing import TypeVar

from planner.config.hints import nearest
from planner.graph.messages import few
from planner.model.diagnostic import Failure, error
from planner.model.topology import Cluster, Flow, Topology

SHOWN = 20
Declared = TypeVar("Declared")


def flow_of(topology: Topology, name: str) -> Flow:
    return _known("flow", name, topology.flows)


def cluster_of(topology: Topology, name: str) -> Cluster:
    return _known("cluster", name, topology.clusters)


def _known(kind: str, name: str, declared: Mapping[str, Declared]) -> Declared:
    if name in declared:
        return declared[name]
    near = nearest(name, declared)
    mend = f"did you mean {near}? " if near else ""
    there = few(sorted(declared), SHOWN) or "none"
    raise Failure(error(f"there is no {kind} {name} in this topology", f"{mend}its {kind}s: {there}"))
