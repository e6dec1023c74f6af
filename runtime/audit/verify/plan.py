"""Plans the comparison of a partition by the positions of its source and its sink, whatever they are.

Where a side of a piece can't be read completely, `noted` explains it in the piece's result.
"""

from __future__ import annotations

import random
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Generic, Literal, TypeVar

from runtime.audit.partition_logs import OpenTransactionTimeout, RecordsExpired
from runtime.audit.verify.file_lines import UnreadableFile
from runtime.audit.verify.pieces import (
    SAMPLED,
    AnyPiece,
    PlannedPartition,
    VerificationPiece,
    VerifiedPiece,
    VerifyRequest,
)
from runtime.batch import BatchFailure
from runtime.contract.records.ledger import PartitionKey
from runtime.files.manifest import EndpointUnavailable, ManifestProblem
from runtime.kafka.errors import WireError
from runtime.schemas.client import RegistryUnavailable
from runtime.slot.budget import TokenBucket

if TYPE_CHECKING:
    from runtime.sql.transformer import Evaluates


_TOGETHER = 100  # ranges of a sample in a task


P = TypeVar("P", bound=VerificationPiece)


class Comparison(ABC, Generic[P]):
    """Compares what a flow reads with what it writes: it knows the flow's source and sink.

    `unit` is what positions at the source count. Where `together`, a group of pieces is compared again as a
    whole if one of them could not be read.
    """

    unit: Literal["offsets", "bytes", "rows"] = "offsets"
    together = False
    decoded: Literal["json", "parquet"] | None = None  # the format of files that hold decoded values

    def __init__(self, request: VerifyRequest) -> None:
        self.request = request

    @abstractmethod
    async def plan(self) -> list[PlannedPartition]:
        """Returns the plan of every partition. Raises AuditFailure."""

    @abstractmethod
    async def compare(
        self, pieces: Sequence[P], bucket: TokenBucket, evaluator: Evaluates | None = None
    ) -> list[VerifiedPiece]:
        """Compares the given pieces. Raises AuditFailure where a side can't be read."""

    def groups(self, pieces: Sequence[P]) -> list[Sequence[P]]:
        """Returns one group of pieces for each task: a whole piece, or many ranges of a sample."""
        whole = [[piece] for piece in pieces if piece.high - piece.low > SAMPLED]
        small = [piece for piece in pieces if piece.high - piece.low <= SAMPLED]
        return [*whole, *(small[at : at + _TOGETHER] for at in range(0, len(small), _TOGETHER))]

    def size(self, pieces: Sequence[P]) -> int:
        """Returns how many offsets are read, at the side where there are more of them."""
        return sum(piece.high - piece.low for piece in pieces)


def planned(
    request: VerifyRequest,
    key: PartitionKey,
    destination_topic: str,
    low: int,
    end: int,
    pieces: Callable[[int, int, int], Sequence[AnyPiece]],
    *,
    first: int = 0,
    start: int = 0,
    before: str = "",
    behind: str = "",
    gone: Sequence[tuple[int, str]] = (),
    gaps: Sequence[tuple[int, int, str]] = (),
) -> PlannedPartition:
    """Plans a partition by its positions: source offsets, or bytes or rows of a file.

    The sink holds the records of `low … end-1`, and `before` and `behind` say why it has no others. A
    comparison without a range begins at `first`. The source holds records from `start` on. Below each offset
    of `gone`, records that the sink took can't be compared any more; each has a reason. So have `gaps`.

    `pieces` makes the pieces of a range `low … high-1`. Of its records from its first argument on, up to
    `low`, the sink holds those that the source has lost.
    """
    plan = PlannedPartition(key, destination_topic, low, end)
    high = request.high if request.high is not None else end
    begin = request.low if request.low is not None else first
    if request.last is not None:
        begin = max(end - request.last, 0)
    plan.exclude(max(begin, start), min(low, high), before)
    plan.exclude(max(begin, end), high, behind)
    high = min(high, end)
    begin = min(max(begin, low), max(high, 0))
    plan.low, plan.end = begin, high
    for kept_from, why in gone:
        plan.exclude(plan.low, min(kept_from, high), why)
        plan.low = max(plan.low, min(kept_from, max(high, 0)))
    for gap_low, gap_end, why in gaps:
        plan.exclude(max(begin, gap_low), min(gap_end, high), why)
    plan.pieces = pieces(begin, plan.low, plan.end)
    return plan


def chosen_of(count: int, share: float) -> Sequence[int]:
    """Returns the numbers of so many ranges that a share, in percent, of them has: at least one."""
    if share >= 100:
        return range(count)
    some = min(count, max(1, round(count * share / 100)))
    return sorted(random.Random().sample(range(count), some))  # noqa: S311 - no secret


_UNREADABLE = (
    WireError,
    BatchFailure,
    OpenTransactionTimeout,
    ManifestProblem,
    EndpointUnavailable,
    RegistryUnavailable,
    UnreadableFile,
)


@contextmanager
def noted(result: VerifiedPiece, files: str = "") -> Iterator[None]:
    """Notes a failure of the block in the result. `files` is their place, where an error names no file."""
    try:
        yield
    except RecordsExpired as error:
        result.unread, result.passed = str(error), True
    except _UNREADABLE as error:
        result.unread = str(error)
    except OSError as error:
        result.unread = f"{error.filename or files}: {error.strerror or error}"
