"""This module opens connections that are ready for requests, and keeps one for each broker and purpose."""

from __future__ import annotations

import asyncio
import socket
import ssl
from collections.abc import Callable
from functools import partial

from msgspec import Struct, field

from runtime.contract.client.settings import TokenSource, WireSettings
from runtime.kafka.auth.login import Exchange, LoginError, advance, quoted
from runtime.kafka.auth.oauthbearer import Tokens, fetch_token
from runtime.kafka.auth.sasl import exchange_of, mechanism_of
from runtime.kafka.auth.tls import TlsContexts
from runtime.kafka.connection import BufferPool, Connection
from runtime.kafka.errors import (
    AuthenticationFailed,
    ConnectionFailure,
    CredentialsRefused,
    Disconnected,
    ErrorCode,
    MechanismRefused,
    Reached,
    TimedOut,
    Unsupported,
)
from runtime.kafka.protocol.handshake import (
    ApiVersionsRequest,
    ApiVersionsResponse,
    SaslAuthenticateRequest,
    SaslHandshakeRequest,
)
from runtime.kafka.protocol.last_decoded import LastDecoded
from runtime.kafka.protocol.metadata import Broker
from runtime.kafka.timing import Shared, first_answer, in_own_thread, jittered

_SOFTWARE = ("repl", "1")
_SESSION_SHARE = 0.8
_STAGGER_S = 0.25  # between two addresses of a host
_NUMERIC = socket.NI_NUMERICHOST | socket.NI_NUMERICSERV


class Dialer:
    """Holds what all connections of a cluster share: TLS context, token, and memory for responses.

    `old_brokers` accepts brokers older than Kafka 2.4, for callers whose requests have older versions.
    """

    def __init__(
        self,
        settings: WireSettings,
        *,
        old_brokers: bool = False,
        buffers: BufferPool | None = None,
    ) -> None:
        self.settings = settings
        self._old_brokers = old_brokers
        self._tls = _tls_of(settings)
        self._tokens = Tokens(settings.sasl, fetch_token) if isinstance(settings.sasl, TokenSource) else None
        self._buffers = buffers or BufferPool()
        self._versions: LastDecoded[tuple[int, ApiVersionsResponse]] = LastDecoded()

    async def dial(self, host: str, port: int, purpose: str, within: float | None = None) -> Connection:
        """Connects and logs in.

        The seconds bound TCP, TLS and login together, without the time to get a token.
        """
        where = f"{host}:{port} ({purpose})"
        seconds = self.settings.connect_timeout_s if within is None else within
        connection: Connection | None = None
        try:
            async with asyncio.timeout(seconds) as limit:
                connection = await self._connect(host, port, where)
                try:
                    await self._introduce(connection, host, limit)
                except BaseException:
                    await connection.close()
                    raise
                return connection
        except TimeoutError:
            late = TimedOut(where, f"no connection in {seconds:g} s", sent=False)
            late.reached = _reached(connection)
            raise late from None
        except ConnectionFailure as failure:
            failure.reached = _reached(connection)
            raise

    async def _connect(self, host: str, port: int, where: str) -> Connection:
        made: list[Connection] = []
        ready: Connection | None = None
        try:
            transport, connection = await self._first_to_accept(host, port, where, made)
            if not transport.is_closing():  # the listener may have hung up already: the introduction says so
                self._set_options(transport.get_extra_info("socket"))
            if self._tls is not None:
                await _secure(transport, connection, host, self._tls)
            ready = connection
            return connection
        finally:
            for each in made:
                if each is not ready:
                    each.drop()

    def _set_options(self, connected: socket.socket) -> None:
        settings = self.settings
        connected.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, int(settings.keepalive))
        if settings.send_buffer_bytes:
            connected.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, settings.send_buffer_bytes)
        if settings.receive_buffer_bytes:
            connected.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, settings.receive_buffer_bytes)

    async def _first_to_accept(
        self, host: str, port: int, where: str, made: list[Connection]
    ) -> tuple[asyncio.Transport, Connection]:
        """Connects to the first address of the host that accepts; every connection is added to `made`.

        Another address is tried while one is silent, because it may drop packets (RFC 8305).
        """
        loop = asyncio.get_running_loop()
        settings = self.settings
        reasons: dict[str, None] = {}

        def protocol() -> Connection:
            connection = Connection(
                where,
                settings.client_id,
                request_timeout=settings.request_timeout_s,
                max_response_bytes=settings.max_response_bytes,
                buffers=self._buffers,
            )
            made.append(connection)
            return connection

        async def connect(address: str) -> tuple[asyncio.Transport, Connection]:
            try:
                return await loop.create_connection(protocol, address, port)
            except OSError as error:
                reasons[_text(error)] = None
                raise Disconnected(where, _text(error), sent=False) from error

        try:
            infos = await loop.getaddrinfo(host, port, type=socket.SOCK_STREAM)
        except UnicodeError as error:
            raise Disconnected(where, "the host name cannot be used", sent=False) from error
        except OSError as error:
            raise Disconnected(where, _text(error), sent=False) from error
        addresses = dict.fromkeys(socket.getnameinfo(info[4], _NUMERIC)[0] for info in infos)
        attempts = [partial(connect, address) for address in addresses]
        try:
            return await first_answer(attempts, _STAGGER_S, len(attempts))
        except Disconnected as error:
            raise Disconnected(where, "; ".join(reasons), sent=False) from error.__cause__

    async def _introduce(self, connection: Connection, host: str, limit: asyncio.Timeout) -> None:
        try:
            versions = await self._api_versions(connection)
            connection.versions = versions.versions
            connection.features = versions.features
            if self.settings.security.sasl:
                await self._authenticate(connection, host, limit)
        except ConnectionFailure as error:
            # Only the handshake was sent: no byte of the caller's requests was.
            raise type(error)(
                connection.where, f"while introducing ourselves: {error.why}", sent=False
            ) from error

    async def _api_versions(self, connection: Connection) -> ApiVersionsResponse:
        versions = await connection.call(ApiVersionsRequest(*_SOFTWARE, self._versions))
        if versions.error is ErrorCode.UNSUPPORTED_VERSION:
            if not self._old_brokers:
                raise Unsupported("API_VERSIONS", f"{connection.where} is older than Kafka 2.4")
            versions = await connection.call(ApiVersionsRequest())
            if versions.error:
                why = f"{connection.where} refused to tell its API versions: {versions.error.name}"
                raise Unsupported("API_VERSIONS", why)
        if versions.error:
            raise Disconnected(connection.where, f"ApiVersions: {versions.error.name}", sent=False)
        return versions

    async def _authenticate(self, connection: Connection, host: str, limit: asyncio.Timeout) -> None:
        settings = self.settings.sasl
        if settings is None:
            raise Unsupported("SASL", "security.protocol asks for SASL, and no sasl.mechanism is set")
        token = None if self._tokens is None else await self._token(self._tokens, limit)
        mechanism, exchange = mechanism_of(settings), exchange_of(settings, host, token)
        handshake = await connection.call(SaslHandshakeRequest(mechanism))
        if handshake.error:
            offered = quoted(", ".join(sorted(handshake.mechanisms))) or "none"
            raise MechanismRefused(connection.where, handshake.error, mechanism, offered)
        try:
            await self._converse(connection, exchange)
        except AuthenticationFailed:  # a broker that is only late, or gone, has not refused the token
            if self._tokens is not None:
                self._tokens.forget()
            raise

    async def _token(self, tokens: Tokens, limit: asyncio.Timeout) -> str:
        """Returns a token, and extends the limit by the time that it took to get the token."""
        loop = asyncio.get_running_loop()
        end, began = limit.when(), loop.time()
        limit.reschedule(None)
        token = await tokens.current()
        if end is not None:
            limit.reschedule(end + loop.time() - began)
        return token

    async def _converse(self, connection: Connection, exchange: Exchange) -> None:
        try:
            # SCRAM derives a key and GSSAPI asks a KDC: that must not hold up the event loop.
            send = await in_own_thread(partial(advance, exchange, None))
            while send is not None:
                answer = await connection.call(SaslAuthenticateRequest(send))
                if answer.error:
                    why = quoted(answer.message or answer.error.name)
                    raise CredentialsRefused(connection.where, why)
                if answer.session_lifetime_ms > 0:
                    lifetime = answer.session_lifetime_ms / 1000 * _SESSION_SHARE
                    connection.retire_at = asyncio.get_running_loop().time() + lifetime
                send = await in_own_thread(partial(advance, exchange, answer.auth_bytes))
        except LoginError as error:
            why = f"{error.why}; {error.hint}" if error.hint else error.why
            raise AuthenticationFailed(connection.where, why) from error


async def _secure(transport: asyncio.Transport, connection: Connection, host: str, tls: TlsContexts) -> None:
    """Agrees on TLS, and gives the connection the transport that encrypts."""
    loop = asyncio.get_running_loop()
    try:
        if transport.is_closing():
            raise ConnectionResetError("the connection was closed")
        secured = await loop.start_tls(transport, connection, tls.current(), server_hostname=host)
    except ssl.SSLCertVerificationError as error:
        why = f"the broker's certificate: {error.verify_message}"
        raise AuthenticationFailed(connection.where, why) from error
    except OSError as error:
        renewed = f"; {tls.problem}" if tls.problem else ""
        why = f"TLS could not be agreed on: {_text(error)}; does this listener speak TLS?{renewed}"
        raise Disconnected(connection.where, why, sent=False) from error
    assert secured is not None
    connection.connection_made(secured)


def _text(error: OSError) -> str:
    return str(error) or type(error).__name__


def _reached(connection: Connection | None) -> Reached:
    if connection is None:
        return Reached.NOTHING
    return Reached.ANSWERED if connection.last_received_at else Reached.CONNECTED


def _tls_of(settings: WireSettings) -> TlsContexts | None:
    if not settings.security.tls or settings.tls is None:
        return None
    try:
        return TlsContexts(settings.tls)
    except LoginError as error:
        raise Unsupported(
            "TLS", f"an ssl.* setting of the cluster does not work: {error.why}; {error.hint}"
        ) from error


# brokers close a connection that was idle for ten minutes; no request may be sent at that moment
_IDLE_S = 240.0


class _Link(Struct):
    making: Shared[Connection] = field(default_factory=Shared)
    connection: Connection | None = None


class _Backoff(Struct):
    failures: int = 0
    not_before: float = 0.0


class Links:
    """Links reconnects after a backoff with jitter that grows up to a bound; a success resets it."""

    def __init__(self, dialer: Dialer, address: Callable[[int], Broker | None]) -> None:
        self._dialer = dialer
        self._address = address
        self._links: dict[tuple[int, str], _Link] = {}
        self._backoffs: dict[int, _Backoff] = {}
        self._closed = False

    def kept(self, node: int, purpose: str) -> Connection | None:
        """Returns the existing connection, if it can be used now."""
        link = self._links.get((node, purpose))
        if link is None or link.connection is None or not self._usable(link.connection):
            return None
        return link.connection

    async def connection(self, node: int, purpose: str) -> Connection:
        """Returns an open, authenticated connection.

        A caller with a deadline sets its own limit around this.
        """
        link = self._links.setdefault((node, purpose), _Link())
        if link.connection is not None and self._usable(link.connection):
            return link.connection
        return await link.making.run(lambda: self._make(link, node, purpose))

    async def _make(self, link: _Link, node: int, purpose: str) -> Connection:
        if link.connection is not None:
            # The outstanding responses arrive first, so that produced batches stay in order.
            await link.connection.idle()
            await link.connection.close()
            link.connection = None
        link.connection = await self._dial(node, purpose)
        return link.connection

    def delay(self, node: int) -> float:
        """Returns the seconds until the next attempt to connect to this broker."""
        backoff = self._backoffs.get(node)
        return 0.0 if backoff is None else max(0.0, backoff.not_before - asyncio.get_running_loop().time())

    async def close(self) -> None:
        self._closed = True
        links, self._links = self._links, {}
        try:
            await asyncio.gather(*(link.making.stop() for link in links.values()))
        finally:
            await asyncio.gather(*(link.connection.close() for link in links.values() if link.connection))

    def _usable(self, connection: Connection) -> bool:
        now = asyncio.get_running_loop().time()
        fresh = connection.in_flight > 0 or now - connection.last_used < _IDLE_S
        return not connection.closed and now < connection.retire_at and fresh

    async def _dial(self, node: int, purpose: str) -> Connection:
        loop = asyncio.get_running_loop()
        backoff = self._backoffs.setdefault(node, _Backoff())
        self._check_open(node)
        await asyncio.sleep(self.delay(node))
        broker = self._address(node)
        if broker is None:
            why = "the cluster's metadata does not name it"
            raise Disconnected(f"broker {node} ({purpose})", why, sent=False)
        try:
            connection = await self._dialer.dial(broker.host, broker.port, f"broker {node}, {purpose}")
        except (ConnectionFailure, AuthenticationFailed):
            backoff.failures += 1
            settings = self._dialer.settings
            grown: float = settings.reconnect_backoff_s * 2 ** min(backoff.failures - 1, 16)
            backoff.not_before = loop.time() + jittered(min(settings.reconnect_backoff_max_s, grown))
            raise
        backoff.failures = 0
        if self._closed:
            await connection.close()
            self._check_open(node)
        return connection

    def _check_open(self, node: int) -> None:
        if self._closed:
            raise Disconnected(f"broker {node}", "the cluster was closed by this client", sent=False)
