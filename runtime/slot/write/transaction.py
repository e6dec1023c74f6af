"""A transaction of a lane holds its partitions, their batches, what it commits, and its failure.

The ledger entries that it commits derive from base offsets that were acknowledged, or that are expected and
must be acknowledged as expected before the transaction may end (R1, R6).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from msgspec.structs import replace

from runtime.batch import OutgoingBatch
from runtime.contract.records.advance import Advance, advance
from runtime.contract.records.ledger import BatchIdentity, Progress
from runtime.contract.records.offset_map import Run, Span, append
from runtime.kafka.errors import PartitionsRefused, WireError
from runtime.slot.errors import UNEXPECTED_BASE, ErrorAction, ErrorDecision, ErrorPhase, decide
from runtime.slot.partition import Cursor, PartitionCopy, QueuedBatch

# A heavily compacted topic has many runs, which stay in memory until the transaction ends (R8).
_MAX_RUNS = 50_000


@dataclass(frozen=True, slots=True)
class TransactionFailure(Exception):
    """A failure says why a transaction must abort.

    `copies` are the partitions that may have caused it, empty where that is not known. `error` is None for an
    acknowledged offset that can't be true (R4), or that is not the expected one: `why` describes it then.
    """

    phase: ErrorPhase
    error: WireError | None
    copies: tuple[PartitionCopy, ...] = ()
    why: str = ""

    def __str__(self) -> str:
        return self.why or str(self.error)

    @property
    def decision(self) -> ErrorDecision:
        """What follows from the failure. A failure that blames no partition makes none suspect."""
        if self.error is None and not self.copies:
            return UNEXPECTED_BASE
        decision = decide(self.phase, self.error)
        if decision.action is ErrorAction.SUSPECT and not self.copies:
            return replace(decision, action=ErrorAction.ABORT)
        return decision


class SentBatch(NamedTuple):
    """A batch that was sent, its identity, and its expected base offset (None: not known)."""

    part: TransactionPartition
    queued: QueuedBatch
    mark: BatchIdentity
    expected: int | None


class TransactionPartition:
    """A part is one partition's share of a transaction, from its first batch to the end.

    A batch whose base offset is expected is recorded when it is sent, any other one when it is acknowledged.
    `destination_end` and `runs` are those of the recorded batches.
    """

    __slots__ = (
        "_acknowledged_end",
        "_next_base",
        "_unexpected",
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
        "tombstones",
    )

    def __init__(self, copy: PartitionCopy, leader: int, leader_epoch: int) -> None:
        self.copy = copy
        self.leader = leader
        self.epoch = leader_epoch
        self.cursor = Cursor(copy.progress.position, copy.progress.source_epoch)
        self.destination_end = copy.progress.destination_end
        self.runs: list[Run] = []
        self.records = 0
        self.tombstones = 0
        self.bytes = 0
        self.last_timestamp = -1
        self.mark: BatchIdentity | None = None
        self._next_base: int | None = None
        self._unexpected = 0  # batches in flight whose base offset is not expected
        self._acknowledged_end = self.destination_end

    def sent(self, queued: QueuedBatch, mark: BatchIdentity) -> SentBatch:
        """Records that a batch is in flight.

        Batches of one transaction lie side by side, because brokers keep their order.
        """
        if self._next_base is None and not self._unexpected and not self.records:
            self._next_base = self.copy.next_base
        expected = self._next_base
        if expected is None:
            self._unexpected += 1
        else:
            self._record(queued.out, expected, mark)
            self._next_base = self.destination_end
        return SentBatch(self, queued, mark, expected)

    def acknowledged(self, sent: SentBatch, base_offset: int) -> TransactionFailure | None:
        """Records an acknowledged batch, unless its base offset fails the transaction.

        One below the acknowledged end can't be true (R4), and blames the partition. With one that is not the
        expected one, the ledger records may say something else (R6).
        """
        copy, expected, records = self.copy, sent.expected, sent.queued.out.batch.records
        if base_offset != expected:
            if expected is not None:
                copy.accounts.expected_wrongly()
            if base_offset < self._acknowledged_end:
                why = (
                    f"acknowledged at {base_offset}, but the destination already ended at"
                    f" {self._acknowledged_end}: it was recreated or truncated"
                )
                return TransactionFailure(ErrorPhase.PRODUCE, None, (copy,), why)
            if expected is not None:
                why = (
                    f"{copy.label} was acknowledged at {base_offset}, and {expected} was expected:"
                    " another producer has written to the partition, or it was truncated"
                )
                return TransactionFailure(ErrorPhase.PRODUCE, None, (), why)
        copy.accounts.acknowledged(base_offset, records, self._acknowledged_end)
        self._acknowledged_end = base_offset + records
        if expected is None:
            self._record(sent.queued.out, base_offset, sent.mark)
            self._unexpected -= 1
            if not self._unexpected:
                self._next_base = copy.next_base
        return None

    def _record(self, out: OutgoingBatch, base_offset: int, mark: BatchIdentity) -> None:
        """Adds a batch at its base offset to what the transaction commits."""
        for delta, source, records in out.runs:
            append(self.runs, Run(source, base_offset + delta, records))
        batch = out.batch
        self.destination_end = base_offset + batch.records
        self.cursor = Cursor(out.position, out.epoch)
        self.mark = mark
        self.records += batch.records
        self.tombstones += out.tombstones
        self.bytes += batch.size
        self.last_timestamp = max(self.last_timestamp, batch.max_timestamp)

    def step(self) -> Advance:
        """Returns the progress that the ledger records for this part.

        While batches are queued, the position ends at the last recorded batch. With an empty queue it is
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
            dropped=copy.dropped_before(cursor.offset),
            last_timestamp=self.last_timestamp,
            mark=self.mark,
            quarantined=len(copy.quarantined_before(cursor.offset)),
            tombstones=self.tombstones,
        )


class CommitEntry(NamedTuple):
    """An entry is what a transaction commits for one partition.

    `part` is None where only the idle position moved. `step` is None where the progress is replaced as a
    whole.
    """

    copy: PartitionCopy
    progress: Progress
    segments: Sequence[Span]
    part: TransactionPartition | None
    step: Advance | None

    def apply(self) -> None:
        """Applies the committed entry to its partition."""
        if self.step is None:
            self.copy.replaced(self.progress)
        else:
            self.copy.committed(self.progress)


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
    position, epoch = copy.cursor
    return Advance(
        position,
        epoch,
        dropped=copy.dropped_before(position),
        quarantined=len(copy.quarantined_before(position)),
    )


class Transaction:
    """A transaction opens with its first batch, or ahead of it, and owns the parts of its partitions.

    Times are those of the event loop's clock, in seconds. `joined` means that the coordinator has added the
    ledger's partition to it. `entries` are the ledger entries that its end would commit. `idle` are the
    partitions that have no batch in it, but an idle position to commit. `latencies` are a batch's topic at
    the source, its newest timestamp in ms and its record count. `sent_at` is when the first batch was sent,
    None before.
    """

    def __init__(self, started: float) -> None:
        self.started = started
        self.parts: dict[PartitionCopy, TransactionPartition] = {}
        self.sent_at: float | None = None
        self.in_flight = 0
        self._unexpected = 0  # batches in flight whose base offset is not expected
        self.bytes = 0
        self.runs = 0
        self.failure: TransactionFailure | None = None
        self.unexpected: BaseException | None = None
        self.joined = False
        self.entries: list[CommitEntry] = []
        self.idle: list[PartitionCopy] = []
        self.latencies: list[tuple[str, int, int]] = []

    def __iter__(self) -> Iterator[TransactionPartition]:
        return iter(self.parts.values())

    def add(self, part: TransactionPartition) -> None:
        """Adds a partition's part to the transaction."""
        self.parts[part.copy] = part
        part.copy.enter_transaction()

    def mark_joined(self) -> None:
        """Records that the coordinator has added the ledger's partition."""
        self.joined = True

    @property
    def all_expected(self) -> bool:
        """Whether the base offset of every batch in flight is expected: the ledger records are known."""
        return not self._unexpected

    def sent(self, size: int, now: float) -> None:
        """Records that a produce request of `size` bytes is in flight."""
        self.in_flight += 1
        self.bytes += size
        if self.sent_at is None:
            self.sent_at = now

    def batch_sent(self, part: TransactionPartition, queued: QueuedBatch, mark: BatchIdentity) -> SentBatch:
        """Records a batch of a request in flight."""
        sent = part.sent(queued, mark)
        self._unexpected += sent.expected is None
        return sent

    def answered(self) -> None:
        """Records that a produce request is in flight no more."""
        self.in_flight -= 1

    def acknowledged(self, sent: SentBatch, base_offset: int) -> None:
        """Records an acknowledged batch, or the failure that its base offset means."""
        part, out = sent.part, sent.queued.out
        self._unexpected -= sent.expected is None
        if failure := part.acknowledged(sent, base_offset):
            self.fail(failure)
            return
        self.runs += len(out.runs)
        self.latencies.append((part.copy.key.topic, out.batch.max_timestamp, out.batch.records))

    def is_full(self, most_bytes: int) -> bool:
        """Returns whether the transaction should end because of its size."""
        return self.bytes >= most_bytes or self.runs >= _MAX_RUNS

    def prepare_entries(self, idle: list[PartitionCopy], generation: int, moment_ms: int) -> None:
        """Adds the partitions that commit an idle position only, and sets all ledger entries."""
        self.idle = idle
        for copy in idle:
            copy.enter_transaction()
        entries: list[CommitEntry] = []
        for part in self:
            step = part.step()
            if step.runs or step.position > part.copy.progress.position:
                moved = advance(part.copy.progress, step, generation, moment_ms)
                entries.append(CommitEntry(part.copy, *moved, part, step))
        entries.extend(_idle_entry(copy, generation, moment_ms) for copy in idle)
        self.entries = entries

    def release_partitions(self) -> None:
        """Releases the partitions once the transaction is decided: they may join other transactions."""
        for copy in (*self.parts, *self.idle):
            copy.leave_transaction()
        self.idle = []

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
