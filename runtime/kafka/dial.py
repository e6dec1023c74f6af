"""Makes a connection that can be used: TCP, TLS, the versions both sides speak, and who we are."""

from __future__ import annotations

import asyncio
import socket
import ssl
from typing import assert_never

from runtime.contract.client_values import Password, TokenCommand, TokenEndpoint, UnsecuredToken, WireSettings
from runtime.kafka.auth.login import Exchange, LoginError, advance, quoted
from runtime.kafka.auth.sasl import exchange_of, mechanism_of
from runtime.kafka.auth.tls import tls_context
from runtime.kafka.buffers import BufferPool
from runtime.kafka.codes import ErrorCode
from runtime.kafka.connection import Connection
from runtime.kafka.errors import (
    AuthenticationFailed,
    ConnectionFailure,
    Disconnected,
    TimedOut,
    Unsupported,
    WireError,
)
from runtime.kafka.protocol.handshake import (
    ApiVersionsRequest,
    SaslAuthenticateRequest,
    SaslHandshakeRequest,
)
from runtime.kafka.tokens import Tokens

_SOFTWARE = ("repl", "1")
_SESSION_SHARE = 0.8


class Dialer:
    """Holds what all connections of a cluster share: the TLS context, the token, the memory for responses."""

    def __init__(self, settings: WireSettings) -> None:
        self.settings = settings
        self._tls = _tls_of(settings)
        match settings.sasl:
            case TokenCommand() | TokenEndpoint() | UnsecuredToken():
                self._tokens: Tokens | None = Tokens(settings.sasl)
            case Password() | None:
                self._tokens = None
            case _:
                assert_never(settings.sasl)
        self._buffers = BufferPool()

    async def dial(self, host: str, port: int, purpose: str) -> Connection:
        where = f"{host}:{port} ({purpose})"
        try:
            async with asyncio.timeout(self.settings.connect_timeout_s):
                connection = await self._connect(host, port, where)
                try:
                    await self._introduce(connection)
                except BaseException:
                    await connection.close()
                    raise
                return connection
        except TimeoutError:
            why = f"no connection in {self.settings.connect_timeout_s:g} s"
            raise TimedOut(where, why, sent=False) from None

    async def _connect(self, host: str, port: int, where: str) -> Connection:
        loop = asyncio.get_running_loop()
        settings = self.settings

        def protocol() -> Connection:
            return Connection(
                where,
                settings.client_id,
                request_timeout=settings.request_timeout_s,
                max_response_bytes=settings.max_response_bytes,
                buffers=self._buffers,
            )

        try:
            transport, connection = await loop.create_connection(
                protocol, host, port, ssl=self._tls, server_hostname=host if self._tls else None
            )
        except ssl.SSLCertVerificationError as error:
            raise AuthenticationFailed(where, f"the broker's certificate: {error.verify_message}") from None
        except TimeoutError:
            raise
        except UnicodeError:
            raise Disconnected(where, "the host name cannot be used", sent=False) from None
        except OSError as error:
            raise Disconnected(where, self._why(error), sent=False) from None
        self._tune(transport.get_extra_info("socket"))
        return connection

    def _why(self, error: OSError) -> str:
        text = str(error) or type(error).__name__
        if self._tls is not None and not isinstance(error, ConnectionRefusedError | socket.gaierror):
            return f"TLS could not be agreed on: {text}; does this listener speak TLS?"
        return text

    def _tune(self, connected: socket.socket) -> None:
        settings = self.settings
        connected.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, int(settings.keepalive))
        if settings.send_buffer_bytes:
            connected.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, settings.send_buffer_bytes)
        if settings.receive_buffer_bytes:
            connected.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, settings.receive_buffer_bytes)

    async def _introduce(self, connection: Connection) -> None:
        try:
            versions = await connection.call(ApiVersionsRequest(*_SOFTWARE))
            if versions.error is ErrorCode.UNSUPPORTED_VERSION:
                raise Unsupported("API_VERSIONS", f"{connection.where} is older than Kafka 3.1")
            if versions.error:
                raise Disconnected(connection.where, f"ApiVersions: {versions.error.name}", sent=False)
            connection.versions = versions.versions
            connection.features = versions.features
            if self.settings.security.sasl:
                await self._authenticate(connection)
        except ConnectionFailure as error:
            # Nothing but introductions was sent: whatever the caller wants to ask, it has not been asked.
            raise type(error)(
                connection.where, f"while introducing ourselves: {error.why}", sent=False
            ) from None

    async def _authenticate(self, connection: Connection) -> None:
        mechanism, exchange = await self._exchange()
        handshake = await connection.call(SaslHandshakeRequest(mechanism))
        if handshake.error:
            offered = quoted(", ".join(handshake.mechanisms)) or "none"
            why = f"{handshake.error.name}: {mechanism} was asked for, the broker offers {offered}"
            raise AuthenticationFailed(connection.where, why)
        try:
            await self._converse(connection, exchange)
        except WireError:
            if self._tokens is not None:
                self._tokens.forget()
            raise

    async def _exchange(self) -> tuple[str, Exchange]:
        settings = self.settings.sasl
        if settings is None:
            raise Unsupported("SASL", "security.protocol asks for SASL, and no sasl.mechanism is set")
        token = None if self._tokens is None else await self._tokens.current()
        return mechanism_of(settings), exchange_of(settings, token)

    async def _converse(self, connection: Connection, exchange: Exchange) -> None:
        try:
            send = advance(exchange, None)
            while send is not None:
                answer = await connection.call(SaslAuthenticateRequest(send))
                if answer.error:
                    why = quoted(answer.message or answer.error.name)
                    raise AuthenticationFailed(connection.where, why)
                if answer.session_lifetime_ms > 0:
                    lifetime = answer.session_lifetime_ms / 1000 * _SESSION_SHARE
                    connection.retire_at = asyncio.get_running_loop().time() + lifetime
                # SCRAM derives a key from the password: CPU that must not hold up the event loop.
                send = await asyncio.to_thread(advance, exchange, answer.auth_bytes)
        except LoginError as error:
            why = f"{error.why}; {error.hint}" if error.hint else error.why
            raise AuthenticationFailed(connection.where, why) from None


def _tls_of(settings: WireSettings) -> ssl.SSLContext | None:
    if not settings.security.tls or settings.tls is None:
        return None
    try:
        return tls_context(settings.tls)
    except LoginError as error:
        raise Unsupported(
            "TLS", f"an ssl.* setting of the cluster does not work: {error.why}; {error.hint}"
        ) from None
