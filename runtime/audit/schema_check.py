"""Checks whether the schemas of a flow are in the registry of its destination, before a failover.

It only reads, and the source and its registry may be gone: what the last records at the destination need is
known without them. The versions of the source are compared where its registry answers.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from contextlib import closing
from typing import Final
from uuid import UUID

from runtime.audit.ledger import (
    AuditFailure,
    FlowAccess,
    LedgerNotFound,
    NothingCopied,
    copied_progress,
    open_ledger,
)
from runtime.audit.partition_logs import RecordsExpired, fetch_records
from runtime.audit.verify.schemas import framed
from runtime.batch import BatchFailure
from runtime.contract.records.ledger import PartitionKey, Progress
from runtime.contract.results.failover import SchemaCheck
from runtime.contract.spec.naming import TopicPartition
from runtime.contract.spec.schemas import PARTS, RecordPart, RegistrySpec, SchemaSync
from runtime.kafka.cluster import KafkaCluster
from runtime.kafka.errors import WireError
from runtime.schemas.client import (
    GuidsUnknown,
    NotInRegistry,
    RegistryRefused,
    RegistryUnavailable,
    SchemaRegistry,
    shown,
)
from runtime.schemas.subjects import at_destination, subjects_of_topic
from runtime.schemas.versions import missing_versions, with_referred

LAST: Final = 20  # offsets before the end of each partition
_AT_A_TIME: Final = 16  # partitions that are read
_MOST_IDS: Final = 1_000  # of a flow: the bytes of any record may look like an id

_SILENT = (RegistryUnavailable, RegistryRefused)


async def check_schemas(
    access: FlowAccess, sync: SchemaSync, source: RegistrySpec, destination: RegistrySpec
) -> SchemaCheck:
    """Looks up the schemas of the last records of a flow, and the versions that its source has."""
    with closing(SchemaRegistry(source)) as here, closing(SchemaRegistry(destination)) as there:
        check = _Check(access, sync, here, there)
        try:
            await check.run()
        except AuditFailure as failure:
            check.unread.append(str(failure))
        except _SILENT as error:
            check.unread.append(f"the schema registry of {access.destination.cluster}: {error}")
        check.result.unread = "; ".join(check.unread[:5])
        return check.result


_RecordId = tuple[str, str, RecordPart, int]  # with the topic's names at the source and the destination


class _Check:
    def __init__(
        self, access: FlowAccess, sync: SchemaSync, source: SchemaRegistry, destination: SchemaRegistry
    ) -> None:
        self._access, self._sync = access, sync
        self._source, self._destination = source, destination
        self.result = SchemaCheck(
            flow=access.flow, source=access.source.cluster, destination=access.destination.cluster
        )
        self._guids: dict[UUID, str] = {}  # in headers, each with a place that has it
        self.unread: list[str] = []

    async def run(self) -> None:
        """Raises AuditFailure, and RegistryUnavailable or RegistryRefused of the destination."""
        try:
            async with open_ledger(self._access.destination, self._access.within_s) as opened:
                cluster, flow = self._access.destination.cluster, self._access.flow
                progress = await copied_progress(opened, cluster, flow)
                places = await self._last_ids(opened.cluster, progress)
        except (LedgerNotFound, NothingCopied):
            return
        await self._look_up(places)
        await self._compare({key.topic: made.destination_topic for key, made in progress.items()})

    async def _last_ids(
        self, cluster: KafkaCluster, progress: Mapping[PartitionKey, Progress]
    ) -> dict[_RecordId, str]:
        """Returns what may be ids in the last records of the mirrors, each with a place that has it."""
        ids: dict[_RecordId, str] = {}
        turns = asyncio.Semaphore(_AT_A_TIME)

        async def read(key: PartitionKey, made: Progress) -> None:
            at, end = TopicPartition(made.destination_topic, key.partition), made.destination_end
            try:
                async with turns:
                    records = await fetch_records(cluster, at, max(end - LAST, 0), end, LAST)
            except (WireError, BatchFailure, RecordsExpired) as error:
                self.unread.append(f"{at}: {error}")
                return
            self.result.records += len(records)
            for record in records:
                place = f"{at}:{record.offset}"
                for part, (schema, _) in zip(PARTS, framed(record), strict=True):
                    if isinstance(schema, int):
                        ids.setdefault((key.topic, at.topic, part, schema), place)
                    elif schema is not None:
                        self._guids.setdefault(schema, place)

        await asyncio.gather(*(read(key, made) for key, made in sorted(progress.items())))
        return ids

    async def _look_up(self, places: Mapping[_RecordId, str]) -> None:
        some = sorted(places)[:_MOST_IDS]
        if len(places) > len(some):
            self.unread.append(f"{len(places) - len(some):,} more numbers that look like ids")
        are_ids = await asyncio.gather(*(self._is_id(place) for place in some))
        there = await asyncio.gather(*(self._has(self._destination, number) for *_, number in some))
        existing: set[int] = set()
        for place, is_id, exists in zip(some, are_ids, there, strict=True):
            *_, part, number = place
            where = f"schema id {number} in the {part} of {places[place]}"
            if is_id is False:
                continue
            if exists:
                existing.add(number)
            elif is_id:
                self.result.missing.append(where)
            else:
                self.result.uncertain.append(where)
        guids = list(self._guids)[:_MOST_IDS]
        if len(self._guids) > len(guids):
            self.unread.append(f"{len(self._guids) - len(guids):,} more GUIDs of schemas")
        have = await asyncio.gather(*map(self._has_guid, guids))
        for guid, has in zip(guids, have, strict=True):
            where = f"schema {guid} in a header of {self._guids[guid]}"
            if not has:
                (self.result.uncertain if has is None else self.result.missing).append(where)
        self.result.schemas = len(existing) + have.count(True)

    async def _has_guid(self, guid: UUID) -> bool | None:
        try:
            return await self._destination.has_guid(guid)
        except GuidsUnknown:
            return None

    async def _has(self, registry: SchemaRegistry, number: int) -> bool:
        try:
            await registry.schema(number)
        except NotInRegistry:
            return False
        return True

    async def _is_id(self, record_id: _RecordId) -> bool | None:
        """Returns whether a number in a record is the id of a schema; None where that can't be known."""
        topic, mirror, part, number = record_id
        try:
            if self._sync.subjects == "topic_name":
                if await self._has_subject(self._destination, f"{mirror}-{part}"):
                    return True
                return await self._has_subject(self._source, f"{topic}-{part}")
            return await self._has(self._source, number) if self._sync.ids == "keep" else None
        except _SILENT:
            return None

    async def _has_subject(self, registry: SchemaRegistry, subject: str) -> bool:
        try:
            return bool(await registry.versions(subject, deleted=True))
        except NotInRegistry:
            return False

    async def _compare(self, mirrors: Mapping[str, str]) -> None:
        """Compares the versions of the source's subjects with those of the destination's."""
        try:
            here = with_referred(await self._source.every_version())
        except _SILENT as error:
            self.result.source_unread = str(error)
            return
        there = with_referred(await self._destination.every_version())
        ordered, keep = sorted(here), self._sync.ids == "keep"
        self.result.versions = 0
        for topic, mirror in sorted(mirrors.items()):
            for subject in subjects_of_topic(ordered, topic, self._sync.subjects):
                renamed = at_destination(subject, topic, mirror, self._sync.subjects)
                versions, copies = here[subject], there.get(renamed, ())
                self.result.versions += len(versions)
                lacks = missing_versions(versions, copies, keep=False)
                if keep:  # each with its number and its id
                    lacks = tuple(version for version in versions if version not in copies)
                for version in lacks:
                    name = f"{shown(subject)} version {version.number} (id {version.id})"
                    self.result.missing.append(name if renamed == subject else f"{name}, as {shown(renamed)}")
