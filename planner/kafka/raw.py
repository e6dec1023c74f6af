"""kafka-python's admin client, for the requests that librdkafka lacks. Imported only when it is asked for."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from planner.kafka.endpoint import Endpoint

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


class RawFailure(Exception):
    """What kafka-python raised, in one line. `transient`: the same request may pass when it is sent again."""

    def __init__(self, failure: Exception) -> None:
        super().__init__(f"{type(failure).__name__}: {failure}")
        self.transient = bool(getattr(failure, "retriable", False))


@contextmanager
def raw_admin(endpoint: Endpoint, timeout_ms: int = 10_000) -> Iterator[Any]:
    """An open client; whatever it raises inside the block comes out as RawFailure."""
    from kafka import KafkaAdminClient
    from kafka.errors import KafkaError

    try:
        client = KafkaAdminClient(**_keywords(endpoint, timeout_ms))
    except KafkaError as failure:
        raise RawFailure(failure) from failure
    try:
        yield client
    except KafkaError as failure:
        raise RawFailure(failure) from failure
    finally:
        client.close()


def _keywords(endpoint: Endpoint, timeout_ms: int) -> dict[str, Any]:
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
    return wanted
