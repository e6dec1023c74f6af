"""Connections and sessions of the Kafka client (`runtime.kafka`) for code without an event loop.

The connections of a cluster share an event loop in its own thread; each sends one request at a time. A
session asks one broker, and another broker if that fails, within a timeout.

librdkafka's DescribeConfigs can't ask for single keys and always asks for every synonym. For 9,000 topics it
takes 3.8 s and 3.1 s of CPU. This client takes 0.9 and 0.5 s for all keys, 0.3 and 0.1 s for three.
"""

import asyncio
import contextlib
import threading
import time
from collections.abc import Callable, Coroutine, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import CancelledError
from functools import partial
from typing import Any, TypeVar

from planner.kafka.clients import token_of
from planner.kafka.connection_errors import (
    Closed,
    NoAnswer,
    NoConnection,
    Peer,
    WireFailure,
    accepts,
    why_no_answer,
    why_no_connection,
    why_no_tls,
)
from runtime.contract.client.settings import WireSettings
from runtime.kafka.connection import Connection, GrowingBuffers
from runtime.kafka.dial import Dialer
from runtime.kafka.errors import ConnectionFailure, Reached, TimedOut, Unsupported, WireError
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
# After this silence during a request, a second connection asks whether the broker answers at all.
_PROBE_AFTER_S = 1.0
# How long the second connection may take: this, or a multiple of what the first one took.
_PROBE_S = 1.0
_SLOWER = 4
# How long a port may take to accept TCP after its broker was given up.
_ACCEPTS_S = 0.5


class BlockingConnection:
    """A connection for one thread. `close` may be called by another thread and ends a pending read."""

    def __init__(self, loop: LoopThread, dialer: Dialer, address: tuple[str, int], timeout_s: float) -> None:
        self.address = address
        self.where = f"{address[0]}:{address[1]}"
        self._loop = loop
        self._dialer = dialer
        self._timeout_s = timeout_s
        self.replaceable = False  # whether another broker can answer in its place
        self._given_up = False
        self._dial_s = 0.0
        self._silent_s = timeout_s  # for how long it kept silent when it was given up
        self._answered = False  # whether any request after the login was answered
        self._closed = False
        self._wire: Connection | None = None

    def open(self) -> "BlockingConnection":
        """Connects and logs in within the timeout as a whole. Raises WireFailure with the reason."""
        try:
            self._loop.run(self.dial())
        except WireError as failure:
            raise self.explain(failure) from None
        except Ended:
            raise self.closed_by_us() from None
        return self

    async def dial(self) -> None:
        """Connects and logs in. Must be called in the loop; raises the client's own WireError."""
        began = time.monotonic()
        self._wire = await self._dialer.dial(*self.address, "planner", self._timeout_s)
        self._dial_s = time.monotonic() - began
        self._loop.track(self._wire)

    def give_up(self, silent_s: float) -> TimedOut:
        """Returns the failure of a dial that is cancelled after this time."""
        self._silent_s = round(silent_s, 1)
        self._given_up = True
        return TimedOut(self.where, f"no connection in {silent_s:.1f} s", sent=False)

    def explain(self, failure: WireError) -> WireFailure:
        """Returns why the dial failed. It may ask the port further questions: not for the loop's thread."""
        if self._given_up and isinstance(failure, TimedOut) and accepts(self.address, _ACCEPTS_S):
            failure.reached = Reached.CONNECTED
        found = why_no_connection(failure, self._peer)
        if self._given_up:
            found.way_out = "it is overloaded, paused, or the network drops its answers; others answered"
        return found

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
        self._timeout_s = self._silent_s = timeout_s

    def call(self, request: Request[R]) -> R:
        """Sends a request and returns the answer. Raises WireFailure with the reason."""
        try:
            answer = self._loop.run(self._call(request))
        except WireError as failure:
            if self._closed:
                raise self.closed_by_us() from None
            raise why_no_answer(failure, self._peer, first=not self._answered) from None
        except Ended:
            raise self.closed_by_us() from None
        self._answered = True
        return answer

    @property
    def _opened(self) -> Connection:
        assert self._wire is not None, "open it first"
        return self._wire

    @property
    def _peer(self) -> Peer:
        settings: WireSettings = self._dialer.settings
        return Peer(self.address, self.where, settings, self._silent_s)

    def closed_by_us(self) -> Closed:
        """Returns the failure of a call that our own side ended."""
        return Closed(f"the connection to {self.where} is not wanted any more")

    async def _call(self, request: Request[R]) -> R:
        """Waits while bytes arrive, up to a limit. Silence for the timeout ends the wait.

        A broker that needs long for an answer still accepts connections; one that is paused does not answer
        them either. So a second connection tells after a short silence whether the wait makes sense.
        """
        connection, loop = self._opened, asyncio.get_running_loop()
        await connection.ready()
        began = loop.time()
        answer = connection.start(request, _LONGEST_ANSWER * self._timeout_s)
        probed = not self.replaceable
        while not answer.done():
            last_byte_at = max(began, connection.last_received_at, connection.throttled_until)
            silent_s = loop.time() - last_byte_at
            if silent_s >= self._timeout_s:
                connection.drop()
                raise TimedOut(self.where, f"nothing was heard for {self._timeout_s:g} s", sent=True)
            if not probed and silent_s >= _PROBE_AFTER_S:
                probed = True
                await self._probe(answer)
                continue
            limit_s = self._timeout_s if probed else min(_PROBE_AFTER_S, self._timeout_s)
            await asyncio.wait({answer}, timeout=limit_s - silent_s)
        return answer.result()

    async def _probe(self, answer: "asyncio.Future[R]") -> None:
        """Connects to the broker a second time. Raises TimedOut if it neither accepts that nor answers."""
        limit_s = min(self._timeout_s, max(_PROBE_S, _SLOWER * self._dial_s))
        probe = asyncio.ensure_future(self._dialer.dial(*self.address, "probe", limit_s))
        either: set[asyncio.Future[Any]] = {answer, probe}
        try:
            await asyncio.wait(either, return_when=asyncio.FIRST_COMPLETED)
            if answer.done():
                return
            try:
                probe.result()
            except TimedOut:
                self._silent_s = _PROBE_AFTER_S + limit_s
                self._opened.drop()
                raise TimedOut(self.where, "a second connection is not answered either", sent=True) from None
            except WireError:
                return
        finally:
            probe.cancel()
            with contextlib.suppress(WireError, asyncio.CancelledError):
                await (await probe).close()


Answer = TypeVar("Answer")
Address = tuple[str, int]

# The share of the timeout that one of several brokers gets before another is tried.
_TIMEOUT_SHARE = 0.6
# A broker that has not accepted the login after this time no longer delays the attempt at the next one.
_NEXT_AFTER_S = 0.5
# A broker that is restarting refuses connections for a moment.
_ROUNDS = 3
_PAUSE_S = 0.25
# How much memory for answers is kept for the next answer.
_KEPT_BYTES = 8 << 20


class Session:
    """A session for one thread. It fails after `timeout_s` without an answer; each answer starts the time
    again.
    """

    def __init__(self, settings: WireSettings, timeout_s: float) -> None:
        self._settings = settings
        self._timeout_s = timeout_s
        self._known: list[Address] = list(dict.fromkeys(settings.bootstrap))
        self._dialer = _dialer(settings, timeout_s)
        self._loop = LoopThread("observe-connections")
        self._open: BlockingConnection | None = None
        self._deadline = 0.0
        self._closed = False

    def add_brokers(self, brokers: Iterable[Address]) -> None:
        """Adds addresses that the cluster returned. They are tried after those of the bootstrap."""
        self._known = list(dict.fromkeys((*self._settings.bootstrap, *brokers)))

    def connection(self) -> BlockingConnection:
        """Returns the open connection, or a new one to the first broker that accepts it."""
        if self._open is None:
            self._deadline = time.monotonic() + self._timeout_s
            self._open = self._connect()
        return self._open

    def dial(self, address: Address, timeout_s: float) -> BlockingConnection:
        """Returns the caller's own connection to this broker. `timeout_s` limits the connecting only."""
        dialled = self._connection(address, min(timeout_s, self._timeout_s)).open()
        dialled.set_timeout(self._timeout_s)
        return dialled

    def dial_each(
        self, addresses: Mapping[int, Address], timeout_s: float, *, hurry: bool
    ) -> dict[int, BlockingConnection | WireFailure]:
        """Returns the caller's own connection to each broker, by its id, or why there is none.

        With `hurry`, a broker that takes much longer than the others is given up before the timeout.
        """
        limit_s = min(timeout_s, self._timeout_s)
        attempts = {broker: self._connection(address, limit_s) for broker, address in addresses.items()}
        try:
            failures = self._loop.run(_open_each(list(attempts.values()), hurry))
        except Ended:
            return {broker: attempt.closed_by_us() for broker, attempt in attempts.items()}
        found: dict[int, BlockingConnection | WireFailure] = {}
        for broker, attempt in attempts.items():
            failure = failures.get(attempt)
            found[broker] = attempt if failure is None else attempt.explain(failure)
            attempt.set_timeout(self._timeout_s)
        return found

    def ask(self, question: Callable[[BlockingConnection], Answer]) -> Answer:
        """Returns the answer of the present broker, or of the next one if it fails."""
        self._deadline = time.monotonic() + self._timeout_s
        while True:
            if self._open is None:
                self._open = self._connect()
            self._open.replaceable = len(self._known) > 1
            try:
                return question(self._open)
            except (Closed, NoAnswer):
                self._drop_connection()
                if time.monotonic() >= self._deadline or self._closed:
                    raise

    def close(self) -> None:
        """Ends the session, also from another thread: pending calls fail."""
        self._closed = True
        self._loop.end()

    def _connection(self, address: Address, timeout_s: float) -> BlockingConnection:
        return BlockingConnection(self._loop, self._dialer, address, timeout_s)

    def _drop_connection(self) -> None:
        broken, self._open = self._open, None
        if broken is not None:
            # The next attempt starts with another broker.
            if broken.address in self._known:
                self._known.remove(broken.address)
                self._known.append(broken.address)
            broken.close()

    def _connect(self) -> BlockingConnection:
        """Returns a connection to the broker that accepts the login first."""
        for attempt in range(_ROUNDS):
            try:
                opened, failures = self._loop.run(_first_to_open(self._attempts()))
            except Ended:
                raise self._connection(self._known[0], self._timeout_s).closed_by_us() from None
            if opened is not None:
                return opened
            last = _decisive(failures)
            if not isinstance(last, NoConnection | NoAnswer | Closed) or attempt + 1 == _ROUNDS:
                break
            if time.monotonic() >= self._deadline or self._closed:
                break
            time.sleep(_PAUSE_S)
        raise last

    def _attempts(self) -> Iterator[BlockingConnection]:
        """Yields a connection for each broker. Each has only what is left of the time when it is opened."""
        share = 1.0 if len(self._known) == 1 else _TIMEOUT_SHARE
        for number, address in enumerate(tuple(self._known)):
            left = self._deadline - time.monotonic()
            if number and left <= 0:
                return
            yield self._connection(address, max(0.1, min(left, self._timeout_s * share)))


Failures = Sequence[tuple[BlockingConnection, WireError]]


async def _first_to_open(
    attempts: Iterator[BlockingConnection],
) -> tuple[BlockingConnection | None, Failures]:
    """Returns the first connection that opens, or None and the failure of each attempt.

    An attempt starts when the one before has failed, or has been silent for a moment. A refused login ends
    them all: further attempts with the same credentials could lock the account.
    """
    dials: dict[asyncio.Task[None], BlockingConnection] = {}
    failures: list[tuple[BlockingConnection, WireError]] = []
    patience_s: float | None = _NEXT_AFTER_S
    try:
        while True:
            if (following := next(attempts, None)) is not None:
                dials[asyncio.ensure_future(following.dial())] = following
            else:
                patience_s = None
            if not dials:
                return None, failures
            ended, _ = await asyncio.wait(dials, timeout=patience_s, return_when=asyncio.FIRST_COMPLETED)
            for dial in ended:
                attempt = dials.pop(dial)
                try:
                    dial.result()
                except WireError as failure:
                    failures.append((attempt, failure))
                    if not isinstance(failure, ConnectionFailure):
                        return None, failures
                else:
                    return attempt, failures
    finally:
        for dial, attempt in dials.items():
            dial.cancel()
            attempt.close()
        await asyncio.gather(*dials, return_exceptions=True)


async def _open_each(
    attempts: Sequence[BlockingConnection], hurry: bool
) -> dict[BlockingConnection, WireError]:
    """Opens all connections at once, and returns the failures.

    With `hurry`, the last ones may take only a multiple of the time that those before them took.
    """
    began = time.monotonic()
    dials = {asyncio.ensure_future(attempt.dial()): attempt for attempt in attempts}
    waiting = set(dials)
    failures: dict[BlockingConnection, WireError] = {}
    limit_s: float | None = None
    while waiting:
        left_s = None if limit_s is None else max(0.0, began + limit_s - time.monotonic())
        ended, waiting = await asyncio.wait(waiting, timeout=left_s, return_when=asyncio.FIRST_COMPLETED)
        for dial in ended:
            try:
                dial.result()
            except WireError as failure:
                failures[dials[dial]] = failure
            else:
                if hurry:
                    limit_s = max(_PROBE_S, _SLOWER * (time.monotonic() - began))
        if not ended:
            for dial in waiting:
                failures[dials[dial]] = dials[dial].give_up(time.monotonic() - began)
                dial.cancel()
            await asyncio.gather(*waiting, return_exceptions=True)
            break
    return failures


def _decisive(failures: Failures) -> WireFailure:
    """Returns the failure that no retry can mend, else the newest."""
    for attempt, failure in failures:
        found = attempt.explain(failure)
        if not isinstance(found, NoConnection | NoAnswer | Closed):
            break
    return found


def _dialer(settings: WireSettings, timeout_s: float) -> Dialer:
    try:
        return Dialer(
            settings,
            old_brokers=True,
            buffers=GrowingBuffers(_KEPT_BYTES),
            obtain_token=partial(token_of, timeout_s=timeout_s),
        )
    except Unsupported as wrong:
        raise why_no_tls(wrong) from None
