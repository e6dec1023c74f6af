"""One cluster of a topology → what `read` and `clients` ask of it, and how its failures are told."""

import difflib
from collections.abc import Iterator
from contextlib import contextmanager

from planner.cli.status_asking import reaches_of
from planner.model.diagnostic import ExitCode, Failure, error
from planner.model.topology import Cluster, Topology
from runtime.audit.ledger import AuditFailure
from runtime.audit.records import ReadAsked, WrongCluster


def cluster_of(topology: Topology, name: str) -> Cluster:
    """The declared cluster. Failure names the nearest, and those there are."""
    if name in topology.clusters:
        return topology.clusters[name]
    near = difflib.get_close_matches(name, topology.clusters, 1)
    known = ", ".join(sorted(topology.clusters)) or "none"
    mend = f'did you mean "{near[0]}"? ' if near else ""
    raise Failure(error(f"no cluster is called {name!r} in {topology.name}", f"{mend}its clusters: {known}"))


def read_asked(topology: Topology, name: str) -> ReadAsked:
    cluster = cluster_of(topology, name)
    flows = {
        flow.name: flow.source_cluster for flow in topology.flows.values() if flow.destination_cluster == name
    }
    pinned = {one.id: one.name for one in topology.clusters.values() if one.id is not None}
    return ReadAsked(reaches_of([cluster])[name], flows, pinned, cluster.id)


@contextmanager
def told() -> Iterator[None]:
    """What can't be read is an error that says where and why; another than the pinned cluster is refused."""
    try:
        yield
    except AuditFailure as failure:
        refused = isinstance(failure, WrongCluster)
        way_out = "mend its id or its bootstrap" if refused else ""
        code = ExitCode.REFUSED if refused else ExitCode.ERROR
        raise Failure(error(str(failure), way_out, exit=code)) from None
