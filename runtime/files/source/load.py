"""Copies records of files into a topic, in a Spark task: records and positions in the same transactions (R1).

A flow has one such task at a time, under one transactional id. The flow's next generation fences it (R3).
"""

from __future__ import annotations

import asyncio
import os
import time
from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, NamedTuple

import msgspec
from msgspec.structs import replace

from runtime.batch import Batch, Codec, RewriteReason, RewriteSpec
from runtime.batch.rewrite import fitting
from runtime.contract.records.advance import (
    Advance,
    advance,
    first_progress,
    progress_records,
    without_lost,
)
from runtime.contract.records.job_status import Finding, PartitionState
from runtime.contract.records.ledger import LedgerKey, LedgerValue, PartitionKey, Progress
from runtime.contract.records.offset_map import Run, append
from runtime.contract.spec.files import LinesSpec
from runtime.contract.spec.naming import TopicPartition
from runtime.files.source.file_source import FileSource
from runtime.files.source.known_files import NO_FINGERPRINT, Fingerprint, KnownFile
from runtime.files.source.lines import FileReader
from runtime.files.source.open_file import OpenFile
from runtime.files.source.sources import reader_of, source_of
from runtime.files.tasks import RoundTicket, TaskKind
from runtime.kafka.cluster import KafkaCluster
from runtime.kafka.errors import WireError
from runtime.kafka.timing import now_ms
from runtime.ledger.ledger import Ledger
from runtime.ledger.transaction_writer import TransactionWriter
from runtime.slot.budget import TokenBucket
from runtime.slot.failpoints import failpoint

_BATCH_BYTES: Final = 512 << 10
_OVERHEAD: Final = 128  # of a record and its batch, at most


class LoadFile(msgspec.Struct):
    """A file whose records go to a partition: a task returns it as far as it was read and committed.

    `position` and `size` are in bytes, or rows of Parquet. `fingerprint` and `version` are those of the
    driver's look; the task returns the size that it found. `problem` says why it goes no further. `outdated`:
    the name holds another file than the ticket says, or the ledger has another position; `problem` is None
    then, since it would be that of the file before.
    """

    name: str
    partition: int
    position: int
    fingerprint: Fingerprint
    size: int = 0
    version: str = ""
    records: int = 0
    bytes: int = 0
    more: bool = True
    problem: Finding | None = None
    outdated: bool = False

    @property
    def ended(self) -> bool:
        """Whether the task reads no more of it, though there may be more."""
        return self.outdated or self.problem is not None


class LoadTicket(RoundTicket, frozen=True, kw_only=True):
    """Describes which files a task reads into a topic."""

    transactional_id: str
    lines: LinesSpec
    topic_id: bytes
    max_message_bytes: int
    files: list[LoadFile]


LOAD: Final = TaskKind(LoadTicket, LoadFile)


def load(tickets: Iterable[bytes]) -> Iterator[bytes]:
    """Carries out the tickets of a task and yields their encoded results."""
    for text in tickets:
        yield LOAD.run(text, _load)


async def _load(ticket: LoadTicket, done: list[LoadFile]) -> None:
    task = FileLoad(ticket)
    try:
        async with await ticket.opened() as cluster:
            await task.run(cluster)
    finally:
        task.close()
        done += task.results()


@dataclass(slots=True)
class _Source:
    """A file of the ticket, which says how far it is committed, and how far it was read (`position`).

    It is open from its first record on, until nothing is left to read.
    """

    done: LoadFile
    key: PartitionKey
    position: int
    file: OpenFile | None = None
    identity: int = -1
    reader: FileReader | None = None

    def close(self) -> None:
        """Closes the file. Its reader is not used any more."""
        if self.file is not None:
            self.file.close()
            self.file = self.reader = None


class _Chunk(NamedTuple):
    """The batches of some records of a file, what they change, and the fingerprint behind them."""

    source: _Source
    batches: list[Batch]
    step: Advance
    fingerprint: bytes


@dataclass(slots=True)
class FileLoad:
    """Reads the files of a ticket in turn, a chunk of each at a time, and commits chunk by chunk."""

    ticket: LoadTicket
    _sources: list[_Source] = field(default_factory=list)
    _progress: dict[PartitionKey, Progress] = field(default_factory=dict)
    _files: FileSource = field(init=False)

    def __post_init__(self) -> None:
        self._files = source_of(self.ticket.lines)

    async def run(self, cluster: KafkaCluster) -> None:
        """Copies until all files are read, or the round is over. Raises WireError, READ_FAILURES."""
        ticket = self.ticket
        until = time.monotonic() + ticket.round_s
        writer = await TransactionWriter.open(cluster, ticket.transactional_id, failpoint=failpoint)
        await self._begin(cluster)
        bucket = TokenBucket(ticket.rate, time.monotonic)
        chunks = self._chunks()
        following = asyncio.ensure_future(asyncio.to_thread(next, chunks, None))
        try:
            while (chunk := await following) is not None:
                over = time.monotonic() >= until
                if not over:
                    await asyncio.sleep(bucket.wait_s())
                    following = asyncio.ensure_future(asyncio.to_thread(next, chunks, None))
                await self._commit(writer, chunk)
                bucket.take(chunk.step.bytes)
                if over:
                    chunk.source.done.more = True
                    break
        finally:
            await asyncio.gather(following, return_exceptions=True)

    def results(self) -> list[LoadFile]:
        """Returns how far each file is committed."""
        return [source.done for source in self._sources]

    def close(self) -> None:
        """Closes all files."""
        for source in self._sources:
            source.close()

    async def _begin(self, cluster: KafkaCluster) -> None:
        """Checks that this generation still has the flow, and the positions of its files.

        It is called after the transactional id was initialised: no older task writes any more (fencing 3).
        Raises WireError, READ_FAILURES.
        """
        ticket = self.ticket
        ledger = await Ledger.open(cluster)
        await ledger.decided(ticket.flow)
        generation = ledger.generation(ticket.flow)
        if generation is None or generation.number != ticket.generation:
            number = generation.number if generation is not None else "none"
            raise WireError(f"the ledger has generation {number} of {ticket.flow}, not {ticket.generation}")
        for file in ticket.files:
            key = PartitionKey(ticket.flow, file.name, file.partition)
            progress = ledger.decided_progress(key)
            held = (0, NO_FINGERPRINT)
            if progress is not None:
                read = KnownFile.of(file.name, progress)
                held = read.position, read.fingerprint
            if held != (file.position, file.fingerprint):
                file.outdated = True
            elif progress is not None:
                self._progress[key] = progress
            self._sources.append(_Source(file, key, file.position))

    def _open(self, source: _Source) -> None:
        """Opens a file, or notes why it is not read. Raises OSError, EndpointUnavailable."""
        done = source.done
        source.file = file = self._files.open(done.name, done.version)
        source.identity = file.identity()
        source.reader = reader = reader_of(file, self.ticket.lines.format)
        done.size = reader.size()
        if reader.fingerprint(done.position) != done.fingerprint:
            done.outdated = True
        elif (problem := reader.problem()) is not None:
            done.outdated = problem.state is not PartitionState.RECORD_CORRUPT
            done.problem = None if done.outdated else problem

    def _chunks(self) -> Iterator[_Chunk]:
        """Yields chunks of the files in turn, so that a large file does not hold up the others.

        A file whose reader is midway is read on first: one such reader at a time holds memory (R8).
        Raises EndpointUnavailable.
        """
        waiting = deque(source for source in self._sources if not source.done.ended)
        while waiting:
            source = waiting.popleft()
            done = source.done
            try:
                chunk = self._chunk(source)
            except FileNotFoundError:
                done.outdated, done.problem, chunk = True, None, None
            except OSError as error:
                done.problem, chunk = Finding(PartitionState.RETRYING, error.strerror or str(error)), None
            if chunk is not None:
                yield chunk
            if done.more and not done.ended:
                midway = source.reader is not None and source.reader.midway
                (waiting.appendleft if midway else waiting.append)(source)
            else:
                source.close()

    def _chunk(self, source: _Source) -> _Chunk | None:
        """Returns the next records of a file as batches; None where nothing is left that can be read."""
        done = source.done
        if source.reader is None:
            self._open(source)
            if done.ended:
                return None
        reader, begin = source.reader, source.position
        assert reader is not None
        read = reader.read(begin, self.ticket.max_message_bytes - _OVERHEAD)
        done.size = max(reader.size(), read.position)
        done.problem, done.more = read.problem, read.more and read.problem is None
        if read.position == begin:
            return None
        mark = reader.fingerprint(read.position)
        if mark is None:
            done.outdated, done.problem = True, None
            return None
        source.position = read.position
        step = Advance(
            position=read.position,
            source_epoch=-1,
            records=len(read.records),
            bytes=read.size,
            last_timestamp=now_ms(),
        )
        return _Chunk(source, self._batches(source, read.records), step, mark)

    def _batches(self, source: _Source, records: Sequence[tuple[int, bytes]]) -> list[Batch]:
        at = TopicPartition(source.done.name, source.key.partition)
        spec = RewriteSpec(at, self.ticket.max_message_bytes)
        batches: list[Batch] = []
        for group in _groups(records):
            kept = [(number, timestamp, body) for number, (timestamp, body) in enumerate(group)]
            parts = fitting(kept, Codec.LZ4, len(kept), spec, RewriteReason(0))
            batches += [part.batch for part in parts]
        return batches

    async def _commit(self, writer: TransactionWriter, chunk: _Chunk) -> None:
        """Commits a chunk, the position behind it, and its part of the offset map. Raises WireError.

        A run begins at the position of a chunk: the lines behind it follow one another.
        """
        source, ticket = chunk.source, self.ticket
        at = TopicPartition(ticket.lines.topic, source.key.partition)
        after: Progress | None = None

        def ledger(bases: Mapping[TopicPartition, Sequence[int]]) -> Mapping[LedgerKey, LedgerValue | None]:
            nonlocal after
            written = bases.get(at, ())
            before = self._progress.get(source.key) or replace(
                first_progress(
                    generation=ticket.generation,
                    source_topic_id=NO_FINGERPRINT,
                    destination_topic=ticket.lines.topic,
                    destination_topic_id=ticket.topic_id,
                    position=0,
                    destination_end=0,
                    now_ms=chunk.step.last_timestamp,
                ),
                map_name=f"file:{os.urandom(8).hex()}",
            )
            before = without_lost(before, written[0]) if written else before
            runs, position = list[Run](), before.position
            for base, batch in zip(written, chunk.batches, strict=True):
                append(runs, Run(position, base, batch.records))
                position += batch.records
            step = chunk.step._replace(runs=tuple(runs))
            after, sealed = advance(before, step, ticket.generation, step.last_timestamp)
            read = KnownFile(source.done.name, after.position, chunk.fingerprint, source.identity)
            after = replace(read.into(after), destination_topic_id=ticket.topic_id)
            return progress_records(source.key, after, sealed)

        await writer.commit(ledger, {at: chunk.batches} if chunk.batches else {})
        assert after is not None
        self._progress[source.key] = after
        source.done.position = chunk.step.position
        source.done.records += chunk.step.records
        source.done.bytes += chunk.step.bytes


def _groups(records: Sequence[tuple[int, bytes]]) -> Iterator[Sequence[tuple[int, bytes]]]:
    """Yields the records in groups, one for each batch."""
    begin = size = 0
    for at, (_, body) in enumerate(records):
        size += len(body)
        if size >= _BATCH_BYTES:
            yield records[begin : at + 1]
            begin, size = at + 1, 0
    if begin < len(records):
        yield records[begin:]
