"""Finds the file of a flow that holds a record of the source."""

from __future__ import annotations

import asyncio
from typing import NamedTuple

from msgspec.structs import replace

from runtime.audit.ledger import AuditFailure, UnexpectedClusterId
from runtime.audit.offsets.locate import first_as_late
from runtime.audit.verify.file_records import StoredRecords
from runtime.audit.verify.stored import backup_of
from runtime.contract.client.endpoint import ClusterEndpoint
from runtime.contract.records.manifest import DataFile
from runtime.contract.results.groups import LocatedRecord, LocateResult
from runtime.contract.spec.files import FilesSpec
from runtime.files.backup import TopicLineage
from runtime.files.manifest import EndpointUnavailable, ManifestFolder, as_unavailable


class _Place(NamedTuple):
    """A record in a file: its offset at the source, the file's path and the record's number from 1 on."""

    offset: int
    path: str
    number: int


async def locate_in_files(
    record: LocatedRecord, source: ClusterEndpoint, files: FilesSpec, within_s: float = 10.0
) -> LocatedRecord:
    """Locates a record of the source. The newest topic of that name counts, where it was made again.

    Raises AuditFailure where something can't be read, the flow never copied the partition, or the files hold
    records of another cluster than the topology names.
    """
    if record.timestamp_ms is not None:
        record = await first_as_late(source, record, within_s)
    return await asyncio.to_thread(_located, record, source, files)


def _located(record: LocatedRecord, source: ClusterEndpoint, files: FilesSpec) -> LocatedRecord:
    lineage = _lineage_of(record, source, files)
    low, end = lineage.begins[record.partition], lineage.positions[record.partition].position
    place: _Place | None = None
    if record.offset is None:
        found = LocateResult.NO_RECORD
    elif record.offset >= end:
        found = LocateResult.NOT_YET
    elif record.offset < low:
        found = LocateResult.UNMAPPED
    else:
        place = _search(record.flow, files, lineage.files.get(record.partition, []), record.offset)
        exact = (
            LocateResult.EXACT if place is not None and place.offset == record.offset else LocateResult.NEXT
        )
        found = LocateResult.END if place is None else exact
    return replace(
        record,
        found=found,
        other_offset=place.offset if place is not None else None,
        replicated_through=end,
        low=low,
        in_files=True,
        file=place.path if place is not None else None,
        record=place.number if place is not None else None,
    )


def _lineage_of(record: LocatedRecord, source: ClusterEndpoint, files: FilesSpec) -> TopicLineage:
    backup = backup_of(files, record.flow)
    if source.id is not None and source.id != backup.cluster_id:
        raise UnexpectedClusterId(source.cluster, backup.cluster_id, source.id)
    known = backup.topics()
    lineage = known.get(record.topic)
    if lineage is not None and record.partition in lineage.positions:
        return lineage
    hint = f"it copied {', '.join(list(known)[:10])}"
    if lineage is not None:
        hint = f"{record.topic} has other partitions: repl status --all lists them"
    what = f"{record.flow} copied no {record.topic}-{record.partition}"
    raise AuditFailure(files.endpoint, what, hint)


def _search(flow: str, spec: FilesSpec, files: list[DataFile], offset: int) -> _Place | None:
    """Returns the record of this offset, or the first one behind it. Raises AuditFailure.

    Files of one partition overlap where the layout has dates.
    """
    folder = ManifestFolder(spec.folder, flow, spec.client)
    best: _Place | None = None
    for file in sorted((one for one in files if one.end > offset), key=lambda one: one.first):
        if best is not None and file.first > best.offset:
            break
        records = StoredRecords(folder, [file], spec.format, decoded=True)
        try:
            with as_unavailable(folder.store):
                behind = ((one, number) for number, one in enumerate(records, 1) if one.offset >= offset)
                one, number = next(behind, (None, 0))
        except EndpointUnavailable as problem:
            raise AuditFailure(spec.endpoint, str(problem), "it is read on this machine") from None
        if records.damage:
            hint = f"run it again if the job merges files; repl verify {flow} names all that are damaged"
            file, why = records.damage[0]
            raise AuditFailure(spec.endpoint, f"{file.path}: {why}", hint)
        if one is not None and (best is None or one.offset < best.offset):
            best = _Place(one.offset, one.file, number)
            if one.offset == offset:
                break
    return best
