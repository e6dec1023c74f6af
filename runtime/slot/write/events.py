"""The events of a lane, which its flow handles."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from runtime.slot.errors import ErrorDecision
from runtime.slot.partition import PartitionCopy
from runtime.slot.write.transaction import CommitEntry, TransactionFailure


@dataclass(frozen=True, slots=True)
class Sent:
    """A batch of each of these partitions left its queue, so that there may be room for more."""

    copies: Sequence[PartitionCopy]


@dataclass(frozen=True, slots=True)
class Committed:
    """A transaction was committed, and its entries are applied to their partitions.

    `copies` are all partitions that had joined it. `latencies` are a batch's topic at the source, its
    newest timestamp in ms and its record count.
    """

    entries: Sequence[CommitEntry]
    copies: Sequence[PartitionCopy]
    latencies: Sequence[tuple[str, int, int]]


@dataclass(frozen=True, slots=True)
class Rewound:
    """These partitions returned to their committed positions, and are to be fetched from there."""

    copies: Sequence[PartitionCopy]


@dataclass(frozen=True, slots=True)
class Aborted:
    """A transaction was aborted. `copies` had joined it; the flow handles those that the failure blames."""

    copies: Sequence[PartitionCopy]
    failure: TransactionFailure
    decision: ErrorDecision


@dataclass(frozen=True, slots=True)
class NotReady:
    """A partition must not join a transaction now, because the destination can't take its marker."""

    copy: PartitionCopy
    why: str


@dataclass(frozen=True, slots=True)
class LeaderChanged:
    """The leader of a destination partition changed since the partition was inspected (R4)."""

    copy: PartitionCopy


@dataclass(frozen=True, slots=True)
class LaneStuck:
    """A lane waits for a transaction marker. Partitions that its transaction may still commit stay in it."""

    transactional_id: str


@dataclass(frozen=True, slots=True)
class LaneFreed:
    """A lane that was stuck works again."""

    transactional_id: str


LaneEvent = Sent | Committed | Rewound | Aborted | NotReady | LeaderChanged | LaneStuck | LaneFreed
EmitLaneEvent = Callable[[LaneEvent], None]
