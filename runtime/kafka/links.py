"""This module keeps one connection for each broker and purpose, and renews it when it is closed."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field

from runtime.kafka.connection import Connection
from runtime.kafka.dial import Dialer
from runtime.kafka.errors import AuthenticationFailed, ConnectionFailure, Disconnected
from runtime.kafka.protocol.metadata import Broker
from runtime.kafka.timing import Shared, jittered

# brokers close a connection that was idle for ten minutes; no request may be sent at that moment
_IDLE_S = 240.0


@dataclass(slots=True)
class _Link:
    making: Shared[Connection] = field(default_factory=Shared)
    connection: Connection | None = None


@dataclass(slots=True)
class _Backoff:
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

    def connected(self, purpose: str) -> list[int]:
        """Returns the brokers to which a usable connection for this purpose exists."""
        return [
            node
            for (node, named), link in self._links.items()
            if named == purpose and link.connection is not None and self._usable(link.connection)
        ]

    def delay(self, node: int) -> float:
        """Returns the seconds until the next attempt to connect to this broker."""
        backoff = self._backoffs.get(node)
        return 0.0 if backoff is None else max(0.0, backoff.not_before - asyncio.get_running_loop().time())

    async def close(self) -> None:
        self._closed = True
        links, self._links = self._links, {}
        await asyncio.gather(*(link.making.stop() for link in links.values()))
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
            backoff.not_before = loop.time() + self._delay(backoff.failures)
            raise
        backoff.failures = 0
        if self._closed:
            await connection.close()
            self._check_open(node)
        return connection

    def _check_open(self, node: int) -> None:
        if self._closed:
            raise Disconnected(f"broker {node}", "the cluster was closed by this client", sent=False)

    def _delay(self, failures: int) -> float:
        settings = self._dialer.settings
        grown: float = settings.reconnect_backoff_s * 2 ** min(failures - 1, 16)
        return jittered(min(settings.reconnect_backoff_max_s, grown))
