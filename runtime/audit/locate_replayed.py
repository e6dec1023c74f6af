"""Where a record is that salvage replayed: the offset map does not hold it, its header and the ledger do."""

from __future__ import annotations

import asyncio

from msgspec.structs import replace

from runtime.audit.ledger import AuditFailure, OpenLedger, producers_at
from runtime.audit.records_fetch import Found as FoundRecord
from runtime.audit.records_fetch import fetch_places, find_record
from runtime.audit.verify_replayed import original_of
from runtime.batch import BatchFailure
from runtime.contract.groups_seen import Found, Located
from runtime.contract.ledger import PartitionKey, Replayed
from runtime.contract.offsetmap import OffsetMap
from runtime.contract.orphans import NONE
from runtime.contract.producers import Producer
from runtime.contract.provenance import Place
from runtime.copy.wire.protocol.offsets import TopicPartition


async def with_replays(
    opened: OpenLedger, located: Located, key: PartitionKey, offsets: OffsetMap, within_s: float
) -> Located:
    """The answer of the map, or for a replayed record where it was replayed from, or to.

    Raises WireError, UnreadableRecord, AuditFailure.
    """
    generation = opened.ledger.generation(key.flow)
    if located.offset is None or located.found is Found.EXACT or generation is None:
        return located
    replayed = opened.ledger.orphans(key.flow).get(key, NONE).replayed
    if not replayed:
        return located
    owners = await producers_at(opened.cluster)
    search = _Search(opened, key, owners, Place(generation.source_cluster_id, key.topic, key.partition))
    try:
        if located.reverse:
            return await search.origin(located, replayed)
        return await search.destination(located, replayed, offsets, within_s)
    except BatchFailure as failure:
        raise AuditFailure(located.cluster, str(failure), "ask about another record") from failure


class _Search:
    def __init__(
        self, opened: OpenLedger, key: PartitionKey, owners: dict[int, Producer], place: Place
    ) -> None:
        self._opened = opened
        self._key = key
        self._owners = owners
        self._place = place

    async def origin(self, located: Located, replayed: tuple[tuple[int, Replayed], ...]) -> Located:
        """Of a record at the destination."""
        assert located.offset is not None
        at = TopicPartition(located.topic, located.partition)
        found = await fetch_places(self._opened.cluster, at, None, [located.offset])
        record = found.get(located.offset)
        original = self._original(record, located.topic) if record is not None else None
        known = any(
            low <= original < one.end and one.topic == located.topic
            for low, one in replayed
            if original is not None
        )
        return replace(located, found=Found.REPLAYED, other_offset=original) if known else located

    async def destination(
        self,
        located: Located,
        replayed: tuple[tuple[int, Replayed], ...],
        offsets: OffsetMap,
        within_s: float,
    ) -> Located:
        """Of a record at the source: it lies behind what had been copied before it, at no offset known."""
        progress = self._opened.ledger.all_progress(self._key.flow).get(self._key)
        if progress is None:
            return located
        for low, one in replayed:
            here = one.source_topic_id == progress.source_topic_id
            if not here or not low <= (located.offset or 0) < one.end:
                continue
            start = offsets.destination_behind(low) if one.topic == progress.destination_topic else 0
            into = replace(located, found=Found.REPLAYED, other_topic=one.topic, other_offset=None)
            try:
                async with asyncio.timeout(within_s):
                    record = await self._find(one.topic, start, located.offset)
            except TimeoutError:
                return into
            if record is not None:
                return replace(into, other_offset=record.offset)
        return located

    async def _find(self, topic: str, start: int, original: int | None) -> FoundRecord | None:
        ids = {
            one for one, owner in self._owners.items() if (owner.flow, owner.only) == (self._key.flow, topic)
        }
        at = TopicPartition(topic, self._key.partition)
        return await find_record(
            self._opened.cluster, at, start, ids, lambda one: self._original(one, topic) == original
        )

    def _original(self, record: FoundRecord, topic: str) -> int | None:
        return original_of(record, self._owners, self._key.flow, topic, self._place)
