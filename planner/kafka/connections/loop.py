"""An event loop in its own thread, for callers that have no event loop."""

import asyncio
import threading
from collections.abc import Coroutine
from concurrent.futures import CancelledError
from typing import Any, TypeVar

from runtime.kafka.connection import Connection

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
