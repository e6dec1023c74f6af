"""Plans a comparison, and compares pieces of it: in a Spark task's Python worker, or in this process."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterable, Iterator, Sequence
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
    import pyarrow as pa

    from runtime.sql.query_input import QueryInput
    from runtime.sql.transformer import Evaluates

RESULT = "result"  # the column of the result, in the output of verify_pieces_with_sql

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


def verify_pieces(encoded: bytes, tasks: int, groups: Iterable[bytes]) -> Iterator[bytes]:
    """Compares the given pieces. Spark calls it through mapPartitions.

    `tasks` is the number of tasks that run concurrently and share the rate.
    """
    import uvloop  # a comparison in the planner's own process goes without

    request = decode_request(encoded)
    for group in groups:
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            yield msgspec.msgpack.encode(runner.run(compare_pieces(request, tasks, _decode_pieces(group))))


def verify_pieces_with_sql(
    encoded: bytes,
    tasks: int,
    group: bytes,
    token: str,
    wanted: QueryInput,
    answers: Iterable[pa.RecordBatch],
) -> Iterator[pa.RecordBatch]:
    """Compares the given pieces of a flow with a transform, as the collecting worker of a query."""
    import pyarrow as pa
    import uvloop

    from runtime.sql.evaluator import serving_evaluator

    request = decode_request(encoded)
    transform = request.flow.transform
    assert transform is not None, "verify_pieces compares without a transform"

    async def verify() -> list[VerifiedPiece]:
        async with serving_evaluator(token, transform, wanted, answers) as evaluator:
            return await compare_pieces(request, tasks, _decode_pieces(group), evaluator)

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        result = msgspec.msgpack.encode(runner.run(verify()))
    yield pa.RecordBatch.from_arrays([pa.array([result], pa.binary())], [RESULT])


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
