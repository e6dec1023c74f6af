"""Runs in a Spark task's Python worker: it replays or restores some partitions."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Final

import uvloop

from runtime.audit.ledger import AuditFailure
from runtime.audit.partition_logs import open_spec
from runtime.batch import BatchFailure
from runtime.contract.records.ledger import UnreadableRecord
from runtime.contract.results.records import ReplayedPartition
from runtime.files.backup import DamagedFile
from runtime.files.manifest import ManifestProblem
from runtime.replay.repeated_copy import CopyStopped, RepeatedCopy
from runtime.replay.replay import PartitionReplay
from runtime.replay.request import (
    ReplayPartition,
    ReplayRequest,
    RestorePartition,
    RestoreRequest,
    decode_part,
    decode_request,
    encode_part,
)
from runtime.replay.restore import PartitionRestore

if TYPE_CHECKING:
    import pyarrow as pa

    from runtime.sql.query_input import QueryInput
    from runtime.sql.transformer import Transformer

RESULT = "result"  # the column of the result, in the output of copy_partitions_with_sql
_RESTORED_AT_A_TIME: Final = 4  # partitions of a task


def copy_partitions(encoded: bytes, parts: Iterable[bytes]) -> Iterator[bytes]:
    """Replays or restores the given partitions. Spark calls it through mapPartitions."""
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        yield from map(encode_part, runner.run(_all(decode_request(encoded), parts)))


def copy_partitions_with_sql(
    encoded: bytes,
    parts: Sequence[bytes],
    token: str,
    wanted: QueryInput,
    answers: Iterable[pa.RecordBatch],
) -> Iterator[pa.RecordBatch]:
    """Replays the given partitions of a flow with a transform, as the collecting worker of a query."""
    import pyarrow as pa

    from runtime.sql.evaluator import serving_evaluator
    from runtime.sql.transformer import Transformer

    request = decode_request(encoded)
    assert isinstance(request, ReplayRequest), "a backup holds records as they are"
    transform = request.flow.transform
    assert transform is not None, "copy_partitions replays without a transform"

    async def replay() -> list[ReplayedPartition]:
        async with serving_evaluator(token, transform, wanted, answers) as evaluator:
            return await _all(request, parts, Transformer(transform, evaluator))

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        result = pa.array([encode_part(runner.run(replay()))], pa.binary())
    yield pa.RecordBatch.from_arrays([result], [RESULT])


async def _all(
    request: ReplayRequest | RestoreRequest, parts: Iterable[bytes], transformer: Transformer | None = None
) -> list[ReplayedPartition]:
    turns = asyncio.Semaphore(_RESTORED_AT_A_TIME if isinstance(request, RestoreRequest) else 1)

    async def copy(part: ReplayPartition | RestorePartition) -> ReplayedPartition:
        async with turns:
            return await _copied(request, part, transformer)

    return await asyncio.gather(*(copy(decode_part(part)) for part in parts))


async def _copied(
    request: ReplayRequest | RestoreRequest,
    part: ReplayPartition | RestorePartition,
    transformer: Transformer | None,
) -> ReplayedPartition:
    copy = RepeatedCopy()
    problem = ""
    try:
        if isinstance(request, RestoreRequest):
            assert isinstance(part, RestorePartition), "a part of another request"
            async with open_spec(request.cluster, request.name) as cluster:
                copy = PartitionRestore(request, part, cluster)
                await copy.run(request.within_s)
        else:
            assert isinstance(part, ReplayPartition), "a part of another request"
            async with (
                open_spec(request.source, request.flow.source) as source,
                open_spec(request.destination, request.flow.destination) as destination,
            ):
                copy = PartitionReplay(request, part, source, destination, transformer)
                await copy.run(request.within_s)
    except (
        AuditFailure, CopyStopped, BatchFailure, DamagedFile, ManifestProblem, UnreadableRecord,
    ) as error:  # fmt: skip
        problem = str(error)
    except OSError as error:
        problem = f"{error.filename}: {error.strerror}" if error.filename else str(error)
    return ReplayedPartition(part.topic, part.partition, part.into, copy.records, problem)
