"""Plans and compares a flow into files: the records of its source, and those in the files, by their offsets.

Each record of a file names its offset at the source. A file that is not as the manifest says makes one
difference for all of its records.
"""

from __future__ import annotations

import asyncio
import os
import socket
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from itertools import islice
from pathlib import PurePath
from typing import TYPE_CHECKING, Final

from runtime.audit.ledger import AuditFailure, NothingCopied, as_audit_failure
from runtime.audit.partition_logs import CommittedRecordReader, PartitionLogs, logs_of, open_spec
from runtime.audit.verify.comparer import RecordComparer
from runtime.audit.verify.file_records import StoredRecords, record_in_files
from runtime.audit.verify.pieces import (
    PIECE,
    SAMPLED,
    ComparedRecord,
    PlannedPartition,
    StoredRange,
    VerifiedPiece,
    VerifyRequest,
)
from runtime.audit.verify.plan import Comparison, chosen_of, noted, planned
from runtime.batch import Record
from runtime.contract.records.ledger import PartitionKey, Progress
from runtime.contract.records.manifest import DataFile, FilePosition
from runtime.contract.spec.files import FilesSpec
from runtime.contract.spec.naming import TopicPartition, is_other_topic
from runtime.contract.spec.transform import FIELDS
from runtime.files.backup import Backup, TopicLineage, read_backup
from runtime.files.manifest import EndpointUnavailable, ManifestFolder, ManifestProblem, as_unavailable
from runtime.kafka.cluster import KafkaCluster
from runtime.ledger.offset_maps import offset_maps_at
from runtime.slot.budget import TokenBucket

if TYPE_CHECKING:
    from runtime.files.transformed import FileTransform
    from runtime.sql.transformer import Evaluates

_CHUNK: Final = 1_024  # records of files that are read at a time
_WINDOW: Final = 2_048  # records that the flow's transform is evaluated for at a time


class StoredComparison(Comparison[StoredRange]):
    """Compares a flow into files with the records of its topics."""

    def __init__(self, request: VerifyRequest, files: FilesSpec) -> None:
        super().__init__(request)
        self._files = files
        self.decoded = files.format if files.format != "raw" else None

    async def plan(self) -> list[PlannedPartition]:
        request, files, flow = self.request, self._files, self.request.flow
        async with open_spec(request.source, flow.source) as source:
            with as_audit_failure(flow.source):
                opened, committed = await offset_maps_at(source, fresh=True), dict[PartitionKey, Progress]()
                if opened is not None:
                    await opened.ledger.refresh(flow.name)
                    committed = opened.ledger.all_progress(flow.name)
            backup = await asyncio.to_thread(backup_of, files, flow.name)  # it is never behind the ledger
            topics = sorted(request.chosen(backup.lineages, files.endpoint, "wrote", "topic"))
            stored = [
                (lineage, partition, lineage is backup.lineages[topic][-1])
                for topic in topics
                for lineage in backup.lineages[topic]
                for partition in sorted(lineage.positions)
            ]
            with as_audit_failure(flow.source):
                if backup.cluster_id != source.cluster_id:
                    what = f"{flow.name} holds records of the cluster {backup.cluster_id}"
                    hint = f"{flow.source} is {source.cluster_id}: name the endpoint of this cluster"
                    raise AuditFailure(files.endpoint, what, hint)
                places = {TopicPartition(lineage.name, partition) for lineage, partition, _ in stored}
                logs = await logs_of(source, flow.source, places, request.within_s)
        return [
            stored_partition(request, number, lineage, partition, logs, committed, newest=newest)
            for number, (lineage, partition, newest) in enumerate(stored)
        ]

    async def compare(
        self, pieces: Sequence[StoredRange], bucket: TokenBucket, evaluator: Evaluates | None = None
    ) -> list[VerifiedPiece]:
        request, flow, files, transform = self.request, self.request.flow, self._files, None
        if flow.transform is not None and evaluator is not None:
            from runtime.files.transformed import FileTransform

            transform = FileTransform(flow.transform, evaluator)
        folder = ManifestFolder(files.folder, flow.name, files.client)
        try:
            with as_unavailable(folder.store):
                folder.store.check()  # without it, each file would be damaged
        except EndpointUnavailable as problem:
            what = f"on {socket.gethostname()}: {problem}"
            raise AuditFailure(files.endpoint, what, "each machine needs it under this path") from None
        async with open_spec(request.source, flow.source) as source:
            return [
                await StoredPiece(request, files, piece, source, folder, bucket, transform).compare()
                for piece in pieces
            ]


def backup_of(files: FilesSpec, flow: str) -> Backup:
    """Reads the manifest of a flow. Raises AuditFailure where it can't be read or trusted, or is empty."""
    folder = ManifestFolder(files.folder, flow, files.client)
    try:
        with as_unavailable(folder.store):
            folder.store.check()
        backup = read_backup(files.folder, flow, client=files.client)
    except ManifestProblem as problem:
        hint = "a manifest that can't be trusted is not compared"
        raise AuditFailure(files.endpoint, str(problem), hint) from None
    except EndpointUnavailable as problem:
        hint = "it is read on this machine; with --on-cluster on the machines of the job"
        raise AuditFailure(files.endpoint, str(problem), hint) from None
    if not backup.lineages:
        raise NothingCopied(files.endpoint, flow)
    return backup


def stored_partition(
    request: VerifyRequest,
    number: int,
    lineage: TopicLineage,
    partition: int,
    logs: PartitionLogs,
    committed: Mapping[PartitionKey, Progress],
    *,
    newest: bool,
) -> PlannedPartition:
    """Plans a partition by the manifest. `newest`: the source may still have this topic."""
    flow, name = request.flow, lineage.name
    key, at = PartitionKey(flow.name, name, partition), TopicPartition(name, partition)
    position, files = lineage.positions[partition], lineage.files.get(partition, [])
    topic_id = bytes.fromhex(position.topic_id)
    folders = [str(PurePath(file.path).parent) for file in files]
    folder = os.path.commonpath(folders) if folders else "-"
    begin, end = lineage.begins[partition], position.position
    low, gone = min(begin, end), ""
    if name not in logs.ids:
        gone = f"there is no topic {name} at {flow.source} any more"
    elif not newest or is_other_topic(topic_id, logs.ids[name]):
        gone = f"{name} was deleted at {flow.source} and made again"
    unread = (
        _cut(position, committed.get(key))
        or logs.refusal(name, flow.source)
        or ("" if gone else logs.leaderless(at, flow.source))
    )
    if unread:
        return PlannedPartition(key, folder, low, low, unread=unread)
    start = end if gone else logs.bounds[at].start
    why = f"{gone or f'retention passed at {flow.source}'}; sizes and checksums of the files are checked"

    def pieces(begin: int, low: int, high: int) -> list[StoredRange]:
        if begin >= high:
            return []
        groups = list(groups_of(files, begin, high, PIECE if request.sample >= 100 else SAMPLED))
        return [
            StoredRange(
                number=number,
                topic=name,
                partition=partition,
                source_id=topic_id,
                low=first,
                high=end,
                gaps=tuple((gap.low, gap.end, gap.why) for gap in position.gaps),
                compacted=name in logs.compacted,
                files=tuple(some),
                kept_from=max(low, first),
            )
            for first, end, some in (groups[at] for at in chosen_of(len(groups), request.sample))
        ]

    return planned(
        request,
        key,
        folder,
        low,
        end,
        pieces,
        first=low,
        before=f"{flow.name} began at {begin}",
        behind=f"not written yet by {flow.name}",
        gone=[(start, why)],
        gaps=[(gap.low, gap.end, f"given up: {gap.why}") for gap in position.gaps],
    )


def _cut(position: FilePosition, progress: Progress | None) -> str:
    """Returns why the manifest can't be whole: the ledger, which follows it, knows a later position."""
    end = position.position
    if (
        progress is None
        or progress.position <= end
        or progress.source_topic_id != bytes.fromhex(position.topic_id)
    ):
        return ""
    if any(gap.end >= progress.position for gap in position.gaps):
        return ""  # the source was truncated, and the flow went back
    return (
        f"the manifest ends at {end}, and {progress.position} was committed: its last commits are gone,"
        " restore the folder"
    )


def groups_of(
    files: Sequence[DataFile], low: int, high: int, size: int
) -> Iterator[tuple[int, int, list[DataFile]]]:
    """Yields the offsets `low … high-1` in ranges of about `size`, each with its files.

    A range ends only where no file lies on both sides of its end, so that each file is read once.
    """
    begin, behind = low, low
    some: list[DataFile] = []
    for file in sorted(files, key=lambda file: (file.first, file.path)):
        if file.end <= low or file.first >= high:
            continue
        if some and file.first >= behind and file.first - begin >= size:
            yield begin, file.first, some
            begin, some = file.first, []
        some.append(file)
        behind = max(behind, file.end)
    yield begin, high, some


class StoredPiece:
    """Compares one piece of a flow into files."""

    def __init__(
        self,
        request: VerifyRequest,
        files: FilesSpec,
        piece: StoredRange,
        source: KafkaCluster,
        folder: ManifestFolder,
        bucket: TokenBucket,
        transform: FileTransform | None = None,
    ) -> None:
        self._request, self._piece, self._spec, self._folder = request, piece, files, folder
        self._source, self._bucket, self._transform = source, bucket, transform
        self._where = TopicPartition(piece.topic, piece.partition)
        self._low = max(piece.low, piece.kept_from)
        self._result = VerifiedPiece.begin(piece)
        self._comparer = RecordComparer(self._result, in_order=False, destination_only=piece.compacted)

    async def compare(self) -> VerifiedPiece:
        """Compares the piece; the result says why where it could not be compared completely."""
        result = self._result
        with noted(result, self._folder.store.address):
            await self._comparer.run(self._originals(), self._stored())
        damaged = [edit for edit in result.edits if edit.what == "damaged"]
        if damaged:
            gone, why = await asyncio.to_thread(self._merged_meanwhile, {edit.file for edit in damaged})
            if why:
                result.unread, result.passed = why, False
            result.end = min([result.end, *(edit.near for edit in damaged if edit.file in gone)])
            result.edits = [edit for edit in result.edits if edit.what != "damaged" or edit.file not in gone]
        if not result.more and not result.unread:
            result.end = self._piece.high
        return result

    def _merged_meanwhile(self, damaged: set[str]) -> tuple[set[str], str]:
        """Returns the files that are not known to be damaged, and why.

        The job may have merged them since the comparison was planned, or the manifest can't be read now.
        """
        flow, topic = self._request.flow.name, self._piece.topic
        try:
            with as_unavailable(self._folder.store):
                self._folder.store.check()
            now = read_backup(self._spec.folder, flow, client=self._spec.client)
        except (ManifestProblem, EndpointUnavailable) as problem:
            return damaged, str(problem)
        if topic not in now.lineages:
            return damaged, f"the manifest of {flow} is gone: is {self._folder.store.address} mounted?"
        lineages = now.lineages[topic]
        current = {file.path for lineage in lineages for files in lineage.files.values() for file in files}
        merged = damaged - current
        return merged, f"{min(merged)} was merged with others meanwhile: run it again" if merged else ""

    def _is_given_up(self, offset: int) -> bool:
        return any(low <= offset < end for low, end, _ in self._piece.gaps)

    async def _originals(self) -> AsyncIterator[list[ComparedRecord]]:
        """Yields the records of the source as the files must have them. Raises BadRecord."""
        async for fetched in CommittedRecordReader(
            self._source,
            self._where,
            self._piece.source_id,
            self._low,
            self._piece.high,
            self._request.within_s,
            self._bucket,
        ):
            records = []
            for record in fetched:
                if self._is_given_up(record.offset):
                    self._result.given_up += 1
                else:
                    kept = Record(record.offset, record.timestamp, record.key, record.value, record.headers)
                    records.append((kept, int(record.appended)))
            if self._transform is None:
                yield [record_in_files(record, record.value, kind) for record, kind in records]
                continue
            for begin in range(0, len(records), _WINDOW):
                yield await self._transformed(self._transform, records[begin : begin + _WINDOW])

    async def _transformed(
        self, transform: FileTransform, records: list[tuple[Record, int]]
    ) -> list[ComparedRecord]:
        from runtime.files.transformed import Window

        window = Window(records, records[-1][0].offset + 1, 0, None)
        written = await transform.apply(self._where, window)
        if written.failure is not None:
            raise written.failure
        values = (
            written.values.to_pylist()
            if written.values is not None
            else [record.value for record, _ in written.rows]
        )
        rows = {
            record.offset: (record, value) for (record, _), value in zip(written.rows, values, strict=True)
        }
        return [
            record_in_files(*rows.get(source.offset, (source, None)), kind, travels=source.offset in rows)
            for source, kind in records
        ]

    async def _stored(self) -> AsyncIterator[list[ComparedRecord]]:
        """Yields the records of the files, and notes those files that are damaged."""
        spec = self._request.flow.transform
        decoded = spec is not None and spec.value.format in FIELDS
        stored = StoredRecords(self._folder, self._piece.files, self._spec.format, decoded=decoded)
        following, noted_files, chunk = iter(stored), 0, True
        while chunk:
            before = stored.bytes
            records = await asyncio.to_thread(lambda: list(islice(following, _CHUNK)))
            self._bucket.take(stored.bytes - before)
            for file, why in stored.damage[noted_files:]:
                self._comparer.damaged(file.first, file.end, file.path, why)
            noted_files, chunk = len(stored.damage), bool(records)
            yield [
                record
                for record in records
                if self._low <= record.offset < self._piece.high and not self._is_given_up(record.offset)
            ]
