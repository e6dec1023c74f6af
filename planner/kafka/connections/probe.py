"""Probes a broker that broke a fresh connection: which protocol does its port speak?

Each question is a small connection of its own, so the answer is a fact and not a guess.
"""

import contextlib
import socket
import ssl
import struct
from typing import TypeVar

from planner.kafka.connections.failure import Closed, Refused
from runtime.contract.client.values import SecurityProtocol, WireSettings
from runtime.kafka.codes import ErrorCode
from runtime.kafka.protocol.fields import Reader
from runtime.kafka.protocol.handshake import OldApiVersionsRequest, SaslHandshakeRequest
from runtime.kafka.protocol.request import Request, frame

R = TypeVar("R")
_TIMEOUT_S = 2.0
_CORRELATION = 1
_LONGEST_ANSWER = 1 << 20
_SIZE = struct.Struct(">i")

Address = tuple[str, int]


def no_tls(address: Address, where: str, settings: WireSettings, why: str) -> Closed | Refused:
    """Explains a failed TLS handshake: checks whether the port speaks plaintext Kafka."""
    if _speaks_plaintext(address):
        other = SecurityProtocol.SASL_PLAINTEXT if settings.security.sasl else SecurityProtocol.PLAINTEXT
        return Refused(
            f"{where} does not speak TLS: it answers in plaintext",
            f"set security.protocol to {other.value}, or use the port of its TLS listener",
        )
    return Closed(f"{where} broke off the TLS handshake ({why})", "is this the port of a Kafka TLS listener?")


def no_plaintext(address: Address, where: str, settings: WireSettings, why: str) -> Closed | Refused:
    """Explains a closed plaintext connection: checks whether the port speaks TLS."""
    if _speaks_tls(address):
        other = SecurityProtocol.SASL_SSL if settings.security.sasl else SecurityProtocol.SSL
        return Refused(
            f"{where} speaks TLS, and the client plaintext",
            f"set security.protocol to {other.value}, or use the port of its plaintext listener",
        )
    return Closed(f"{where} closed the connection before answering ({why})", "is it a Kafka broker?")


def no_login(address: Address, where: str, settings: WireSettings, why: str) -> Closed | Refused:
    """Explains a connection that closed after ApiVersions: checks whether the listener wants a login."""
    if not settings.security.tls and (offered := _sasl_mechanisms(address)) is not None:
        names = ", ".join(sorted(offered))
        return Refused(
            f"{where} wants a SASL login (it offers {names}), and the client has none",
            "set security.protocol to SASL_PLAINTEXT, with sasl.mechanism, sasl.username and sasl.password",
        )
    if settings.security.tls:
        return Closed(
            f"{where} closed the connection at the first request ({why})",
            "if it wants a SASL login, set security.protocol to SASL_SSL",
        )
    return Closed(f"{where} closed the connection at the first request ({why})")


def accepts(address: Address) -> bool:
    """Returns whether the port accepts TCP connections."""
    with contextlib.suppress(OSError, UnicodeError), socket.create_connection(address, _TIMEOUT_S):
        return True
    return False


def _speaks_plaintext(address: Address) -> bool:
    return _ask(address, OldApiVersionsRequest()) is not None


def _sasl_mechanisms(address: Address) -> list[str] | None:
    """Returns the mechanisms of a listener that wants a login; None if it wants none."""
    answer = _ask(address, SaslHandshakeRequest("repl"))
    if answer is None or answer.error is ErrorCode.ILLEGAL_SASL_STATE:
        return None
    return list(answer.mechanisms)


def _speaks_tls(address: Address) -> bool:
    context = ssl.create_default_context()
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE  # only tests for TLS; nothing is sent
    try:
        with (
            socket.create_connection(address, _TIMEOUT_S) as dialled,
            context.wrap_socket(dialled, server_hostname=address[0]),
        ):
            return True
    except ssl.SSLError as wrong:
        # An alert is TLS too: the listener may want a client certificate, for example.
        return "ALERT" in (wrong.reason or "").upper()
    except OSError:
        return False


def _ask(address: Address, request: Request[R]) -> R | None:
    """Sends one plaintext request in its oldest version; returns None if no readable answer comes."""
    version = request.VERSIONS[0]
    asked = frame(request.API, version, _CORRELATION, "repl", False, request.body(version))
    with contextlib.suppress(OSError), socket.create_connection(address, _TIMEOUT_S) as dialled:
        dialled.sendall(b"".join(asked))
        with dialled.makefile("rb") as answer:
            (size,) = _SIZE.unpack(answer.read(4).ljust(4, b"\0"))
            body = answer.read(size) if 0 < size <= _LONGEST_ANSWER else b""
            return _read(request, version, body) if len(body) == size and size else None
    return None


def _read(request: Request[R], version: int, body: bytes) -> R | None:
    reader = Reader(memoryview(body))
    with contextlib.suppress(ValueError, struct.error, IndexError):
        if reader.int32() == _CORRELATION:
            return request.answer(version, reader)
    return None
