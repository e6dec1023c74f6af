"""Compares few records in the process of the command: Spark would take longer to start.

A comparison that is not small is only planned here. Spark continues from the stored plan.
"""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable, Sequence

from runtime.audit.verify.pieces import VerificationPiece, VerifyRequest
from runtime.audit.verify.plan import VerificationFile, begin, grouped, remaining, resumed
from runtime.audit.verify.results import report
from runtime.audit.verify.task import verify_here
from runtime.contract.results.records import VerificationReport

SMALL = 20_000  # offsets: this process compares them in less time than a Spark application needs to start
PIECES = 500  # each piece costs a round trip to both clusters at least


def needs_spark(asked: VerifyRequest) -> bool:
    """Returns whether Spark must compare, however few records there are: it evaluates transforms, and a rate
    makes a comparison long.
    """
    return asked.flow.transform is not None or asked.rate is not None


def verify_small(
    asked: VerifyRequest, file: VerificationFile, said: Callable[[str], None], *, resume: bool
) -> VerificationReport | None:
    """Compares what is left of the comparison, or returns None where it is not small.

    Its plan is then in `file`. `said` receives what the user is told meanwhile. Raises AuditFailure.
    """
    began = time.monotonic()
    begun = (file.load() if resume else None) or begin(asked, file)
    groups = grouped(begun.planned)
    todo = remaining(groups, begun.pieces)
    if not is_small(list(itertools.chain.from_iterable(todo))):
        return None
    if begun.pieces and todo:
        said(resumed(groups, todo))
    found = list(begun.pieces)
    for group in todo:
        compared = verify_here(asked, group)
        file.add(group, compared)
        found += compared
    verified = report(asked, begun, found, time.monotonic() - began)
    if not verified.unread:
        file.close()
    return verified


def is_small(pieces: Sequence[VerificationPiece]) -> bool:
    return len(pieces) <= PIECES and sum(map(_offsets, pieces)) <= SMALL


def _offsets(piece: VerificationPiece) -> int:
    """Returns how many offsets are read, at the cluster where there are more of them."""
    if piece.read is not None:
        return max(piece.read.records, piece.destination_high - piece.destination_low)
    return max(piece.high - piece.low, piece.destination_high - piece.destination_low)
