"""One connection to one broker: dial, TLS, ApiVersions, SASL; then a request and its answer at a time."""

import contextlib
import os
import socket
import ssl
import struct
import time
from typing import Any

from kafka.protocol.metadata import ApiVersionsRequest, ApiVersionsResponse

from planner.observe.wire import probe
from planner.observe.wire.failure import Closed, NoAnswer, NoConnection, Refused
from planner.observe.wire.login import log_in
from planner.observe.wire.tls import refusal, tls_context
from runtime.contract.client_values import WireSettings

API_VERSIONS = 18
UNSUPPORTED_VERSION = 35
_SIZE = struct.Struct(">i")
# No single answer takes longer than so many times the silence that we bear.
_LONGEST = 6


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
        self._dialled: socket.socket | None = None
        self._ended = False

    def open(self) -> "Connection":
        """Dials and logs in; a WireFailure says why that can't be done."""
        self._dialled = _dial(*self.address, self._timeout_s)
        try:
            if self._ended:  # closed by another thread meanwhile
                raise Closed(f"the connection to {self.where} is not wanted any more")
            if self._settings.security.tls:
                self._secure()
            self.versions = self._api_versions()
            if self._settings.sasl is not None:
                log_in(self, self._settings.sasl, self._timeout_s)
        except BaseException:
            self.close()
            raise
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

    def call(self, request: Any, response: Any, version: int) -> Any:
        """Ask, and wait for the answer, decoded."""
        return response.decode(self.call_raw(request, version), version=version, header=True)

    def call_raw(self, request: Any, version: int) -> memoryview:
        """Ask, and wait for the answer: header and all, undecoded."""
        self._correlation += 1
        request.with_header(correlation_id=self._correlation, client_id=self._settings.client_id)
        try:
            self._socket.sendall(request.encode(version=version, header=True, framed=True))
            answer = self._receive()
        except TimeoutError:
            raise NoAnswer(
                f"{self.where} accepts connections but has not answered for {self._timeout_s:.3g} s",
                "it is overloaded, paused, or something between drops the answers; --timeout waits longer",
            ) from None
        except OSError as broken:
            raise self._broken(broken) from None
        self._answered = True
        return memoryview(answer)

    def _secure(self) -> None:
        assert self._settings.tls is not None
        host = self.address[0]
        try:
            context = tls_context(self._settings.tls)
            self._dialled = context.wrap_socket(self._socket, server_hostname=host)
        except TimeoutError:
            raise NoAnswer(
                f"{self.where} did not answer the TLS handshake within {self._timeout_s:.3g} s"
            ) from None
        except OSError as wrong:
            certain = refusal(self.where, host, wrong) if isinstance(wrong, ssl.SSLError) else None
            raise certain or probe.no_tls(self.address, self.where, self._settings, _reason(wrong)) from None

    def _api_versions(self) -> dict[int, tuple[int, int]]:
        wanted = ApiVersionsRequest(client_software_name="repl", client_software_version="1")
        answer = self.call(wanted, ApiVersionsResponse, 3)
        if answer.error_code == UNSUPPORTED_VERSION:
            answer = self.call(ApiVersionsRequest(), ApiVersionsResponse, 0)
        if answer.error_code:
            raise Refused(f"{self.where} refused to tell its API versions (error {answer.error_code})")
        self._answered = False
        return {one.api_key: (one.min_version, one.max_version) for one in answer.api_keys}

    def _receive(self) -> bytearray:
        deadline = time.monotonic() + _LONGEST * self._timeout_s
        (size,) = _SIZE.unpack(self._exactly(4, deadline))
        if not 0 < size <= self._settings.max_response_bytes:
            raise ConnectionError("what it answers is not Kafka's protocol")
        return self._exactly(size, deadline)

    def _exactly(self, size: int, deadline: float) -> bytearray:
        buffer = bytearray(size)
        rest = memoryview(buffer)
        while rest:
            if time.monotonic() > deadline:
                raise TimeoutError
            count = self._socket.recv_into(rest)
            if count == 0:
                raise ConnectionResetError("it closed the connection")
            rest = rest[count:]
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
    except OSError as wrong:
        raise NoConnection(f"{where} can't be reached ({_reason(wrong)})") from None
    dialled.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return dialled


def _reason(wrong: OSError) -> str:
    if isinstance(wrong, ssl.SSLError) and wrong.reason:
        return wrong.reason.lower().replace("_", " ")
    return os.strerror(wrong.errno).lower() if wrong.errno else str(wrong) or "connection lost"
