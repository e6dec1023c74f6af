"""This module is one connection to one broker, with the memory for its responses: values or errors, in order.

The protocol receives straight into each response's own memory, and sends header and record batches as the
pieces they are. Measurements that led here are in docs/internals/kafka-client.md.
"""

from __future__ import annotations

import asyncio
import ssl
import struct
import time
from collections import deque
from collections.abc import Callable, Mapping
from typing import Any, TypeVar, cast

from msgspec import Struct

from runtime.kafka.auth.login import MAX_BYTES_BEFORE_LOGIN
from runtime.kafka.errors import (
    AuthenticationFailed,
    Disconnected,
    Malformed,
    NotKafka,
    TimedOut,
    Unsupported,
    WireError,
)
from runtime.kafka.protocol.metadata import MAX_BROKER_LIST_BYTES, MetadataRequest
from runtime.kafka.protocol.request import INT32, SHORT_ANSWERS, Api, Request
from runtime.kafka.trace import TRACE

SMALLEST = 64 * 1024
PIECE = 1 << 20
KEPT = 128 * 1024 * 1024  # larger than the responses that a slot holds, so that they reuse memory
KEPT_S = 60.0


class _Kept(Struct):
    """Memory that a pool keeps, with the time at which it was last found in use."""

    memory: bytearray
    used_at: float


class BufferPool:
    """A BufferPool hands out memory for one response, and reuses it once the last view of it is released.

    A bytearray cannot be resized while a view of it exists. Therefore callers release nothing explicitly, and
    a forgotten view costs memory, never correctness. At most `kept_bytes` of unused memory are kept, each for
    `kept_s` since its last use: a start and a catching up need more than what comes after them.
    """

    def __init__(
        self, kept_bytes: int = KEPT, kept_s: float = KEPT_S, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._kept_bytes = kept_bytes
        self._kept_s = kept_s
        self._clock = clock
        self._kept: list[_Kept] = []
        self._inspected_at = clock()

    def first(self, size: int) -> memoryview:
        """Returns memory for a response of this size: all of it, because the broker is trusted."""
        return self.take(size)

    def grown(self, memory: memoryview, size: int) -> memoryview:
        """Returns larger memory with the same beginning, for a response of this total size."""
        larger = self.take(min(size, 2 * len(memory)))
        larger[: len(memory)] = memory
        return larger

    def take(self, size: int) -> memoryview:
        now = self._clock()
        if now - self._inspected_at >= self._kept_s / 2:  # drops memory that was not in use for `kept_s`
            self._inspected_at = now
            for kept in self._kept:
                if not _unused(kept.memory):
                    kept.used_at = now
            self._kept = [kept for kept in self._kept if now - kept.used_at < self._kept_s]
        if size < SMALLEST:
            return memoryview(bytearray(size))
        for kept in self._kept:
            if size <= len(kept.memory) <= 4 * size and _unused(kept.memory):
                kept.used_at = now
                return memoryview(kept.memory)[:size]
        memory = bytearray(size + size // 4)
        if _unused(memory):  # the spare byte is added once, before the memory holds data
            self._kept.append(_Kept(memory, now))
            total = sum(len(kept.memory) for kept in self._kept)
            while total > self._kept_bytes:
                total -= len(self._kept.pop(0).memory)
        return memoryview(memory)[:size]


class GrowingBuffers(BufferPool):
    """This pool allocates memory as bytes arrive, so that an announced size alone costs nothing."""

    def first(self, size: int) -> memoryview:
        return self.take(min(size, PIECE))


def _unused(buffer: bytearray) -> bool:
    try:
        buffer.append(0)
    except BufferError:
        return False
    buffer.pop()
    return True


R = TypeVar("R")

_SIZE = 4
_SMALLEST_RESPONSE = 4
_UNSENT = 1 << 20
# A broker that throttles for longer serves nobody. A hostile one may say 24 days.
MOST_THROTTLED_S = 300.0


class _Pending(Struct):
    correlation_id: int
    request: Request[Any]
    version: int
    answer: asyncio.Future[Any]
    within: float
    timer: asyncio.TimerHandle
    sent_at: float


class Connection(asyncio.BufferedProtocol):
    """A Connection is made by `dial`.

    Any failure closes it for good and fails every outstanding response with the reason.
    """

    def __init__(
        self,
        where: str,
        client_id: str,
        *,
        request_timeout: float,
        max_response_bytes: int,
        buffers: BufferPool,
    ) -> None:
        self.where = where
        self.retire_at = float("inf")
        self.last_used = 0.0
        self.throttled_until = 0.0
        self.throttle_s = 0.0
        """The last throttle time as the broker said it, which may be longer than this client waits."""
        self.last_received_at = 0.0
        """When the last bytes came, by the event loop's time; 0 before the first."""
        self.versions: Mapping[int, tuple[int, int]] = {Api.API_VERSIONS: (0, 3)}
        self.features: Mapping[str, int] = {}
        self._client_id = client_id
        self._request_timeout = request_timeout
        self._max_response_bytes = max_response_bytes
        self._buffers = buffers
        self._loop = asyncio.get_running_loop()
        self._transport: asyncio.Transport | None = None
        self._why: WireError | None = None
        self._lost = self._loop.create_future()
        self._pending: deque[_Pending] = deque()
        self._correlation_id = 0
        self._writable = asyncio.Event()
        self._writable.set()
        self._idle = asyncio.Event()
        self._idle.set()
        self._size = memoryview(bytearray(_SIZE))
        self._filled = 0
        self._expected = 0
        self._body: memoryview | None = None

    @property
    def closed(self) -> bool:
        return self._why is not None

    @property
    def in_flight(self) -> int:
        return len(self._pending)

    def start(self, request: Request[R], within: float | None = None) -> asyncio.Future[R]:
        """Queues the bytes at once, in call order, and returns a future for the response.

        The caller bounds what is in flight, and awaits `ready` first when it may be much. Cancelling the
        answer does not take the request back. Seconds are counted after a throttle that is on, or comes.
        """
        answer: asyncio.Future[R] = self._loop.create_future()
        transport = self._transport
        if self._why is not None or transport is None or transport.is_closing():
            why = str(self._why) if self._why else "the connection is closing"
            return _failed(answer, Disconnected(self.where, why, sent=False))
        try:
            version = self.version_of(request)
        except Unsupported as error:
            return _failed(answer, error)
        correlation_id = self._correlation_id = (self._correlation_id + 1) & 0x7FFFFFFF
        frame = request.frame(version, correlation_id, self._client_id)
        limit = self._request_timeout if within is None else within
        timer = self._timer(correlation_id, limit)
        sent_at = time.monotonic()  # uvloop's own clock counts milliseconds
        self._pending.append(_Pending(correlation_id, request, version, answer, limit, timer, sent_at))
        self._idle.clear()
        self.last_used = self._loop.time()
        transport.writelines(frame)
        return answer

    async def call(self, request: Request[R], within: float | None = None) -> R:
        """Sends one request and returns its response, after a throttle has passed."""
        await self.ready()
        return await self.start(request, within)

    async def ready(self) -> None:
        """Waits while the broker throttles this client, and while many bytes are unsent."""
        delay = self.throttled_until - self._loop.time()
        if delay > 0 and not self.closed:
            await asyncio.wait({self._lost}, timeout=delay)
        await self._writable.wait()

    def version_of(self, request: Request[Any]) -> int:
        """Returns the highest version that both sides support."""
        lowest, highest = request.versions
        offered = self.versions.get(request.API)
        if offered is None:
            raise Unsupported(request.API.name, f"{self.where} does not offer it")
        version = min(highest, offered[1])
        if version < max(lowest, offered[0]):
            why = (
                f"{self.where} speaks versions {offered[0]} to {offered[1]}, needed are {lowest} to {highest}"
            )
            raise Unsupported(request.API.name, why)
        return version

    async def idle(self) -> None:
        """Waits until no response is outstanding."""
        await self._idle.wait()

    async def close(self) -> None:
        self._fail(Disconnected(self.where, "closed by this client", sent=True), abort=False)
        try:
            await asyncio.wait({self._lost}, timeout=1.0)
        finally:
            if not self._lost.done() and self._transport is not None:
                self._transport.abort()

    def drop(self) -> None:
        """Closes the connection and discards what is in flight.

        A broker that throttles the connection would not read it either.
        """
        self._fail(Disconnected(self.where, "dropped by this client", sent=True))

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        # uvloop's transports do not derive from asyncio's class
        self._transport = cast(asyncio.Transport, transport)
        self._transport.set_write_buffer_limits(high=_UNSENT)
        self.last_used = self._loop.time()

    def get_buffer(self, sizehint: int) -> memoryview:
        if self._why is not None:
            return memoryview(bytearray(max(1, sizehint)))  # what still arrives is discarded
        return (self._size if self._body is None else self._body)[self._filled :]

    def buffer_updated(self, nbytes: int) -> None:
        if self._why is not None:
            return
        self._filled += nbytes
        self.last_received_at = self._loop.time()
        if self._body is None:
            if self._filled == _SIZE:
                self._begin_body()
        elif self._filled == self._expected:
            body, self._body, self._filled = self._body, None, 0
            self._answered(body)
        elif self._filled == len(self._body):
            self._body = self._buffers.grown(self._body, self._expected)

    def eof_received(self) -> bool:
        return False

    def pause_writing(self) -> None:
        self._writable.clear()

    def resume_writing(self) -> None:
        self._writable.set()

    def connection_lost(self, exc: Exception | None) -> None:
        self._fail(_lost(self.where, exc), abort=False)
        if not self._lost.done():
            self._lost.set_result(None)

    def _begin_body(self) -> None:
        (size,) = INT32.unpack(self._size)
        self._filled = 0
        limit, because = self._limit()
        if _SMALLEST_RESPONSE <= size <= limit:
            self._expected = size
            self._body = self._buffers.first(size)
        elif self.versions.get(Api.PRODUCE) is None:
            why = "the first answer is not Kafka's; does this listener speak TLS, and security.protocol not?"
            self._fail(NotKafka(self.where, why, sent=True))
        else:
            self._fail(Malformed(self.where, f"an answer of {size} bytes; {because} {limit}", sent=True))

    def _limit(self) -> tuple[int, str]:
        """Returns the largest allowed size of the next response, and the setting or state that limits it."""
        if not self._pending or self._pending[0].request.API in SHORT_ANSWERS:
            # Before the login no other request is sent: an unauthenticated broker can make this client
            # allocate little memory.
            return min(MAX_BYTES_BEFORE_LOGIN, self._max_response_bytes), "such an answer has at most"
        request = self._pending[0].request
        if isinstance(request, MetadataRequest) and request.brokers_only:
            return min(MAX_BROKER_LIST_BYTES, self._max_response_bytes), "a list of brokers has at most"
        return self._max_response_bytes, "receive.message.max.bytes allows"

    def _answered(self, body: memoryview) -> None:
        if not self._pending:
            self._fail(Malformed(self.where, "an answer that no request waits for", sent=True))
            return
        pending = self._pending[0]
        try:
            (correlation_id,) = INT32.unpack_from(body)
            if correlation_id != pending.correlation_id:
                raise ValueError(f"it answers request {correlation_id}, not {pending.correlation_id}")
            throttle_ms, value = pending.request.answer(pending.version, body)
        except (ValueError, struct.error, IndexError) as error:
            name = f"{pending.request.API.name} v{pending.version}"
            self._fail(Malformed(self.where, f"the answer to {name} can't be read: {error}", sent=True))
            return
        self._pending.popleft()
        pending.timer.cancel()
        if TRACE is not None:
            name, now = pending.request.API.name.lower(), time.monotonic()
            TRACE.span(self.where, name, pending.sent_at, now, bytes=len(body))
        if throttle_ms > 0:  # Until then the broker does not read what is in flight, either.
            self.throttle_s = throttle_ms / 1000
            self.throttled_until = self._loop.time() + min(self.throttle_s, MOST_THROTTLED_S)
            for late in self._pending:
                late.timer.cancel()
                late.timer = self._timer(late.correlation_id, late.within)
        if not pending.answer.done():
            pending.answer.set_result(value)
        if not self._pending:
            self._idle.set()

    def _timer(self, correlation_id: int, limit: float) -> asyncio.TimerHandle:
        wait = limit + max(0.0, self.throttled_until - self._loop.time())
        return self._loop.call_later(wait, self._expire, correlation_id, wait)

    def _expire(self, correlation_id: int, wait: float) -> None:
        late = next((pending for pending in self._pending if pending.correlation_id == correlation_id), None)
        if late is None:
            return
        why = f"no answer to {late.request.API.name} in {wait:g} s"
        _failed(late.answer, TimedOut(self.where, why, sent=True))
        self._fail(Disconnected(self.where, why, sent=True))

    def _fail(self, why: WireError, abort: bool = True) -> None:
        """Closes the connection once; the first reason is kept."""
        if self._why is not None:
            return
        self._why = why
        unanswered, self._pending = self._pending, deque()
        for pending in unanswered:
            pending.timer.cancel()
            _failed(pending.answer, why)
        self._idle.set()
        self._writable.set()
        self._body = None
        if self._transport is not None:
            if abort:
                self._transport.abort()
            else:
                self._transport.close()


def _failed(answer: asyncio.Future[R], why: WireError) -> asyncio.Future[R]:
    """Fails a response that a caller may have dropped, without asyncio's log line about it."""
    if not answer.done():
        answer.set_exception(why)
        answer.exception()
    return answer


def _lost(where: str, exc: Exception | None) -> WireError:
    match exc:
        case None:
            return Disconnected(where, "the broker closed the connection", sent=True)
        case ssl.SSLError() if "ALERT" in (exc.reason or ""):
            lost: WireError = AuthenticationFailed(where, f"TLS was refused by the broker: {exc.reason}")
        case _:
            lost = Disconnected(where, str(exc) or type(exc).__name__, sent=True)
    lost.__cause__ = exc
    return lost
