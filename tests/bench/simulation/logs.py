"""The logs and transactions of a simulated cluster, with the answers that a broker gives to writers.

Batches are stored as they came, with the offset that they got. The end of a transaction writes markers, as a
broker does. A log that compacts keeps the newest batch of each key.
"""

from __future__ import annotations

import asyncio
import struct
from bisect import bisect_right
from collections.abc import Iterable
from dataclasses import dataclass, field
from enum import IntEnum
from typing import NamedTuple

from crc32c import crc32c

from runtime.batch import Batch, walk
from runtime.contract.spec.naming import TopicPartition
from runtime.kafka.records import read

At = tuple[str, int]
_OFFSET = struct.Struct(">q")
_TRANSACTIONAL, _CONTROL = 0x10, 0x20
_COMPACT_EVERY = 400  # batches


class LogError(IntEnum):
    """The error codes that a writer may get."""

    NONE = 0
    RECORD_LIST_TOO_LARGE = 10
    INVALID_PRODUCER_EPOCH = 47
    INVALID_TXN_STATE = 48
    PRODUCER_FENCED = 90


class StoredBatch(NamedTuple):
    """A batch of a log; `end` is the offset behind it. A log that compacts has the key of its only record."""

    base: int
    end: int
    producer_id: int
    control: bool
    key: bytes | None
    data: bytes


class PartitionLog:
    """One partition: its batches in order, and the first offset of each transaction that is open."""

    def __init__(self, largest: int, *, compacts: bool) -> None:
        self.start = 0
        self.end = 0
        self.open: dict[int, int] = {}
        self._largest = largest
        self._compacts = compacts
        self._batches: list[StoredBatch] = []
        self._ends: list[int] = []
        self._since = 0
        self._waiting: set[asyncio.Event] = set()

    @property
    def stable_end(self) -> int:
        """The last stable offset."""
        return min(self.open.values(), default=self.end)

    def append(self, data: bytes) -> tuple[LogError, int]:
        """Appends a batch. Returns its base offset."""
        if len(data) > self._largest:
            return LogError.RECORD_LIST_TOO_LARGE, -1
        (attributes,) = struct.unpack_from(">h", data, 21)
        (last_delta,) = struct.unpack_from(">i", data, 23)
        (producer_id,) = struct.unpack_from(">q", data, 43)
        control = bool(attributes & _CONTROL)
        base = self.end
        stored = _OFFSET.pack(base) + data[8:12] + struct.pack(">i", 0) + data[16:]
        self.end = base + last_delta + 1
        if attributes & _TRANSACTIONAL:
            if control:
                self.open.pop(producer_id, None)
            else:
                self.open.setdefault(producer_id, base)
        key = _only_key(stored) if self._compacts and not control and last_delta == 0 else None
        self._batches.append(StoredBatch(base, self.end, producer_id, control, key, stored))
        self._ends.append(self.end)
        self._since += 1
        if self._compacts and self._since > _COMPACT_EVERY:
            self._compact()
        for one in self._waiting:
            one.set()
        return LogError.NONE, base

    def read(self, offset: int, most: int) -> bytes:
        """Returns the batches from an offset on: one at least, and no more than `most` bytes else."""
        found: list[bytes] = []
        size = 0
        for one in self._batches[bisect_right(self._ends, offset) :]:
            if found and size + len(one.data) > most:
                break
            found.append(one.data)
            size += len(one.data)
        return b"".join(found)

    async def grown(self, offset: int, seconds: float) -> None:
        """Waits until the log ends behind the offset, at most so many seconds."""
        if self.end > offset:
            return
        event = asyncio.Event()
        self._waiting.add(event)
        try:
            async with asyncio.timeout(seconds):
                await event.wait()
        except TimeoutError:
            pass  # the answer is then an empty one
        finally:
            self._waiting.discard(event)

    def _compact(self) -> None:
        """Removes batches whose only record is superseded, and the markers of their transactions."""
        newest = {one.key: one.base for one in self._batches if one.key is not None}
        kept: list[StoredBatch] = []
        data_since: set[int] = set()
        for one in self._batches:
            if one.control:
                if one.producer_id in data_since:
                    kept.append(one)
                    data_since.discard(one.producer_id)
            elif one.key is None or newest[one.key] == one.base:
                kept.append(one)
                data_since.add(one.producer_id)
        self._batches = kept
        self._ends = [one.end for one in kept]
        self._since = 0


def _only_key(data: bytes) -> bytes | None:
    at = TopicPartition("compacted", 0)
    for one in walk(memoryview(data), at).sets:
        if isinstance(one, Batch):
            return next((record.key for record in read(one, at)), None)
    return None


def marker(producer_id: int, epoch: int, now_ms: int, *, commit: bool) -> bytes:
    """Returns the control batch that ends a transaction."""
    key, value = struct.pack(">hh", 0, int(commit)), struct.pack(">hi", 0, 0)
    record = bytes([0, 0, 0, len(key) << 1]) + key + bytes([len(value) << 1]) + value + b"\0"
    body = bytes([len(record) << 1]) + record
    attributes = _TRANSACTIONAL | _CONTROL
    checked = struct.pack(">hiqqqhii", attributes, 0, now_ms, now_ms, producer_id, epoch, -1, 1) + body
    length = 4 + 1 + 4 + len(checked)
    return struct.pack(">qiibI", 0, length, 0, 2, crc32c(checked)) + checked


@dataclass(slots=True)
class Transaction:
    """What the coordinator knows of a transactional id."""

    producer_id: int
    epoch: int = 0
    partitions: set[At] = field(default_factory=set)


class Coordinator:
    """All transactional ids of a cluster, and the producer ids of writers without one."""

    def __init__(self, logs: dict[At, PartitionLog]) -> None:
        self._logs = logs
        self._by_id: dict[str, Transaction] = {}
        self._epochs: dict[int, int] = {}
        self._next = 1_000

    def init(
        self, transactional_id: str | None, producer_id: int, epoch: int, now_ms: int
    ) -> tuple[LogError, int, int]:
        """Returns the producer id and its next epoch, and aborts what the older holder left open."""
        if transactional_id is None:
            self._next += 1
            self._epochs[self._next] = 0
            return LogError.NONE, self._next, 0
        known = self._by_id.get(transactional_id)
        if known is None:
            self._next += 1
            known = self._by_id[transactional_id] = Transaction(self._next, -1)
        elif producer_id >= 0 and (producer_id, epoch) != (known.producer_id, known.epoch):
            return LogError.PRODUCER_FENCED, -1, -1
        known.epoch += 1
        self._epochs[known.producer_id] = known.epoch
        self._write_markers(known, now_ms, commit=False)
        return LogError.NONE, known.producer_id, known.epoch

    def add(self, transactional_id: str, producer_id: int, epoch: int, places: Iterable[At]) -> LogError:
        """Adds partitions to the open transaction."""
        known = self._by_id.get(transactional_id)
        if known is None or known.producer_id != producer_id:
            return LogError.INVALID_TXN_STATE
        if known.epoch != epoch:
            return LogError.PRODUCER_FENCED
        known.partitions.update(places)
        return LogError.NONE

    def end(
        self, transactional_id: str, producer_id: int, epoch: int, now_ms: int, *, commit: bool
    ) -> LogError:
        """Ends the open transaction with markers in all its partitions."""
        known = self._by_id.get(transactional_id)
        if known is None or known.producer_id != producer_id:
            return LogError.INVALID_TXN_STATE
        if known.epoch != epoch:
            return LogError.PRODUCER_FENCED
        if not known.partitions:
            return LogError.INVALID_TXN_STATE
        self._write_markers(known, now_ms, commit=commit)
        return LogError.NONE

    def check(self, at: At, transactional_id: str | None, data: bytes) -> LogError:
        """Returns the error of a batch whose producer may not write it."""
        producer_id, epoch = struct.unpack_from(">qh", data, 43)
        if producer_id < 0:
            return LogError.NONE
        if self._epochs.get(producer_id, epoch) != epoch:
            return LogError.INVALID_PRODUCER_EPOCH
        if transactional_id is not None and at not in self._by_id[transactional_id].partitions:
            return LogError.INVALID_TXN_STATE
        return LogError.NONE

    def _write_markers(self, known: Transaction, now_ms: int, *, commit: bool) -> None:
        for at in known.partitions:
            self._logs[at].append(marker(known.producer_id, known.epoch, now_ms, commit=commit))
        known.partitions = set()
