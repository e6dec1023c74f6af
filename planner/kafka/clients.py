"""Makes confluent-kafka clients, and classifies their errors: which may pass when a request is sent again.

Their log lines are discarded; callers report the errors with `explain`. An OAUTHBEARER token comes from
the operator's command or OpenID Connect, or it is unsecured.
"""

import logging
import os
import shlex
import subprocess
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeVar

from confluent_kafka import Consumer, KafkaError, KafkaException, Producer
from confluent_kafka.admin import AdminClient

from planner.kafka.connection_errors import Refused
from planner.model.diagnostic import Failure, error
from runtime.contract.client.secrets import redacted, remember, without_quoted_value
from runtime.contract.client.settings import (
    ClientSettingsError,
    TokenCommand,
    TokenEndpoint,
    UnsecuredToken,
    confluent_config,
    speaks_bearer,
)
from runtime.kafka.auth.login import LoginError
from runtime.kafka.auth.oauthbearer import Token, parse_printed, request_token, unsecured_token


class TokenCommandFailed(Exception):
    """The command returned no token. The message never repeats what the command printed."""


def run_token_command(command: str, timeout_s: float) -> Token:
    """Runs the command and returns the token. Raises TokenCommandFailed.

    The command prints the token itself, or JSON with `access_token` and `expires_in`.
    """
    try:
        words = shlex.split(command)
    except ValueError as wrong:
        raise TokenCommandFailed(f"the token command can't be split into words ({wrong})") from None
    where = f"the token command {words[0]}"
    try:
        done = subprocess.run(words, capture_output=True, text=True, timeout=timeout_s, check=True)
    except subprocess.CalledProcessError as failed:
        raise TokenCommandFailed(f"{where} failed with exit code {failed.returncode}") from None
    except subprocess.TimeoutExpired:
        raise TokenCommandFailed(f"{where} printed nothing within {timeout_s:g} s") from None
    except UnicodeDecodeError:
        raise TokenCommandFailed(f"{where} printed no text") from None
    except OSError as wrong:
        raise TokenCommandFailed(f"{where} can't be run ({wrong.strerror})") from None
    try:
        token = parse_printed(done.stdout, where)
    except LoginError as failed:
        raise TokenCommandFailed(failed.why) from None
    remember(token.text)
    return token


TokenSource = TokenCommand | TokenEndpoint | UnsecuredToken


def token_of(source: TokenSource, timeout_s: float) -> Token:
    """Returns a token from its source. Raises Refused; no token or secret is ever repeated."""
    match source:
        case TokenCommand():
            return _printed(source, timeout_s)
        case TokenEndpoint():
            return _of(lambda: request_token(source, timeout_s, os.environ))
        case UnsecuredToken():
            return unsecured_token(source, time.time())


def _printed(source: TokenCommand, timeout_s: float) -> Token:
    try:
        return run_token_command(source.command, timeout_s)
    except TokenCommandFailed as failed:
        raise Refused(str(failed), "look at REPL_OAUTHBEARER_TOKEN_COMMAND") from None


def _of(obtain: Callable[[], Token]) -> Token:
    """Returns the token, and maps a LoginError to the connection's Refused."""
    try:
        return obtain()
    except LoginError as failed:
        raise Refused(failed.why, failed.hint) from None


Client = TypeVar("Client", AdminClient, Producer, Consumer)


@dataclass(frozen=True, slots=True)
class ClusterEndpoint:
    """How to reach a cluster, with resolved settings.

    `settings` may hold secrets, so they never appear in the representation. `token_command` is the operator's
    command that prints OAUTHBEARER tokens.
    """

    cluster: str
    bootstrap: str
    settings: Mapping[str, str] = field(default_factory=dict, repr=False)
    token_command: str | None = field(default=None, repr=False)


_TOKEN_WITHIN_S = 30.0
_NO_TOPIC_ID = "A" * 22  # sixteen bytes of zero

# librdkafka writes its log lines to the terminal unless a logger takes them.
_DISCARDING_LOGGER = logging.getLogger("repl.librdkafka")
_DISCARDING_LOGGER.addHandler(logging.NullHandler())
_DISCARDING_LOGGER.propagate = False


def client_settings(endpoint: ClusterEndpoint) -> dict[str, Any]:
    """Returns librdkafka's settings for any client of a cluster.

    Failure for settings that are refused; the message quotes no value.
    """
    try:
        settings = confluent_config(endpoint.bootstrap, endpoint.settings)
    except ClientSettingsError as wrong:
        raise _failure(endpoint, f"{wrong.key}: {wrong.why}", wrong.way_out) from None
    return {"client.id": "repl", **settings, **_login(endpoint), "logger": _DISCARDING_LOGGER}


def _client(
    kind: Callable[[dict[str, Any]], Client], endpoint: ClusterEndpoint, more: Mapping[str, Any]
) -> Client:
    """Makes a client. Raises Failure for refused settings; the message quotes no value."""
    settings = client_settings(endpoint)
    try:
        return kind({**settings, **more})
    except KafkaException as failure:
        raise _failure(endpoint, without_quoted_value(failure.args[0].str()), "") from None


def _login(endpoint: ClusterEndpoint) -> dict[str, Any]:
    command = endpoint.token_command
    if command is None or not speaks_bearer(endpoint.settings):
        return {}
    return {"oauth_cb": lambda _: _token(command)}


def _token(command: str) -> tuple[str, float]:
    """Returns a token and the time until which it is valid, as librdkafka asks for it."""
    token = run_token_command(command, _TOKEN_WITHIN_S)
    return token.text, time.time() + token.lifetime_s


def _failure(endpoint: ClusterEndpoint, why: str, way_out: str) -> Failure:
    return Failure(
        error(
            f"no client for {endpoint.cluster} can be made: {why}",
            way_out or f"look at client: of cluster {endpoint.cluster}",
            code="client",
        )
    )


def admin(endpoint: ClusterEndpoint, **more: Any) -> AdminClient:
    """Returns an admin client. `more` are librdkafka settings with `_` for `.`."""
    named = {key.replace("_", "."): value for key, value in more.items()}
    client = _client(AdminClient, endpoint, named)
    if endpoint.token_command is not None:
        client.poll(0)  # makes librdkafka ask for the first token
    return client


def producer(endpoint: ClusterEndpoint) -> Producer:
    """Returns a producer: every acknowledged record is on all in-sync replicas, once and in order."""
    return _client(
        Producer,
        endpoint,
        {"enable.idempotence": True, "acks": "all", "linger.ms": 2, "compression.type": "lz4"},
    )


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


def topic_id_text(topic_id: object) -> str:
    """Returns a topic id as Kafka's tools write it; empty where the cluster has no ids (before Kafka 2.8).

    librdkafka uses the other base64 alphabet.
    """
    text = str(topic_id).replace("+", "-").replace("/", "_").rstrip("=")
    return "" if text == _NO_TOPIC_ID else text


_TRANSIENT = frozenset(
    {
        KafkaError._TRANSPORT,
        KafkaError._ALL_BROKERS_DOWN,
        KafkaError._TIMED_OUT,
        KafkaError._TIMED_OUT_QUEUE,
        KafkaError._WAIT_COORD,
        KafkaError._IN_PROGRESS,
        KafkaError.REQUEST_TIMED_OUT,
        KafkaError.NOT_CONTROLLER,
        KafkaError.LEADER_NOT_AVAILABLE,
        KafkaError.NOT_LEADER_FOR_PARTITION,
        KafkaError.BROKER_NOT_AVAILABLE,
        KafkaError.REPLICA_NOT_AVAILABLE,
        KafkaError.NETWORK_EXCEPTION,
        KafkaError.COORDINATOR_LOAD_IN_PROGRESS,
        KafkaError.COORDINATOR_NOT_AVAILABLE,
        KafkaError.NOT_COORDINATOR,
        KafkaError.NOT_ENOUGH_REPLICAS,
        KafkaError.NOT_ENOUGH_REPLICAS_AFTER_APPEND,
        KafkaError.THROTTLING_QUOTA_EXCEEDED,
        KafkaError.UNKNOWN_TOPIC_ID,
        KafkaError.UNSTABLE_OFFSET_COMMIT,
    }
)


class Transient(Exception):
    """A request that may succeed when it is sent again."""


def error_of(failure: BaseException) -> KafkaError | None:
    """Returns the KafkaError inside an exception of confluent-kafka; None if there is none."""
    if isinstance(failure, KafkaException) and failure.args and isinstance(failure.args[0], KafkaError):
        return failure.args[0]
    return None


def is_transient(failure: BaseException) -> bool:
    """Returns whether the same request may succeed later."""
    error = error_of(failure)
    if error is None:
        return isinstance(failure, Transient | TimeoutError)
    return bool(error.retriable()) or error.code() in _TRANSIENT


def explain(failure: BaseException) -> str:
    """Returns one line for the user: the broker's text and the error's name, without any secret."""
    error = error_of(failure)
    if error is None:
        return redacted(str(failure)) or type(failure).__name__
    name, text = error.name(), redacted(error.str())
    return text if name.lstrip("_") in text else f"{text} ({name.lstrip('_')})"
