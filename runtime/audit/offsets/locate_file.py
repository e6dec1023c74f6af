"""Finds the file of a flow that holds a record of the source."""

from __future__ import annotations

import asyncio
from typing import NamedTuple

from msgspec import Struct

from runtime.audit.ledger import AuditFailure, ClusterAccess, UnexpectedClusterId
from runtime.audit.offsets.locate import first_as_late
from runtime.audit.verify.file_plan import backup_of
from runtime.audit.verify.file_records import StoredRecords
from runtime.contract.records.manifest import DataFile
from runtime.contract.results.groups import LocatedRecord, LocateResult
from runtime.contract.spec.files import FilesSpec
from runtime.files.backup import TopicLineage
from runtime.files.manifest import EndpointUnavailable, ManifestFolder, as_unavailable


class LocateInFilesRequest(Struct, frozen=True):
    """Names a record of the source, to be found in the files of a flow.

    Either `offset` or `timestamp_ms` is given; the timestamp means the first record at or after it.
    """

    flow: str
    topic: str
    partition: int
    offset: int | None
    timestamp_ms: int | None
    source: ClusterAccess
    files: FilesSpec
    within_s: float = 10.0


class _Place(NamedTuple):
    """A record in a file: its offset at the source, the file's path and the record's number from 1 on."""

    offset: int
    path: str
    number: int


async def locate_in_files(asked: LocateInFilesRequest) -> LocatedRecord:
    """Locates a record. The newest topic of that name counts, where it was made again.

    Raises AuditFailure where something can't be read, the flow never copied the partition, or the files hold
    records of another cluster than the topology names.
    """
    offset = asked.offset
    if asked.timestamp_ms is not None:
        place = asked.topic, asked.partition
        offset = await first_as_late(asked.source, *place, asked.timestamp_ms, asked.within_s)
    return await asyncio.to_thread(_located, asked, offset)


def _located(asked: LocateInFilesRequest, offset: int | None) -> LocatedRecord:
    lineage = _lineage_of(asked)
    low, end = lineage.begins[asked.partition], lineage.positions[asked.partition].position
    place: _Place | None = None
    if offset is None:
        found = LocateResult.NO_RECORD
    elif offset >= end:
        found = LocateResult.NOT_YET
    elif offset < low:
        found = LocateResult.UNMAPPED
    else:
        place = _search(asked, lineage.files.get(asked.partition, []), offset)
        exact = LocateResult.EXACT if place is not None and place.offset == offset else LocateResult.NEXT
        found = LocateResult.END if place is None else exact
    return LocatedRecord(
        flow=asked.flow,
        reverse=False,
        cluster=asked.source.name,
        topic=asked.topic,
        partition=asked.partition,
        offset=offset,
        timestamp_ms=asked.timestamp_ms,
        other_cluster=asked.files.endpoint,
        other_topic=asked.topic,
        found=found,
        other_offset=place.offset if place is not None else None,
        replicated_through=end,
        low=low,
        in_files=True,
        file=place.path if place is not None else None,
        record=place.number if place is not None else None,
    )


def _lineage_of(asked: LocateInFilesRequest) -> TopicLineage:
    backup = backup_of(asked.files, asked.flow)
    if asked.source.id is not None and asked.source.id != backup.cluster_id:
        raise UnexpectedClusterId(asked.source.name, backup.cluster_id, asked.source.id)
    known = backup.topics()
    lineage = known.get(asked.topic)
    if lineage is not None and asked.partition in lineage.positions:
        return lineage
    hint = f"it copied {', '.join(list(known)[:10])}"
    if lineage is not None:
        hint = f"{asked.topic} has other partitions: repl status --all lists them"
    what = f"{asked.flow} copied no {asked.topic}-{asked.partition}"
    raise AuditFailure(asked.files.endpoint, what, hint)


def _search(asked: LocateInFilesRequest, files: list[DataFile], offset: int) -> _Place | None:
    """Returns the record of this offset, or the first one behind it. Raises AuditFailure.

    Files of one partition overlap where the layout has dates.
    """
    folder = ManifestFolder(asked.files.folder, asked.flow, asked.files.client)
    best: _Place | None = None
    for file in sorted((one for one in files if one.end > offset), key=lambda one: one.first):
        if best is not None and file.first > best.offset:
            break
        records = StoredRecords(folder, [file], asked.files.format, decoded=True)
        try:
            with as_unavailable(folder.store):
                behind = ((one, number) for number, one in enumerate(records, 1) if one.offset >= offset)
                one, number = next(behind, (None, 0))
        except EndpointUnavailable as problem:
            raise AuditFailure(asked.files.endpoint, str(problem), "it is read on this machine") from None
        if records.damage:
            hint = (
                f"run it again if the job merges files; repl verify {asked.flow} names all that are damaged"
            )
            file, why = records.damage[0]
            raise AuditFailure(asked.files.endpoint, f"{file.path}: {why}", hint)
        if one is not None and (best is None or one.offset < best.offset):
            best = _Place(one.offset, one.path, number)
            if one.offset == offset:
                break
    return best
