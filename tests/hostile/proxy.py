"""The proxy: one port before each broker, whose requests pass, or meet what a Chooser says."""

from __future__ import annotations

import asyncio
import contextlib
import struct
import threading
from collections import deque
from collections.abc import Callable, Coroutine, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from runtime.kafka.errors import ErrorCode
from tests.hostile.faults import Blow, Chooser, Fault, Tally
from tests.hostile.wire import Api, Request, error_answer, transactional

_SIZE = struct.Struct(">i")
_ANSWER_WITHIN_S = 60.0  # of a real broker, after which a request counts as lost
_FENCE_S = 1.0  # an answer is held for so long after another producer fenced this one
Fence = Callable[[str], object]


class Proxy:
    """Proxies of one stream of rounds. Its methods are called from any thread; it works in `loop`.

    `routes` are the brokers by the address that clients connect to. `tally` counts what was done.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop, routes: Mapping[str, str]) -> None:
        self.tally = Tally()
        self.bootstrap = ",".join(routes)
        self._loop = loop
        self._routes = routes
        self._servers: list[asyncio.Server] = []
        self._carriers: set[_Carrier] = set()
        self._chooser: Chooser | None = None
        self._fence: Fence | None = None
        self._refused = 0  # refusals that are not over
        self._busy_until = 0.0
        self._tasks: set[asyncio.Task[None]] = set()

    def start(self) -> None:
        """Accepts connections."""
        self._do(self._listen())

    def stop(self) -> None:
        """Closes everything."""
        self._do(self._close())

    def begin(self, chooser: Chooser, fence: Fence) -> None:
        """Lets `chooser` choose from now on. `fence` lets another producer take an id over; it may block."""

        def begin() -> None:
            self._chooser, self._fence = chooser, fence

        self._loop.call_soon_threadsafe(begin)

    def calm(self) -> None:
        """Lets every further request pass. What was begun goes on until its time is over."""

        def calm() -> None:
            self._chooser = None

        self._loop.call_soon_threadsafe(calm)

    # In the loop

    def _do(self, work: Coroutine[Any, Any, None]) -> None:
        asyncio.run_coroutine_threadsafe(work, self._loop).result(60)

    async def _listen(self) -> None:
        for address, broker in self._routes.items():
            host, _, port = address.rpartition(":")
            self._servers.append(await asyncio.start_server(self._accept(broker), host, int(port)))

    def _accept(self, broker: str) -> Callable[[asyncio.StreamReader, asyncio.StreamWriter], Any]:
        async def carry(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            carrier = _Carrier(self, reader, writer)
            self._carriers.add(carrier)
            try:
                await carrier.run(broker)
            finally:
                self._carriers.discard(carrier)

        return carry

    async def _close(self) -> None:
        self._refused += 1  # nothing listens again
        await self._hang_up()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        while self._carriers:
            await asyncio.sleep(0.01)

    async def _hang_up(self) -> None:
        servers, self._servers = self._servers, []
        for server in servers:
            for listening in server.sockets:
                self._loop.remove_reader(listening.fileno())
        # A closed server drops what it has just accepted unclosed. After three turns that is a carrier.
        for _ in range(3):
            await asyncio.sleep(0)
        for server in servers:
            server.close()
        for carrier in list(self._carriers):
            carrier.close()

    def choose(self, request: Request) -> Blow | None:
        """Returns what becomes of a request, and counts it."""
        self.tally.requests[request.api] += 1
        if request.api is Api.INIT_PRODUCER_ID and self._loop.time() < self._busy_until:
            self.tally.busy += 1
            return Blow(Fault.REFUSED, ErrorCode.CONCURRENT_TRANSACTIONS)
        blow = self._chooser.choose(request) if self._chooser is not None else None
        if blow is not None:
            self.tally.blows[request.api, blow.fault] += 1
        return blow

    async def fence(self, transactional_id: str) -> None:
        """Waits until another producer has taken the id over, and a little longer."""
        if self._fence is not None:
            await self._loop.run_in_executor(None, self._fence, transactional_id)
        await asyncio.sleep(_FENCE_S)

    def follow(self, blow: Blow) -> None:
        """Begins what follows a blow."""
        now = self._loop.time()
        if blow.busy_s:
            self._busy_until = max(self._busy_until, now + blow.refuse_s + blow.busy_s)
        if blow.refuse_s:
            self.tally.refusals[blow.refuse_s] += 1
            self._refused += 1
            task = self._loop.create_task(self._refuse(blow.refuse_s))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    async def _refuse(self, seconds: float) -> None:
        await self._hang_up()
        await asyncio.sleep(seconds)
        self._refused -= 1
        if not self._refused:
            await self._listen()


class _Carrier:
    """Carries one client's connection. Answers keep the order of their requests, as Kafka's clients expect.

    `_answers` are the answers to come, in order; None in place of one cuts the connection. `_forwarded` are
    those that the broker gives.
    """

    def __init__(self, proxy: Proxy, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._proxy = proxy
        self._reader, self._writer = reader, writer
        self._answers: asyncio.Queue[tuple[asyncio.Task[bytes | None], Blow | None]] = asyncio.Queue()
        self._forwarded: deque[asyncio.Future[bytes]] = deque()
        self._upstream: asyncio.StreamWriter | None = None
        self._tasks: list[asyncio.Task[None]] = []

    async def run(self, broker: str) -> None:
        """Carries requests and answers until either side closes the connection."""
        host, _, port = broker.rpartition(":")
        try:
            answers, self._upstream = await asyncio.open_connection(host, int(port))
        except OSError:
            self._writer.transport.abort()
            return
        self._tasks = [
            asyncio.create_task(work)
            for work in (self._take_requests(), self._take_answers(answers), self._give_answers())
        ]
        await asyncio.wait(self._tasks, return_when=asyncio.FIRST_COMPLETED)
        for task in self._tasks:
            task.cancel()
        results = await asyncio.gather(*self._tasks, return_exceptions=True)
        while not self._answers.empty():
            self._answers.get_nowait()[0].cancel()
        self._upstream.close()
        self._writer.close()
        for one in results:
            if isinstance(one, Exception) and not isinstance(one, OSError | asyncio.IncompleteReadError):
                raise one

    def close(self) -> None:
        """Closes the connection behind what was answered."""
        self._writer.close()

    async def _take_requests(self) -> None:
        while True:
            data = await _frame(self._reader)
            request = transactional(data)
            blow = self._proxy.choose(request) if request is not None else None
            if request is None or blow is None:
                self._answer(self._from_broker(data))
                continue
            match blow.fault:
                case Fault.REFUSED:
                    self._answer(_at_once(error_answer(request, blow.code)), blow)
                case Fault.CUT:
                    self._answer(_at_once(None), blow)
                case _:
                    self._answer(self._changed(request, blow, self._from_broker(data)), blow)

    def _answer(self, answer: Coroutine[Any, Any, bytes | None], blow: Blow | None = None) -> None:
        """Puts an answer behind those before it; what follows a blow begins once it is given."""
        self._answers.put_nowait((asyncio.create_task(answer), blow))

    def _from_broker(self, data: bytes) -> Coroutine[Any, Any, bytes]:
        """Forwards a request; returns what waits for its answer."""
        assert self._upstream is not None
        self._upstream.write(_SIZE.pack(len(data)) + data)
        answer: asyncio.Future[bytes] = asyncio.get_running_loop().create_future()
        self._forwarded.append(answer)

        async def wait() -> bytes:
            async with asyncio.timeout(_ANSWER_WITHIN_S):
                return await answer

        return wait()

    async def _changed(
        self, request: Request, blow: Blow, answer: Coroutine[Any, Any, bytes]
    ) -> bytes | None:
        """Waits for the broker's answer, and returns what the client gets in its place, perhaps later."""
        true = await answer
        match blow.fault:
            case Fault.APPLIED:
                return error_answer(request, blow.code)
            case Fault.LOST:
                return None
            case Fault.FENCED | Fault.FENCED_CUT:
                await self._proxy.fence(request.transactional_id)
        await asyncio.sleep(blow.late_s)
        return None if blow.fault is Fault.FENCED_CUT else true

    async def _take_answers(self, broker: asyncio.StreamReader) -> None:
        while True:
            data = await _frame(broker)
            answer = self._forwarded.popleft()
            if not answer.done():
                answer.set_result(_SIZE.pack(len(data)) + data)

    async def _give_answers(self) -> None:
        while True:
            task, blow = await self._answers.get()
            answer = await task
            if answer is None:
                self._writer.transport.abort()
            else:
                self._writer.write(answer)
                await self._writer.drain()
            if blow is not None:
                self._proxy.follow(blow)
            if answer is None:
                return


async def _at_once(answer: bytes | None) -> bytes | None:
    return answer


async def _frame(reader: asyncio.StreamReader) -> bytes:
    (size,) = _SIZE.unpack(await reader.readexactly(_SIZE.size))
    return await reader.readexactly(size)


@contextmanager
def proxies(routes: list[Mapping[str, str]]) -> Iterator[list[Proxy]]:
    """A proxy for each of the routes, all in one thread of their own."""
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever, name="hostile proxies", daemon=True)
    thread.start()
    made = [Proxy(loop, one) for one in routes]
    try:
        for proxy in made:
            proxy.start()
        yield made
    finally:
        for proxy in made:
            with contextlib.suppress(TimeoutError):
                proxy.stop()
        asyncio.run_coroutine_threadsafe(loop.shutdown_default_executor(), loop).result(60)
        loop.call_soon_threadsafe(loop.stop)
        thread.join(10)
        loop.close()
