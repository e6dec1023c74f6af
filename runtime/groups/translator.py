"""Translates group offsets for one flow, by its own offset map and those of related flows (R6)."""

from __future__ import annotations

from collections.abc import Iterable

from runtime.contract.groups.origins import SourceTopicWriter, origins_of
from runtime.contract.groups.translate import (
    PendingTranslation,
    Position,
    earliest_reachable_offset,
    earliest_unread_offset,
    position,
)
from runtime.contract.records.ledger import PartitionKey, Progress
from runtime.contract.records.offset_map import OffsetMap
from runtime.contract.spec.route import Router
from runtime.ledger.offset_maps import OffsetMaps

NO_PROGRESS = "nothing of this partition was copied yet"
SEALING = "its offset map is being written"


class Translator:
    """A translator owns the routes of one flow and reads the offset maps of both sides."""

    def __init__(
        self, flow: str, router: Router, destination_maps: OffsetMaps, source_maps: OffsetMaps | None
    ) -> None:
        self._way = router.ways[flow]
        self._router = router
        self._destination_maps = destination_maps
        self._source_maps = source_maps
        self._origins: dict[str, tuple[SourceTopicWriter, ...]] = {}

    async def refresh(self, topics: Iterable[str]) -> None:
        """Reads the maps that the translation of these topics needs. Raises WireError."""
        origins = {origin for topic in topics for origin in self.origins(topic)}
        own = self._way.route.flow
        await self._destination_maps.refresh(
            dict.fromkeys([own, *(one.destination_flow for one in origins if one.destination_flow)])
        )
        if self._source_maps is not None:
            await self._source_maps.refresh(dict.fromkeys(one.flow for one in origins))

    def progress(self, topic: str, partition: int) -> Progress | None:
        """Returns the flow's committed progress of a partition."""
        key = self._key(topic, partition)
        return self._destination_maps.progress(key.flow).get(key)

    def map(self, topic: str, partition: int) -> OffsetMap | None:
        """Returns the flow's own offset map of a partition."""
        return self._destination_maps.map(self._key(topic, partition))

    def position(self, topic: str, partition: int, committed: int) -> Position:
        """Returns the position of a committed offset by the flow's own map only."""
        cached = self._destination_maps.cached(self._key(topic, partition))
        if cached is None:
            return PendingTranslation(NO_PROGRESS if self.progress(topic, partition) is None else SEALING)
        return position(cached.offsets, committed, trimmed=cached.trimmed)

    def floor(self, topic: str, partition: int, committed: int) -> int | PendingTranslation | None:
        """Returns the smallest position over the other origins, for a topic that several clusters write.

        It only grows, so an older value never skips records either. It is None for any other topic.
        """
        origins = self.origins(topic)
        if not origins:
            return None
        if any(self._sealing(one, partition) for one in origins):
            return PendingTranslation(SEALING)
        return min(self._not_read(one, partition, committed) for one in origins)

    def origins(self, topic: str) -> tuple[SourceTopicWriter, ...]:
        """Returns the other clusters from which records of the topic come."""
        if topic not in self._origins:
            self._origins[topic] = origins_of(self._router, self._way.route.flow, topic)
        return self._origins[topic]

    def _key(self, topic: str, partition: int) -> PartitionKey:
        return PartitionKey(self._way.route.flow, topic, partition)

    def _sealing(self, origin: SourceTopicWriter, partition: int) -> bool:
        """Returns whether a map of the origin is being written."""
        at_source = PartitionKey(origin.flow, origin.topic, partition)
        at_destination = PartitionKey(origin.destination_flow or "", origin.topic, partition)
        return self._destination_maps.sealing(at_destination) or (
            self._source_maps is not None and self._source_maps.sealing(at_source)
        )

    def _not_read(self, origin: SourceTopicWriter, partition: int, committed: int) -> int:
        """Returns the position of the first record of an origin that the group has not read."""
        key = PartitionKey(origin.flow, origin.topic, partition)
        first = earliest_unread_offset(
            self._source_maps.map(key) if self._source_maps is not None else None, committed
        )
        if origin.destination_flow is None:
            return first
        return earliest_reachable_offset(
            self._destination_maps.map(PartitionKey(origin.destination_flow, origin.topic, partition)), first
        )
