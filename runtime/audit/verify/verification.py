"""Runs one comparison: its plan, what was compared so far, what is left, and its report.

A comparison that was interrupted resumes from its file. The first line is the plan as it was made at the
start, each further line the result of one task. The pieces of a line that was cut in the middle are compared
again. Keys and values of records that differ may be in the file: only its owner can read it.

Few records are compared in the process of the command, because Spark would take longer to start. Spark
continues from the file where there are more.
"""

from __future__ import annotations

import asyncio
import itertools
import os
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

import msgspec

from runtime.audit.ledger import AuditFailure
from runtime.audit.verify.loaded import LoadedComparison
from runtime.audit.verify.pieces import (
    PlannedPartition,
    VerificationPiece,
    VerifiedPiece,
    VerifyRequest,
)
from runtime.audit.verify.plan import Comparison
from runtime.audit.verify.results import report
from runtime.audit.verify.stored import StoredComparison
from runtime.audit.verify.topics import MirrorComparison
from runtime.contract.results.records import VerificationReport
from runtime.kafka.timing import now_ms
from runtime.slot.budget import TokenBucket

if TYPE_CHECKING:
    from runtime.sql.transformer import Evaluates

SMALL = 20_000  # offsets: this process compares them in less time than a Spark application needs to start
PIECES = 500  # each piece costs a round trip to both clusters at least
_VERSION = 5

Group = Sequence[VerificationPiece]
Stored = tuple[int, list[PlannedPartition], list[VerifiedPiece]]  # when it began, its plan, and results


def comparison_of(request: VerifyRequest) -> Comparison[Any]:
    """Returns what compares the two sides of the flow."""
    flow = request.flow
    if flow.files is not None:
        return StoredComparison(request, flow.files)
    if flow.lines is not None:
        return LoadedComparison(request, flow.lines)
    return MirrorComparison(request)


async def compare_pieces(
    request: VerifyRequest, tasks: int, pieces: Group, evaluator: Evaluates | None = None
) -> list[VerifiedPiece]:
    """Compares pieces: in a Spark task's Python worker, as one of `tasks` that share the rate, or here.

    A flow with a transform needs an `evaluator`.
    """
    bucket = TokenBucket(request.rate // tasks or 1 if request.rate else None, time.monotonic)
    try:
        results = await comparison_of(request).compare(pieces, bucket, evaluator)
        await asyncio.sleep(bucket.wait_s())  # the next task has a bucket of its own
    except AuditFailure as error:
        return [VerifiedPiece.begin(piece, str(error)) for piece in pieces]
    return results


class Verification:
    """Holds one comparison. `file` stores its progress; without one nothing is stored."""

    def __init__(
        self, request: VerifyRequest, file: Path | None, comparison: Comparison[Any], stored: Stored
    ) -> None:
        self._began = time.monotonic()
        self.request, self.comparison, self._file = request, comparison, file
        self.at_ms, self.planned, self.results = stored
        self.groups: list[Group] = comparison.groups(
            [piece for partition in self.planned for piece in partition.pieces]
        )
        done = {(result.number, result.low) for result in self.results}
        left = ([piece for piece in group if (piece.number, piece.low) not in done] for group in self.groups)
        self.left = [group for group in left if group]  # the pieces of each group that are to be compared
        self.resumed = bool(self.results and self.left)

    @classmethod
    async def begin(
        cls,
        request: VerifyRequest,
        file: Path | None,
        *,
        resume: bool = False,
        comparison: Comparison[Any] | None = None,
    ) -> Self:
        """Plans the comparison, or continues one that was stored. Raises AuditFailure."""
        comparison = comparison or comparison_of(request)
        stored = _load(file) if resume and file is not None else None
        if stored is not None:
            return cls(request, file, comparison, stored)
        began_ms = now_ms()
        verification = cls(request, file, comparison, (began_ms, await comparison.plan(), []))
        verification.close()
        plan = msgspec.json.encode((_VERSION, began_ms, verification.planned))
        verification._write(plan, os.O_CREAT | os.O_EXCL)
        return verification

    @property
    def resumed_text(self) -> str:
        """Returns what the command says when it continues an interrupted comparison."""
        return f"goes on behind {len(self.groups) - len(self.left)} of {len(self.groups)} stretches"

    @property
    def is_small(self) -> bool:
        """Returns whether little is left, so that this process compares it."""
        left = list(itertools.chain.from_iterable(self.left))
        return len(left) <= PIECES and self.comparison.size(left) <= SMALL

    def add(self, results: Sequence[VerifiedPiece]) -> None:
        """Takes the results of a group, and stores them. A piece that could not be read is compared again."""
        self.results += results
        read = [result for result in results if not result.unread or result.passed]
        if len(read) < len(results) and self.comparison.together:
            return
        if read:
            self._write(msgspec.json.encode(read), os.O_APPEND)

    def report(self) -> VerificationReport:
        """Returns what the command prints."""
        took_s = time.monotonic() - self._began
        return report(self.request, self.at_ms, took_s, self.planned, self.results, self.comparison.unit)

    def close(self) -> None:
        """Deletes the file, because the comparison is complete."""
        if self._file is not None:
            self._file.unlink(missing_ok=True)

    def _write(self, line: bytes, how: int) -> None:
        if self._file is not None:
            with os.fdopen(os.open(self._file, os.O_WRONLY | how, 0o600), "wb") as file:
                file.write(line + b"\n")


_decode_plan = msgspec.json.Decoder(tuple[int, int, list[PlannedPartition]]).decode  # with the version
_decode_results = msgspec.json.Decoder(list[VerifiedPiece]).decode


def _load(file: Path) -> Stored | None:
    """Returns when the comparison began, its plan and results, or None where there is nothing to resume."""
    results: list[VerifiedPiece] = []
    try:
        first, *more = file.read_bytes().split(b"\n")
        version, at_ms, planned = _decode_plan(first)
    except (FileNotFoundError, msgspec.DecodeError):
        return None
    for line in more:
        with suppress(msgspec.DecodeError):
            results += _decode_results(line)
    return (at_ms, planned, results) if version == _VERSION else None


async def verify_small(
    request: VerifyRequest, file: Path | None, say: Callable[[str], None], *, resume: bool
) -> VerificationReport | None:
    """Compares what is left of the comparison in this process, or returns None where it is not small.

    Its plan is then in `file`. `say` shows a line to the user. Raises AuditFailure.
    """
    verification = await Verification.begin(request, file, resume=resume)
    if not verification.is_small:
        return None
    if verification.resumed:
        say(verification.resumed_text)
    for group in verification.left:
        verification.add(await compare_pieces(request, 1, group))
    verified = verification.report()
    if not verified.unread:
        verification.close()
    return verified
