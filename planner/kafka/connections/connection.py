"""One connection to one broker for code without an event loop: one request at a time.

The connections of a cluster share an event loop in its own thread.
"""

import asyncio
import threading
from collections.abc import Coroutine, Mapping
from concurrent.futures import CancelledError
from typing import Any, TypeVar

from planner.kafka.connections.explain import Peer, why_no_answer, why_no_connection
from planner.kafka.connections.failure import Closed
from runtime.contract.client.values import WireSettings
from runtime.kafka.connection import Connection
from runtime.kafka.dial import Dialer
from runtime.kafka.errors import TimedOut, WireError
from runtime.kafka.protocol.request import Request

T = TypeVar("T")
_END_S = 1.0
_CLOSING_TURNS = 4  # turns of the loop until the transport under TLS is closed too


class Ended(Exception):
    """The loop ended while this work waited, or before it."""


class LoopThread:
    """Runs coroutines for other threads. `end` closes every connection; pending work raises Ended.

    The thread is a daemon: an interrupted program does not wait for a silent broker.
    """

    def __init__(self, name: str) -> None:
        self._loop = asyncio.new_event_loop()
        self._connections: set[Connection] = set()
        self._ended = False
        self._lock = threading.Lock()
        self._thread = threading.Thread(target=self._serve, name=name, daemon=True)
        self._thread.start()

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        """Runs the work in the loop while this thread waits, and returns its result."""
        with self._lock:
            if self._ended:
                work.close()
                raise Ended
            under_way = asyncio.run_coroutine_threadsafe(work, self._loop)
        try:
            return under_way.result()
        except CancelledError:
            raise Ended from None

    def track(self, connection: Connection) -> None:
        """Registers a connection that is closed with the loop. Must be called in the loop."""
        self._connections = {one for one in self._connections if not one.closed} | {connection}

    def drop(self, connection: Connection) -> None:
        """Closes a connection, from any thread. Pending requests fail."""
        with self._lock:
            if not self._ended:
                self._loop.call_soon_threadsafe(connection.drop)

    def end(self) -> None:
        """Ends the loop, from any thread. Further calls have no effect."""
        with self._lock:
            if not self._ended:
                self._ended = True
                self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(_END_S)

    def _serve(self) -> None:
        asyncio.set_event_loop(self._loop)
        try:
            self._loop.run_forever()
            self._loop.run_until_complete(self._close_all())
        finally:
            self._loop.close()

    async def _close_all(self) -> None:
        waiting = asyncio.all_tasks() - {asyncio.current_task()}
        for task in waiting:
            task.cancel()
        await asyncio.gather(*waiting, return_exceptions=True)
        for connection in self._connections:
            connection.drop()
        for _ in range(_CLOSING_TURNS):
            await asyncio.sleep(0)


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
            last_byte_at = max(began, connection.last_received_at, connection.throttled_until)
            left = last_byte_at + self._timeout_s - loop.time()
            if left <= 0:
                connection.drop()
                raise TimedOut(self.where, f"nothing was heard for {self._timeout_s:g} s", sent=True)
            await asyncio.wait({answer}, timeout=left)
        return answer.result()
