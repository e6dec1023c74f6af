"""confluent-kafka, quiet: its log lines go nowhere, its errors are told by who asked."""

import logging
from collections.abc import Mapping
from typing import Any

from confluent_kafka import Consumer, Producer
from confluent_kafka.admin import AdminClient

from planner.kafka.endpoint import Endpoint

# librdkafka writes its log lines to a terminal unless somebody takes them.
_SILENT = logging.getLogger("repl.librdkafka")
_SILENT.addHandler(logging.NullHandler())
_SILENT.propagate = False


def _settings(endpoint: Endpoint, more: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "client.id": "repl",
        **endpoint.settings,
        "bootstrap.servers": endpoint.bootstrap,
        **more,
        "logger": _SILENT,
    }


def admin(endpoint: Endpoint, **more: Any) -> AdminClient:
    return AdminClient(_settings(endpoint, {key.replace("_", "."): value for key, value in more.items()}))


def producer(endpoint: Endpoint) -> Producer:
    """Every record it acknowledges is on all in-sync replicas, once and in order."""
    return Producer(
        _settings(
            endpoint, {"enable.idempotence": True, "acks": "all", "linger.ms": 2, "compression.type": "lz4"}
        )
    )


def consumer(endpoint: Endpoint) -> Consumer:
    """Reads by assignment; it never joins a group and never commits."""
    return Consumer(
        _settings(
            endpoint,
            {
                "group.id": "__repl.reader",
                "enable.auto.commit": False,
                "enable.partition.eof": True,
                "auto.offset.reset": "earliest",
                "allow.auto.create.topics": False,
                "fetch.wait.max.ms": 50,
            },
        )
    )


def topic_id_text(topic_id: object) -> str:
    """As Kafka's own tools write it; librdkafka uses the other base64 alphabet."""
    return str(topic_id).replace("+", "-").replace("/", "_").rstrip("=")
