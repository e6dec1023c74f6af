"""One connection to one broker: dial, TLS, ApiVersions, SASL; then a request and its answer at a time."""

import contextlib
import os
import socket
import ssl
import struct
import time
from collections.abc import Callable
from typing import Any, TypeVar

from kafka.protocol.metadata import ApiVersionsRequest, ApiVersionsResponse

from planner.observe.wire import probe
from planner.observe.wire.failure import Closed, NoAnswer, NoConnection, Refused, WireFailure
from planner.observe.wire.login import log_in
from planner.observe.wire.tls import context_of, refusal
from planner.observe.wire.tokens import token_of
from runtime.contract.client_values import Password, Sasl, WireSettings
from runtime.kafka.auth.login import MAX_BYTES_BEFORE_LOGIN, quoted

Decoded = TypeVar("Decoded")

# What decoders raise over bytes that are not what the protocol says.
_UNREADABLE = (
    ValueError,
    struct.error,
    LookupError,
    TypeError,
    AttributeError,
    OverflowError,
    EOFError,
    MemoryError,
    AssertionError,  # kafka-python states by it that a field is empty
)
API_VERSIONS = 18
UNSUPPORTED_VERSION = 35
_SIZE = struct.Struct(">i")
# No single answer takes longer than so many times the silence that we bear.
_LONGEST = 6
# Memory for an answer is taken as its bytes arrive, so that a size alone costs nothing.
_PIECE = 1 << 20


class Connection:
    """Used by one thread; `close` may be called from another one and ends a pending read."""

    def __init__(self, host: str, port: int, settings: WireSettings, timeout_s: float) -> None:
        self.where = f"{host}:{port}"
        self.address = (host, port)
        self.versions: dict[int, tuple[int, int]] = {}
        self._settings = settings
        self._timeout_s = timeout_s
        self._correlation = 0
        self._answered = False  # anything beyond ApiVersions and the login
        self._heard = False  # a single byte
        self._dialled: socket.socket | None = None
        self._ended = False
        self._login_deadline: float | None = None  # for everything until `open` returns

    def open(self) -> "Connection":
        """Dials and logs in within the time-out as a whole; a WireFailure says why that can't be done."""
        self._login_deadline = time.monotonic() + self._timeout_s
        self._dialled = _dial(*self.address, self._timeout_s)
        try:
            if self._ended:  # closed by another thread meanwhile
                raise Closed(f"the connection to {self.where} is not wanted any more")
            if self._settings.security.tls:
                self._secure()
            self.versions = self._api_versions()
            if self._settings.sasl is not None:
                log_in(self, self._settings.sasl, self._token(self._settings.sasl))
        except BaseException:
            self.close()
            raise
        self._login_deadline = None
        self._socket.settimeout(self._timeout_s)
        return self

    def close(self) -> None:
        self._ended = True
        if self._dialled is not None:
            with contextlib.suppress(OSError):
                self._dialled.shutdown(socket.SHUT_RDWR)
            self._dialled.close()

    @property
    def _socket(self) -> socket.socket:
        assert self._dialled is not None, "open it first"
        return self._dialled

    def bear(self, timeout_s: float) -> None:
        """From now on, silence for so long."""
        self._timeout_s = timeout_s
        self._socket.settimeout(timeout_s)

    def version(self, request: Any, at_most: int, at_least: int = 0) -> int | None:
        """The newest version of this request that both sides speak; None where there is none."""
        lowest, highest = self.versions.get(request.API_KEY, (0, -1))
        best = min(highest, at_most)
        return best if best >= max(lowest, at_least) else None

    def call(self, request: Any, response: Any, version: int, at_most: int | None = None) -> Any:
        """Asks, and returns the answer, decoded. `at_most` bounds its bytes where little is asked for."""
        answer = self.call_raw(request, version, at_most)
        return self.read(
            lambda: response.decode(answer, version=version, header=True), type(request).__name__
        )

    def call_raw(self, request: Any, version: int, at_most: int | None = None) -> memoryview:
        """Asks, and returns the answer: header and all, undecoded."""
        self._correlation += 1
        request.with_header(correlation_id=self._correlation, client_id=self._settings.client_id)
        try:
            self._socket.sendall(request.encode(version=version, header=True, framed=True))
            answer = self._receive(at_most)
        except TimeoutError:
            raise self._late() from None
        except OSError as broken:
            raise self._broken(broken) from None
        if answer[: _SIZE.size] != _SIZE.pack(self._correlation):
            raise self._malformed("it answers another request than the one that was sent")
        self._answered = True
        return memoryview(answer)

    def read(self, decode: Callable[[], Decoded], request: str) -> Decoded:
        """Returns what `decode` makes of an answer; raises Refused where it cannot read the answer."""
        try:
            return decode()
        except WireFailure:
            raise
        except _UNREADABLE as wrong:
            name = request.removesuffix("Request")
            raise self._malformed(
                f"its answer to {name} cannot be read ({quoted(str(wrong)) or type(wrong).__name__})"
            ) from None

    def _malformed(self, why: str) -> Refused:
        self.close()
        return Refused(f"{self.where} does not keep to Kafka's protocol: {why}", "is it a Kafka broker?")

    def _late(self) -> NoAnswer:
        if self._login_deadline is not None and self._heard:
            return NoAnswer(
                f"{self.where} answers so slowly that no login was possible within {self._timeout_s:.3g} s",
                "it is overloaded, or the network is slow; --timeout waits longer",
            )
        return NoAnswer(
            f"{self.where} accepts connections but has not answered for {self._timeout_s:.3g} s",
            "it is overloaded, paused, or something between drops the answers; --timeout waits longer",
        )

    def _secure(self) -> None:
        assert self._settings.tls is not None
        host = self.address[0]
        try:
            context = context_of(self._settings.tls)
            if self._login_deadline is not None:
                self._socket.settimeout(max(0.001, self._login_deadline - time.monotonic()))
            self._dialled = context.wrap_socket(self._socket, server_hostname=host)
        except TimeoutError:
            raise NoAnswer(
                f"{self.where} did not answer the TLS handshake within {self._timeout_s:.3g} s"
            ) from None
        except OSError as wrong:
            certain = refusal(self.where, host, wrong) if isinstance(wrong, ssl.SSLError) else None
            raise certain or probe.no_tls(self.address, self.where, self._settings, _reason(wrong)) from None

    def _token(self, settings: Sasl) -> str | None:
        """Returns the OAUTHBEARER token; the time that it takes is not the broker's."""
        if isinstance(settings, Password):
            return None
        began = time.monotonic()
        token = token_of(settings, self._timeout_s)
        if self._login_deadline is not None:
            self._login_deadline += time.monotonic() - began
        return token

    def _api_versions(self) -> dict[int, tuple[int, int]]:
        wanted = ApiVersionsRequest(client_software_name="repl", client_software_version="1")
        answer = self.call(wanted, ApiVersionsResponse, 3)
        if answer.error_code == UNSUPPORTED_VERSION:
            answer = self.call(ApiVersionsRequest(), ApiVersionsResponse, 0)
        if answer.error_code:
            raise Refused(f"{self.where} refused to tell its API versions (error {answer.error_code})")
        self._answered = False
        return {one.api_key: (one.min_version, one.max_version) for one in answer.api_keys}

    def _receive(self, at_most: int | None) -> bytearray:
        deadline = self._login_deadline or time.monotonic() + _LONGEST * self._timeout_s
        (size,) = _SIZE.unpack(self._exactly(_SIZE.size, deadline))
        limit = self._limit(at_most)
        if not _SIZE.size <= size <= limit:
            if not self.versions:  # the first answer: perhaps another protocol, which `_broken` finds out
                raise ConnectionError("what it answers is not Kafka's protocol")
            raise self._malformed(f"it announces an answer of {size} bytes; at most {limit} are expected")
        return self._exactly(size, deadline)

    def _limit(self, at_most: int | None) -> int:
        """How many bytes the next answer may have: few until the broker is believed."""
        largest = self._settings.max_response_bytes
        if self._login_deadline is not None:
            return min(MAX_BYTES_BEFORE_LOGIN, largest)
        return largest if at_most is None else min(at_most, largest)

    def _exactly(self, size: int, deadline: float) -> bytearray:
        buffer = bytearray()
        while len(buffer) < size:
            filled = len(buffer)
            buffer += bytes(min(size - filled, max(_PIECE, filled)))
            with memoryview(buffer) as rest:
                while filled < len(buffer):
                    left = deadline - time.monotonic()
                    if left <= 0:
                        raise TimeoutError
                    self._socket.settimeout(min(left, self._timeout_s))
                    count = self._socket.recv_into(rest[filled:])
                    if count == 0:
                        raise ConnectionResetError("it closed the connection")
                    self._heard = True
                    filled += count
        return buffer

    def _broken(self, broken: OSError) -> Closed | Refused:
        """Why a connection broke: early, it is most often that the two sides speak different protocols."""
        if isinstance(broken, ssl.SSLError) and (certain := refusal(self.where, self.address[0], broken)):
            return certain
        if not self._answered:
            if not self.versions and not self._settings.security.tls:
                return probe.no_plaintext(self.address, self.where, self._settings, _reason(broken))
            if self.versions and self._settings.sasl is None:
                return probe.no_login(self.address, self.where, self._settings, _reason(broken))
        return Closed(f"{self.where} closed the connection ({_reason(broken)})")


def _dial(host: str, port: int, timeout_s: float) -> socket.socket:
    where = f"{host}:{port}"
    try:
        dialled = socket.create_connection((host, port), timeout_s)
    except socket.gaierror as unknown:
        raise NoConnection(
            f"the host name {host} is not known ({unknown.strerror})", "look at the cluster's bootstrap"
        ) from None
    except ConnectionRefusedError:
        raise NoConnection(
            f"{where} refused the connection: nothing listens there", "look at the cluster's bootstrap"
        ) from None
    except TimeoutError:
        raise NoConnection(
            f"{where} did not answer a connection attempt within {timeout_s:.3g} s",
            "look at the network, a firewall, or the cluster's bootstrap",
        ) from None
    except UnicodeError:
        raise NoConnection(f"{where} is no address: the host name cannot be used") from None
    except OSError as wrong:
        raise NoConnection(f"{where} can't be reached ({_reason(wrong)})") from None
    dialled.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return dialled


def _reason(wrong: OSError) -> str:
    if isinstance(wrong, ssl.SSLError) and wrong.reason:
        return wrong.reason.lower().replace("_", " ")
    return os.strerror(wrong.errno).lower() if wrong.errno else str(wrong) or "connection lost"
