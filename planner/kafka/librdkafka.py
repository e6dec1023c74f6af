"""Makes confluent-kafka clients: for records that people, drills and tests write and read.

The control plane itself asks and changes clusters with `planner.kafka.client`. The log lines of these clients
are discarded; callers report the errors with `explain`.
"""

import logging
import time
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

from confluent_kafka import Consumer, KafkaError, KafkaException, Producer
from confluent_kafka.admin import AdminClient

from planner.model.diagnostic import Failure, error
from runtime.contract.client.endpoint import ClusterEndpoint
from runtime.contract.client.secrets import redacted, without_quoted_value
from runtime.contract.client.settings import (
    ClientSettingsError,
    Kerberos,
    MskIam,
    Tls,
    TokenCommand,
    confluent_config,
    wire_settings,
)
from runtime.kafka.auth.key_stores import authorities, identity
from runtime.kafka.auth.login import LoginError
from runtime.kafka.auth.oauthbearer import fetch_token

# librdkafka writes its log lines to stderr unless a logger takes them.
_SILENT = logging.getLogger("repl.librdkafka")
_SILENT.addHandler(logging.NullHandler())
_SILENT.propagate = False
Client = TypeVar("Client", AdminClient, Producer, Consumer)


def client_settings(endpoint: ClusterEndpoint) -> dict[str, Any]:
    """Returns librdkafka's settings for any client of a cluster.

    Failure for settings that are refused; the message quotes no value.
    """
    try:
        settings = confluent_config(endpoint.bootstrap, endpoint.settings)
        wire = wire_settings(endpoint.bootstrap, endpoint.settings, endpoint.token_command)
        settings |= _tls(wire.tls) if wire.tls is not None else {}
    except ClientSettingsError as wrong:
        raise _failure(endpoint, f"{wrong.key}: {wrong.why}", wrong.hint) from None
    except LoginError as wrong:
        raise _failure(endpoint, wrong.why, wrong.hint) from None
    settings |= {"client.id": settings.get("client.id", "repl"), "logger": _SILENT}
    match wire.sasl:
        case Kerberos():
            raise _failure(
                endpoint,
                "drills read and write with librdkafka, whose packages for Python have no Kerberos",
                "plan, apply and jobs log in by GSSAPI; give the drill a listener with SCRAM or TLS",
            )
        case TokenCommand() | MskIam() as source:
            settings["oauth_cb"] = lambda _: _token(source)
        case _:
            pass
    return settings


def _tls(tls: Tls) -> dict[str, str]:
    """Returns the certificates and keys in librdkafka's names. Raises LoginError for a store."""
    files = {
        "ssl.ca.location": tls.ca_location,
        "ssl.certificate.location": tls.certificate_location,
        "ssl.key.location": tls.key_location,
    }
    settings = {name: path for name, path in files.items() if path is not None}
    if tls.keystore is not None:
        settings["ssl.certificate.pem"], settings["ssl.key.pem"] = identity(tls.keystore)
    if tls.truststore is not None:
        settings["ssl.ca.pem"] = authorities(tls.truststore)
    return settings


def _token(source: TokenCommand | MskIam) -> tuple[str, float]:
    """Returns a token for librdkafka, and the time when it expires."""
    token = fetch_token(source)
    return token.text, time.time() + token.lifetime_s


def _client(
    kind: Callable[[dict[str, Any]], Client], endpoint: ClusterEndpoint, more: Mapping[str, Any]
) -> Client:
    """Makes a client. Raises Failure for refused settings; the message quotes no value."""
    settings = client_settings(endpoint)
    try:
        return kind({**settings, **more})
    except KafkaException as failure:
        raise _failure(endpoint, without_quoted_value(failure.args[0].str()), "") from None


def _failure(endpoint: ClusterEndpoint, why: str, hint: str) -> Failure:
    return Failure(
        error(
            f"no client for {endpoint.cluster} can be made: {why}",
            hint or f"look at client: of cluster {endpoint.cluster}",
            code="client",
        )
    )


def admin(endpoint: ClusterEndpoint) -> AdminClient:
    client = _client(AdminClient, endpoint, {})
    client.poll(0)  # makes librdkafka ask for the first token, where it logs in with one
    return client


def producer(endpoint: ClusterEndpoint, within_s: float = 300) -> Producer:
    """Returns a producer: every acknowledged record is on all in-sync replicas, once and in order.

    A record that is not acknowledged within this time has failed, and never arrives.
    """
    settings = {"enable.idempotence": True, "acks": "all", "linger.ms": 2, "compression.type": "lz4"}
    return _client(Producer, endpoint, {**settings, "message.timeout.ms": int(within_s * 1000)})


def consumer(endpoint: ClusterEndpoint) -> Consumer:
    """Returns a consumer that reads by assignment. It never joins a group and never commits."""
    return _client(
        Consumer,
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


def error_of(failure: BaseException) -> KafkaError | None:
    """Returns the KafkaError inside an exception of confluent-kafka; None if there is none."""
    if isinstance(failure, KafkaException) and failure.args and isinstance(failure.args[0], KafkaError):
        return failure.args[0]
    return None


def explain(failure: BaseException) -> str:
    """Returns one line for the user: the broker's text and the error's name, without any secret."""
    error = error_of(failure)
    if error is None:
        return redacted(str(failure)) or type(failure).__name__
    name, text = error.name(), redacted(error.str())
    return text if name.lstrip("_") in text else f"{text} ({name.lstrip('_')})"
