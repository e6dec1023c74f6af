"""Topology → what the live clusters hold. Names are read first, then the details that expanding asks for."""

from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager

from planner.diff.record import flow_of
from planner.graph import ClusterReadRequest, read_request_of
from planner.graph.routes import opposite_of
from planner.model.address import Kind
from planner.model.observed import (
    ClusterDetailsRequest,
    Observed,
    ObservedCluster,
    RegistryEntry,
    Request,
    TopicConfigsRequest,
)
from planner.model.topology import Cluster, Topology
from planner.observe import Observer, ProgressCallback, named_topics
from planner.observe.imported import import_request
from planner.state.registry import read_registry
from planner.workflows.clusters import GIVEN_UP_S, endpoints_of
from planner.workflows.interaction import (
    ProgressHandler,
    ReadingEnded,
    ReadingProgressed,
    ReadingStarted,
    silent,
)

_NOTHING = ClusterReadRequest()


def observe(
    topology: Topology,
    timeout_ms: int,
    given_up: str | None = None,
    progress: ProgressHandler = silent,
) -> Observed:
    """Reads every cluster. One that is silent for `timeout_ms` is Unreachable, `given_up` after 3 s.

    Failure: a secret is missing, or a cluster is not the pinned one.
    """
    endpoints = endpoints_of(topology.clusters.values())
    with (
        _reading(progress) as reading,
        Observer(
            topology.clusters,
            endpoints,
            timeout_s=timeout_ms / 1000,
            shorter_timeouts_s={given_up: GIVEN_UP_S} if given_up is not None else {},
            progress=reading,
            read_registry=read_registry,
            jobs_of=topology.name,
            flows=_flows_into(topology),
            failing_back=[name for name, flow in topology.flows.items() if opposite_of(flow, topology)],
        ) as observer,
    ):
        observed = observer.names(named_topics(topology))
        return observer.details(observed, request_for(topology, observed))


def _flows_into(topology: Topology) -> dict[str, set[str]]:
    found: dict[str, set[str]] = {}
    for flow in topology.flows.values():
        found.setdefault(flow.destination_cluster, set()).add(flow.name)
    return found


@contextmanager
def _reading(progress: ProgressHandler) -> Iterator[ProgressCallback]:
    """Reports the start and the end of a reading, and in between how far each cluster is."""
    progress(ReadingStarted())
    try:
        yield lambda cluster, what, done, total: progress(ReadingProgressed(cluster, what, done, total))
    finally:
        progress(ReadingEnded())


def observe_for_import(
    clusters: Mapping[str, Cluster],
    pattern: str | None,
    timeout_ms: int,
    progress: ProgressHandler = silent,
) -> Observed:
    """Reads what is set explicitly on the topics that match, and the ACLs, whatever topology owns them."""
    endpoints = endpoints_of(clusters.values())
    with (
        _reading(progress) as reading,
        Observer(clusters, endpoints, timeout_s=timeout_ms / 1000, progress=reading) as observer,
    ):
        observed = observer.names()
        request = {
            name: import_request(cluster, pattern)
            for name, cluster in observed.clusters.items()
            if isinstance(cluster, ObservedCluster)
        }
        return observer.details(observed, request)


def request_for(topology: Topology, observed: Observed) -> Request:
    """Returns what expanding asks for, and what is needed of owned objects that leave the topology."""
    clusters = {name: one for name, one in observed.clusters.items() if isinstance(one, ObservedCluster)}
    names = {name: cluster.topics.keys() | cluster.hidden for name, cluster in clusters.items()}
    wanted = read_request_of(topology).details(names)
    return {
        name: _wanted(
            wanted.get(name, _NOTHING),
            _own(cluster, topology.name),
            {topic.name for topic in topology.topics if topic.cluster == name},
        )
        for name, cluster in clusters.items()
    }


def _own(cluster: ObservedCluster, topology: str) -> list[RegistryEntry]:
    return [entry for entry in cluster.owned if entry.topology == topology]


def _wanted(
    request: ClusterReadRequest, own: list[RegistryEntry], declared: Collection[str]
) -> ClusterDetailsRequest:
    some = TopicConfigsRequest(request.keys, explicit=True)
    every = TopicConfigsRequest(request.keys, explicit=True, effective=True)
    topics = [entry for entry in own if entry.address.kind is Kind.TOPIC]
    owned = {entry.address.name for entry in topics}
    # A topic that is not declared any more leaves the topology, even if a flow still reads it.
    leaving = frozenset(
        entry.address.name
        for entry in topics
        if entry.address.name not in (request.topics if flow_of(entry) is not None else declared)
    )
    configs: Mapping[str, TopicConfigsRequest] = {
        topic: every if topic in request.every_key else some for topic in request.topics | owned
    }
    return ClusterDetailsRequest(
        configs=configs,
        acls=request.acls or any(entry.address.kind is Kind.ACL for entry in own),
        sizes=leaving,  # a delete shows how many bytes and which readers are lost
        groups=request.groups,
        every_group=bool(leaving),
        denied_groups=request.denied_groups,
    )
