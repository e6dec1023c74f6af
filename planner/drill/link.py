"""The link to a cluster: a proxy before each of its brokers, which can be cut and slowed without root.

Jobs and commands of a drill come through the link; the cluster's own producers and consumers don't.
"""

import asyncio
import socket
import struct
import threading
from collections.abc import Coroutine, Mapping
from functools import partial
from typing import Any, TypeAlias, TypeVar

_CHUNK = 1 << 16
_CHUNKS_UNDER_WAY = 1024
_HOST = "127.0.0.1"
Result = TypeVar("Result")
DelayedChunks: TypeAlias = "asyncio.Queue[tuple[float, bytes]]"  # each with the time when it is due
_RESET = struct.pack("ii", 1, 0)  # close() sends a reset


class DrillLink:
    """Proxies in one thread. `addresses` are known before the brokers are, which advertise them."""

    def __init__(self, brokers: int) -> None:
        self._loop = asyncio.new_event_loop()
        self._upstreams: Mapping[int, str] = {}
        self._streams: set[asyncio.StreamWriter] = set()
        self._is_cut = False
        self._delay_s = 0.0
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._thread.start()
        self._servers = {
            number: self._run(asyncio.start_server(partial(self._serve, number), _HOST, 0))
            for number in range(1, brokers + 1)
        }
        self.addresses: dict[int, str] = {
            number: f"{_HOST}:{server.sockets[0].getsockname()[1]}"
            for number, server in self._servers.items()
        }

    def start(self, upstreams: Mapping[int, str]) -> None:
        """Names the address at which each broker really listens."""
        self._upstreams = upstreams

    def cut(self) -> None:
        """Resets every connection, and refuses new ones until `restore`."""
        self._is_cut = True
        self._loop.call_soon_threadsafe(self._reset)

    def slow(self, delay_s: float) -> None:
        """Delays what brokers answer, until `restore`."""
        self._delay_s = delay_s

    def restore(self) -> None:
        """Makes the link whole and quick."""
        self._is_cut = False
        self._delay_s = 0.0

    def close(self) -> None:
        """Ends the thread and every connection."""
        if not self._loop.is_closed():
            self._run(self._end())
            self._loop.call_soon_threadsafe(self._loop.stop)
            self._thread.join()
            self._loop.close()

    def _run(self, work: Coroutine[Any, Any, Result]) -> Result:
        return asyncio.run_coroutine_threadsafe(work, self._loop).result()

    async def _serve(self, number: int, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        streams = [writer]
        self._streams.add(writer)
        try:
            if not self._is_cut and number in self._upstreams:
                host, _, port = self._upstreams[number].rpartition(":")
                answers, broker = await asyncio.open_connection(host, int(port))
                streams.append(broker)
                self._streams.add(broker)
                async with asyncio.TaskGroup() as ways:  # the end of one way ends the other
                    ways.create_task(self._copy(reader, broker))
                    delayed: DelayedChunks = asyncio.Queue(_CHUNKS_UNDER_WAY)
                    ways.create_task(self._delay(answers, delayed))
                    ways.create_task(self._deliver(delayed, writer))
        except* (OSError, asyncio.CancelledError):
            pass  # the broker is down, or the link ends: the client sees a closed connection
        finally:
            for stream in streams:
                stream.close()
                self._streams.discard(stream)

    async def _copy(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while data := await reader.read(_CHUNK):
            writer.write(data)
            await writer.drain()
        raise ConnectionAbortedError

    async def _delay(self, reader: asyncio.StreamReader, delayed: DelayedChunks) -> None:
        """Reads on while earlier chunks wait: the delay adds latency and does not lower the throughput."""
        while True:
            data = await reader.read(_CHUNK)
            await delayed.put((self._loop.time() + self._delay_s, data))
            if not data:
                return

    async def _deliver(self, delayed: DelayedChunks, writer: asyncio.StreamWriter) -> None:
        while True:
            due_s, data = await delayed.get()
            await asyncio.sleep(due_s - self._loop.time())
            if not data:
                raise ConnectionAbortedError
            writer.write(data)
            await writer.drain()

    def _reset(self) -> None:
        for stream in list(self._streams):
            stream.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET)
            stream.transport.abort()

    async def _end(self) -> None:
        """Closes the servers last: asyncio leaves connections open that arrive while its server is closed."""
        self._is_cut = True
        self._reset()
        tasks = asyncio.all_tasks() - {asyncio.current_task()}
        await asyncio.sleep(0)  # a task that is cancelled before its first step leaves its connection open
        for task in tasks:
            task.cancel()
        while tasks := asyncio.all_tasks() - {asyncio.current_task()}:
            await asyncio.wait(tasks)
        for server in self._servers.values():
            server.close()
