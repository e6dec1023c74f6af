"""A partition in the slot holds its positions, its queued batches, and the reason why it does not move."""

from __future__ import annotations

import time
from collections import deque
from typing import TYPE_CHECKING, NamedTuple, TypedDict

from runtime.batch import OutgoingBatch, RewriteSpec
from runtime.contract.records.ledger import PartitionKey, Progress
from runtime.contract.records.status import OpenTransaction, PartitionStatus
from runtime.contract.records.status import PartitionState as State
from runtime.contract.spec.assignment import AssignedPartition
from runtime.kafka.protocol.offsets import TopicPartition
from runtime.slot.budget import ResponseMemory
from runtime.slot.log import log_event
from runtime.slot.offset_accounts import OffsetAccounts

if TYPE_CHECKING:
    from runtime.slot.read.intake import BrokerIntake
    from runtime.slot.write.lane import Lane
    from runtime.slot.write.transaction import TransactionPartition


class Cursor(NamedTuple):
    """A position at the source, with the leader epoch of the record before it (-1: not known)."""

    offset: int
    epoch: int


class QueuedBatch(NamedTuple):
    """A batch that is ready to be sent, with the memory that holds it.

    `epoch` is the leader epoch of the record before the batch's position.
    """

    out: OutgoingBatch
    epoch: int
    held: ResponseMemory


class PartitionFields(TypedDict):
    """The fields of a log line that name a partition and its progress in the ledger."""

    flow: str
    topic: str
    partition: int
    position: int
    destination_end: int


class SourceLog(NamedTuple):
    """The offsets of the partition at the source in the last fetch response (-1: not known)."""

    log_start: int = -1
    stable_end: int = -1
    high_watermark: int = -1


_FLOWING = frozenset({State.COPYING, State.CAUGHT_UP})
_MOVING = frozenset({State.STARTING, State.COPYING, State.CAUGHT_UP, State.BLOCKED_AT_SOURCE})


class PartitionCopy:
    """The state of one partition in the slot, from its admission to its release.

    It is mutable on purpose: there is one event loop, one object per partition, and no lock. `cursor` is
    the position of the next fetch. `queue` holds the batches that were fetched before it and are not sent
    yet. A `rewind` discards the queue and returns to the committed position. `rewinds` counts them: a
    response to a fetch from before a rewind is ignored.
    """

    def __init__(self, assigned: AssignedPartition, progress: Progress, *, shared: bool = False) -> None:
        self.assigned = assigned
        self.key: PartitionKey = assigned.key
        self.at = TopicPartition(assigned.destination_topic, assigned.partition)
        self.progress = progress
        self.cursor = Cursor(progress.position, progress.source_epoch)
        self.queue: deque[QueuedBatch] = deque()
        self.queued_bytes = 0
        self.dropped = 0
        self.rewinds = 0
        self.source = SourceLog()
        self.lane: Lane | None = None
        self.intake: BrokerIntake | None = None
        self.rewrite: RewriteSpec | None = None
        self.part: TransactionPartition | None = None
        self.closing = False  # Its idle position is in the transaction that is being ended.
        self.accounts = OffsetAccounts(progress.destination_end)
        self.inspected_epoch = -1  # The destination's leader epoch at the last inspection.
        self.suspect = False
        self.failures = 0
        self.replacement: Progress | None = None
        self.releasing = False
        self.state = State.STARTING
        self.since_ms = now_ms()
        self.why = ""
        self.blocked_by: OpenTransaction | None = None
        self.abort_reason = ""
        self.shared = shared
        self.foreign_writes = False
        self.last_fetch_ms = 0
        self.last_commit_ms = 0
        self.caught_up_since_ms = 0
        self.transactions = 0
        self.aborts = 0

    @property
    def label(self) -> str:
        """The partition's name for logs."""
        return f"{self.key.flow}/{self.key.topic}-{self.key.partition}"

    @property
    def answered_ms(self) -> int:
        """When the source was last heard of the partition: idle partitions share their session's answers."""
        return max(self.last_fetch_ms, self.intake.answered_ms(self) if self.intake is not None else 0)

    def logged(self) -> PartitionFields:
        """Returns the fields that a log line about the partition starts with."""
        flow, topic, partition = self.key
        progress = self.progress
        return {
            "flow": flow,
            "topic": topic,
            "partition": partition,
            "position": progress.position,
            "destination_end": progress.destination_end,
        }

    @property
    def fetchable(self) -> bool:
        """Whether the partition may be fetched in its current state."""
        return not self.releasing and self.state in _MOVING

    @property
    def behind(self) -> bool:
        """Whether the source is known to have more records, so that a commit now only costs time."""
        return self.cursor.offset < self.source.stable_end and self.fetchable

    @property
    def busy(self) -> bool:
        """Whether an open transaction may still commit something of it; it stays in its lane until then."""
        return self.part is not None or self.closing

    @property
    def idle_position_moved(self) -> bool:
        """Whether a position is to be committed to the ledger without any batch."""
        if self.busy or self.releasing:
            return False
        moved = not self.queue and self.cursor.offset > self.progress.position
        return moved or self.replacement is not None

    def enter(self, state: State, why: str = "") -> None:
        """Changes the state, with its reason, and logs the change."""
        if state is not self.state:
            self.since_ms = now_ms()
            if state is not State.RETRYING and not (state in _FLOWING and self.state in _FLOWING):
                log_event(
                    "partition_state",
                    key=self.label,
                    **self.logged(),
                    state=state,
                    before=self.state,
                    why=why,
                )
        if state is State.CAUGHT_UP:
            self.caught_up_since_ms = self.caught_up_since_ms or now_ms()
        else:
            self.caught_up_since_ms = 0
        self.state, self.why = state, why
        self.blocked_by = None

    def block(self, by: OpenTransaction | None, why: str) -> None:
        """Enters the state of a partition whose readers are blocked by an open transaction at the source."""
        self.enter(State.BLOCKED_AT_SOURCE, why)
        self.blocked_by = by

    def add(self, queued: QueuedBatch) -> None:
        """Appends a batch to the queue."""
        self.queue.append(queued)
        self.queued_bytes += queued.out.batch.size

    def take(self) -> QueuedBatch:
        """Removes and returns the first batch of the queue."""
        queued = self.queue.popleft()
        self.queued_bytes -= queued.out.batch.size
        return queued

    def rewind(self) -> None:
        """Returns to the committed position: all records behind it are fetched again."""
        self.release_queue()
        self.part = None
        self.dropped = 0
        self.cursor = Cursor(self.progress.position, self.progress.source_epoch)

    def release_queue(self) -> None:
        """Gives back the memory of what is queued. It is not read on before a rewind."""
        self.last_fetch_ms = self.answered_ms
        self.rewinds += 1
        for queued in self.queue:
            queued.held.release_memory()
        self.queue.clear()
        self.queued_bytes = 0

    def committed(self, progress: Progress) -> None:
        """Applies progress that a transaction has committed."""
        if progress.incarnation != self.progress.incarnation:  # The accounts start anew with the new log.
            self.accounts = OffsetAccounts(progress.destination_end)
        self.progress = progress
        self.abort_reason = ""
        self.last_commit_ms = progress.written_at
        self.transactions += 1

    def backoff_s(self, first_ms: int, longest_ms: int) -> float:
        """Counts a failure and returns the seconds to wait after it."""
        self.failures += 1
        grown: float = first_ms * 2.0 ** min(self.failures - 1, 16)
        return min(grown, longest_ms) / 1000

    def settle(self) -> None:
        """Enters `copying` or `caught_up`, by the committed position and the source's end."""
        if self.state not in _MOVING:
            return
        end = self.source.stable_end
        if end < 0:
            return
        if self.progress.position < end:
            if self.state is not State.COPYING:
                self.enter(State.COPYING)
        elif self.state is not State.BLOCKED_AT_SOURCE and self.state is not State.CAUGHT_UP:
            self.enter(State.CAUGHT_UP)

    def status(self) -> PartitionStatus:
        """Returns the status record of the partition."""
        progress = self.progress
        return PartitionStatus(
            flow=self.key.flow,
            topic=self.key.topic,
            partition=self.key.partition,
            state=State.RETRYING if self.abort_reason and self.state in _MOVING else self.state,
            since_ms=self.since_ms,
            why=self.why or self.abort_reason,
            foreign_writes=self.foreign_writes and not self.shared,
            position=progress.position,
            destination_end=progress.destination_end,
            source_start=self.source.log_start,
            source_end=self.source.stable_end,
            source_high_watermark=self.source.high_watermark,
            last_fetch_ms=self.answered_ms,
            last_commit_ms=self.last_commit_ms,
            caught_up_since_ms=self.caught_up_since_ms,
            last_timestamp=progress.last_timestamp,
            records=progress.records,
            bytes=progress.bytes,
            dropped=progress.dropped,
            transactions=self.transactions,
            aborts=self.aborts,
            lost=sum(gap.end - gap.low for gap in progress.gaps),
            blocked_by=self.blocked_by,
        )


def now_ms() -> int:
    """Returns the wall clock's time in milliseconds."""
    return int(time.time() * 1000)
