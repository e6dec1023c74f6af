"""Plans a comparison, and compares pieces of it: in a Spark task's Python worker, or in this process."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from typing import TYPE_CHECKING

import msgspec

from runtime.audit.ledger import AuditFailure
from runtime.audit.verify.loaded import LoadedComparison
from runtime.audit.verify.pieces import (
    VerificationPiece,
    VerifiedPiece,
    VerifyRequest,
    decode_request,
)
from runtime.audit.verify.plan import Comparison
from runtime.audit.verify.stored import StoredComparison
from runtime.audit.verify.topics import MirrorComparison
from runtime.slot.budget import TokenBucket

if TYPE_CHECKING:
    from runtime.sql.transformer import Evaluates

encode_pieces = msgspec.msgpack.encode
_decode_pieces = msgspec.msgpack.Decoder(list[VerificationPiece]).decode
decode_verified = msgspec.msgpack.Decoder(list[VerifiedPiece]).decode


def comparison_of(request: VerifyRequest) -> Comparison:
    """Returns what compares the two sides of the flow."""
    flow = request.flow
    if flow.files is not None:
        return StoredComparison(request, flow.files)
    if flow.lines is not None:
        return LoadedComparison(request, flow.lines)
    return MirrorComparison(request)


async def compare_encoded(
    encoded: bytes, tasks: int, pieces: bytes, evaluator: Evaluates | None = None
) -> bytes:
    """Compares the given pieces in a Spark task."""
    request, decoded = decode_request(encoded), _decode_pieces(pieces)
    return msgspec.msgpack.encode(await compare_pieces(request, tasks, decoded, evaluator))


async def compare_pieces(
    request: VerifyRequest,
    tasks: int,
    pieces: Sequence[VerificationPiece],
    evaluator: Evaluates | None = None,
) -> list[VerifiedPiece]:
    """Compares the given pieces, as one of `tasks` that run concurrently and share the rate.

    A flow with a transform needs an `evaluator`.
    """
    bucket = TokenBucket(request.rate // tasks or 1 if request.rate else None, time.monotonic)
    try:
        results = await comparison_of(request).compare(pieces, bucket, evaluator)
        await asyncio.sleep(bucket.wait_s())  # the next task has a bucket of its own
    except AuditFailure as error:
        return [VerifiedPiece.begin(piece, str(error)) for piece in pieces]
    return results
