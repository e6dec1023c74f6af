"""One connection to one broker for code without an event loop: one request at a time."""

import asyncio
from collections.abc import Mapping
from typing import TypeVar

from planner.kafka.connections.explain import Peer, why_no_answer, why_no_connection
from planner.kafka.connections.failure import Closed
from planner.kafka.connections.loop import Ended, LoopThread
from runtime.contract.client.values import WireSettings
from runtime.kafka.connection import Connection
from runtime.kafka.dial import Dialer
from runtime.kafka.errors import TimedOut, WireError
from runtime.kafka.protocol.request import Request

R = TypeVar("R")
# The longest time for one answer, as a multiple of the timeout.
_LONGEST_ANSWER = 6


class BlockingConnection:
    """A connection for one thread. `close` may be called by another thread and ends a pending read."""

    def __init__(self, loop: LoopThread, dialer: Dialer, address: tuple[str, int], timeout_s: float) -> None:
        self.address = address
        self.where = f"{address[0]}:{address[1]}"
        self._loop = loop
        self._dialer = dialer
        self._timeout_s = timeout_s
        self._answered = False  # whether any request after the login was answered
        self._closed = False
        self._wire: Connection | None = None

    def open(self) -> "BlockingConnection":
        """Connects and logs in within the timeout as a whole. Raises WireFailure with the reason."""
        try:
            self._wire = self._loop.run(self._dial())
        except WireError as failure:
            raise why_no_connection(failure, self._peer) from None
        except Ended:
            raise self._closed_by_us() from None
        return self

    def close(self) -> None:
        """Closes the connection; a pending call raises Closed."""
        self._closed = True
        if self._wire is not None:
            self._loop.drop(self._wire)

    @property
    def versions(self) -> Mapping[int, tuple[int, int]]:
        """Returns the oldest and newest version of each request that the broker supports."""
        return self._opened.versions

    def set_timeout(self, timeout_s: float) -> None:
        """Sets for how long the broker may send nothing from now on."""
        self._timeout_s = timeout_s

    def call(self, request: Request[R]) -> R:
        """Sends a request and returns the answer. Raises WireFailure with the reason."""
        try:
            answer = self._loop.run(self._call(request))
        except WireError as failure:
            if self._closed:
                raise self._closed_by_us() from None
            raise why_no_answer(failure, self._peer, first=not self._answered) from None
        except Ended:
            raise self._closed_by_us() from None
        self._answered = True
        return answer

    @property
    def _opened(self) -> Connection:
        assert self._wire is not None, "open it first"
        return self._wire

    @property
    def _peer(self) -> Peer:
        settings: WireSettings = self._dialer.settings
        return Peer(self.address, self.where, settings, self._timeout_s)

    def _closed_by_us(self) -> Closed:
        return Closed(f"the connection to {self.where} is not wanted any more")

    async def _dial(self) -> Connection:
        dialled = await self._dialer.dial(*self.address, "planner", self._timeout_s)
        self._loop.track(dialled)
        return dialled

    async def _call(self, request: Request[R]) -> R:
        """Waits while bytes arrive, up to a limit. Silence for the timeout ends the wait."""
        connection, loop = self._opened, asyncio.get_running_loop()
        await connection.ready()
        began = loop.time()
        answer = connection.start(request, _LONGEST_ANSWER * self._timeout_s)
        while not answer.done():
            last_byte_at = max(began, connection.heard_at, connection.throttled_until)
            left = last_byte_at + self._timeout_s - loop.time()
            if left <= 0:
                connection.drop()
                raise TimedOut(self.where, f"nothing was heard for {self._timeout_s:g} s", sent=True)
            await asyncio.wait({answer}, timeout=left)
        return answer.result()
