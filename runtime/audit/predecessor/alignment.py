"""Finds the source record that is the last one in a mirror partition, by the content of records.

A stored position lags behind what was copied: Connect stores positions once a minute, and a worker that was
killed has copied more than it stored. The records themselves show how far the copy goes. The last records of
the mirror are compared with the source's around the stored position, so that no record arrives twice.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Iterable, Mapping, Sequence

from msgspec import Struct, field

from runtime.audit.ledger import FlowAccess, as_audit_failure
from runtime.audit.partition_logs import LogBounds, fetch_records
from runtime.contract.records.consumer_record import ConsumerRecord
from runtime.contract.spec.naming import TopicPartition
from runtime.kafka.cluster import KafkaCluster

BY_HAND = "write start: {offsets: …} by hand"
_TAIL = 5  # records of the mirror that are compared
_BEFORE = 500  # source offsets in front of the position
_AT_ONCE = 5_000
_MOST = 200_000  # source records of one partition
_MOST_OF_ALL = 2_000_000
_PARTITIONS_AT_ONCE = 16


class TailSearch(Struct):
    """Searches the source, read in order, for the last record of a mirror, whose last records are `tail`.

    A place where as many records are the same as the tail has counts first: the stored position, then the
    first one behind it, then the last one before it. Compaction removes different records at both sides, so
    the last record alone counts too, at the stored position or where it is unique.
    """

    tail: Sequence[ConsumerRecord]
    next_offset: int
    found: int | None = None  # the offset behind the record; nothing more needs to be read
    _window: deque[ConsumerRecord] = field(default_factory=lambda: deque(maxlen=_TAIL))
    _before: int | None = None
    _alike: list[int] = field(default_factory=list)
    _alike_at_position: bool = False
    _passed: bool = False

    def read(self, records: Iterable[ConsumerRecord]) -> None:
        """Takes in the next source records, until the place is certain."""
        for record in records:
            if record.offset >= self.next_offset and not self._passed:
                self.pass_position()
            if self.found is not None:
                return
            self._window.append(record)
            if not _same(record, self.tail[-1]):
                continue
            self._alike.append(record.offset + 1)
            pairs = zip(reversed(self._window), reversed(self.tail), strict=False)
            if all(_same(original, copy) for original, copy in pairs):
                if self._passed:
                    self.found = record.offset + 1
                    return
                self._before = record.offset + 1

    def pass_position(self) -> None:
        """Decides about the stored position, once all records before it were read."""
        self._passed = True
        behind = self._window[-1].offset + 1 if self._window else None
        self._alike_at_position = behind is not None and behind in self._alike
        if behind is not None and self._before == behind:
            self.found = self.next_offset

    def result(self) -> int | None:
        """Returns the next source offset to copy, None where the mirror's last record was not found."""
        if not self._passed:
            self.pass_position()
        if self.found is not None:
            return self.found
        if self._before is not None:
            return self._before
        if self._alike_at_position:
            return self.next_offset
        return self._alike[0] if len(self._alike) == 1 else None


def _same(record: ConsumerRecord, copy: ConsumerRecord) -> bool:
    """Returns whether a record was copied. A copy may have more headers than its original."""
    return (
        copy.timestamp == record.timestamp
        and copy.key == record.key
        and copy.value == record.value
        and all(header in copy.headers for header in record.headers)
    )


class CopiedPartition(Struct):
    """One source partition of the flow.

    `stored` is the next offset that the tool would copy, None where it has no position. `log_start` and
    `log_end` are the source's. With `compared`, the last records of the mirror were looked for at the source,
    and `by_records` is the offset behind them, None where they were not found.
    """

    topic: str
    partition: int
    stored: int | None
    log_start: int
    log_end: int
    compared: bool = False
    by_records: int | None = None

    @property
    def begin(self) -> int:
        """Returns the stored offset, or where the log starts if there is none."""
        return self.stored if self.stored is not None else self.log_start

    @property
    def next_offset(self) -> int | None:
        """Returns the next offset to copy: as the records tell, else as it is stored."""
        return self.by_records if self.by_records is not None else self.stored


async def compare_mirrors(
    access: FlowAccess,
    source: KafkaCluster,
    destination: KafkaCluster,
    partitions: Iterable[CopiedPartition],
    mirrors: Mapping[TopicPartition, TopicPartition],
    logs: Mapping[TopicPartition, LogBounds],
) -> None:
    """Looks for the last records of each mirror at the source, and notes in its partition what was found.

    They are not found where another producer wrote the mirror, or they were changed. `mirrors` are by the
    partition at the source, and `logs` are those of the mirrors that exist. Partitions whose mirror is empty
    are left out. Raises AuditFailure.
    """
    left_of_all = _MOST_OF_ALL
    turns = asyncio.Semaphore(_PARTITIONS_AT_ONCE)

    async def search(partition: CopiedPartition, tail: Sequence[ConsumerRecord]) -> int | None:
        nonlocal left_of_all
        at, end = TopicPartition(partition.topic, partition.partition), partition.log_end
        tail_search = TailSearch(tail, partition.begin)
        start = max(partition.log_start, partition.begin - _BEFORE)
        left = _MOST
        while start < end and tail_search.found is None and left > 0 and left_of_all > 0:
            records = await fetch_records(source, at, start, end, _AT_ONCE)
            if not records:
                break
            tail_search.read(records)
            start = records[-1].offset + 1
            left -= len(records)
            left_of_all -= len(records)
        return tail_search.result()

    async def align(partition: CopiedPartition) -> None:
        mirror = mirrors[TopicPartition(partition.topic, partition.partition)]
        if mirror not in logs or partition.begin >= partition.log_end:
            return
        async with turns:
            with as_audit_failure(access.destination.cluster, BY_HAND):
                tail = await _tail(destination, mirror, logs[mirror])
            if tail:
                with as_audit_failure(access.source.cluster, BY_HAND):
                    partition.by_records = await search(partition, tail)
                partition.compared = True

    await asyncio.gather(*map(align, partitions))


async def _tail(destination: KafkaCluster, mirror: TopicPartition, log: LogBounds) -> list[ConsumerRecord]:
    """Returns the last committed records of the mirror partition, further back where offsets hold none."""
    distance, behind = 2 * _TAIL, log.end
    while True:
        start = max(log.start, log.end - distance)
        tail = await _last_records(destination, mirror, start, behind)
        if tail or start == log.start:
            return tail
        distance, behind = 10 * distance, start


async def _last_records(
    cluster: KafkaCluster, at: TopicPartition, start: int, end: int
) -> list[ConsumerRecord]:
    """Returns the last committed records between two offsets."""
    tail: list[ConsumerRecord] = []
    while start < end and (records := await fetch_records(cluster, at, start, end, _AT_ONCE)):
        tail = [*tail, *records][-_TAIL:]
        start = records[-1].offset + 1
    return tail
