"""Runs in a Spark task's Python worker: it replays or restores some partitions."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from contextlib import AsyncExitStack
from typing import TYPE_CHECKING, Final

from runtime.audit.ledger import AuditFailure
from runtime.audit.partition_logs import open_spec
from runtime.audit.registries import open_registries
from runtime.batch import BatchFailure
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
    decode_parts,
    decode_request,
    encode_copied,
)
from runtime.replay.restore import PartitionRestore
from runtime.schemas.copier import SchemaCopier

if TYPE_CHECKING:
    from runtime.sql.transformer import Evaluates, Transformer

_RESTORED_AT_A_TIME: Final = 4  # partitions of a task
_STOPPED = (AuditFailure, CopyStopped, BatchFailure, DamagedFile, ManifestProblem)


async def copy_encoded(encoded: bytes, parts: bytes, evaluator: Evaluates | None = None) -> bytes:
    """Replays or restores the given partitions in a Spark task."""
    return encode_copied(await copy_partitions(decode_request(encoded), decode_parts(parts), evaluator))


async def copy_partitions(
    request: ReplayRequest | RestoreRequest,
    parts: Sequence[ReplayPartition | RestorePartition],
    evaluator: Evaluates | None = None,
) -> list[ReplayedPartition]:
    """Replays or restores the given partitions. A flow with a transform needs an `evaluator`."""
    turns = asyncio.Semaphore(_RESTORED_AT_A_TIME if isinstance(request, RestoreRequest) else 1)
    transformer = None
    if isinstance(request, ReplayRequest) and request.flow.transform is not None and evaluator is not None:
        from runtime.sql.transformer import Transformer

        transformer = Transformer(request.flow.transform, evaluator)

    async def copied(part: ReplayPartition | RestorePartition) -> ReplayedPartition:
        copy, problem = RepeatedCopy(), ""
        try:
            async with turns, AsyncExitStack() as stack:
                copy = await _opened(request, part, transformer, stack)
                await copy.run(request.within_s)
        except _STOPPED as error:
            problem = str(error)
        except OSError as error:
            problem = f"{error.filename}: {error.strerror}" if error.filename else str(error)
        return ReplayedPartition(part.topic, part.partition, part.into, copy.records, problem, copy.note)

    return await asyncio.gather(*map(copied, parts))


async def _opened(
    request: ReplayRequest | RestoreRequest,
    part: ReplayPartition | RestorePartition,
    transformer: Transformer | None,
    stack: AsyncExitStack,
) -> RepeatedCopy:
    if isinstance(request, RestoreRequest):
        assert isinstance(part, RestorePartition), "a part of another request"
        cluster = await stack.enter_async_context(open_spec(request.cluster, request.name))
        return PartitionRestore(request, part, cluster)
    assert isinstance(part, ReplayPartition), "a part of another request"
    source = await stack.enter_async_context(open_spec(request.source, request.flow.source))
    destination = await stack.enter_async_context(open_spec(request.destination, request.flow.destination))
    schemas, sync = None, request.flow.schemas
    if sync.sync:
        registries = await stack.enter_async_context(open_registries(request.flow, request.registries))
        schemas = SchemaCopier(*registries, sync, ended=True)
    return PartitionReplay(request, part, source, destination, transformer, schemas)
