"""Copies partitions to staged files in a Spark task. Nothing of it is visible before the driver commits it.

It reads what a read_committed consumer reads: control batches and aborted transactions are left out. A task
of a flow with a transform is the collecting worker of a query, which evaluates the records first.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Final

import msgspec
from msgspec.structs import replace

from runtime.batch import (
    AbortedTransactions,
    BadRecord,
    Batch,
    BatchFailure,
    RecordSet,
    UnpacksTooLarge,
    walk,
)
from runtime.contract.records.job_status import Finding, PartitionState
from runtime.contract.records.manifest import DataFile, FilePosition
from runtime.contract.spec.files import FilesSpec
from runtime.contract.spec.launch import UNPACKED_LIMIT
from runtime.contract.spec.naming import TopicPartition
from runtime.contract.spec.transform import TransformSpec
from runtime.files.formats import PartitionFiles
from runtime.files.manifest import ManifestFolder, as_unavailable
from runtime.files.tasks import RoundTicket, TaskKind
from runtime.kafka.cluster import KafkaCluster
from runtime.kafka.errors import ErrorCode, WireError
from runtime.kafka.fetch import fetch_loaded
from runtime.kafka.protocol.fetch import FetchedPartition
from runtime.schemas.client import RegistryUnavailable
from runtime.slot.budget import TokenBucket

if TYPE_CHECKING:
    from runtime.files.transformed import FileTransform, Window
    from runtime.sql.evaluator import MakeEvaluator

_FETCH_BYTES: Final = 8 << 20
_AT_A_TIME: Final = 4  # partitions of a task: while one writes, others fetch
_LEAST_S: Final = 1.0  # the least share of a round that a partition gets


class ExportPartition(msgspec.Struct):
    """A partition that is copied up to `end`, its last stable offset: a task returns it as far as it came.

    Everything below its position is in the files, or is not to be in any. `files` are staged by the task.
    `problem` says why it goes no further.
    """

    position: FilePosition
    end: int
    files: list[DataFile] = []
    problem: Finding | None = None


class ExportTicket(RoundTicket, frozen=True, kw_only=True):
    """Describes which partitions a task copies into files. `unpacked_bytes` bounds a batch's records (R8)."""

    files: FilesSpec
    partitions: list[ExportPartition]
    transform: TransformSpec | None = None
    unpacked_bytes: int


EXPORT: Final = TaskKind(ExportTicket, ExportPartition)


def export(tickets: Iterable[bytes]) -> Iterator[bytes]:
    """Carries out the tickets of a task and yields their encoded results."""
    for text in tickets:
        yield EXPORT.run(text, _export)


def export_with_sql(text: bytes, make: MakeEvaluator) -> bytes:
    """Carries out the ticket of a flow with a transform, as the collecting worker of a query.

    Returns its encoded result.
    """
    from runtime.files.transformed import FileTransform
    from runtime.sql.evaluator import serving_evaluator

    async def exported(ticket: ExportTicket, done: list[ExportPartition]) -> None:
        transform = ticket.transform
        assert transform is not None, "export copies without a transform"
        async with serving_evaluator(make) as evaluator:
            await _export(ticket, done, FileTransform(transform, evaluator))

    return EXPORT.run(text, exported)


async def _export(
    ticket: ExportTicket, done: list[ExportPartition], transform: FileTransform | None = None
) -> None:
    folder = ManifestFolder(ticket.files.folder, ticket.flow, ticket.files.client)
    with as_unavailable(folder.store):
        folder.store.check()  # before anything runs in the loop
        async with await ticket.opened() as cluster:
            done += await copied(ticket, cluster, folder, transform)


async def copied(
    ticket: ExportTicket,
    cluster: KafkaCluster,
    folder: ManifestFolder,
    transform: FileTransform | None = None,
) -> list[ExportPartition]:
    """Copies the partitions of a ticket, some at a time, each for its share of the round.

    Raises OSError, after which nothing of the round counts.
    """
    bucket = TokenBucket(ticket.rate, time.monotonic)
    turns = asyncio.Semaphore(_AT_A_TIME)
    shares = max(len(ticket.partitions) / _AT_A_TIME, 1.0)
    share_s = max(ticket.round_s / shares, min(_LEAST_S, ticket.round_s))

    async def exported(partition: ExportPartition) -> ExportPartition:
        where, topic_id = TopicPartition(*partition.position.key), partition.position.topic_id
        files = PartitionFiles(
            ticket.flow, ticket.files, where, topic_id, folder, ticket.generation, ticket.unpacked_bytes
        )
        async with turns:
            try:
                export = _PartitionExport(cluster, partition, files, bucket, transform)
                return await export.run(time.monotonic() + share_s)
            finally:
                files.discard()

    work = [asyncio.ensure_future(exported(partition)) for partition in ticket.partitions]
    try:
        return await asyncio.gather(*work)
    finally:
        for task in work:
            task.cancel()
        await asyncio.gather(*work, return_exceptions=True)


class _Expired(Exception):
    """The source has removed the records at the position."""


class _PartitionExport:
    """Copies one partition until its end, until its time is over, or until it has too many files."""

    def __init__(
        self,
        cluster: KafkaCluster,
        partition: ExportPartition,
        files: PartitionFiles,
        bucket: TokenBucket,
        transform: FileTransform | None,
    ) -> None:
        self._cluster = cluster
        self._partition = partition
        self._files = files
        self._bucket = bucket
        self._transform = transform
        self._where = TopicPartition(*partition.position.key)
        self._topic_id = bytes.fromhex(partition.position.topic_id)
        self._position = partition.position.position  # from which is fetched

    async def run(self, until: float) -> ExportPartition:
        """Copies, and returns how far it came. Raises OSError."""
        done = self._partition
        try:
            await self._copy(until)
        except UnpacksTooLarge as failure:
            done.problem = Finding(PartitionState.RECORD_TOO_LARGE, f"{failure}; raise {UNPACKED_LIMIT}")
        except BatchFailure as failure:
            is_bad = isinstance(failure, BadRecord)
            state = PartitionState.RECORD_INVALID if is_bad else PartitionState.RECORD_CORRUPT
            done.problem = Finding(state, str(failure))
        except (_Expired, WireError, RegistryUnavailable) as error:
            done.problem = Finding(PartitionState.RETRYING, str(error))
        done.files = await asyncio.to_thread(self._files.finish)
        newest = max([done.position.last_timestamp, *(file.last_timestamp for file in done.files)])
        done.position = replace(done.position, last_timestamp=newest)
        return done

    def _move(self, position: int, records: int, size: int, filtered: int = 0, tombstones: int = 0) -> None:
        """Moves the partition behind what was written, or is not to be written."""
        before = self._partition.position
        self._partition.position = replace(
            before,
            position=max(before.position, position),
            records=before.records + records,
            bytes=before.bytes + size,
            dropped=before.dropped + filtered,
            tombstones=before.tombstones + tombstones,
        )

    async def _copy(self, until: float) -> None:
        """Copies. Raises _Expired, BatchFailure, WireError, RegistryUnavailable, OSError."""
        ahead = self._fetch()
        try:
            while True:
                answer = await ahead
                if answer.error is ErrorCode.OFFSET_OUT_OF_RANGE:
                    raise _Expired(f"the offset {self._position} is not there any more")
                begin = self._position
                sets = self._walked(answer)
                if self._position == begin:
                    return  # a new leader does not know yet how far its followers are
                over = self._position >= self._partition.end or time.monotonic() >= until
                if not over:
                    ahead = self._fetch()
                if self._transform is None:
                    await asyncio.to_thread(self._write, answer, sets, begin)
                else:
                    await self._write_transformed(self._transform, answer, sets, begin)
                if over or self._files.full:
                    return
        finally:
            ahead.cancel()
            await asyncio.gather(ahead, return_exceptions=True)

    def _walked(self, answer: FetchedPartition) -> list[RecordSet]:
        """Returns the batches of a response, and moves the position behind them. Raises CorruptBatch."""
        walked = walk(answer.records, self._where)
        if walked.failure is not None and not walked.sets:
            raise walked.failure
        if walked.sets:
            self._position = max(self._position, walked.sets[-1].next_offset)
        return walked.sets

    def _fetch(self) -> asyncio.Task[FetchedPartition]:
        """Begins to fetch from the position on."""
        at, position, topic_id = self._where, self._position, self._topic_id

        async def fetched() -> FetchedPartition:
            await asyncio.sleep(self._bucket.wait_s())
            answer = await fetch_loaded(self._cluster, at, position, _FETCH_BYTES, "files", topic_id=topic_id)
            self._bucket.take(len(answer.records))
            return answer

        return asyncio.ensure_future(fetched())

    def _write(self, answer: FetchedPartition, sets: Sequence[RecordSet], begin: int) -> None:
        """Writes the batches that a read_committed reader sees. Raises BatchFailure, OSError."""
        position, records, size = begin, 0, 0
        try:
            for member, text, seen in _seen(answer, sets, begin):
                if self._files.full:
                    break
                behind = member.next_offset
                if seen:
                    written, behind = self._files.write(member, text, begin)
                    records += written
                    size += member.size if behind == member.next_offset else 0
                position = behind
        finally:
            self._move(position, records, size)

    async def _write_transformed(
        self, transform: FileTransform, answer: FetchedPartition, sets: Sequence[RecordSet], begin: int
    ) -> None:
        """Writes what the transform lets through. While a window is written, the next one is evaluated.

        Raises BatchFailure, OSError, EvaluationEnded and RegistryUnavailable.
        """
        from runtime.files.transformed import windows

        seen = [member for member, _, seen in _seen(answer, sets, begin) if seen]
        pending = windows(seen, self._where, begin, self._files.unpacked_bytes)
        ahead: asyncio.Task[Window] | None = None
        try:
            while True:
                window = await asyncio.to_thread(next, pending, None)
                before, ahead = ahead, None
                if window is not None:
                    ahead = asyncio.ensure_future(transform.apply(self._where, window))
                if before is not None:
                    await self._write_window(await before)
                    if self._files.full:
                        return
                elif ahead is None:
                    break
        finally:
            if ahead is not None:
                ahead.cancel()
                await asyncio.gather(ahead, return_exceptions=True)
        self._move(sets[-1].next_offset, 0, 0)

    async def _write_window(self, window: Window) -> None:
        """Writes the records of a window that travel. Raises BatchFailure behind them, and OSError."""
        if window.rows:
            await asyncio.to_thread(self._files.write_rows, window.rows, window.values)
        self._move(window.through, len(window.rows), window.bytes, window.filtered, window.tombstones)
        if window.failure is not None:
            raise window.failure


def _seen(
    answer: FetchedPartition, sets: Sequence[RecordSet], begin: int
) -> Iterator[tuple[RecordSet, memoryview, bool]]:
    """Yields each batch with its bytes, and whether a read_committed reader sees it."""
    aborted = AbortedTransactions(answer.aborted)
    at = 0
    for member in sets:
        text = answer.records[at : at + member.size]
        at += member.size
        seen = (not isinstance(member, Batch) or aborted.keeps(member)) and member.next_offset > begin
        yield member, text, seen
