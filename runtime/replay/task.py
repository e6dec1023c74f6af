"""Runs in a Spark task's Python worker: it replays or restores some partitions."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from typing import TYPE_CHECKING, Final

from runtime.audit.ledger import AuditFailure
from runtime.audit.partition_logs import open_spec
from runtime.audit.registries import open_registries
from runtime.batch import BatchFailure
from runtime.contract.records.control import AssignedPartition
from runtime.contract.results.records import ReplayedPartition
from runtime.files.backup import DamagedFile
from runtime.files.manifest import ManifestProblem
from runtime.replay.repeated_copy import RepeatedCopy
from runtime.replay.replay import PartitionReplay
from runtime.replay.request import CopyStopped, ReplayRequest, RestorePartition, RestoreRequest
from runtime.replay.restore import PartitionRestore
from runtime.schemas.copier import SchemaCopier

if TYPE_CHECKING:
    from runtime.sql.transformer import Evaluates, Transformer

_RESTORED_AT_A_TIME: Final = 4  # partitions of a task
_STOPPED = (AuditFailure, CopyStopped, BatchFailure, DamagedFile, ManifestProblem)


async def copy_partitions(
    request: ReplayRequest | RestoreRequest, evaluator: Evaluates | None = None
) -> list[ReplayedPartition]:
    """Replays the partitions of a request one by one in a Spark task, or restores some of them at a time.

    Each says why it stopped early. The replay of a flow with a transform needs an `evaluator`.
    """
    copies: list[AbstractAsyncContextManager[RepeatedCopy]]
    if isinstance(request, RestoreRequest):
        turns = asyncio.Semaphore(_RESTORED_AT_A_TIME)
        copies = [_restore(request, part) for part in request.parts]
    else:
        turns, transformer = asyncio.Semaphore(1), None
        if request.flow.transform is not None and evaluator is not None:
            from runtime.sql.transformer import Transformer

            transformer = Transformer(request.flow.transform, evaluator)
        copies = [_replay(request, part, transformer) for part in request.parts]

    async def copied(
        part: AssignedPartition, opened: AbstractAsyncContextManager[RepeatedCopy]
    ) -> ReplayedPartition:
        copy, problem = RepeatedCopy(), ""
        try:
            async with turns, opened as copy:
                await copy.run(request.within_s)
        except _STOPPED as error:
            problem = str(error)
        except OSError as error:
            problem = f"{error.filename}: {error.strerror}" if error.filename else str(error)
        into = request.into(part)
        return ReplayedPartition(part.topic, part.partition, into, copy.records, problem, copy.note)

    return await asyncio.gather(*map(copied, request.parts, copies))


@asynccontextmanager
async def _restore(request: RestoreRequest, part: RestorePartition) -> AsyncIterator[RepeatedCopy]:
    async with open_spec(request.cluster, request.name) as cluster:
        yield PartitionRestore(request, part, cluster)


@asynccontextmanager
async def _replay(
    request: ReplayRequest, part: AssignedPartition, transformer: Transformer | None
) -> AsyncIterator[RepeatedCopy]:
    flow = request.flow
    async with AsyncExitStack() as stack:
        source = await stack.enter_async_context(open_spec(request.source, flow.source))
        destination = await stack.enter_async_context(open_spec(request.destination, flow.destination))
        schemas = None
        if flow.schemas.sync:
            registries = await stack.enter_async_context(open_registries(flow, request.registries))
            schemas = SchemaCopier(*registries, flow.schemas, ended=True)
        yield PartitionReplay(request, part, source, destination, transformer, schemas)
