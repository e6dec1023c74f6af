"""This module inspects a lab: which brokers run, which answer, and how much memory they use."""

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

from runtime.lab.brokers import processes, ready, zookeeper
from runtime.lab.brokers.processes import BrokerProcess
from runtime.lab.cluster import LabKafkaCluster
from runtime.lab.spec import ZOOKEEPER, BrokerPorts, Security


class LabState(StrEnum):
    """These are the states of a broker or a cluster."""

    UP = "up"  # answers clients
    SILENT = "silent"  # runs, but does not answer (yet)
    PAUSED = "paused"
    DOWN = "down"
    PARTLY = "partly up"  # of a cluster only: its brokers are in different states


@dataclass(frozen=True, slots=True)
class BrokerStatus:
    """A BrokerStatus is the state of one broker."""

    node: int
    address: str
    state: LabState
    pid: int | None
    memory_bytes: int
    log: str
    version: str


@dataclass(frozen=True, slots=True)
class ClusterStatus:
    """A ClusterStatus is the state of one cluster and of its brokers."""

    name: str
    cluster_id: str
    bootstrap: str
    security: Security
    state: LabState
    memory_bytes: int
    client_properties: str
    client_yaml: str
    brokers: tuple[BrokerStatus, ...]
    versions: tuple[str, ...]  # the oldest first
    zookeeper: BrokerStatus | None = None  # where the version needs it


@dataclass(frozen=True, slots=True)
class LabStatus:
    """A LabStatus is the state of all clusters of a lab."""

    home: str
    topology: str
    clusters: tuple[ClusterStatus, ...]
    format_version: int = 1


def probe_clusters(home: Path, clusters: Sequence[LabKafkaCluster], *, timeout: float = 3.0) -> LabStatus:
    """Inspects all brokers in parallel and returns the lab's state."""
    running = processes.find(clusters)

    def broker(owner: tuple[LabKafkaCluster, BrokerPorts]) -> BrokerStatus:
        cluster, node = owner
        process = running.get((cluster.name, node.id))
        return BrokerStatus(
            node=node.id,
            address=cluster.address(node),
            state=_state(cluster, node, process, timeout),
            pid=process.pid if process else None,
            memory_bytes=process.memory if process else 0,
            log=str(cluster.log_file(node)),
            version=node.version,
        )

    with ThreadPoolExecutor(max_workers=8) as pool:
        asked = {
            cluster.name: pool.map(broker, [(cluster, node) for node in cluster.processes])
            for cluster in clusters
        }
        found = tuple(_cluster(cluster, tuple(asked[cluster.name])) for cluster in clusters)
    return LabStatus(str(home), str(home / "topology.yaml"), found)


def _state(
    cluster: LabKafkaCluster, node: BrokerPorts, process: BrokerProcess | None, timeout: float
) -> LabState:
    if process is None:
        return LabState.DOWN
    if process.paused:
        return LabState.PAUSED
    if node.id == ZOOKEEPER:
        return LabState.UP if zookeeper.serves(cluster, node) else LabState.SILENT
    return LabState.UP if ready.answers(cluster, node, timeout) else LabState.SILENT


def _cluster(cluster: LabKafkaCluster, found: tuple[BrokerStatus, ...]) -> ClusterStatus:
    brokers = tuple(one for one in found if one.node != ZOOKEEPER)
    states = {broker.state for broker in brokers}
    for_java, for_topology = cluster.client_files()
    return ClusterStatus(
        name=cluster.name,
        cluster_id=cluster.cluster_id,
        bootstrap=cluster.bootstrap,
        security=cluster.spec.security,
        state=states.pop() if len(states) == 1 else LabState.PARTLY,
        memory_bytes=sum(one.memory_bytes for one in found),
        client_properties=str(for_java),
        client_yaml=str(for_topology),
        brokers=brokers,
        versions=cluster.versions,
        zookeeper=next((one for one in found if one.node == ZOOKEEPER), None),
    )
