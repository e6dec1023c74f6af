"""Failures between the control plane and a cluster, in words for users: each has a hint.

A broker that broke a fresh connection is probed: which protocol does its port speak? Each question is a small
connection of its own, so the answer is a fact and not a guess.
"""

import contextlib
import errno
import os
import socket
import ssl
import struct
from datetime import UTC, datetime
from typing import TypeVar

from msgspec import Struct

from planner.model.diagnostic import Failure, error
from runtime.contract.client.secrets import redacted
from runtime.contract.client.settings import Password, SecurityProtocol, WireSettings
from runtime.kafka.auth.login import LoginError
from runtime.kafka.auth.sasl import mechanism_of
from runtime.kafka.auth.tls import certificate_end, short_reason
from runtime.kafka.errors import (
    AuthenticationFailed,
    ConnectionFailure,
    CredentialsRefused,
    ErrorCode,
    Malformed,
    MechanismRefused,
    NotKafka,
    Reached,
    TimedOut,
    Unsupported,
    WireError,
)
from runtime.kafka.protocol.handshake import ApiVersionsRequest, SaslHandshakeRequest
from runtime.kafka.protocol.request import Api, Request


class ClusterFailure(Failure):
    """`why` is one clause without a full stop; `hint` may be empty.

    `transient` says whether the same request may succeed later. A secret that a broker repeats in its error
    is left out of `why`.
    """

    transient = False

    def __init__(self, why: str, hint: str = "") -> None:
        self.why = redacted(why)
        self.hint = hint
        super().__init__(error(self.why, hint))

    @property
    def transient_for_new_topic(self) -> bool:
        """Whether it is transient where the topic may have just been made: brokers learn of it in turn."""
        return self.transient

    @property
    def explained(self) -> str:
        """`why`, with the hint if there is one."""
        return f"{self.why}; {self.hint}" if self.hint else self.why


class NoConnection(ClusterFailure):
    """No connection: refused, unknown host, or no route. Another address or a later try may help."""

    transient = True


class NoAnswer(ClusterFailure):
    """Connected, and no answer within the timeout."""

    transient = True


class Closed(ClusterFailure):
    """The connection broke while it was used."""

    transient = True


class Refused(ClusterFailure):
    """The broker or TLS refused the connection. Another attempt is refused again."""


class Unreadable(ClusterFailure):
    """The broker answers and does not return the data, usually for a missing right.

    Other data can still be read.
    """


class TooOld(Unreadable):
    """The broker at `where` does not know the request."""

    def __init__(self, where: str, request: str) -> None:
        super().__init__(f"{where} is too old: it does not know {request}")
        self.where = where


class RequestRefused(ClusterFailure):
    """The broker answered with an error. `why` is its text, and the error's name as Kafka's docs have it."""

    def __init__(self, code: ErrorCode, message: str | None = None) -> None:
        text = message or meaning(code)
        super().__init__(text if code.name in text else f"{text} ({code.name})")
        self.code = code
        # Only the caller knows whether a missing topic is about to exist, and a corrupt log stays so.
        lasting = (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.CORRUPT_MESSAGE)
        self.transient = code is ErrorCode.BROKER_NOT_AVAILABLE or (code.retriable and code not in lasting)

    @property
    def transient_for_new_topic(self) -> bool:
        return self.transient or self.code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def meaning(code: ErrorCode, message: str | None = None) -> str:
    """Returns `topic authorization failed`, and the broker's own text if there is one."""
    words = code.name.lower().replace("_", " ")
    return f"{words}: {message}" if message else words


R = TypeVar("R")
_TIMEOUT_S = 2.0
_CORRELATION = 1
_LONGEST_ANSWER = 1 << 20
_SIZE = struct.Struct(">i")

Address = tuple[str, int]


class Peer(Struct, frozen=True):
    """The broker that failed, and the timeout that applied."""

    address: Address
    where: str
    settings: WireSettings
    timeout_s: float


def _no_tls(peer: Peer, why: str) -> Closed | Refused:
    """Explains a failed TLS handshake: checks whether the port speaks plaintext Kafka."""
    if _ask(peer.address, ApiVersionsRequest()) is not None:
        other = SecurityProtocol.SASL_PLAINTEXT if peer.settings.security.sasl else SecurityProtocol.PLAINTEXT
        return Refused(
            f"{peer.where} does not speak TLS: it answers in plaintext",
            f"set security.protocol to {other.value}, or use the port of its TLS listener",
        )
    return Closed(
        f"{peer.where} broke off the TLS handshake ({why})", "is this the port of a Kafka TLS listener?"
    )


def _no_plaintext(peer: Peer, why: str) -> Closed | Refused:
    """Explains a closed plaintext connection: checks whether the port speaks TLS."""
    if _speaks_tls(peer.address):
        other = SecurityProtocol.SASL_SSL if peer.settings.security.sasl else SecurityProtocol.SSL
        return Refused(
            f"{peer.where} speaks TLS, and the client plaintext",
            f"set security.protocol to {other.value}, or use the port of its plaintext listener",
        )
    return Closed(f"{peer.where} closed the connection before answering ({why})", "is it a Kafka broker?")


def _no_login(peer: Peer, why: str) -> Closed | Refused:
    """Explains a connection that closed after ApiVersions: checks whether the listener wants a login."""
    answer = _ask(peer.address, SaslHandshakeRequest("repl")) if not peer.settings.security.tls else None
    if answer is not None and answer.error is not ErrorCode.ILLEGAL_SASL_STATE:
        names = ", ".join(sorted(answer.mechanisms))
        return Refused(
            f"{peer.where} wants a SASL login (it offers {names}), and the client has none",
            "set security.protocol to SASL_PLAINTEXT, with sasl.mechanism, sasl.username and sasl.password",
        )
    if peer.settings.security.tls:
        return Closed(
            f"{peer.where} closed the connection at the first request ({why})",
            "if it wants a SASL login, set security.protocol to SASL_SSL",
        )
    return Closed(f"{peer.where} closed the connection at the first request ({why})")


def accepts(address: Address, timeout_s: float = _TIMEOUT_S) -> bool:
    """Returns whether the port accepts TCP connections."""
    with contextlib.suppress(OSError, UnicodeError), socket.create_connection(address, timeout_s):
        return True
    return False


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
    version = request.versions[0]
    sent = request.frame(version, _CORRELATION, "repl")
    with contextlib.suppress(OSError), socket.create_connection(address, _TIMEOUT_S) as dialled:
        dialled.sendall(b"".join(sent))
        with dialled.makefile("rb") as answer:
            (size,) = _SIZE.unpack(answer.read(4).ljust(4, b"\0"))
            body = answer.read(size) if 0 < size <= _LONGEST_ANSWER else b""
        if len(body) == size and body.startswith(_SIZE.pack(_CORRELATION)):
            with contextlib.suppress(ValueError):
                return request.answer(version, memoryview(body))[1]
    return None


# OpenSSL's verification codes for a certificate of an unknown issuer.
_UNKNOWN_ISSUER = frozenset({2, 18, 19, 20, 21})
_EXPIRED, _NOT_YET = 10, 9
_WRONG_HOST = frozenset({62, 64})
_LOOK_AT_BOOTSTRAP = "look at the cluster's bootstrap"


def why_no_connection(failure: WireError, peer: Peer) -> ClusterFailure:
    """Returns why no connection or no login was possible."""
    match failure:
        case TimedOut():
            return _late_connection(failure, peer)
        case NotKafka():
            why = "what it answers is not Kafka's protocol"
            if peer.settings.security.tls:
                return Closed(f"{peer.where} closed the connection ({why})")
            return _no_plaintext(peer, why)
        case Malformed():
            return _malformed(failure, peer)
        case ConnectionFailure():
            return _no_connection(failure, peer)
        case MechanismRefused():
            return _mechanism_refused(failure, peer)
        case CredentialsRefused():
            return _credentials_refused(failure, peer)
        case AuthenticationFailed():
            return _not_authenticated(failure, peer)
        case Unsupported():
            if failure.api == Api.API_VERSIONS.name:
                return Refused(f"{peer.where} refused to tell its API versions", "is it a Kafka broker?")
            return Refused(f"{peer.where} is too old for this SASL login", "it is older than Kafka 1.0")
        case _:
            return Refused(str(failure))


def why_no_answer(failure: WireError, peer: Peer, *, first: bool) -> ClusterFailure:
    """Returns why an open connection gave no answer. `first`: it was the first request after the login."""
    match failure:
        case TimedOut():
            return _silent(peer)
        case Malformed():
            return _malformed(failure, peer)
        case ConnectionFailure():
            if first and peer.settings.sasl is None:
                return _no_login(peer, _reason(failure))
            return Closed(f"{peer.where} closed the connection ({_reason(failure)})")
        case Unsupported():
            return TooOld(peer.where, failure.api.title().replace("_", ""))
        case AuthenticationFailed():
            return _not_authenticated(failure, peer)
        case _:
            return Refused(str(failure))


def why_no_tls(failure: Unsupported) -> Refused:
    """Returns why the TLS settings of a cluster can't be used."""
    wrong = failure.__cause__
    if isinstance(wrong, LoginError):
        return Refused(f"the TLS settings can't be used: {wrong.why}", wrong.hint)
    return Refused(str(failure))


# The --timeout of promote, failback and cutover is for the copies, and other commands have none.
_WAIT_LONGER = "repl plan with a longer --timeout shows whether it answers at all"


def _late_connection(failure: TimedOut, peer: Peer) -> ClusterFailure:
    seconds = f"{peer.timeout_s:.3g} s"
    if failure.reached is Reached.ANSWERED:
        return NoAnswer(
            f"{peer.where} answers so slowly that no login was possible within {seconds}",
            f"it is overloaded, or the network is slow; {_WAIT_LONGER}",
        )
    if failure.reached is Reached.CONNECTED:
        return _silent(peer)
    if peer.settings.security.tls and accepts(peer.address):
        return NoAnswer(f"{peer.where} did not answer the TLS handshake within {seconds}")
    return NoConnection(
        f"{peer.where} did not answer a connection attempt within {seconds}",
        "look at the network, a firewall, or the cluster's bootstrap",
    )


def _silent(peer: Peer) -> NoAnswer:
    return NoAnswer(
        f"{peer.where} accepts connections but has not answered for {max(round(peer.timeout_s, 1), 0.1):g} s",
        f"it is overloaded, paused, or something between drops the answers; {_WAIT_LONGER}",
    )


def _malformed(failure: Malformed, peer: Peer) -> Refused:
    why = _first(failure).why
    return Refused(f"{peer.where} does not keep to Kafka's protocol: {why}", "is it a Kafka broker?")


def _no_connection(failure: ConnectionFailure, peer: Peer) -> ClusterFailure:
    host = peer.address[0]
    if failure.reached is Reached.CONNECTED and not peer.settings.security.tls:
        return _no_plaintext(peer, _reason(failure))
    if failure.reached is not Reached.NOTHING:
        return Closed(f"{peer.where} closed the connection ({_reason(failure)})")
    match failure.__cause__:
        case socket.gaierror() as unknown:
            return NoConnection(f"the host name {host} is not known ({unknown.strerror})", _LOOK_AT_BOOTSTRAP)
        case UnicodeError():
            return NoConnection(f"{peer.where} is no address: the host name cannot be used")
        case OSError() as wrong if _nothing_listens(wrong):
            return NoConnection(
                f"{peer.where} refused the connection: nothing listens there", _LOOK_AT_BOOTSTRAP
            )
        case OSError() as wrong if peer.settings.security.tls and accepts(peer.address):
            certain = _tls_refusal(peer, wrong) if isinstance(wrong, ssl.SSLError) else None
            return certain or _no_tls(peer, _reason(failure))
        case _:
            return NoConnection(f"{peer.where} can't be reached ({_reason(failure)})")


def _nothing_listens(wrong: OSError) -> bool:
    """Returns whether every address of the host refused. asyncio joins several errors in one text."""
    return isinstance(wrong, ConnectionRefusedError) or (
        wrong.errno is None and f"[Errno {errno.ECONNREFUSED}]" in str(wrong)
    )


def _mechanism_refused(failure: MechanismRefused, peer: Peer) -> Refused:
    match failure.code:
        case ErrorCode.ILLEGAL_SASL_STATE:
            return Refused(
                f"{peer.where} asks for no SASL login",
                "set security.protocol to PLAINTEXT, or SSL, without SASL_",
            )
        case ErrorCode.UNSUPPORTED_SASL_MECHANISM:
            return Refused(
                f"{peer.where} does not take {failure.mechanism}: it offers {failure.offered}",
                "set sasl.mechanism to one of them",
            )
        case code:
            return Refused(f"{peer.where} refused the SASL handshake (error {int(code)})")


def _credentials_refused(failure: CredentialsRefused, peer: Peer) -> Refused:
    sasl = peer.settings.sasl
    if isinstance(sasl, Password):
        named = f"{redacted(repr(sasl.username))} ({mechanism_of(sasl)}: {failure.why})"
        return Refused(
            f"{peer.where} refused the credentials of {named}", "look at sasl.username and sasl.password"
        )
    return Refused(
        f"{peer.where} refused the token ({failure.why})",
        "look at the token's issuer, audience and time, and at sasl.oauthbearer.*",
    )


def _not_authenticated(failure: AuthenticationFailed, peer: Peer) -> Refused:
    match failure.__cause__:
        case LoginError() as wrong:
            return Refused(f"no login at {peer.where}: {wrong.why}", wrong.hint)
        case ssl.SSLError() as wrong if (certain := _tls_refusal(peer, wrong)) is not None:
            return certain
        case _:
            return Refused(f"no login at {peer.where}: {failure.why}")


def _tls_refusal(peer: Peer, wrong: ssl.SSLError) -> Refused | None:
    """Returns the certain cause of a failed handshake; None if the port may not speak TLS at all."""
    if isinstance(wrong, ssl.SSLCertVerificationError):
        return _untrusted(peer, wrong)
    reason = (wrong.reason or "").upper()
    end = certificate_end(peer.settings.tls) if "ALERT" in reason and peer.settings.tls is not None else None
    if end is not None and end < datetime.now(UTC):
        return Refused(
            f"{peer.where} refused the client certificate: it ended on {end:%Y-%m-%d at %H:%M:%S} UTC",
            "renew the certificate; jobs use the new file from their next connection on",
        )
    if "CERTIFICATE_REQUIRED" in reason or "BAD_CERTIFICATE" in reason or "UNKNOWN_CA" in reason:
        return Refused(
            f"{peer.where} wants a client certificate that it trusts",
            "set ssl.certificate.location and ssl.key.location",
        )
    if "ALERT" in reason:
        return Refused(
            f"{peer.where} refused the TLS handshake ({short_reason(wrong)})",
            "look at the client certificate, ssl.cipher.suites and the broker's ssl.enabled.protocols",
        )
    return None


def _untrusted(peer: Peer, wrong: ssl.SSLCertVerificationError) -> Refused:
    code, host = wrong.verify_code, peer.address[0]
    if code in _UNKNOWN_ISSUER:
        return Refused(
            f"the TLS certificate of {peer.where} is not trusted ({wrong.verify_message})",
            "set ssl.ca.location to the PEM file of the authority that signed it",
        )
    if code in _WRONG_HOST:
        return Refused(
            f"the TLS certificate of {peer.where} is not for {host}",
            "use a bootstrap name that stands in the certificate, "
            "or set ssl.endpoint.identification.algorithm: none",
        )
    if code in (_EXPIRED, _NOT_YET):
        return Refused(
            f"the TLS certificate of {peer.where} is not valid now ({wrong.verify_message})",
            "renew it at the broker; if it is valid, this machine's clock is wrong",
        )
    return Refused(f"the TLS certificate of {peer.where} is not accepted ({wrong.verify_message})")


def _first(failure: ConnectionFailure) -> ConnectionFailure:
    """Returns the original failure that the others pass on."""
    while isinstance(failure.__cause__, ConnectionFailure):
        failure = failure.__cause__
    return failure


def _reason(failure: ConnectionFailure) -> str:
    first = _first(failure)
    wrong = first.__cause__
    if isinstance(wrong, ssl.SSLError) and wrong.reason:
        return wrong.reason.lower().replace("_", " ")
    if isinstance(wrong, OSError) and wrong.errno:
        return os.strerror(wrong.errno).lower()
    return str(wrong) if isinstance(wrong, OSError) and str(wrong) else first.why
