"""Reads all clusters at once: names first, then the details that a plan needs. Read-only.

with Observer(topology.clusters, endpoints, read_registry=read_registry) as observer:
    observed = observer.names(named_topics(topology))
    observed = observer.details(observed, request)

Each cluster has a daemon thread: an interrupted program does not wait for a silent broker.
"""

import queue
import threading
from collections import defaultdict
from collections.abc import Callable, Collection, Mapping
from typing import TypeVar

from planner.kafka import ClusterEndpoint
from planner.kafka.connection_errors import WireFailure
from planner.model.diagnostic import Diagnostic, ExitCode, Failure, error, warning
from planner.model.observed import ClusterDetailsRequest, Observed, ObservedCluster, Request, Unreachable
from planner.model.topology import Cluster, Topology
from planner.observe.cluster import ClusterReader, ProgressCallback, ReadRegistry, no_progress
from runtime.contract.spec.selection import NamePatterns

Result = TypeVar("Result")


def for_each(work: Mapping[str, Callable[[], Result]]) -> dict[str, Result]:
    """Returns every result by name, in the order of `work`. Raises the first exception at once.

    The threads are daemons: an interrupted program does not wait for a silent broker.
    """
    results: queue.SimpleQueue[tuple[str, Result | None, BaseException | None]] = queue.SimpleQueue()

    def run(name: str, task: Callable[[], Result]) -> None:
        try:
            results.put((name, task(), None))
        except BaseException as failure:  # noqa: BLE001  raised in the caller's thread
            results.put((name, None, failure))

    for name, task in work.items():
        threading.Thread(target=run, args=(name, task), name=f"observe-{name}", daemon=True).start()
    found: dict[str, Result] = {}
    for _ in work:
        name, result, failure = results.get()
        if failure is not None:
            raise failure
        found[name] = result  # type: ignore[assignment]  # None only where Result is None
    return {name: found[name] for name in work}


TIMEOUT_S = 10.0
_NOTHING = ClusterDetailsRequest()
NO_FLOWS: Mapping[str, Collection[str]] = {}
NO_LIMITS: Mapping[str, float] = {}

Seen = TypeVar("Seen")


class Observer:
    """Reads clusters in parallel.

    A cluster that sends nothing for `timeout_s` counts as unreachable; `shorter_timeouts_s` has shorter times
    for some clusters. If a cluster is not the pinned one, it raises Failure with exit code 3 and reads
    nothing else. A cluster that can't be read becomes Unreachable, and the others are read all the same.
    `jobs_of` is the topology whose jobs are read, `flows` are those of each destination. For flows in
    `failing_back` the ledger is read, whichever job owns them.
    """

    def __init__(
        self,
        clusters: Mapping[str, Cluster],
        endpoints: Mapping[str, ClusterEndpoint],
        *,
        timeout_s: float = TIMEOUT_S,
        shorter_timeouts_s: Mapping[str, float] = NO_LIMITS,
        progress: ProgressCallback = no_progress,
        read_registry: ReadRegistry | None = None,
        jobs_of: str | None = None,
        flows: Mapping[str, Collection[str]] = NO_FLOWS,
        failing_back: Collection[str] = (),
    ) -> None:
        self._clusters = clusters
        self._readers = {
            name: ClusterReader(
                endpoints[name],
                min(timeout_s, shorter_timeouts_s.get(name, timeout_s)),
                progress,
                read_registry,
                jobs_of,
                flows.get(name, ()),
                failing_back,
            )
            for name in clusters
        }

    def __enter__(self) -> "Observer":
        return self

    def __exit__(self, *_: object) -> None:
        for reader in self._readers.values():
            reader.close()

    def identities(self) -> dict[str, str | Unreachable]:
        """Returns the id of each cluster. Raises Failure if one of them is not the pinned cluster."""
        seen = for_each({name: self._identified(name) for name in self._readers})
        wrong = wrong_clusters(
            self._clusters, {name: one for name, one in seen.items() if isinstance(one, str)}
        )
        if wrong:
            raise Failure(wrong)
        return seen

    def names(self, named: Mapping[str, Collection[str]] | None = None) -> Observed:
        """Returns every topic by name, id, partitions and replicas; brokers, cluster defaults and ownership.

        `named` are topics that the topology names, by cluster. One that may not be described is `hidden`.
        """
        seen = self.identities()
        ids = {name: one for name, one in seen.items() if isinstance(one, str)}
        asked = named or {}
        found = for_each({name: self._named(name, asked.get(name, ())) for name in ids})
        clusters: dict[str, ObservedCluster | Unreachable] = {}
        for name, one in seen.items():
            clusters[name] = one if isinstance(one, Unreachable) else found[name]
        return Observed(clusters, self._diagnostics(same_cluster(ids)))

    def details(self, observed: Observed, request: Request) -> Observed:
        """Returns the same clusters with the configs, ACLs, sizes and groups that `request` asks for."""
        clusters = dict(observed.clusters)
        clusters.update(
            for_each(
                {
                    name: self._detailed(name, cluster, request.get(name, _NOTHING))
                    for name, cluster in observed.clusters.items()
                    if isinstance(cluster, ObservedCluster)
                }
            )
        )
        return Observed(clusters, observed.diagnostics)

    def _identified(self, name: str) -> Callable[[], str | Unreachable]:
        return self._guarded(name, lambda: self._readers[name].identify().id)

    def _named(self, name: str, asked: Collection[str]) -> Callable[[], ObservedCluster | Unreachable]:
        return self._guarded(name, lambda: self._readers[name].names(asked))

    def _detailed(
        self, name: str, cluster: ObservedCluster, wanted: ClusterDetailsRequest
    ) -> Callable[[], ObservedCluster | Unreachable]:
        return self._guarded(name, lambda: self._readers[name].details(cluster, wanted))

    def _guarded(self, name: str, read: Callable[[], Seen]) -> Callable[[], Seen | Unreachable]:
        """Turns a failure of one cluster into a value, so that the others are still read."""

        def guarded() -> Seen | Unreachable:
            try:
                return read()
            except WireFailure as failure:
                return Unreachable(name, failure.why, failure.way_out)
            except Failure as failure:
                first = failure.diagnostics[0]
                return Unreachable(name, first.summary, first.way_out)

        return guarded

    def _diagnostics(self, more: list[Diagnostic]) -> tuple[Diagnostic, ...]:
        return (*more, *(one for reader in self._readers.values() for one in reader.diagnostics))


def named_topics(topology: Topology) -> dict[str, frozenset[str]]:
    """Returns the topics that a topology writes out by name, by cluster.

    These are declared topics and literal names in a flow's include. One that no listing shows may be hidden.
    """
    names: dict[str, set[str]] = defaultdict(set)
    for topic in topology.topics:
        names[topic.cluster].add(topic.name)
    for flow in topology.job_flows.values():
        names[flow.source_cluster] |= NamePatterns(flow.topics.include).written_out
    return {cluster: frozenset(found) for cluster, found in names.items()}


def wrong_clusters(clusters: Mapping[str, Cluster], ids: Mapping[str, str]) -> list[Diagnostic]:
    """Returns a refusal for each cluster whose id is not the pinned one."""
    return [
        error(
            f"{name} is pinned to cluster id {clusters[name].id}, but {clusters[name].bootstrap} "
            f"is cluster {found or 'without an id'}",
            f"correct the bootstrap of {name}, or its id if the cluster was replaced on purpose",
            source=clusters[name].source,
            code="wrong-cluster",
            exit=ExitCode.REFUSED,
        )
        for name, found in ids.items()
        if clusters[name].id is not None and clusters[name].id != found
    ]


def same_cluster(ids: Mapping[str, str]) -> list[Diagnostic]:
    """Returns a warning where two names are the same cluster."""
    names: dict[str, list[str]] = defaultdict(list)
    for name, found in sorted(ids.items()):
        if found:
            names[found].append(name)
    return [
        warning(
            f"{' and '.join(alike)} are the same cluster (id {found})",
            "look at their bootstrap addresses: a flow between them would copy a cluster into itself",
            code="same-cluster",
        )
        for found, alike in names.items()
        if len(alike) > 1
    ]
