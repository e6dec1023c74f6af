"""What a lane asks of the flow it works for, and how a slot ends."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Protocol

from runtime.contract.records.ledger import PartitionKey, Progress
from runtime.kafka.protocol.transactions import ProducerIdentity
from runtime.slot.partition import PartitionCopy
from runtime.slot.write.errors import Decision
from runtime.slot.write.transaction import Failure, Transaction

if TYPE_CHECKING:
    from runtime.slot.write.closing import Entry
    from runtime.slot.write.lane import Lane


class SlotMustEnd(Exception):
    """Someone else may be the writer now, or nothing can go on: the process ends (R3)."""


class Owner(Protocol):
    """The flow, as its lanes see it."""

    def committed(self, lane: Lane, tx: Transaction, entries: list[Entry]) -> None:
        """The transaction is in: progress has moved."""

    def failed(self, lane: Lane, failure: Failure, decision: Decision, parts: list[PartitionCopy]) -> None:
        """The transaction is aborted and its partitions are rewound; the blamed one is dealt with here."""

    def rewound(self, copies: Iterable[PartitionCopy]) -> None:
        """They are to be fetched from their committed positions again."""

    def unfit(self, copy: PartitionCopy, why: str) -> None:
        """The destination's partition can't take a transaction's marker now: it must not join one."""

    def led_anew(self, copy: PartitionCopy) -> None:
        """The destination's partition has another leader than when it was looked at last (R4)."""

    def stuck(self, lane: Lane) -> None:
        """The lane waits for a marker: its partitions go elsewhere. What its transaction may still commit
        stays, and holds no memory meanwhile (R8).
        """

    def freed(self, lane: Lane) -> None:
        """A lane that was stuck works again."""

    def sent(self, copy: PartitionCopy) -> None:
        """A batch left the queue: there may be room for more."""

    async def register(self, identity: ProducerIdentity) -> None:
        """The producer id is written down before its first data (batch provenance)."""

    async def confirm(self, lane: Lane) -> None:
        """The ledger still says what this lane committed last; raises SlotMustEnd where someone else
        wrote.
        """

    async def decided(self, key: PartitionKey) -> Progress | None:
        """The committed progress, once no open transaction has written it."""
