"""confluent-kafka for everything it can do; kafka-python's admin for the requests that librdkafka lacks."""

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
logging.getLogger("kafka").addHandler(logging.NullHandler())
logging.getLogger("kafka").propagate = False

_KAFKA_PYTHON_NAMES = {
    "security.protocol": "security_protocol",
    "sasl.mechanism": "sasl_mechanism",
    "sasl.mechanisms": "sasl_mechanism",
    "sasl.username": "sasl_plain_username",
    "sasl.password": "sasl_plain_password",
    "ssl.ca.location": "ssl_cafile",
    "ssl.certificate.location": "ssl_certfile",
    "ssl.key.location": "ssl_keyfile",
    "ssl.key.password": "ssl_password",
}


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


def raw_admin(endpoint: Endpoint, timeout_ms: int = 10_000) -> Any:
    """kafka-python's admin client. Imported only here and only when asked for: it costs start-up time."""
    from kafka import KafkaAdminClient

    wanted: dict[str, Any] = {
        "bootstrap_servers": endpoint.bootstrap.split(","),
        "client_id": endpoint.settings.get("client.id", "repl"),
        "request_timeout_ms": timeout_ms,
        "bootstrap_timeout_ms": timeout_ms,
    }
    for name, value in endpoint.settings.items():
        if name in _KAFKA_PYTHON_NAMES:
            wanted[_KAFKA_PYTHON_NAMES[name]] = value
    if "security_protocol" in wanted:
        wanted["security_protocol"] = str(wanted["security_protocol"]).upper()
    if endpoint.settings.get("ssl.endpoint.identification.algorithm", "https").lower() in ("none", ""):
        wanted["ssl_check_hostname"] = False
    return KafkaAdminClient(**wanted)
