"""Runs in a Spark task's Python worker: it replays or restores some partitions."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from typing import TYPE_CHECKING, Final

from runtime.audit.ledger import AuditFailure
from runtime.audit.partition_logs import open_spec
from runtime.audit.registries import open_registries
from runtime.batch import BatchFailure
from runtime.contract.records.control import AssignedPartition
from runtime.contract.results.records import ReplayedPartition
from runtime.contract.spec.naming import TopicPartition
from runtime.files.backup import DamagedFile
from runtime.files.manifest import ManifestProblem
from runtime.replay.repeated_copy import CopyStopped, RepeatedCopy
from runtime.replay.replay import PartitionReplay
from runtime.replay.request import (
    ReplayRequest,
    RestorePartition,
    RestoreRequest,
    decode_request,
    encode_copied,
)
from runtime.replay.restore import PartitionRestore
from runtime.schemas.copier import SchemaCopier

if TYPE_CHECKING:
    from runtime.sql.transformer import Evaluates

_RESTORED_AT_A_TIME: Final = 4  # partitions of a task
_STOPPED = (AuditFailure, CopyStopped, BatchFailure, DamagedFile, ManifestProblem)


async def copy_encoded(encoded: bytes, evaluator: Evaluates | None = None) -> bytes:
    """Replays or restores the partitions of a request in a Spark task."""
    request = decode_request(encoded)
    if isinstance(request, RestoreRequest):
        return encode_copied(await restore_partitions(request, request.parts))
    return encode_copied(await replay_partitions(request, request.parts, evaluator))


async def restore_partitions(
    request: RestoreRequest, parts: Sequence[RestorePartition]
) -> list[ReplayedPartition]:
    """Restores the given partitions, some at a time."""
    turns = asyncio.Semaphore(_RESTORED_AT_A_TIME)

    @asynccontextmanager
    async def opened(part: RestorePartition) -> AsyncIterator[RepeatedCopy]:
        async with turns, open_spec(request.cluster, request.name) as cluster:
            yield PartitionRestore(request, part, cluster)

    copies = (
        _copied(opened(part), request.within_s, TopicPartition(part.topic, part.partition), part.into)
        for part in parts
    )
    return await asyncio.gather(*copies)


async def replay_partitions(
    request: ReplayRequest, parts: Sequence[AssignedPartition], evaluator: Evaluates | None = None
) -> list[ReplayedPartition]:
    """Replays the given partitions, one by one. A flow with a transform needs an `evaluator`."""
    flow, transformer = request.flow, None
    if flow.transform is not None and evaluator is not None:
        from runtime.sql.transformer import Transformer

        transformer = Transformer(flow.transform, evaluator)

    @asynccontextmanager
    async def opened(part: AssignedPartition) -> AsyncIterator[RepeatedCopy]:
        async with AsyncExitStack() as stack:
            source = await stack.enter_async_context(open_spec(request.source, flow.source))
            destination = await stack.enter_async_context(open_spec(request.destination, flow.destination))
            schemas = None
            if flow.schemas.sync:
                registries = await stack.enter_async_context(open_registries(flow, request.registries))
                schemas = SchemaCopier(*registries, flow.schemas, ended=True)
            yield PartitionReplay(request, part, source, destination, transformer, schemas)

    return [await _copied(opened(part), request.within_s, part.key.at, request.into(part)) for part in parts]


async def _copied(
    opened: AbstractAsyncContextManager[RepeatedCopy], within_s: float, at: TopicPartition, into: str
) -> ReplayedPartition:
    """Copies one partition, and reports why it stopped early."""
    copy, problem = RepeatedCopy(), ""
    try:
        async with opened as copy:
            await copy.run(within_s)
    except _STOPPED as error:
        problem = str(error)
    except OSError as error:
        problem = f"{error.filename}: {error.strerror}" if error.filename else str(error)
    return ReplayedPartition(at.topic, at.partition, into, copy.records, problem, copy.note)
