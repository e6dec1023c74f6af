"""Reads all clusters at once: names first, then the details that a plan needs. Read-only.

observed = run(observe(topology.clusters, endpoints, wanted, named=named_topics(topology)))
"""

from collections import defaultdict
from collections.abc import Awaitable, Callable, Collection, Mapping
from typing import TypeVar

from planner.kafka.client import for_each
from planner.kafka.failures import Closed, NoAnswer, NoConnection
from planner.model.diagnostic import Diagnostic, ExitCode, Failure, error, warning
from planner.model.observed import Observed, Request, Unreachable
from planner.model.topology import Cluster, Topology
from planner.observe.cluster import ClusterReader, ReadOptions
from runtime.contract.client.endpoint import ClusterEndpoint
from runtime.contract.spec.selection import NamePatterns

Result = TypeVar("Result")


Wanted = Callable[[Observed], Request]
DEFAULT_OPTIONS = ReadOptions()


def names_only(_observed: Observed) -> Request:
    """Asks for no details."""
    return {}


async def observe(
    clusters: Mapping[str, Cluster],
    endpoints: Mapping[str, ClusterEndpoint],
    wanted: Wanted = names_only,
    options: ReadOptions = DEFAULT_OPTIONS,
    named: Mapping[str, Collection[str]] | None = None,
) -> Observed:
    """Reads which topics clusters have, and whether those of `named` are hidden; then the `wanted` details.

    If a cluster is not the pinned one, it raises Failure with exit code 3 and reads nothing else. A cluster
    that can't be read becomes Unreachable, and the others are read all the same.
    """
    readers: dict[str, ClusterReader] = {}
    try:
        ids = await _identify(clusters, endpoints, options, readers)
        written_out = named or {}
        listed = await for_each(
            {name: _guarded(name, readers[name].overview(written_out.get(name, ()))) for name in _known(ids)}
        )
        seen = {name: listed.get(name, cluster_id) for name, cluster_id in ids.items()}
        names = Observed(
            {name: cluster for name, cluster in seen.items() if not isinstance(cluster, str)},
            (
                *same_cluster(_known(ids)),
                *(diagnostic for reader in readers.values() for diagnostic in reader.diagnostics),
            ),
        )
        request = wanted(names)
        detailed = await for_each(
            {
                name: _guarded(name, readers[name].details(cluster, request[name]))
                for name, cluster in names.live.items()
                if name in request
            }
        )
    finally:
        for reader in readers.values():
            reader.close()
    return Observed({**names.clusters, **detailed}, names.diagnostics)


async def identities(
    clusters: Mapping[str, Cluster],
    endpoints: Mapping[str, ClusterEndpoint],
    options: ReadOptions,
) -> dict[str, str | Unreachable]:
    """Returns the id of each cluster. Nothing else is read. Raises Failure as `observe` does."""
    readers: dict[str, ClusterReader] = {}
    try:
        return await _identify(clusters, endpoints, options, readers)
    finally:
        for reader in readers.values():
            reader.close()


async def _identify(
    clusters: Mapping[str, Cluster],
    endpoints: Mapping[str, ClusterEndpoint],
    options: ReadOptions,
    readers: dict[str, ClusterReader],
) -> dict[str, str | Unreachable]:
    """Makes the reader of each cluster, and returns the cluster's id. Failure for one that is not pinned."""

    async def identify(name: str) -> str:
        readers[name] = reader = ClusterReader(endpoints[name], options)
        return (await reader.identify()).id

    ids = await for_each({name: _guarded(name, identify(name)) for name in clusters})
    if refused := wrong_clusters(clusters, _known(ids)):
        raise Failure(refused)
    return ids


def _known(ids: Mapping[str, str | Unreachable]) -> dict[str, str]:
    return {name: cluster_id for name, cluster_id in ids.items() if isinstance(cluster_id, str)}


async def _guarded(name: str, reading: Awaitable[Result]) -> Result | Unreachable:
    """Turns a failure of one cluster into a value, so that the others are still read."""
    try:
        return await reading
    except Failure as failure:
        first = failure.diagnostics[0]
        silent = isinstance(failure, NoConnection | NoAnswer | Closed)
        return Unreachable(name, first.summary, first.hint, silent)


def named_topics(topology: Topology) -> dict[str, frozenset[str]]:
    """Returns the topics that a topology writes out by name, by cluster.

    These are declared topics and literal names in a flow's include. One that no listing shows may be hidden.
    """
    names: dict[str, set[str]] = defaultdict(set)
    for topic in topology.topics:
        names[topic.cluster].add(topic.name)
    for flow in topology.job_flows.values():
        names[flow.source_cluster] |= NamePatterns(flow.topics.include).written_out
    return {cluster: frozenset(topics) for cluster, topics in names.items()}


def wrong_clusters(clusters: Mapping[str, Cluster], ids: Mapping[str, str]) -> list[Diagnostic]:
    """Returns a refusal for each cluster whose id is not the pinned one."""
    return [
        error(
            f"{name} is pinned to cluster id {clusters[name].id}, but {clusters[name].bootstrap} "
            f"is cluster {cluster_id or 'without an id'}",
            f"correct the bootstrap of {name}, or its id if the cluster was replaced on purpose",
            source=clusters[name].source,
            code="wrong-cluster",
            exit=ExitCode.REFUSED,
        )
        for name, cluster_id in ids.items()
        if clusters[name].id is not None and clusters[name].id != cluster_id
    ]


def same_cluster(ids: Mapping[str, str]) -> list[Diagnostic]:
    """Returns a warning where two names are the same cluster."""
    names: dict[str, list[str]] = defaultdict(list)
    for name, cluster_id in sorted(ids.items()):
        if cluster_id:
            names[cluster_id].append(name)
    return [
        warning(
            f"{' and '.join(alike)} are the same cluster (id {cluster_id})",
            "look at their bootstrap addresses: a flow between them would copy a cluster into itself",
            code="same-cluster",
        )
        for cluster_id, alike in names.items()
        if len(alike) > 1
    ]
