"""This module starts brokers as processes, and waits until they answer or die.

The error for a dead broker holds its last log lines.
"""

import os
import time
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias

from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient

from runtime.lab import processes
from runtime.lab.brokers import zookeeper
from runtime.lab.cluster import ZOOKEEPER, BrokerPorts, LabKafkaCluster, is_zookeeper
from runtime.lab.files import LabError, last_lines, size_of
from runtime.lab.kit import Kit


def answers(cluster: LabKafkaCluster, node: BrokerPorts, timeout: float) -> bool:
    """Returns whether the broker answers within the timeout."""
    return node.id in _listed_brokers(_admin(cluster, node), timeout)


def _listed_brokers(admin: AdminClient, timeout: float) -> set[int]:
    try:
        return set(admin.list_topics(timeout=timeout).brokers)
    except KafkaException:
        return set()


def _admin(cluster: LabKafkaCluster, node: BrokerPorts) -> AdminClient:
    settings: dict[str, Any] = {
        **cluster.client,
        "bootstrap.servers": cluster.address(node),
        # A broker that does not answer yet is expected, so librdkafka must not log it.
        "log_level": 0,
        "error_cb": lambda _: None,
        "reconnect.backoff.ms": 50,
        "reconnect.backoff.max.ms": 200,
    }
    return AdminClient(settings)


SCRATCH = "scratch"  # for the native libraries that Java unpacks
Kits: TypeAlias = Mapping[str, Kit]  # by version


class LabBroker(NamedTuple):
    """A LabBroker is one node of a cluster."""

    cluster: LabKafkaCluster
    node: BrokerPorts

    @property
    def mark(self) -> str:
        return self.cluster.mark(self.node)

    @property
    def log(self) -> Path:
        return self.cluster.log_file(self.node)

    @property
    def is_zookeeper(self) -> bool:
        return self.node.id == ZOOKEEPER

    def __str__(self) -> str:
        if self.is_zookeeper:
            return f"{self.cluster.name}:zookeeper"
        return self.cluster.name if len(self.cluster.nodes) == 1 else f"{self.cluster.name}:{self.node.id}"


def launch(kits: Kits, nodes: Sequence[LabBroker], timeout: float) -> None:
    """Starts all brokers in parallel and waits for all; after any failure none of them is left running.

    ZooKeeper is started first, and brokers when it serves.

    Raises LabError.
    """
    log_starts = {broker.mark: size_of(broker.log) for broker in nodes}
    brokers = [broker for broker in nodes if not broker.is_zookeeper]
    try:
        for node in nodes:
            if node.is_zookeeper:
                _spawn(kits, node)
        for cluster in {node.cluster.name: node.cluster for node in nodes}.values():
            if cluster.zookeeper is not None:
                zookeeper.wait_ready(cluster, cluster.zookeeper)
                mine = [broker.node.id for broker in brokers if broker.cluster is cluster]
                zookeeper.wait_unregistered(cluster, mine)
        for broker in brokers:
            _spawn(kits, broker)
        if late := _wait_until_ready(brokers, log_starts, timeout):
            last = last_lines(late[0].log, log_starts[late[0].mark])
            raise LabError(
                f"{', '.join(map(str, late))} did not answer within {timeout:.0f} s: {last}",
                "is the machine very busy? Try again, or choose fewer brokers",
                where=str(late[0].log),
            )
    except BaseException:
        processes.kill([node.mark for node in nodes])
        raise


def _wait_until_ready(
    brokers: Sequence[LabBroker], log_starts: Mapping[str, int], timeout: float
) -> list[LabBroker]:
    """Waits until each broker lists all of its cluster's brokers among these; returns those that do not.

    Raises LabError for a broker that has died.
    """
    deadline = time.monotonic() + timeout
    waiting = list(brokers)
    admins = {broker.mark: _admin(*broker) for broker in brokers}
    expected: dict[str, set[int]] = {}
    for cluster, node in brokers:
        expected.setdefault(cluster.name, set()).add(node.id)
    while waiting and time.monotonic() < deadline:
        alive = processes.find(admins)
        for broker in brokers:
            if broker.mark not in alive:
                last = last_lines(broker.log, log_starts[broker.mark])
                raise LabError(
                    f"{broker} died at its start. Its last words:\n{last}",
                    "correct what was set with --set, or see the whole log",
                    where=str(broker.log),
                )
        waiting = [
            broker
            for broker in waiting
            if not expected[broker.cluster.name] <= _listed_brokers(admins[broker.mark], 0.25)
        ]
    return waiting


def _spawn(kits: Kits, broker: LabBroker) -> None:
    cluster, node = broker
    words = command(kits[node.version], cluster, node)
    processes.spawn(broker.mark, words, cluster.log_file(node))


def stop(marks: Collection[str], grace: float) -> None:
    """Stops brokers with SIGTERM, and kills those that are left after `grace` seconds.

    SIGTERM lets them hand over the partitions that they lead. ZooKeeper is stopped after the brokers, because
    a broker needs it for a clean end.
    """
    zookeepers = [mark for mark in marks if is_zookeeper(mark)]
    processes.stop([mark for mark in marks if mark not in zookeepers], grace=grace)
    processes.stop(zookeepers, grace=grace)


def command(kit: Kit, cluster: LabKafkaCluster, node: BrokerPorts) -> list[str]:
    """Returns the command line of one broker, or of ZooKeeper.

    REPL_LAB_JVM adds options to the JVM of a broker; those of the cluster's spec come behind them.
    """
    if node.id == ZOOKEEPER:
        return zookeeper.command(kit, cluster, node, *cluster.logging_options(kit.version))
    home = cluster.home_of(node)
    jvm = (
        *("-XX:+ExitOnOutOfMemoryError", f"-XX:ErrorFile={home}/crash.log"),
        *(f"-Djava.io.tmpdir={home / SCRATCH}", *cluster.logging_options(kit.version)),
        cluster.mark(node),
        *cluster.login_options,
        *os.environ.get("REPL_LAB_JVM", "").split(),
        *cluster.spec.jvm,
    )
    java = kit.command(*jvm, heap=cluster.spec.heap)
    return [*cluster.spec.prefix, *java, "kafka.Kafka", str(cluster.properties_file(node))]
