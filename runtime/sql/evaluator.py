"""The slot's end of the query: it sends rows to the feeding worker, and reads Spark's answers to them.

Spark passes answers on when they have some size, and when it sees that there is one more row. So every Arrow
batch ends with a row whose answer has this size, and with an empty row: no row waits for later ones. Answers
come back in the order of the rows.
"""

from __future__ import annotations

import asyncio
import contextlib
import shutil
import socket
import threading
from collections import deque
from collections.abc import AsyncIterator, Callable, Iterable
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa
import pyarrow.compute

from runtime.batch.arrays import Integers
from runtime.contract.spec.transform import TransformSpec
from runtime.sql.columns import lengths_of
from runtime.sql.query_input import InputRows, QueryInput
from runtime.sql.rows import KEY, ROWS, VALUE, socket_file

_BATCH_BYTES = 4 << 20  # of keys and values in one Arrow batch; one larger record goes alone
_IN_FLIGHT = 8  # Arrow batches
_CLOSE_S = 60.0  # for the feeding worker to come, so that it can be ended


class EvaluationEnded(Exception):
    """Spark ended the query, so the slot can't continue."""


@dataclass(slots=True)
class _Ask:
    """Rows of one caller: how many of them were sent, and the answers that have come."""

    rows: pa.RecordBatch
    sizes: Integers  # of the keys and values before each row, and at the end
    answered: asyncio.Future[pa.Array]
    sent: int = 0
    due: int = 0
    found: list[pa.Array] = field(default_factory=list)


class Evaluator:
    """An evaluator owns the socket to the feeding worker, and the thread that reads the answers.

    `wanted` is what the query gets of each row, and `batches` are its results, which Spark hands to the
    slot's worker.
    """

    def __init__(
        self, token: str, transform: TransformSpec, wanted: QueryInput, batches: Iterable[pa.RecordBatch]
    ) -> None:
        self.transform = transform
        self._input = InputRows(wanted)
        self._wanted = wanted
        file = socket_file(token)
        self._folder = file.parent
        self._folder.mkdir(mode=0o700)
        self._listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self._listener.bind(str(file))
        self._listener.listen(1)
        self._listener.setblocking(False)
        self._connection: socket.socket | None = None
        self._batches = batches
        self._asks: deque[_Ask] = deque()
        # The rows of the Arrow batches in flight: of which ask, and how many. None: those at the end of one.
        self._parts: deque[tuple[_Ask | None, int]] = deque()
        self._asked = asyncio.Event()
        self._room = asyncio.Semaphore(_IN_FLIGHT)
        self._failure: EvaluationEnded | None = None
        self._ended = asyncio.get_running_loop().create_future()
        self._reader = threading.Thread(
            target=self._read_answers, args=(asyncio.get_running_loop(),), name="answers", daemon=True
        )

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

    async def evaluate(self, rows: pa.RecordBatch) -> pa.Array:
        """Returns the answers to the rows, in their order. Raises EvaluationEnded.

        Rows of concurrent callers share Arrow batches. The answer to a record that is too large is null.
        """
        if not rows.num_rows:
            return pa.array([], pa.binary())
        if self._failure is not None:
            raise self._failure
        sizes = _sizes(rows)
        too_large = pa.array(self._wanted.too_large(rows, np.diff(sizes)))
        if too_large.true_count:
            for name in (KEY, VALUE):
                column = rows.column(name)
                left = pa.compute.if_else(too_large, pa.scalar(None, column.type), column)
                rows = rows.set_column(rows.schema.get_field_index(name), rows.schema.field(name), left)
            sizes = _sizes(rows)
        future = asyncio.get_running_loop().create_future()
        ask = _Ask(self._input.of(rows), sizes, future, due=rows.num_rows)
        self._asks.append(ask)
        self._asked.set()
        answers = await ask.answered
        if not too_large.true_count:
            return answers
        return pa.compute.if_else(too_large, pa.scalar(None, answers.type), answers)

    async def _send(self, connection: socket.socket) -> None:
        """Sends the rows of the callers as they come, while few batches are in flight."""
        loop = asyncio.get_running_loop()
        await loop.sock_sendall(connection, self._input.schema.serialize())
        while True:
            self._asked.clear()
            while self._asks:
                await self._room.acquire()
                rows = self._take()
                await loop.sock_sendall(connection, rows.serialize())
            await self._asked.wait()

    def _take(self) -> pa.RecordBatch:
        """Returns the rows of the next Arrow batch, and notes to whom their answers go."""
        parts: list[pa.RecordBatch] = []
        room, left = ROWS, _BATCH_BYTES
        while self._asks and room:
            ask = self._asks[0]
            before = ask.sizes[ask.sent]
            fits = int(np.searchsorted(ask.sizes, before + left, side="right")) - 1 - ask.sent
            count = min(max(fits, 0 if parts else 1), room, ask.rows.num_rows - ask.sent)
            if count:
                parts.append(ask.rows.slice(ask.sent, count))
                self._parts.append((ask, count))
            ask.sent += count
            room -= count
            left -= int(ask.sizes[ask.sent] - before)
            if ask.sent < ask.rows.num_rows:
                break
            self._asks.popleft()
        self._parts.append((None, self._input.flush.num_rows))
        return pa.concat_batches([*parts, self._input.flush])

    def _read_answers(self, loop: asyncio.AbstractEventLoop) -> None:
        """Reads the answers in a thread of its own, because Spark's iterator blocks."""
        try:
            for batch in self._batches:
                loop.call_soon_threadsafe(self._answered, batch.column(0))
            failure = None
        except Exception as error:  # noqa: BLE001 - whatever Spark's worker raises ends the query
            failure = error
        with contextlib.suppress(RuntimeError):  # the loop is closed: nothing awaits answers any more
            loop.call_soon_threadsafe(self._end, failure)

    def _answered(self, answers: pa.Array) -> None:
        """Hands the answers to those who await them. Spark may divide them into other batches than ours."""
        at = 0
        while at < len(answers):
            ask, rows = self._parts[0]
            count = min(rows, len(answers) - at)
            if ask is not None:
                ask.found.append(answers.slice(at, count))
                ask.due -= count
                if not ask.due and not ask.answered.done():
                    ask.answered.set_result(pa.concat_arrays(ask.found))
            at += count
            if count < rows:
                self._parts[0] = ask, rows - count
            else:
                self._parts.popleft()
                if ask is None:
                    self._room.release()

    def _end(self, error: Exception | None) -> None:
        """Records the end of the query: answers that are still awaited do not come any more."""
        why = f": {type(error).__name__}: {error}" if error is not None else ""
        self._failure = EvaluationEnded(f"Spark ended the query of the flow's transform{why}")
        for ask in {
            id(pending): pending for pending in (*(ask for ask, _ in self._parts), *self._asks)
        }.values():
            if ask is not None and not ask.answered.done():
                ask.answered.set_exception(self._failure)
        self._parts.clear()
        self._asks.clear()
        if not self._ended.done():
            self._ended.set_result(None)


MakeEvaluator = Callable[[], Evaluator]  # of a task of a query, in the loop that runs when it is called


def _sizes(rows: pa.RecordBatch) -> Integers:
    """Returns how many bytes of keys and values stand before each row, and at the end."""
    return np.append(0, np.cumsum(lengths_of(rows.column(KEY)) + lengths_of(rows.column(VALUE))))


@contextlib.asynccontextmanager
async def serving_evaluator(make: MakeEvaluator) -> AsyncIterator[Evaluator]:
    """Yields an evaluator that serves until the block ends; then the query ends, too."""
    evaluator = make()
    serving = asyncio.create_task(evaluator.run())
    try:
        yield evaluator
    finally:
        serving.cancel()
        await asyncio.gather(serving, return_exceptions=True)
        await evaluator.close()
