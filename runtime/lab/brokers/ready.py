"""This module checks whether brokers answer, by a metadata request as a client sends it."""

import time
from collections.abc import Callable, Iterable
from typing import Any

from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient

from runtime.lab.cluster import LabKafkaCluster
from runtime.lab.spec import BrokerPorts


def wait(
    brokers: Iterable[tuple[LabKafkaCluster, BrokerPorts]], *, timeout: float, check: Callable[[], None]
) -> list[tuple[LabKafkaCluster, BrokerPorts]]:
    """Waits until each broker lists all of its cluster's brokers in `brokers`; returns those that do not.

    `check` is called between requests and may raise, because waiting for a broker that died is pointless.
    """
    deadline = time.monotonic() + timeout
    waiting = list(brokers)
    admins = {(cluster.name, node.id): _admin(cluster, node) for cluster, node in waiting}
    expected: dict[str, set[int]] = {}
    for cluster, node in waiting:
        expected.setdefault(cluster.name, set()).add(node.id)
    while waiting and time.monotonic() < deadline:
        check()
        waiting = [
            (cluster, node)
            for cluster, node in waiting
            if not expected[cluster.name] <= _listed_brokers(admins[cluster.name, node.id], 0.25)
        ]
    return waiting


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
        "error_cb": _ignore,
        "reconnect.backoff.ms": 50,
        "reconnect.backoff.max.ms": 200,
    }
    return AdminClient(settings)


def _ignore(_: object) -> None:
    return None
