"""This module locates records that salvage replayed: their headers and the ledger hold them, the map does
not.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence

from msgspec.structs import replace

from runtime.audit.ledger import AuditFailure, OpenLedger, producers_at
from runtime.audit.read.records_fetch import FetchedRecord as FoundRecord
from runtime.audit.read.records_fetch import fetch_places, find_record
from runtime.audit.verify.replayed import original_of
from runtime.batch import BatchFailure
from runtime.contract.records.ledger import PartitionKey, Replayed
from runtime.contract.records.offset_map import OffsetMap
from runtime.contract.records.orphans import NONE
from runtime.contract.records.producers import FlowProducer
from runtime.contract.records.provenance import ClusterPartition
from runtime.contract.topic_ids import is_other_topic
from runtime.contract.views.groups_view import LocatedRecord, LocateResult
from runtime.kafka.protocol.offsets import TopicPartition

Ranges = Sequence[tuple[int, Replayed]]


async def with_replays(
    opened: OpenLedger, located: LocatedRecord, key: PartitionKey, offsets: OffsetMap, within_s: float
) -> LocatedRecord:
    """Returns the answer of the map, or for a replayed record the place that it was replayed from, or to.

    Raises WireError, UnreadableRecord, AuditFailure.
    """
    generation = opened.ledger.generation(key.flow)
    progress = opened.ledger.all_progress(key.flow).get(key)
    if (
        located.offset is None
        or located.found is LocateResult.EXACT
        or generation is None
        or progress is None
    ):
        return located
    mirror = progress.destination_topic
    replayed = [
        (low, one)
        for low, one in opened.ledger.orphans(key.flow).get(key, NONE).replayed
        if not is_other_topic(one.source_topic_id, progress.source_topic_id)
    ]
    if not replayed:
        return located
    search = _Search(opened, key, mirror, await producers_at(opened.cluster), generation.source_cluster_id)
    try:
        if located.reverse:
            return await search.origin(located, replayed)
        start = offsets.destination_behind
        return await search.destination(located, replayed, start, within_s)
    except BatchFailure as failure:
        raise AuditFailure(located.cluster, str(failure), "ask about another record") from failure


class _Search:
    """Searches replayed records. `mirror`: the flow's own topic at the destination; a replay may use another
    topic.
    """

    def __init__(
        self,
        opened: OpenLedger,
        key: PartitionKey,
        mirror: str,
        owners: Mapping[int, FlowProducer],
        source_id: str,
    ) -> None:
        self._cluster = opened.cluster
        self._flow, self._mirror = key.flow, mirror
        self._place = ClusterPartition(source_id, key.topic, key.partition)
        self._owners = owners

    async def origin(self, located: LocatedRecord, replayed: Ranges) -> LocatedRecord:
        """Returns the source place of a record at the destination."""
        assert located.offset is not None
        at = TopicPartition(located.topic, located.partition)
        record = (await fetch_places(self._cluster, at, None, [located.offset])).get(located.offset)
        original = self._original(record) if record is not None else None
        if original is None or not any(
            low <= original < one.end and one.topic == located.topic for low, one in replayed
        ):
            return located
        return replace(located, found=LocateResult.REPLAYED, other_offset=original)

    async def destination(
        self, located: LocatedRecord, replayed: Ranges, start: Callable[[int], int], within_s: float
    ) -> LocatedRecord:
        """Finds a source record at the destination. It lies behind the records copied before it, at an
        unknown offset.
        """
        assert located.offset is not None
        for low, one in replayed:
            if not low <= located.offset < one.end:
                continue
            begin = start(low) if one.topic == self._mirror else 0
            into = replace(located, found=LocateResult.REPLAYED, other_topic=one.topic, other_offset=None)
            try:
                async with asyncio.timeout(within_s):
                    record = await self._find(one.topic, begin, located.offset)
            except TimeoutError:
                return into
            if record is not None:
                return replace(into, other_offset=record.offset)
        return located

    async def _find(self, topic: str, start: int, original: int) -> FoundRecord | None:
        ids = {
            one
            for one, owner in self._owners.items()
            if (owner.flow, owner.only) == (self._flow, self._mirror)
        }
        at = TopicPartition(topic, self._place.partition)
        return await find_record(self._cluster, at, start, ids, lambda one: self._original(one) == original)

    def _original(self, record: FoundRecord) -> int | None:
        return original_of(record, self._owners, self._flow, self._mirror, self._place)
