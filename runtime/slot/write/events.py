"""The events of a lane, which its flow handles."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from msgspec import Struct

from runtime.slot.errors import ErrorDecision
from runtime.slot.partition import PartitionCopy
from runtime.slot.write.transaction import CommitEntry, TransactionFailure


class Sent(Struct, frozen=True):
    """A batch of each of these partitions left its queue, so that there may be room for more."""

    copies: Sequence[PartitionCopy]


class Committed(Struct, frozen=True):
    """A transaction was committed, and its entries are applied to their partitions.

    `copies` are all partitions that had joined it. `latencies` are a batch's topic at the source, its
    newest timestamp in ms and its record count.
    """

    entries: Sequence[CommitEntry]
    copies: Sequence[PartitionCopy]
    latencies: Sequence[tuple[str, int, int]]


class Rewound(Struct, frozen=True):
    """These partitions returned to their committed positions, and are to be fetched from there."""

    copies: Sequence[PartitionCopy]


class Aborted(Struct, frozen=True):
    """A transaction was aborted. `copies` had joined it; the flow handles those that the failure blames."""

    copies: Sequence[PartitionCopy]
    failure: TransactionFailure
    decision: ErrorDecision


class NotReady(Struct, frozen=True):
    """A partition must not join a transaction now, because the destination can't take its marker."""

    copy: PartitionCopy
    why: str


class LeaderChanged(Struct, frozen=True):
    """The leader of a destination partition changed since the partition was inspected (R4)."""

    copy: PartitionCopy


class LaneStuck(Struct, frozen=True):
    """A lane can't copy now. Partitions that its transaction may still commit stay in it."""

    transactional_id: str
    why: str


class LaneFreed(Struct, frozen=True):
    """A lane that was stuck works again."""

    transactional_id: str


LaneEvent = Sent | Committed | Rewound | Aborted | NotReady | LeaderChanged | LaneStuck | LaneFreed
EmitLaneEvent = Callable[[LaneEvent], None]
