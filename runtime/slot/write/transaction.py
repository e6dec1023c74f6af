"""One transaction of a lane: which partitions are in it, what was acknowledged, and when it is due."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from runtime.batch import Outgoing
from runtime.contract.records.advance import Advance
from runtime.contract.records.ledger import Mark
from runtime.contract.records.offset_map import Run, append
from runtime.kafka.errors import PartitionsRefused, WireError
from runtime.slot.partition import Cursor, PartitionCopy
from runtime.slot.write.errors import Phase

if TYPE_CHECKING:
    from runtime.slot.write.closing import Entry


@dataclass(frozen=True, slots=True)
class Failure(Exception):
    """What ended a transaction, and the partitions that it may come from, where that is known."""

    phase: Phase
    error: WireError | None
    copies: tuple[PartitionCopy, ...] = ()
    why: str = ""

    def __str__(self) -> str:
        return self.why or str(self.error)


class Part:
    """A partition's share of a transaction, from its first batch to the end."""

    __slots__ = (
        "bytes",
        "copy",
        "cursor",
        "destination_end",
        "epoch",
        "in_flight",
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
        self.in_flight = 0
        self.runs: list[Run] = []
        self.records = 0
        self.bytes = 0
        self.last_timestamp = -1
        self.mark: Mark | None = None

    def acknowledged(
        self, out: Outgoing, source_epoch: int, base_offset: int, mark: Mark | None = None
    ) -> str | None:
        """Takes the base offset in; why it can't be true, where it can't (R4)."""
        self.in_flight -= 1
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
        """What the ledger says of it; the cursor of the copy where nothing more is queued before it."""
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
        )


def blamed(error: WireError, joining: Iterable[Part]) -> tuple[PartitionCopy, ...]:
    """Where the broker names the partitions that it refuses, no other one is blamed (R7)."""
    copies = tuple(part.copy for part in joining)
    if not isinstance(error, PartitionsRefused):
        return copies
    return tuple(copy for copy in copies if copy.at in error.partitions)


def tail_step(copy: PartitionCopy) -> Advance:
    """A position that moved over nothing to copy."""
    return Advance(copy.cursor.offset, copy.cursor.epoch, dropped=copy.dropped)


class Transaction:
    """Open from the first batch on; times are the event loop's. `joined`: the coordinator knows it, with the
    ledger's partition. `entries`: what its end would commit. `tails` are of partitions that have no batch."""

    def __init__(self, started: float) -> None:
        self.started = started
        self.parts: dict[PartitionCopy, Part] = {}
        self.in_flight = 0
        self.bytes = 0
        self.runs = 0
        self.failure: Failure | None = None
        self.unexpected: BaseException | None = None
        self.closed = False
        self.joined = False
        self.entries: list[Entry] = []
        self.tails: list[PartitionCopy] = []
        self.latencies: list[tuple[int, int]] = []  # newest timestamp of a batch, its records

    def __iter__(self) -> Iterator[Part]:
        return iter(self.parts.values())

    def take(self, part: Part) -> None:
        self.parts[part.copy] = part
        part.copy.part = part

    def take_tails(self, copies: list[PartitionCopy]) -> None:
        self.tails = copies
        for copy in copies:
            copy.closing = True

    def let_go(self) -> None:
        """It is decided: its partitions may go elsewhere."""
        for copy, part in self.parts.items():
            if copy.part is part:
                copy.part = None
        for copy in self.tails:
            copy.closing = False
        self.tails = []

    def check(self) -> None:
        """Raises what made it fail; an exception that nothing foresaw comes first, for it ends the slot."""
        if self.unexpected is not None:
            raise self.unexpected
        if self.failure is not None:
            raise self.failure

    def break_off(self, error: BaseException) -> None:
        """Records an exception that nothing foresaw: what was acknowledged is not known any more."""
        if self.unexpected is None:
            self.unexpected = error

    def fail(self, failure: Failure) -> None:
        """The first failure is the one that is decided on."""
        if self.failure is None:
            self.failure = failure
