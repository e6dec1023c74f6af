"""Whether brokers really answer: each is asked for metadata, as a client would ask."""

import time
from collections.abc import Callable, Iterable
from typing import Any

from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient

from runtime.lab.cluster import Cluster
from runtime.lab.spec import Node


def wait(
    brokers: Iterable[tuple[Cluster, Node]], *, timeout: float, check: Callable[[], None]
) -> list[tuple[Cluster, Node]]:
    """Wait until each broker answers and knows all of these of its cluster; returns those that don't.

    `check` is called between the questions and may raise: a broker that died makes waiting pointless."""
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
            if not expected[cluster.name] <= _known(admins[cluster.name, node.id], 0.25)
        ]
    return waiting


def answers(cluster: Cluster, node: Node, timeout: float) -> bool:
    return node.id in _known(_admin(cluster, node), timeout)


def _known(admin: AdminClient, timeout: float) -> set[int]:
    try:
        return set(admin.list_topics(timeout=timeout).brokers)
    except KafkaException:
        return set()


def _admin(cluster: Cluster, node: Node) -> AdminClient:
    settings: dict[str, Any] = {
        **cluster.client,
        "bootstrap.servers": cluster.address(node),
        # Not answering yet is what is being waited for: no line about it on the terminal.
        "log_level": 0,
        "error_cb": _ignore,
        "reconnect.backoff.ms": 50,
        "reconnect.backoff.max.ms": 200,
    }
    return AdminClient(settings)


def _ignore(_: object) -> None:
    return None
