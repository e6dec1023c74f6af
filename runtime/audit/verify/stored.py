"""Compares the records of a source topic with those in the files of a flow, offset by offset.

Each record of a file names its offset at the source, so the two sides are merged by it. A record that is
missing or doubled makes one difference. A file that is not as the manifest says makes one difference for all
of its records.
"""

from __future__ import annotations

import asyncio
import socket
import time
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from typing import TYPE_CHECKING, Final, Literal, NamedTuple

from runtime.audit.ledger import AuditFailure
from runtime.audit.partition_logs import (
    CommittedRecordReader,
    OpenTransactionTimeout,
    RecordsExpired,
    open_spec,
)
from runtime.audit.verify.file_records import (
    FileDamage,
    FileRecord,
    StoredRecords,
    content_in_files,
    decoded_value,
)
from runtime.audit.verify.pieces import (
    LIMIT,
    RecordContent,
    RecordDifference,
    StoredFiles,
    VerificationPiece,
    VerifiedPiece,
    VerifyRequest,
)
from runtime.batch import BatchFailure, PartitionLocation, Record
from runtime.contract.records.consumer_record import ConsumerRecord
from runtime.contract.spec.files import FilesSpec
from runtime.contract.spec.transform import FIELDS
from runtime.files.backup import read_backup
from runtime.files.manifest import EndpointUnavailable, ManifestFolder, ManifestProblem, as_unavailable
from runtime.kafka.cluster import KafkaCluster
from runtime.kafka.errors import WireError
from runtime.kafka.protocol.offsets import TopicPartition
from runtime.slot.budget import TokenBucket
from runtime.sql.formats.registry import RegistryUnavailable

if TYPE_CHECKING:
    from runtime.files.transformed import FileTransform

_CHUNK: Final = 1_024  # records of files that are read at a time
_WINDOW: Final = 2_048  # records that the flow's transform is evaluated for at a time
_WANTED: Final = 512  # records that a side holds before it is asked for more


class SourceLine(NamedTuple):
    """A record of the source as it must be in the files. One that does not travel must not be there."""

    offset: int
    kind: int
    content: RecordContent
    travels: bool = True


class OffsetComparer:
    """Compares two sequences of records by their offsets.

    Pass records while they are wanted, report the end of a side, and call `advance` after each. `damaged`
    takes what is known of the files that were read so far.
    """

    def __init__(self, low: int, *, compacted: bool, limit: int = LIMIT) -> None:
        self.edits: list[RecordDifference] = []
        self.matched = self.one_sided = self.filtered = 0
        self.through = low  # the source offset behind the last pair
        self._low = low
        self._compacted = compacted
        self._limit = limit
        self._source: deque[SourceLine] = deque()
        self._files: deque[FileRecord] = deque()
        self._source_ended = self._files_ended = False
        self._damaged: list[tuple[int, int]] = []
        self._last: int | None = None  # the offset of the last record in the files

    @property
    def full(self) -> bool:
        """Returns whether the limit of differences is reached."""
        return len(self.edits) >= self._limit

    @property
    def done(self) -> bool:
        """Returns whether the comparison is complete or full."""
        ended = self._source_ended and self._files_ended and not self._source and not self._files
        return self.full or ended

    @property
    def wants_source(self) -> bool:
        return not self._source_ended and len(self._source) < _WANTED

    @property
    def wants_files(self) -> bool:
        return not self._files_ended and len(self._files) < _WANTED

    def add_source(self, lines: Iterable[SourceLine]) -> None:
        self._source.extend(lines)

    def add_files(self, found: Iterable[FileRecord]) -> None:
        self._files.extend(found)

    def end_source(self) -> None:
        self._source_ended = True

    def end_files(self) -> None:
        self._files_ended = True

    def damaged(self, found: FileDamage) -> None:
        """Notes a file that can't be compared: its records are not missing one by one."""
        file = found.file
        self._damaged.append((file.first, file.end))
        near = max(min(self.through, file.first), self._low)
        why = f"source offsets {file.first} to {file.end - 1}: {found.why}"
        self.edits.append(
            RecordDifference("damaged", near, file.first, None, None, None, None, file=file.path, why=why)
        )

    def advance(self) -> None:
        """Compares as far as the records that were passed allow."""
        while not self.full and self._step():
            pass

    def _step(self) -> bool:
        source = self._source[0] if self._source else None
        stored = self._files[0] if self._files else None
        if (source is None and not self._source_ended) or (stored is None and not self._files_ended):
            return False
        if source is None and stored is None:
            return False
        if stored is None or (source is not None and source.offset < stored.offset):
            self._at_source_alone(self._source.popleft())
        elif source is None or stored.offset < source.offset:
            self._in_files_alone(self._files.popleft())
        else:
            self._pair(self._source.popleft(), self._files.popleft())
        return True

    def _at_source_alone(self, one: SourceLine) -> None:
        if not one.travels:
            self.filtered += 1
        elif not any(low <= one.offset < end for low, end in self._damaged):
            self._note("missing", one, None)

    def _in_files_alone(self, one: FileRecord) -> None:
        if one.offset == self._last:
            self._note("extra", None, one, twin=one.offset)
        elif self._compacted:
            self.one_sided += 1
        else:
            self._note("extra", None, one)
        self._last = one.offset

    def _pair(self, source: SourceLine, stored: FileRecord) -> None:
        self._last = stored.offset
        if not source.travels:
            self._note("extra", None, stored, why="not let through by the flow's transform")
            return
        self.matched += 1
        if (source.content, source.kind) != (stored.content, stored.kind):
            kinds = f"timestamp type {source.kind} → {stored.kind}" if source.kind != stored.kind else ""
            self._note("changed", source, stored, why=kinds)
        self.through = source.offset + 1

    def _note(
        self,
        what: Literal["missing", "extra", "changed"],
        source: SourceLine | None,
        stored: FileRecord | None,
        *,
        twin: int | None = None,
        why: str = "",
    ) -> None:
        self.edits.append(
            RecordDifference(
                what,
                self.through,
                source.offset if source is not None else None,
                source.offset if source is not None else None,
                stored.offset if stored is not None else None,
                source.content if source is not None else None,
                stored.content if stored is not None else None,
                twin,
                stored.path if stored is not None else "",
                why,
            )
        )


async def verify_stored(
    asked: VerifyRequest,
    tasks: int,
    pieces: Sequence[VerificationPiece],
    transform: FileTransform | None = None,
) -> list[VerifiedPiece]:
    """Compares the given pieces of a flow into files.

    Raises AuditFailure where the source does not answer, or this machine does not see the folder.
    """
    assert asked.flow.files is not None, "the flow has no files"
    bucket = TokenBucket(asked.rate // tasks or 1 if asked.rate else None, time.monotonic)
    folder = ManifestFolder(asked.flow.files.folder, asked.flow.name, asked.flow.files.client)
    try:
        with as_unavailable(folder.store):
            folder.store.check()  # without it, each file would be damaged
    except EndpointUnavailable as problem:
        what = f"on {socket.gethostname()}: {problem}"
        raise AuditFailure(asked.flow.files.endpoint, what, "each machine needs it under this path") from None
    async with open_spec(asked.source, asked.flow.source) as source:
        found = []
        for piece in pieces:
            assert piece.stored is not None, "a piece of a flow between clusters"
            work = _StoredPiece(asked, piece, piece.stored, source, folder, bucket, transform)
            found.append(await work.compare())
        await asyncio.sleep(bucket.wait_s())  # the next task has a bucket of its own
        return found


class _StoredPiece:
    def __init__(
        self,
        asked: VerifyRequest,
        piece: VerificationPiece,
        stored: StoredFiles,
        source: KafkaCluster,
        folder: ManifestFolder,
        bucket: TokenBucket,
        transform: FileTransform | None,
    ) -> None:
        assert asked.flow.files is not None, "the flow has no files"
        self._spec: FilesSpec = asked.flow.files
        self._asked, self._piece, self._folder = asked, piece, folder
        self._bucket, self._transform = bucket, transform
        self._where = PartitionLocation(piece.topic, piece.partition)
        self._low = max(piece.low, stored.kept_from)
        spec = asked.flow.transform
        self._decoded = spec is not None and spec.value.format in FIELDS
        self._stored = StoredRecords(folder, stored.files, self._spec.format, decoded=self._decoded)
        self._following: Iterator[FileRecord] = iter(self._stored)
        self._comparer = OffsetComparer(piece.low, compacted=piece.compacted)
        self._given_up = 0
        self._noted = 0  # damaged files
        at = TopicPartition(piece.topic, piece.partition)
        self._source = CommittedRecordReader(
            source, at, piece.source_id, self._low, piece.high, bucket, asked.within_s
        )

    async def compare(self) -> VerifiedPiece:
        """Compares the piece. It says why where that was not possible to its end."""
        comparer, (why, passed) = self._comparer, await self._compared()
        edits, end = list(comparer.edits), comparer.through
        damaged = [one for one in edits if one.what == "damaged"]
        if damaged:
            gone, merged_why = await asyncio.to_thread(self._merged_meanwhile, {one.file for one in damaged})
            if merged_why:
                why, passed = merged_why, False
            end = min([end, *(one.near for one in damaged if one.file in gone)])
            edits = [one for one in edits if one.what != "damaged" or one.file not in gone]
        return VerifiedPiece(
            self._piece.number,
            self._piece.low,
            end if comparer.full or why else self._piece.high,
            comparer.matched,
            0,
            self._given_up,
            0,
            comparer.one_sided,
            edits,
            comparer.full,
            why,
            passed,
            {},
            comparer.filtered,
        )

    async def _compared(self) -> tuple[str, bool]:
        """Compares the piece. Returns why it stopped, and whether retention deleted the records there."""
        try:
            while not self._comparer.done:
                sides = asyncio.gather(self._feed_source(), self._feed_files(), return_exceptions=True)
                for failure in await sides:  # both have ended, so each damaged file that was read is known
                    if failure is not None:
                        raise failure
                self._comparer.advance()
        except RecordsExpired as error:
            return str(error), True
        except (WireError, BatchFailure, OpenTransactionTimeout, ManifestProblem) as error:
            return str(error), False
        except (EndpointUnavailable, RegistryUnavailable) as error:
            return str(error), False
        except OSError as error:
            return f"{error.filename or self._folder.store.address}: {error.strerror or error}", False
        return "", False

    def _merged_meanwhile(self, damaged: set[str]) -> tuple[set[str], str]:
        """Returns the files that are not known to be damaged, and why.

        The job may have merged them since the comparison was planned, or the manifest can't be read now.
        """
        flow, topic = self._asked.flow.name, self._piece.topic
        try:
            with as_unavailable(self._folder.store):
                self._folder.store.check()
            now = read_backup(self._spec.folder, flow, client=self._spec.client)
        except (ManifestProblem, EndpointUnavailable) as problem:
            return damaged, str(problem)
        if topic not in now.lineages:
            return damaged, f"the manifest of {flow} is gone: is {self._folder.store.address} mounted?"
        lineages = now.lineages[topic]
        known = {one.path for lineage in lineages for some in lineage.files.values() for one in some}
        merged = damaged - known
        return merged, f"{min(merged)} was merged with others meanwhile: run it again" if merged else ""

    async def _feed_source(self) -> None:
        while self._comparer.wants_source:
            if self._low >= self._piece.high or self._source.ended:
                self._comparer.end_source()
                return
            found = [one for one in await self._source.next() if self._is_wanted(one.offset)]
            self._comparer.add_source(await self._lines(found))

    def _is_wanted(self, offset: int) -> bool:
        """Returns whether an offset of the source was not given up, and counts those that were."""
        given_up = self._is_given_up(offset)
        self._given_up += given_up
        return not given_up

    def _is_given_up(self, offset: int) -> bool:
        return any(low <= offset < end for low, end, _ in self._piece.gaps)

    async def _lines(self, found: Sequence[ConsumerRecord]) -> list[SourceLine]:
        """Returns records of the source as the files must have them. Raises BadRecord."""
        records = [
            (Record(one.offset, one.timestamp, one.key, one.value, one.headers), int(one.appended))
            for one in found
        ]
        if self._transform is None:
            return [SourceLine(one.offset, kind, content_in_files(one, one.value)) for one, kind in records]
        lines = []
        for at in range(0, len(records), _WINDOW):
            lines += await self._transformed(self._transform, records[at : at + _WINDOW])
        return lines

    async def _transformed(
        self, transform: FileTransform, records: list[tuple[Record, int]]
    ) -> list[SourceLine]:
        from runtime.files.transformed import Window

        window = Window(records, records[-1][0].offset + 1, 0, None)
        found = await transform.apply(self._where, window)
        if found.failure is not None:
            raise found.failure
        values = (
            found.values.to_pylist() if found.values is not None else [one.value for one, _ in found.rows]
        )
        written = {one.offset: (one, value) for (one, _), value in zip(found.rows, values, strict=True)}
        lines = []
        for source, kind in records:
            one, value = written.get(source.offset, (source, None))
            content = content_in_files(one, decoded_value(value))
            lines.append(SourceLine(one.offset, kind, content, source.offset in written))
        return lines

    async def _feed_files(self) -> None:
        while self._comparer.wants_files:
            read = self._stored.bytes
            chunk = await asyncio.to_thread(lambda: list(islice(self._following, _CHUNK)))
            self._bucket.take(self._stored.bytes - read)
            for found in self._stored.damage[self._noted :]:
                self._comparer.damaged(found)
            self._noted = len(self._stored.damage)
            if not chunk:
                self._comparer.end_files()
                return
            self._comparer.add_files(
                one
                for one in chunk
                if self._low <= one.offset < self._piece.high and not self._is_given_up(one.offset)
            )
