"""Plans the comparison of a partition by the positions of its source and its sink, whatever they are."""

from __future__ import annotations

import random
from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import TYPE_CHECKING, Literal

from runtime.audit.verify.pieces import PlannedPartition, VerificationPiece, VerifiedPiece, VerifyRequest
from runtime.contract.records.ledger import PartitionKey
from runtime.slot.budget import TokenBucket

if TYPE_CHECKING:
    from runtime.sql.transformer import Evaluates


class Comparison(ABC):
    """Compares what a flow reads with what it writes: it knows the flow's source and sink.

    `unit` is what positions at the source count.
    """

    unit: Literal["offsets", "bytes", "rows"] = "offsets"
    decoded: Literal["json", "parquet"] | None = None  # the format of files that hold decoded values

    def __init__(self, request: VerifyRequest) -> None:
        self.request = request

    @abstractmethod
    async def plan(self) -> list[PlannedPartition]:
        """Returns the plan of every partition. Raises AuditFailure."""

    @abstractmethod
    async def compare(
        self, pieces: Sequence[VerificationPiece], bucket: TokenBucket, evaluator: Evaluates | None = None
    ) -> list[VerifiedPiece]:
        """Compares the given pieces. Raises AuditFailure where a side can't be read."""


class FlowPartition:
    """Holds the positions of one partition of a flow, in source offsets, or in bytes or rows of a file.

    The sink holds the records of `low … end-1`, and `before` and `behind` say why it has no others. A
    comparison without a range begins at `first`. The source holds records from `start` on. Below each offset
    of `gone`, records that the sink took can't be compared any more; each has a reason. So have `gaps`.
    """

    unread = before = behind = ""
    first = start = low = end = 0
    gone: Sequence[tuple[int, str]] = ()
    gaps: Sequence[tuple[int, int, str]] = ()

    def __init__(self, key: PartitionKey, destination_topic: str) -> None:
        self.key, self.destination_topic = key, destination_topic

    def pieces(self, share: float, begin: int, low: int, high: int) -> list[VerificationPiece]:
        """Returns the pieces of a share, in percent, of the source offsets `low … high-1`.

        Of those from `begin` on, the sink holds records that the source has lost.
        """
        raise NotImplementedError

    def planned(self, request: VerifyRequest) -> PlannedPartition:
        """Returns the plan of the partition."""
        plan = PlannedPartition(self.key, self.destination_topic, self.low, self.low, unread=self.unread)
        if self.unread:
            return plan
        high = request.high if request.high is not None else self.end
        begin = request.low if request.low is not None else self.first
        if request.last is not None:
            begin = max(self.end - request.last, 0)
        plan.exclude(max(begin, self.start), min(self.low, high), self.before)
        plan.exclude(max(begin, self.end), high, self.behind)
        high = min(high, self.end)
        begin = min(max(begin, self.low), max(high, 0))
        plan.low, plan.end = begin, high
        for first, why in self.gone:
            plan.exclude(plan.low, min(first, high), why)
            plan.low = max(plan.low, min(first, max(high, 0)))
        for low, end, why in self.gaps:
            plan.exclude(max(begin, low), min(end, high), why)
        plan.pieces = self.pieces(request.sample, begin, plan.low, plan.end)
        return plan


def chosen_of(count: int, share: float) -> Sequence[int]:
    """Returns the numbers of so many ranges that a share, in percent, of them has: at least one."""
    if share >= 100:
        return range(count)
    some = min(count, max(1, round(count * share / 100)))
    return sorted(random.Random().sample(range(count), some))  # noqa: S311 - no secret
