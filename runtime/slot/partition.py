"""A partition in the slot holds its positions, its queued batches, and the reason why it does not move."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from enum import Enum
from itertools import takewhile
from typing import NamedTuple, TypedDict

from msgspec.structs import replace

from runtime.batch import DroppedRecords, OutgoingBatch
from runtime.batch.selection import QuarantinedRecord
from runtime.contract.records.control import AssignedPartition
from runtime.contract.records.job_status import OpenTransaction, PartitionStatus
from runtime.contract.records.job_status import PartitionState as State
from runtime.contract.records.ledger import PartitionKey, Progress
from runtime.contract.spec.naming import TopicPartition, newest_id
from runtime.kafka.protocol.metadata import Partition
from runtime.kafka.timing import now_ms
from runtime.slot import log
from runtime.slot.budget import ResponseMemory
from runtime.slot.offset_accounts import OffsetAccounts


class Cursor(NamedTuple):
    """A position at the source, with the leader epoch of the record before it (-1: not known)."""

    offset: int
    epoch: int


class QueuedBatch(NamedTuple):
    """A batch that is ready to be sent, with the memory that holds it."""

    out: OutgoingBatch
    held: ResponseMemory


class QueuedQuarantine(NamedTuple):
    """A bad record that the next transaction which passes it writes to the quarantine topic."""

    record: QuarantinedRecord
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


class SessionAnswers:
    """The time when the broker of a fetch session last answered, shared by the session's partitions.

    A fetch session omits partitions that did not change. So each answer counts for every partition that the
    session has answered for once.
    """

    __slots__ = ("at_ms",)

    def __init__(self) -> None:
        self.at_ms = 0

    def answered(self, at_ms: int) -> None:
        """Records an answer of the broker, or a newer one that it gave to the idle session."""
        self.at_ms = max(self.at_ms, at_ms)


class CopyPhase(Enum):
    """A phase says what the slot may do with a partition; `PHASES` says which phase may follow.

    INSPECTING: the partition waits for its inspection, and is not fetched (R4). RUNNING: it is fetched, and
    copied through its lane. HELD: its lane is stuck, and it can't move, so it is not fetched. HALTED: it
    is inspected at a later time; batches that are queued may still be sent. REPLACING: its replacement
    progress is to be committed. RELEASING: it leaves the slot; it joins no transaction any more.
    """

    INSPECTING = "inspecting"
    RUNNING = "running"
    HELD = "held"
    HALTED = "halted"
    REPLACING = "replacing"
    RELEASING = "releasing"


_RUNNING = CopyPhase.RUNNING
PHASES: dict[CopyPhase, set[CopyPhase]] = {
    CopyPhase.INSPECTING: {_RUNNING, CopyPhase.HALTED, CopyPhase.REPLACING, CopyPhase.RELEASING},
    _RUNNING: {CopyPhase.INSPECTING, CopyPhase.HELD, CopyPhase.HALTED, CopyPhase.RELEASING},
    CopyPhase.HELD: {CopyPhase.INSPECTING, CopyPhase.HALTED, CopyPhase.RELEASING},
    CopyPhase.HALTED: {CopyPhase.INSPECTING, CopyPhase.RELEASING},
    CopyPhase.REPLACING: {CopyPhase.INSPECTING, CopyPhase.HALTED, CopyPhase.RELEASING},
    CopyPhase.RELEASING: set(),
}
_FLOWING = frozenset({State.COPYING, State.CAUGHT_UP})
_MOVING = frozenset({State.STARTING, State.COPYING, State.CAUGHT_UP, State.BLOCKED_AT_SOURCE})


class PartitionCopy:
    """The state of one partition in the slot, from its admission to its release.

    It is mutable on purpose: there is one event loop, one object per partition, and no lock. Only its own
    methods write its attributes. `cursor` is the position of the next fetch. `queue` holds the batches that
    were fetched before it and are not sent yet. `quarantine` holds the bad records since the committed
    position, in order. A `rewind` discards the queue and returns to the committed position. `rewinds` counts
    them: a response to a fetch from before a rewind is ignored.

    `phase` says what the slot may do with it, `state` what is reported for it, with its reason. `replacement`
    is the progress to be committed in place of the ledger's, in the phase REPLACING only.

    Its lane goes its own way, in any phase. While `in_transaction`, an open transaction may still commit
    something of the partition, so it stays in its lane. `suspect` means that its transactions failed, and
    that it is retried in a lane of its own. `abort_reason` is why the last one was aborted, until the next
    commit. `inspected_epoch` is the destination's leader epoch at the last inspection, `fetched_epoch` the
    source's leader epoch under which it is fetched (-1: not known).
    """

    def __init__(self, assigned: AssignedPartition, progress: Progress, *, shared: bool = False) -> None:
        self.assigned = assigned
        self.key: PartitionKey = assigned.key
        self.at = TopicPartition(assigned.destination_topic, assigned.partition)
        self.progress = progress
        self.cursor = Cursor(progress.position, progress.source_epoch)
        self.queue: deque[QueuedBatch] = deque()
        self.quarantine: deque[QueuedQuarantine] = deque()
        self.queued_bytes = 0
        self._dropped: deque[DroppedRecords] = deque()
        self.rewinds = 0
        self.source = SourceLog()
        self.in_transaction = False
        self.accounts = OffsetAccounts(progress.destination_end)
        self.inspected_epoch = -1
        self.fetched_epoch = -1
        self.suspect = False
        self._awaits_schema = False
        self.failures = 0
        self.phase = CopyPhase.INSPECTING
        self.replacement: Progress | None = None
        self.state = State.STARTING
        self.since_ms = now_ms()
        self.why = ""
        self.blocked_by: OpenTransaction | None = None
        self.abort_reason = ""
        self.shared = shared
        self.foreign_writes = False
        self.last_commit_ms = 0
        self.transactions = 0
        self.aborts = 0
        self._last_fetch_ms = 0
        self._session: SessionAnswers | None = None
        self._reported: tuple[tuple[object, ...], PartitionStatus] | None = None  # and what it was made of

    @property
    def label(self) -> str:
        """The partition's name for logs."""
        return f"{self.key.flow}/{self.key.at}"

    @property
    def last_fetch_ms(self) -> int:
        """When the source last answered for the partition: idle partitions share their session's answers."""
        return max(self._last_fetch_ms, self._session.at_ms if self._session is not None else 0)

    def log_fields(self) -> PartitionFields:
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
        """Whether the partition may be fetched."""
        return self.phase is _RUNNING

    @property
    def releasing(self) -> bool:
        """Whether the partition leaves the slot."""
        return self.phase is CopyPhase.RELEASING

    @property
    def behind(self) -> bool:
        """Whether the source is known to have more records, so that an early commit has no use."""
        return self.cursor.offset < self.source.stable_end and self.fetchable

    @property
    def idle_position_moved(self) -> bool:
        """Whether a position is to be committed to the ledger without any batch."""
        if self.in_transaction or self.releasing:
            return False
        moved = not self.queue and self.cursor.offset > self.progress.position
        return moved or self.phase is CopyPhase.REPLACING

    @property
    def next_base(self) -> int | None:
        """The base offset that the next batch gets at the destination; None where it can't be known.

        Where other producers write, by design or not, it is not known.
        """
        return None if self.shared or self.foreign_writes else self.accounts.next_base

    def is_writable(self, leader: Partition | None) -> bool:
        """Returns whether the destination's partition has a leader and enough in-sync replicas."""
        return leader is not None and len(leader.in_sync) >= self.assigned.min_in_sync

    def why_not_writable(self, leader: Partition | None) -> str:
        """Returns the reason for a partition that is not writable."""
        if leader is None:
            return f"{self.at} has no leader at the destination"
        count = f"{len(leader.in_sync)} of {self.assigned.min_in_sync}"
        return f"{count} in-sync replicas of {self.at} at the destination"

    # Phase, state and reason

    def _enter(self, phase: CopyPhase, replacement: Progress | None = None) -> None:
        """Changes the phase, by the table of phases."""
        assert phase is self.phase or phase in PHASES[self.phase], f"{self.label}: {self.phase} → {phase}"
        self.phase, self.replacement = phase, replacement

    def _report(self, state: State, why: str = "", blocked_by: OpenTransaction | None = None) -> None:
        """Changes the reported state, with its reason, and logs the change."""
        if state is not self.state:
            self.since_ms = now_ms()
            if state is not State.RETRYING and not (state in _FLOWING and self.state in _FLOWING):
                log.info(
                    "partition_state",
                    key=self.label,
                    **self.log_fields(),
                    state=state,
                    before=self.state,
                    why=why,
                    decision="continue" if state in _MOVING else "stop",
                )
        self.state, self.why, self.blocked_by = state, why, blocked_by

    def await_inspection(self) -> None:
        """Enters INSPECTING: nothing is fetched until the inspection has passed."""
        self._enter(CopyPhase.INSPECTING)

    def resume(self) -> None:
        """Enters RUNNING after an inspection without a finding."""
        self._enter(_RUNNING)
        self._report(State.STARTING)

    def halt(self, state: State, why: str) -> None:
        """Enters HALTED with the state that is reported."""
        self._enter(CopyPhase.HALTED)
        self._report(state, why)

    def postpone(self) -> None:
        """Enters HALTED because the inspection is to be repeated; the reported state stays."""
        self._enter(CopyPhase.HALTED)

    def hold(self) -> None:
        """Rewinds, which gives back the memory of the queue, and enters HELD where it was fetched."""
        self.rewind()
        if self.phase is _RUNNING:
            self._enter(CopyPhase.HELD)

    def block(self, by: OpenTransaction | None, why: str) -> None:
        """Reports that an open transaction at the source holds back the partition's readers."""
        self._report(State.BLOCKED_AT_SOURCE, why, by)

    def settle(self) -> None:
        """Reports `copying` or `caught_up`, by the committed position and the source's end."""
        if self.phase is not _RUNNING:
            return
        end = self.source.stable_end
        if end < 0:
            return
        if self.progress.position < end:
            if self.state is not State.COPYING:
                self._report(State.COPYING)
        elif self.state is not State.BLOCKED_AT_SOURCE and self.state is not State.CAUGHT_UP:
            self._report(State.CAUGHT_UP)

    def backoff_s(self, first_ms: int, longest_ms: int) -> float:
        """Counts a failure and returns the seconds to wait after it."""
        self.failures += 1
        grown: float = first_ms * 2.0 ** min(self.failures - 1, 16)
        return min(grown, longest_ms) / 1000

    def await_schema(self) -> None:
        """Records that its next record waits for a schema: fetches that bring nothing else are failures."""
        self._awaits_schema = True

    def mark_suspect(self) -> None:
        """Records that its transactions failed: it is retried in a lane of its own."""
        self.suspect = True

    def clear_suspect(self) -> None:
        """Records that it was committed in a lane of its own."""
        self.suspect = False

    def inspected(self, leader_epoch: int) -> None:
        """Records an inspection without a finding, and the leader epoch of the destination's partition."""
        self.inspected_epoch = leader_epoch

    def take_topic_ids(self, source_topic_id: bytes, destination_topic_id: bytes) -> None:
        """Takes the first ids that Kafka gave the topics, after an upgrade of a cluster that had none.

        The partition must not be fetched at this time. The next progress that is committed has the ids.
        """
        newest = with_topic_ids(self.progress, source_topic_id, destination_topic_id)
        if newest != self.progress:
            self.progress = newest

    def replace_progress(self, replacement: Progress, why: str) -> None:
        """Rewinds, and enters REPLACING: `replacement` is to be committed in place of the ledger."""
        self.rewind()
        self._enter(CopyPhase.REPLACING, replacement)
        self._report(State.RETRYING, why)

    def flag_foreign_writes(self) -> None:
        """Records that another producer has written to the destination's partition."""
        self.foreign_writes = True

    def start_release(self) -> None:
        """Enters RELEASING: it is not fetched, and joins no transaction."""
        self._enter(CopyPhase.RELEASING)

    # Fetched batches

    def fetch_under(self, leader_epoch: int) -> None:
        """Records the leader epoch of the source's partition under which it is fetched from now on."""
        self.fetched_epoch = leader_epoch

    def answered(self, source: SourceLog, session: SessionAnswers, at_ms: int) -> None:
        """Records a fetch response without an error; later answers of the session count for it as well."""
        if not self.suspect and not self._awaits_schema:
            self.failures = 0
        self._last_fetch_ms = at_ms
        self._session = session
        self.source = source

    def leave_session(self) -> None:
        """Keeps the time of the last answer: later answers of the session do not count for the partition."""
        self._last_fetch_ms = self.last_fetch_ms
        self._session = None

    def fetched(
        self,
        batches: Sequence[QueuedBatch],
        cursor: Cursor,
        dropped: Sequence[DroppedRecords] = (),
        quarantine: Sequence[QueuedQuarantine] = (),
    ) -> None:
        """Appends batches to the queue, and moves the cursor behind the response."""
        if batches:
            self._awaits_schema = False
        for queued in batches:
            self.queue.append(queued)
            self.queued_bytes += queued.out.batch.size
        for bad in quarantine:
            self.quarantine.append(bad)
            self.queued_bytes += bad.record.size
        self._dropped += dropped
        self.cursor = cursor
        if batches and self.state is State.BLOCKED_AT_SOURCE:
            self._report(State.COPYING)

    def take(self) -> QueuedBatch:
        """Removes and returns the first batch of the queue."""
        queued = self.queue.popleft()
        self.queued_bytes -= queued.out.batch.size
        return queued

    def quarantined_before(self, position: int) -> list[QuarantinedRecord]:
        """Returns the bad records that a transaction with this position writes."""
        return [
            queued.record
            for queued in takewhile(lambda queued: queued.record.offset < position, self.quarantine)
        ]

    def dropped_before(self, position: int) -> int:
        """Returns how many records a transaction with this position passes without copying them."""
        return sum(
            records.records for records in takewhile(lambda records: records.end <= position, self._dropped)
        )

    def rewind(self) -> None:
        """Returns to the committed position: the queue is discarded, and its records are fetched again."""
        self._dropped.clear()
        self.cursor = Cursor(self.progress.position, self.progress.source_epoch)
        self.leave_session()
        self.rewinds += 1
        for queued in self.queue:
            queued.held.release_memory()
        for bad in self.quarantine:
            bad.held.release_memory()
        self.queue.clear()
        self.quarantine.clear()
        self.queued_bytes = 0

    # Transactions

    def enter_transaction(self) -> None:
        """Records that a transaction is about to commit batches or an idle position of it."""
        self.in_transaction = True

    def leave_transaction(self) -> None:
        """Records that the transaction is decided."""
        self.in_transaction = False

    def committed(self, progress: Progress) -> None:
        """Applies committed progress."""
        if progress.incarnation != self.progress.incarnation:  # The accounts start anew with the new log.
            self.accounts = OffsetAccounts(progress.destination_end)
        self.progress = progress
        while self._dropped and self._dropped[0].end <= progress.position:
            self._dropped.popleft()
        while self.quarantine and self.quarantine[0].record.offset < progress.position:
            bad = self.quarantine.popleft()
            self.queued_bytes -= bad.record.size
            bad.held.release_memory()
        self.abort_reason = ""
        self.failures = 0
        self.last_commit_ms = progress.written_at
        self.transactions += 1

    def replaced(self, progress: Progress) -> None:
        """Applies committed progress that replaces the ledger's; it is inspected before it continues."""
        self.committed(progress)
        if not self.releasing:
            self._enter(CopyPhase.INSPECTING)
        self.rewind()

    def aborted(self, why: str) -> None:
        """Records and logs that a transaction with batches of the partition was aborted."""
        self.aborts += 1
        self.abort_reason = why
        log.info(
            "partition_aborted",
            key=self.label,
            **self.log_fields(),
            error=why,
            decision="resume from the committed position",
        )

    def status(self, rate: int = -1) -> PartitionStatus:
        """Returns the status record of the partition, with its rate in bytes a second.

        Most partitions of a large slot are idle, and only the time of their last fetch moves. So the record
        is made anew only where something else has changed.
        """
        facts = (
            rate,
            self.progress,
            self.source,
            self.state,
            self.since_ms,
            self.why,
            self.abort_reason,
            self.foreign_writes,
            self.shared,
            self.last_commit_ms,
            self.transactions,
            self.aborts,
            self.blocked_by,
        )
        if self._reported is None or self._reported[0] != facts:
            self._reported = facts, self._status(rate)
        status, fetched_ms = self._reported[1], self.last_fetch_ms
        return status if status.last_fetch_ms == fetched_ms else replace(status, last_fetch_ms=fetched_ms)

    def _status(self, rate: int) -> PartitionStatus:
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
            last_fetch_ms=self.last_fetch_ms,
            last_commit_ms=self.last_commit_ms,
            caught_up_since_ms=self.since_ms if self.state is State.CAUGHT_UP else 0,
            last_timestamp=progress.last_timestamp,
            records=progress.records,
            bytes=progress.bytes,
            dropped=progress.dropped,
            transactions=self.transactions,
            aborts=self.aborts,
            lost=sum([gap.end - gap.low for gap in progress.gaps]) if progress.gaps else 0,
            blocked_by=self.blocked_by,
            quarantined=progress.quarantined,
            tombstones=progress.tombstones,
            rate=rate,
        )


def with_topic_ids(progress: Progress, source_topic_id: bytes, destination_topic_id: bytes) -> Progress:
    """Returns the progress with these ids of its topics, where it has none that Kafka gave."""
    return replace(
        progress,
        source_topic_id=newest_id(progress.source_topic_id, source_topic_id),
        destination_topic_id=newest_id(progress.destination_topic_id, destination_topic_id),
    )
