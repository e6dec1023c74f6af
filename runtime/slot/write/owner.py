"""The interface of a flow to its lanes, and the exception that ends a slot."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Protocol

from runtime.contract.records.ledger import PartitionKey, Progress
from runtime.kafka.protocol.transactions import ProducerIdentity
from runtime.slot.errors import ErrorDecision
from runtime.slot.partition import PartitionCopy
from runtime.slot.write.transaction import Transaction, TransactionFailure

if TYPE_CHECKING:
    from runtime.slot.write.closing import CommitEntry
    from runtime.slot.write.lane import Lane


class SlotMustEnd(Exception):
    """The process must end: another writer may be active, or copying can't continue (R3)."""


class LaneFlow(Protocol):
    """An owner is the flow that a lane notifies of its events."""

    def committed(self, lane: Lane, tx: Transaction, entries: list[CommitEntry]) -> None:
        """Handles a committed transaction: the progress of its partitions has moved."""

    def failed(
        self, lane: Lane, failure: TransactionFailure, decision: ErrorDecision, parts: list[PartitionCopy]
    ) -> None:
        """Handles an aborted transaction whose partitions are rewound, and decides on the blamed ones."""

    def rewound(self, copies: Iterable[PartitionCopy]) -> None:
        """Fetches the partitions from their committed positions again."""

    def on_not_ready(self, copy: PartitionCopy, why: str) -> None:
        """Keeps a partition out of transactions, because the destination can't take its marker now."""

    def on_leader_change(self, copy: PartitionCopy) -> None:
        """Handles a leader change of the destination's partition since its last inspection (R4)."""

    def stuck(self, lane: Lane) -> None:
        """Moves the partitions of a lane that waits for a transaction marker to other lanes.

        Partitions that its transaction may still commit stay. They hold no memory meanwhile (R8).
        """

    def freed(self, lane: Lane) -> None:
        """Handles that a lane which was stuck works again."""

    def sent(self, copy: PartitionCopy) -> None:
        """Handles that a batch left a partition's queue, so that there may be room for more."""

    async def register(self, identity: ProducerIdentity) -> None:
        """Writes the producer id to the producer directory before its first data (batch provenance)."""

    async def confirm(self, lane: Lane) -> None:
        """Verifies that the ledger still holds what this lane committed last.

        Raises SlotMustEnd where another writer has written.
        """

    async def decided(self, key: PartitionKey) -> Progress | None:
        """Returns the committed progress, once no open transaction has written to it."""
