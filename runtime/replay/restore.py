"""Writes the records of a partition's backup back into a cluster, exactly once.

Its progress and its offset map are committed in the ledger of the cluster, in the transaction of its records
(R1, R6). So any offset of the backup can be translated afterwards.

In the end the partition is read again: it must hold the records of the backup, byte for byte, and no others.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import Final

from msgspec.structs import replace

from runtime.audit.on_spark import show
from runtime.audit.partition_logs import (
    CommittedRecordReader,
    OpenTransactionTimeout,
    RecordsExpired,
    bounds_of,
)
from runtime.batch import (
    AbortedTransactions,
    Batch,
    OutgoingBatch,
    RecordSet,
    RewriteSpec,
    prepare,
)
from runtime.batch.spec import READ_UNPACKED, RewriteReason
from runtime.contract.records.advance import Advance, advance, first_progress, progress_records
from runtime.contract.records.ledger import (
    LedgerKey,
    LedgerValue,
    Progress,
)
from runtime.contract.records.manifest import DataFile
from runtime.contract.records.offset_map import Run, append
from runtime.contract.spec.naming import TopicPartition
from runtime.files.backup import (
    BackedUpRecords,
    check_file,
    files_up_to,
    raw_records,
    read_backup,
    windows,
)
from runtime.files.manifest import ManifestFolder, ManifestProblem
from runtime.files.store import StoredFile
from runtime.kafka.cluster import KafkaCluster
from runtime.kafka.errors import BrokerError, ErrorCode
from runtime.kafka.protocol.fetch import Isolation
from runtime.kafka.timing import RetryDeadline, now_ms
from runtime.ledger.ledger import Ledger, UndecidedProgress
from runtime.ledger.records import READ_FAILURES
from runtime.ledger.transaction_writer import TransactionWriter
from runtime.replay.repeated_copy import PAUSE_S, RepeatedCopy
from runtime.replay.request import RESTORED, CopyStopped, RestorePartition, RestoreRequest
from runtime.replay.restore_target import earlier_restore
from runtime.replay.schemas import with_restored_ids
from runtime.slot.failpoints import failpoint

_GENERATION: Final = 1
_FETCH_BYTES: Final = 8 << 20
_SHOW_EVERY_S: Final = 5.0


def with_files(request: RestoreRequest) -> RestoreRequest:
    """Returns the request with the files of its partitions, the largest partition first.

    Raises ManifestProblem, EndpointUnavailable.
    """
    state = request.backup
    backup = read_backup(state.folder, state.flow, state.commit, state.digest, state.client)
    parts = []
    for part in request.parts:
        lineages = backup.lineages.get(part.topic, ())
        lineage = next((lineage for lineage in lineages if lineage.topic_id == part.topic_id), None)
        if lineage is None:
            what = f"the backup holds no topic {part.topic} with the id {part.topic_id}"
            raise ManifestProblem(f"{what}: plan again")
        files = files_up_to(lineage.files.get(part.partition, ()), part.end)
        parts.append(replace(part, files=files))
    return replace(request, parts=sorted(parts, key=lambda part: -sum(file.size for file in part.files)))


class PartitionRestore(RepeatedCopy):
    """Restores one partition, and compares it with its files in the end.

    `progress` counts the records that this run has written.
    """

    command = noun = "restore"

    def __init__(self, request: RestoreRequest, part: RestorePartition, cluster: KafkaCluster) -> None:
        self._request, self._part, self._cluster = request, part, cluster
        self._key = part.key
        self._at = self._key.at
        self._where = TopicPartition(part.topic, part.partition)
        self._folder = ManifestFolder(request.backup.folder, request.backup.flow, request.backup.client)
        self._shown_at = time.monotonic()
        self._checked: set[str] = set()

    async def _attempt(self) -> None:
        try:
            await self._compare(await self._write())
        except (RecordsExpired, OpenTransactionTimeout) as error:
            raise CopyStopped(f"{self._at}: {error}") from error
        except READ_FAILURES as error:
            raise CopyStopped(str(error)) from error

    async def _write(self) -> Progress:
        """Writes the records behind the committed position. Raises WireError."""
        transactional_id = f"repl.restore.{self._part.flow}.{self._at.topic}.{self._at.partition}"
        writer = await TransactionWriter.open(self._cluster, transactional_id, failpoint=failpoint)
        progress, is_committed = await self._committed()
        self.records = progress.records
        if progress.position > self._part.end:
            raise CopyStopped(
                f"{self._at} was restored up to the offset {progress.position} of the backup, and"
                f" {self._part.end} is wanted now: delete the topic, and restore it again"
            )
        chunks = self._chunks(progress.position)
        following = asyncio.ensure_future(asyncio.to_thread(next, chunks, None))
        try:
            while (chunk := await following) is not None:
                following = asyncio.ensure_future(asyncio.to_thread(next, chunks, None))
                progress = await self._commit(writer, progress, chunk, chunk[-1].position)
                is_committed = True
        finally:
            await asyncio.gather(following, return_exceptions=True)
        # Transaction markers, or compaction, at the end; or no record at all, for the offsets of groups.
        if progress.position < self._part.end or not is_committed:
            progress = await self._commit(writer, progress, (), self._part.end)
        return progress

    async def _committed(self) -> tuple[Progress, bool]:
        """Returns the progress of this restore, and whether the ledger has it.

        A partition without progress must be empty, and begins at 0. Raises WireError.
        """
        ledger = await Ledger.open(self._cluster)
        deadline = RetryDeadline(self._request.within_s)
        while True:
            await ledger.refresh(self._key.flow)
            committed = ledger.progress(self._key)
            if not isinstance(committed, UndecidedProgress):
                break
            if deadline.over():
                raise CopyStopped(f"{self._at}: a transaction of an earlier restore is not decided yet")
            await asyncio.sleep(PAUSE_S)
        topic = (await self._cluster.topics([self._at.topic], fresh=True))[self._at.topic]
        if topic.error is not ErrorCode.NONE:
            raise BrokerError(topic.error, self._at.topic)
        source_id = bytes.fromhex(self._part.topic_id)
        log = (await bounds_of(self._cluster, [self._at], self._request.within_s))[self._at]
        earlier = await earlier_restore(self._cluster, self._at, topic.id, source_id, committed, log)
        if earlier is not None:
            if log.end < earlier.destination_end:
                raise CopyStopped(
                    f"{self._at} lost records that were restored: delete it, and restore it again"
                )
            return earlier, True
        first = first_progress(
            generation=_GENERATION,
            source_topic_id=source_id,
            destination_topic=self._at.topic,
            destination_topic_id=topic.id,
            position=0,
            destination_end=log.end,
            now_ms=now_ms(),
        )
        return first, False

    def _files(self) -> Iterator[tuple[DataFile, StoredFile]]:
        """Yields the files with their paths, each checked once before anything of it is used."""
        for file in self._part.files:
            if file.path not in self._checked:
                check_file(self._folder, file)
                self._checked.add(file.path)
            yield file, self._folder.place(file)  # a job may have merged it since

    def _chunks(self, position: int) -> Iterator[list[OutgoingBatch]]:
        """Yields the records from a position on, about as much as one transaction takes."""
        chunk, size = list[OutgoingBatch](), 0
        for file, path in self._files():
            if file.end <= position:
                continue
            for sets in windows(path, self._where):
                spec = RewriteSpec(
                    where=self._where,
                    max_batch=self._part.max_message_bytes,
                    start=max(position, file.first),
                    end=file.end,
                    max_unpacked=READ_UNPACKED,
                )
                prepared = prepare(sets, spec, now_ms(), AbortedTransactions(()), ())
                if prepared.failure is not None:
                    raise prepared.failure
                for out in self._with_ids(prepared.outgoing, spec):
                    chunk.append(out)
                    size, position = size + out.batch.size, out.position
                    if size >= self._request.bytes:
                        yield chunk
                        chunk, size = [], 0
        if chunk:
            yield chunk

    def _with_ids(self, outgoing: Iterable[OutgoingBatch], spec: RewriteSpec) -> Iterator[OutgoingBatch]:
        """Yields the batches with the ids of schemas that the cluster's registry gave."""
        ids = self._request.ids.get(self._at.topic)
        for out in outgoing:
            if ids is None:
                yield out
            else:
                yield from with_restored_ids(out, ids, spec)

    async def _commit(
        self, writer: TransactionWriter, before: Progress, chunk: Sequence[OutgoingBatch], position: int
    ) -> Progress:
        """Commits a chunk, which ends at a position, and its part of the offset map. Raises WireError."""
        after, batches = before, [out.batch for out in chunk]

        def ledger(bases: Mapping[TopicPartition, Sequence[int]]) -> Mapping[LedgerKey, LedgerValue | None]:
            nonlocal after
            runs: list[Run] = []
            for base, out in zip(bases.get(self._at, ()), chunk, strict=True):
                for delta, source, count in out.runs:
                    append(runs, Run(source, base + delta, count))
            step = Advance(
                position=position,
                source_epoch=-1,
                runs=tuple(runs),
                records=sum(batch.records for batch in batches),
                bytes=sum(batch.size for batch in batches),
                last_timestamp=max((batch.max_timestamp for batch in batches), default=-1),
            )
            after, sealed = advance(before, step, _GENERATION, now_ms())
            return progress_records(self._key, after, sealed)

        await writer.commit(ledger, {self._at: batches} if batches else {})
        self.records = after.records
        self.progress += after.records - before.records
        if time.monotonic() - self._shown_at > _SHOW_EVERY_S:
            self._shown_at = time.monotonic()
            where = f"up to {after.position} of {self._part.end}"
            show(self.command, f"{self._at}: {after.records:,} records, {where}")
        return after

    async def _compare(self, progress: Progress) -> None:
        """Reads the partition again and compares every record with the backup's, byte for byte.

        Timestamps, keys, values and headers must be equal, in this order, and no record may be between them.
        The backup's records have the ids of schemas that were to be written.
        Raises CopyStopped, WireError, BatchFailure.
        """
        limit = READ_UNPACKED
        spec = RewriteSpec(where=self._where, max_batch=limit, max_unpacked=limit)

        def change(batch: Batch) -> Batch:
            (changed,) = self._with_ids([OutgoingBatch.whole(batch, RewriteReason.NONE)], spec)
            return changed.batch

        wanted = BackedUpRecords(self._files(), self._where, change)
        count = 0
        start, _ = (await bounds_of(self._cluster, [self._at], self._request.within_s))[self._at]
        async for batch in self._restored(start, progress.destination_end):
            if await asyncio.to_thread(wanted.takes_whole, batch):
                count += batch.records
                continue
            for offset, timestamp, tail in raw_records(batch, self._where):
                expected = wanted.pop()
                if expected is None:
                    raise CopyStopped(f"{self._at} holds a record at {offset} that the backup does not hold")
                if (timestamp, tail) != expected[1:]:
                    raise CopyStopped(
                        f"{self._at}: the record at {offset} is not that of the backup at {expected[0]}"
                    )
                count += 1
        if (missing := wanted.pop()) is not None:
            raise CopyStopped(
                f"{self._at} lacks the record of the backup at {missing[0]}, after {count:,} equal ones:"
                " did retention delete it?"
            )
        if count != progress.records:
            raise CopyStopped(f"{self._at} holds {count:,} records in place of {progress.records:,}")
        self.records = count
        show(self.command, f"{self._at}: {count:,} records {RESTORED}")

    async def _restored(self, start: int, end: int) -> AsyncIterator[Batch]:
        """Yields the committed batches of the partition, and fetches the next ones meanwhile.

        The restored records lie before `end`. Behind it are those that others wrote, up to the last stable
        offset. Raises WireError, BatchFailure, RecordsExpired, OpenTransactionTimeout.
        """
        within_s = self._request.within_s
        read = partial(
            CommittedRecordReader, self._cluster, self._at, None, within_s=within_s, max_bytes=_FETCH_BYTES
        )
        reader = read(start, end)

        async def next_sets() -> list[tuple[RecordSet, bool]] | None:
            nonlocal reader
            if reader.ended:
                stable = await bounds_of(self._cluster, [self._at], within_s, Isolation.READ_COMMITTED)
                if stable[self._at].end < end:  # a new leader does not know yet that they are committed
                    raise BrokerError(ErrorCode.OFFSET_NOT_AVAILABLE, str(self._at))
                if stable[self._at].end <= reader.position:
                    return None
                reader = read(reader.position, stable[self._at].end)
            return await reader.next_sets()

        ahead = asyncio.ensure_future(next_sets())
        try:
            while (sets := await ahead) is not None:
                ahead = asyncio.ensure_future(next_sets())
                for member, committed in sets:
                    if committed and isinstance(member, Batch):
                        yield member
        finally:
            ahead.cancel()
            await asyncio.gather(ahead, return_exceptions=True)
