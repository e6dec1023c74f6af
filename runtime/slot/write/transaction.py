"""A transaction of a lane holds its partitions, their acknowledged batches, what it commits, and its failure.

The ledger entries that it commits derive from acknowledged offsets alone (R1, R6).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from runtime.batch import OutgoingBatch
from runtime.contract.records.advance import Advance, advance
from runtime.contract.records.ledger import BatchIdentity, Progress, Segment
from runtime.contract.records.offset_map import Run, append
from runtime.kafka.errors import PartitionsRefused, WireError
from runtime.slot.errors import ErrorPhase
from runtime.slot.partition import Cursor, PartitionCopy, QueuedBatch

# A heavily compacted topic has many runs, which stay in memory until the transaction ends (R8).
_MAX_RUNS = 50_000


@dataclass(frozen=True, slots=True)
class TransactionFailure(Exception):
    """A failure says why a transaction must abort.

    `copies` are the partitions that may have caused it, empty where that is not known. `error` is None for an
    acknowledged offset that can't be true: `why` describes it then (R4).
    """

    phase: ErrorPhase
    error: WireError | None
    copies: tuple[PartitionCopy, ...] = ()
    why: str = ""

    def __str__(self) -> str:
        return self.why or str(self.error)


class TransactionPartition:
    """A part is one partition's share of a transaction, from its first batch to the end."""

    __slots__ = (
        "bytes",
        "copy",
        "cursor",
        "destination_end",
        "epoch",
        "last_timestamp",
        "leader",
        "mark",
        "records",
        "runs",
    )

    def __init__(self, copy: PartitionCopy, leader: int, leader_epoch: int) -> None:
        self.copy = copy
        self.leader = leader
        self.epoch = leader_epoch
        self.cursor = Cursor(copy.progress.position, copy.progress.source_epoch)
        self.destination_end = copy.progress.destination_end
        self.runs: list[Run] = []
        self.records = 0
        self.bytes = 0
        self.last_timestamp = -1
        self.mark: BatchIdentity | None = None

    def acknowledged(
        self, out: OutgoingBatch, source_epoch: int, base_offset: int, mark: BatchIdentity | None = None
    ) -> str | None:
        """Records an acknowledged batch; returns an error text if its base offset can't be true (R4)."""
        if base_offset < self.destination_end:
            return (
                f"acknowledged at {base_offset}, but the destination already ended at {self.destination_end}:"
                " it was recreated or truncated"
            )
        self.copy.accounts.acknowledged(base_offset, out.batch.records, self.destination_end)
        for delta, source, records in out.segments:
            append(self.runs, Run(source, base_offset + delta, records))
        batch = out.batch
        self.destination_end = base_offset + batch.records
        self.cursor = Cursor(out.position, source_epoch)
        self.mark = mark
        self.records += batch.records
        self.bytes += batch.size
        self.last_timestamp = max(self.last_timestamp, batch.max_timestamp)
        return None

    def step(self) -> Advance:
        """Returns the progress that the ledger records for this part.

        While batches are queued, the position ends at the last acknowledged batch. With an empty queue it is
        the fetch cursor, which includes records that are not copied.
        """
        copy = self.copy
        cursor = self.cursor if copy.queue else copy.cursor
        return Advance(
            position=cursor.offset,
            source_epoch=cursor.epoch,
            runs=tuple(self.runs),
            destination_epoch=self.epoch,
            records=self.records,
            bytes=self.bytes,
            dropped=copy.dropped,
            last_timestamp=self.last_timestamp,
            mark=self.mark,
            quarantined=len(copy.quarantined_before(cursor.offset)),
        )


class CommitEntry(NamedTuple):
    """An entry is what a transaction commits for one partition.

    `part` is None where only the idle position moved. `step` is None where the progress is replaced as a
    whole.
    """

    copy: PartitionCopy
    progress: Progress
    segments: Sequence[Segment]
    part: TransactionPartition | None
    step: Advance | None

    def apply(self) -> None:
        """Applies the committed entry to its partition."""
        if self.step is None:
            self.copy.replaced(self.progress)
        else:
            self.copy.committed(self.progress, self.step.dropped)


def blamed(error: WireError, joining: Iterable[TransactionPartition]) -> tuple[PartitionCopy, ...]:
    """Returns the partitions that may have caused an error of AddPartitionsToTxn.

    Where the broker names the partitions that it refuses, no other one is blamed (R7).
    """
    copies = tuple(part.copy for part in joining)
    if not isinstance(error, PartitionsRefused):
        return copies
    return tuple(copy for copy in copies if copy.at in error.partitions)


def idle_step(copy: PartitionCopy) -> Advance:
    """Returns the advance of a position that moved over records that are not copied."""
    quarantined = len(copy.quarantined_before(copy.cursor.offset))
    return Advance(copy.cursor.offset, copy.cursor.epoch, dropped=copy.dropped, quarantined=quarantined)


class Transaction:
    """A transaction is open from its first batch on and owns the parts of its partitions.

    Times are those of the event loop's clock, in seconds. `joined` means that the coordinator has added the
    ledger's partition to it. `entries` are the ledger entries that its end would commit. `idle` are the
    partitions that have no batch in it, but an idle position to commit. `latencies` are pairs of a batch's
    newest timestamp in ms and its record count. `closed` means that responses are not awaited any more.
    """

    def __init__(self, started: float) -> None:
        self.started = started
        self.parts: dict[PartitionCopy, TransactionPartition] = {}
        self.in_flight = 0
        self.bytes = 0
        self.runs = 0
        self.failure: TransactionFailure | None = None
        self.unexpected: BaseException | None = None
        self.closed = False
        self.joined = False
        self.entries: list[CommitEntry] = []
        self.idle: list[PartitionCopy] = []
        self.latencies: list[tuple[int, int]] = []

    def __iter__(self) -> Iterator[TransactionPartition]:
        return iter(self.parts.values())

    def add(self, part: TransactionPartition) -> None:
        """Adds a partition's part to the transaction."""
        self.parts[part.copy] = part
        part.copy.enter_transaction()

    def mark_joined(self) -> None:
        """Records that the coordinator has added the ledger's partition."""
        self.joined = True

    def sent(self, size: int) -> None:
        """Records that a produce request of `size` bytes is in flight."""
        self.in_flight += 1
        self.bytes += size

    def answered(self) -> None:
        """Records that a produce request is in flight no more."""
        self.in_flight -= 1

    def acknowledged(
        self, part: TransactionPartition, queued: QueuedBatch, base_offset: int, mark: BatchIdentity
    ) -> None:
        """Records an acknowledged batch; a base offset that can't be true fails the transaction (R4)."""
        out = queued.out
        if why := part.acknowledged(out, queued.epoch, base_offset, mark):
            self.fail(TransactionFailure(ErrorPhase.PRODUCE, None, (part.copy,), why))
            return
        self.runs += len(out.segments)
        self.latencies.append((out.batch.max_timestamp, out.batch.records))

    def is_full(self, most_bytes: int) -> bool:
        """Returns whether the transaction should end because of its size."""
        return self.bytes >= most_bytes or self.runs >= _MAX_RUNS

    def prepare_entries(self, idle: list[PartitionCopy], generation: int, moment_ms: int) -> None:
        """Adds the partitions that commit an idle position only, and sets all ledger entries."""
        self.idle = idle
        for copy in idle:
            copy.enter_transaction()
        found: list[CommitEntry] = []
        for part in self:
            step = part.step()
            if step.runs or step.position > part.copy.progress.position:
                moved = advance(part.copy.progress, step, generation, moment_ms)
                found.append(CommitEntry(part.copy, *moved, part, step))
        found.extend(_idle_entry(copy, generation, moment_ms) for copy in idle)
        self.entries = found

    def release_partitions(self) -> None:
        """Releases the partitions once the transaction is decided: they may join other transactions."""
        for copy in (*self.parts, *self.idle):
            copy.leave_transaction()
        self.idle = []

    def close(self) -> None:
        """Ends the wait for responses: those that come later are ignored."""
        self.closed = True

    def check(self) -> None:
        """Raises the recorded failure; an unexpected exception takes precedence, because it ends the slot."""
        if self.unexpected is not None:
            raise self.unexpected
        if self.failure is not None:
            raise self.failure

    def fail(self, failure: TransactionFailure) -> None:
        """Records a failure; only the first one is kept and decided on."""
        if self.failure is None:
            self.failure = failure

    def fail_unexpected(self, error: BaseException) -> None:
        """Records an unexpected exception, after which the acknowledged batches are not known any more."""
        if self.unexpected is None:
            self.unexpected = error


def _idle_entry(copy: PartitionCopy, generation: int, moment_ms: int) -> CommitEntry:
    """Returns the entry of a partition that has no batch in the transaction."""
    if copy.replacement is not None:
        return CommitEntry(copy, copy.replacement, (), None, None)
    step = idle_step(copy)
    return CommitEntry(copy, *advance(copy.progress, step, generation, moment_ms), None, step)
