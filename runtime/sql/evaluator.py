"""The slot's end of the query: it sends rows to the feeding worker, and reads Spark's answers to them.

Rows go out in Arrow batches of one size. Spark passes a batch on when it has so many rows and one more. So a
batch that is not full is filled up with empty rows, one empty row goes ahead of all, and every batch ends
with one: no row waits for later ones. Answers come back in the order of the rows.
"""

from __future__ import annotations

import asyncio
import contextlib
import io
import shutil
import socket
import threading
from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from itertools import accumulate, chain
from typing import Any, NamedTuple

import pyarrow as pa

from runtime.contract.spec.transform import TransformSpec
from runtime.sql.rows import COLUMNS, ROWS, SourceRow, read_columns, socket_file

_BATCH_BYTES = 4 << 20  # of keys and values in one Arrow batch; one larger record goes alone
_IN_FLIGHT = 16  # Arrow batches
_CLOSE_S = 60.0  # for the feeding worker to come, so that it can be ended
_TYPES = {
    "BINARY": pa.binary(),
    "MAP<STRING, STRING>": pa.map_(pa.string(), pa.string()),
    "STRING": pa.string(),
    "INT": pa.int32(),
    "BIGINT": pa.int64(),
    "TIMESTAMP": pa.timestamp("us", tz="UTC"),
}
_SCHEMA = pa.schema([pa.field(name, _TYPES[kind]) for name, kind in COLUMNS])

Answers = list[bytes | None]


class EvaluationEnded(Exception):
    """Spark ended the query, so the slot can't continue."""


@dataclass(slots=True)
class _Ask:
    """Rows of one caller: how many of them were sent, and the answers that have come."""

    rows: Sequence[SourceRow]
    answered: asyncio.Future[Answers]
    sent: int = 0
    found: Answers = field(default_factory=list)


class _Part(NamedTuple):
    """So many rows of an ask, which went out in one Arrow batch. None stands for empty rows."""

    ask: _Ask | None
    rows: int


class Evaluator:
    """An evaluator owns the socket to the feeding worker, and the thread that reads the answers.

    `batches` are the query's results, which Spark hands to the slot's worker.
    """

    def __init__(self, token: str, transform: TransformSpec, batches: Iterable[pa.RecordBatch]) -> None:
        self.transform = transform
        file = socket_file(token)
        self._folder = file.parent
        self._folder.mkdir(mode=0o700)
        self._listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self._listener.bind(str(file))
        self._listener.listen(1)
        self._listener.setblocking(False)
        self._connection: socket.socket | None = None
        self._batches = batches
        self._read = read_columns(transform)
        self._asks: deque[_Ask] = deque()
        self._parts: deque[_Part] = deque([_Part(None, 1)])
        self._rows_answered = 0
        self._asked = asyncio.Event()
        self._room = asyncio.Semaphore(_IN_FLIGHT)
        self._failure: EvaluationEnded | None = None
        self._ended = asyncio.get_running_loop().create_future()
        self._reader = threading.Thread(
            target=self._read_answers, args=(asyncio.get_running_loop(),), name="answers", daemon=True
        )
        self._sink = io.BytesIO()
        self._writer: Any = None

    async def run(self) -> None:
        """Serves until it is cancelled. Raises EvaluationEnded where Spark ends the query."""
        self._reader.start()
        connection = await self._accept()
        sender = asyncio.ensure_future(self._send(connection))
        try:
            await asyncio.wait([sender, self._ended], return_when=asyncio.FIRST_COMPLETED)
        finally:
            sender.cancel()
            (failure,) = await asyncio.gather(sender, return_exceptions=True)
        if self._failure is None:
            self._end(failure if isinstance(failure, Exception) else None)
        assert self._failure is not None
        raise self._failure

    async def close(self) -> None:
        """Ends the query, and with it Spark's task, once the feeding worker has come. `run` has ended before.

        Rows without an answer are given up.
        """
        try:
            if self._connection is None and not self._ended.done():
                with contextlib.suppress(EvaluationEnded, TimeoutError):
                    async with asyncio.timeout(_CLOSE_S):
                        await self._accept()
        finally:
            if self._connection is not None:
                self._connection.close()
            self._listener.close()
            shutil.rmtree(self._folder, ignore_errors=True)
        if self._reader.ident is not None:
            await asyncio.to_thread(self._reader.join)

    async def _accept(self) -> socket.socket:
        """Waits for the feeding worker. Raises EvaluationEnded where the query ends before it comes."""
        accepted = asyncio.ensure_future(asyncio.get_running_loop().sock_accept(self._listener))
        try:
            await asyncio.wait([accepted, self._ended], return_when=asyncio.FIRST_COMPLETED)
        finally:
            if not accepted.done():
                accepted.cancel()
        if not accepted.done() or accepted.cancelled():
            assert self._failure is not None
            raise self._failure
        self._connection, _ = accepted.result()
        self._connection.setblocking(False)
        shutil.rmtree(self._folder, ignore_errors=True)  # it is not needed any more: a kill leaves nothing
        return self._connection

    async def evaluate(self, rows: Sequence[SourceRow]) -> Answers:
        """Returns the answers to the rows, in their order. Raises EvaluationEnded.

        Rows of concurrent callers share Arrow batches.
        """
        if not rows:
            return []
        if self._failure is not None:
            raise self._failure
        ask = _Ask(rows, asyncio.get_running_loop().create_future())
        self._asks.append(ask)
        self._asked.set()
        return await ask.answered

    async def _send(self, connection: socket.socket) -> None:
        """Sends the rows of the callers as they come, while few batches are in flight."""
        loop = asyncio.get_running_loop()
        await loop.sock_sendall(connection, self._encoded([], 1))
        while True:
            self._asked.clear()
            while self._asks:
                await self._room.acquire()
                rows = self._take()
                await loop.sock_sendall(connection, self._encoded(rows, ROWS))
            await self._asked.wait()

    def _take(self) -> list[SourceRow]:
        """Returns the rows of the next Arrow batch, and notes to whom their answers go."""
        rows: list[SourceRow] = []
        size = 0
        while self._asks and len(rows) < ROWS - 1:
            ask, begin = self._asks[0], len(rows)
            for row in ask.rows[ask.sent : ask.sent + ROWS - 1 - begin]:
                size += len(row.value or b"") + len(row.key or b"")
                if rows and size > _BATCH_BYTES:
                    break
                rows.append(row)
            ask.sent += len(rows) - begin
            if len(rows) > begin:
                self._parts.append(_Part(ask, len(rows) - begin))
            if ask.sent < len(ask.rows):
                break
            self._asks.popleft()
        self._parts.append(_Part(None, ROWS - len(rows)))
        return rows

    def _encoded(self, rows: Sequence[SourceRow], count: int) -> bytes:
        """Returns the next bytes of the stream of Arrow batches: the rows, filled up to `count`."""
        columns = zip(*rows, strict=True) if rows else [()] * len(COLUMNS)
        arrays = [
            _array(one.type, column, count) if one.name in self._read else pa.nulls(count, one.type)
            for one, column in zip(_SCHEMA, columns, strict=True)
        ]
        if self._writer is None:
            self._writer = pa.ipc.new_stream(self._sink, _SCHEMA)
        self._writer.write_batch(pa.RecordBatch.from_arrays(arrays, schema=_SCHEMA))
        encoded = self._sink.getvalue()
        self._sink.seek(0)
        self._sink.truncate()
        return encoded

    def _read_answers(self, loop: asyncio.AbstractEventLoop) -> None:
        """Reads the answers in a thread of its own, because Spark's iterator blocks."""
        try:
            for batch in self._batches:
                loop.call_soon_threadsafe(self._answered, batch.column(0).to_pylist())
            failure = None
        except Exception as error:  # noqa: BLE001 - whatever Spark's worker raises ends the query
            failure = error
        with contextlib.suppress(RuntimeError):  # the loop is closed: nothing awaits answers any more
            loop.call_soon_threadsafe(self._end, failure)

    def _answered(self, answers: Answers) -> None:
        """Hands the answers to those who await them. Spark may divide them into other batches than ours."""
        at = 0
        while at < len(answers):
            ask, rows = self._parts[0]
            count = min(rows, len(answers) - at)
            if ask is not None:
                ask.found += answers[at : at + count]
                if len(ask.found) == len(ask.rows) and not ask.answered.done():
                    ask.answered.set_result(ask.found)
            at += count
            if count < rows:
                self._parts[0] = _Part(ask, rows - count)
            else:
                self._parts.popleft()
        self._rows_answered += len(answers)
        while self._rows_answered >= ROWS:
            self._rows_answered -= ROWS
            self._room.release()

    def _end(self, error: Exception | None) -> None:
        """Records the end of the query: answers that are still awaited do not come any more."""
        why = f": {type(error).__name__}: {error}" if error is not None else ""
        self._failure = EvaluationEnded(f"Spark ended the query of the flow's transform{why}")
        for ask in {id(one): one for one in (*(part.ask for part in self._parts), *self._asks)}.values():
            if ask is not None and not ask.answered.done():
                ask.answered.set_exception(self._failure)
        self._parts.clear()
        self._asks.clear()
        if not self._ended.done():
            self._ended.set_result(None)


def _array(kind: pa.DataType, column: Sequence[Any], count: int) -> pa.Array:
    """Returns a column, filled up to `count` rows. Maps are built from their parts: that is much faster."""
    empty = [None] * (count - len(column))
    if not pa.types.is_map(kind):
        return pa.array([*column, *empty], type=kind)
    ends = list(accumulate(map(len, column), initial=0))
    entries = list(chain.from_iterable(column))
    offsets = pa.array([*ends, *([ends[-1]] * len(empty))], pa.int32())
    names, values = zip(*entries, strict=True) if entries else ((), ())
    return pa.MapArray.from_arrays(offsets, pa.array(names, pa.string()), pa.array(values, pa.string()))
