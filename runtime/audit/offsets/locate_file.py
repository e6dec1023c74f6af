"""Finds the file of a flow that holds a record of the source."""

from __future__ import annotations

import asyncio

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
    place: tuple[int | None, str | None, int | None] | None = None
    if record.offset is None:
        result = LocateResult.NO_RECORD
    elif record.offset >= end:
        result = LocateResult.NOT_YET
    elif record.offset < low:
        result = LocateResult.UNMAPPED
    else:
        place = _search(record.flow, files, lineage.files.get(record.partition, []), record.offset)
        exact = LocateResult.EXACT if place is not None and place[0] == record.offset else LocateResult.NEXT
        result = LocateResult.END if place is None else exact
    offset, file, number = place or (None, None, None)
    return replace(
        record,
        found=result,
        other_offset=offset,
        replicated_through=end,
        low=low,
        in_files=True,
        file=file,
        record=number,
    )


def _lineage_of(record: LocatedRecord, source: ClusterEndpoint, files: FilesSpec) -> TopicLineage:
    backup = backup_of(files, record.flow)
    if source.id is not None and source.id != backup.cluster_id:
        raise UnexpectedClusterId(source.cluster, backup.cluster_id, source.id)
    lineages = backup.topics()
    lineage = lineages.get(record.topic)
    if lineage is not None and record.partition in lineage.positions:
        return lineage
    hint = f"it copied {', '.join(list(lineages)[:10])}"
    if lineage is not None:
        hint = f"{record.topic} has other partitions: repl status --all lists them"
    what = f"{record.flow} copied no {record.topic}-{record.partition}"
    raise AuditFailure(files.endpoint, what, hint)


def _search(flow: str, spec: FilesSpec, files: list[DataFile], offset: int) -> tuple[int, str, int] | None:
    """Returns the record of this offset, or the first one behind it. Raises AuditFailure.

    These are its offset, the path of its file, and its number there from 1 on. Files of one partition overlap
    where the layout has dates.
    """
    folder = ManifestFolder(spec.folder, flow, spec.client)
    best: tuple[int, str, int] | None = None
    for file in sorted((file for file in files if file.end > offset), key=lambda file: file.first):
        if best is not None and file.first > best[0]:
            break
        records = StoredRecords(folder, [file], spec.format, decoded=True)
        try:
            with as_unavailable(folder.store):
                numbered = enumerate(records, 1)
                number, record = next((pair for pair in numbered if pair[1].offset >= offset), (0, None))
        except EndpointUnavailable as problem:
            raise AuditFailure(spec.endpoint, str(problem), "it is read on this machine") from None
        if records.damage:
            hint = f"run it again if the job merges files; repl verify {flow} names all that are damaged"
            file, why = records.damage[0]
            raise AuditFailure(spec.endpoint, f"{file.path}: {why}", hint)
        if record is not None and (best is None or record.offset < best[0]):
            best = record.offset, record.file, number
            if record.offset == offset:
                break
    return best
