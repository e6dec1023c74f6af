"""Plans the comparison of a flow into files, by its manifest and the logs of the source."""

from __future__ import annotations

import asyncio
import os
import random
from collections.abc import Iterator, Mapping, Sequence
from pathlib import PurePath

from msgspec import Struct

from runtime.audit.ledger import AuditFailure, NothingCopied, as_audit_failure, ledger_of, progress_at
from runtime.audit.partition_logs import PartitionLogs, logs_of, open_spec
from runtime.audit.verify.pieces import (
    PIECE,
    SAMPLED,
    PlannedPartition,
    StoredFiles,
    VerificationPiece,
    VerifyRequest,
)
from runtime.contract.records.ledger import PartitionKey, Progress
from runtime.contract.records.manifest import DataFile
from runtime.contract.spec.files import FilesSpec
from runtime.contract.spec.naming import is_other_topic
from runtime.contract.spec.selection import regex
from runtime.files.backup import Backup, TopicLineage, read_backup
from runtime.files.manifest import EndpointUnavailable, ManifestFolder, ManifestProblem, as_unavailable
from runtime.kafka.protocol.offsets import TopicPartition


class _StoredPartition(Struct, frozen=True):
    """A partition of a lineage, and whether the source still has this very topic."""

    lineage: TopicLineage
    partition: int
    newest: bool


async def plan_stored(asked: VerifyRequest) -> list[PlannedPartition]:
    """Returns the plan of every partition in the manifest. Raises AuditFailure."""
    files, flow = asked.flow.files, asked.flow
    assert files is not None, "the flow has no files"
    async with open_spec(asked.source, flow.source) as source:
        with as_audit_failure(flow.source):
            opened = await ledger_of(source)
            committed = await progress_at(flow.source, opened, flow.name) if opened is not None else {}
        backup = await asyncio.to_thread(backup_of, files, flow.name)  # it is never behind the ledger
        chosen = list(_chosen(asked, backup, files))
        with as_audit_failure(flow.source):
            if backup.cluster_id != source.cluster_id:
                what = f"{flow.name} holds records of the cluster {backup.cluster_id}"
                hint = f"{flow.source} is {source.cluster_id}: name the endpoint of this cluster"
                raise AuditFailure(files.endpoint, what, hint)
            places = {TopicPartition(one.lineage.name, one.partition) for one in chosen}
            logs = await logs_of(source, flow.source, places, asked.within_s)
    return [_Plan(asked, number, one, logs, committed).planned() for number, one in enumerate(chosen)]


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


def _chosen(asked: VerifyRequest, backup: Backup, files: FilesSpec) -> Iterator[_StoredPartition]:
    """Yields the partitions that are asked for. Raises AuditFailure where there is none."""
    topics = sorted(backup.lineages)
    if asked.topics is not None:
        wanted = regex(asked.topics)
        topics = [name for name in topics if wanted.matches(name)]
        if not topics:
            written = ", ".join(sorted(backup.lineages)[:10])
            what = f"{asked.flow.name} wrote no topic {asked.topics}"
            raise AuditFailure(files.endpoint, what, f"it wrote {written}")
    for name in topics:
        lineages = backup.lineages[name]
        for lineage in lineages:
            for partition in sorted(lineage.positions):
                yield _StoredPartition(lineage, partition, lineage is lineages[-1])


class _Plan:
    def __init__(
        self,
        asked: VerifyRequest,
        number: int,
        one: _StoredPartition,
        logs: PartitionLogs,
        committed: Mapping[PartitionKey, Progress],
    ) -> None:
        self._asked, self._number, self._one = asked, number, one
        self._committed = committed
        self._at = TopicPartition(one.lineage.name, one.partition)
        self._logs = logs
        self._position = one.lineage.positions[one.partition]
        self._files = one.lineage.files.get(one.partition, [])

    def planned(self) -> PlannedPartition:
        begin, position = self._one.lineage.begins[self._one.partition], self._position.position
        key = PartitionKey(self._asked.flow.name, *self._at)
        planned = PlannedPartition(key, self._folder(), begin, begin)
        planned.unread = self._cut()
        if planned.unread:
            return planned
        why_gone = self._gone()
        if not why_gone and (self._at not in self._logs.starts or self._at not in self._logs.ends):
            place = f"{self._at.topic}-{self._at.partition} at {self._asked.flow.source}"
            planned.unread = f"{place} has no leader that answers"
            return planned
        start = self._logs.starts[self._at] if not why_gone else position
        low, high = self._bounds(planned, min(begin, position), position)
        why = why_gone or f"retention passed at {self._asked.flow.source}"
        planned.exclude(low, min(start, high), f"{why}; sizes and checksums of the files are checked")
        kept_from = max(low, min(start, high))
        for gap in self._position.gaps:
            planned.exclude(max(low, gap.low), min(gap.end, high), f"given up: {gap.why}")
        planned.low, planned.end = min(kept_from, high), high
        planned.pieces = list(self._pieces(low, high, kept_from))
        return planned

    def _folder(self) -> str:
        """Returns the folder of the partition's files, below the endpoint's."""
        folders = [str(PurePath(one.path).parent) for one in self._files]
        return os.path.commonpath(folders) if folders else "-"

    def _cut(self) -> str:
        """Returns why the manifest can't be whole: the ledger, which follows it, knows a later position."""
        known = self._committed.get(PartitionKey(self._asked.flow.name, *self._at))
        position, topic_id = self._position.position, bytes.fromhex(self._position.topic_id)
        if known is None or known.position <= position or known.source_topic_id != topic_id:
            return ""
        if any(gap.end >= known.position for gap in self._position.gaps):
            return ""  # the source was truncated, and the flow went back
        return (
            f"the manifest ends at {position}, and {known.position} was committed: its last commits are gone,"
            " restore the folder"
        )

    def _gone(self) -> str:
        """Returns why the source holds nothing of these records any more."""
        source, name = self._asked.flow.source, self._at.topic
        if name not in self._logs.ids:
            return f"there is no topic {name} at {source} any more"
        known = bytes.fromhex(self._position.topic_id)
        if not self._one.newest or is_other_topic(known, self._logs.ids[name]):
            return f"{name} was deleted at {source} and made again"
        return ""

    def _bounds(self, planned: PlannedPartition, begin: int, position: int) -> tuple[int, int]:
        asked = self._asked
        high = asked.high if asked.high is not None else position
        low = asked.low if asked.low is not None else begin
        if asked.last is not None:
            low = max(position - asked.last, 0)
        planned.exclude(low, min(begin, high), f"{asked.flow.name} began at {begin}")
        planned.exclude(max(low, position), high, f"not written yet by {asked.flow.name}")
        high = min(high, position)
        return min(max(low, begin), high), high

    def _pieces(self, low: int, high: int, kept_from: int) -> Iterator[VerificationPiece]:
        if low >= high:
            return
        whole = self._asked.sample >= 100
        groups = list(groups_of(self._files, low, high, PIECE if whole else SAMPLED))
        if not whole:
            count = max(1, round(len(groups) * self._asked.sample / 100))
            chosen = random.Random().sample(range(len(groups)), min(count, len(groups)))  # noqa: S311 - no secret
            groups = [groups[at] for at in sorted(chosen)]
        for begin, end, files in groups:
            yield VerificationPiece(
                number=self._number,
                topic=self._at.topic,
                partition=self._at.partition,
                source_id=bytes.fromhex(self._position.topic_id),
                destination_topic=self._folder(),
                destination_id=b"",
                low=begin,
                high=end,
                destination_low=begin,
                destination_high=end,
                owned_end=end,
                runs=b"",
                gaps=tuple((gap.low, gap.end, gap.why) for gap in self._position.gaps),
                compacted=self._at.topic in self._logs.compacted,
                stored=StoredFiles(tuple(files), max(kept_from, begin)),
            )


def groups_of(
    files: Sequence[DataFile], low: int, high: int, size: int
) -> Iterator[tuple[int, int, list[DataFile]]]:
    """Yields the offsets `low … high-1` in ranges of about `size`, each with its files.

    A range ends only where no file lies on both sides of its end, so that each file is read once.
    """
    begin, behind = low, low
    some: list[DataFile] = []
    for one in sorted(files, key=lambda one: (one.first, one.path)):
        if one.end <= low or one.first >= high:
            continue
        if some and one.first >= behind and one.first - begin >= size:
            yield begin, one.first, some
            begin, some = one.first, []
        some.append(one)
        behind = max(behind, one.end)
    yield begin, high, some
