"""Positions of groups, translated for one flow by the maps of all flows that matter to it (R6)."""

from __future__ import annotations

from collections.abc import Iterable

from runtime.contract.groups.origins import Origin, origins_of
from runtime.contract.groups.translate import Pending, Position, arriving, position, unread
from runtime.contract.records.ledger import PartitionKey, Progress
from runtime.contract.records.offset_map import OffsetMap
from runtime.contract.spec.route import Router
from runtime.ledger.offset_maps import Atlas

NO_PROGRESS = "nothing of this partition was copied yet"
SEALING = "its offset map is being written"


class Translator:
    """Translates for one flow."""

    def __init__(self, flow: str, router: Router, here: Atlas, there: Atlas | None) -> None:
        self._way = router.ways[flow]
        self._router = router
        self._here = here
        self._there = there
        self._origins: dict[str, tuple[Origin, ...]] = {}

    async def refresh(self, topics: Iterable[str]) -> None:
        """Of what these topics need. Raises WireError."""
        origins = {origin for topic in topics for origin in self.origins(topic)}
        own = self._way.route.flow
        await self._here.refresh(dict.fromkeys([own, *(one.brings for one in origins if one.brings)]))
        if self._there is not None:
            await self._there.refresh(dict.fromkeys(one.back for one in origins))

    def progress(self, topic: str, partition: int) -> Progress | None:
        key = self._key(topic, partition)
        return self._here.progress(key.flow).get(key)

    def map(self, topic: str, partition: int) -> OffsetMap | None:
        """The flow's own."""
        return self._here.map(self._key(topic, partition))

    def position(self, topic: str, partition: int, committed: int) -> Position:
        """By the flow's own map alone."""
        drawn = self._here.drawn(self._key(topic, partition))
        if drawn is None:
            return Pending(NO_PROGRESS if self.progress(topic, partition) is None else SEALING)
        return position(drawn.offsets, committed, trimmed=drawn.trimmed)

    def floor(self, topic: str, partition: int, committed: int) -> int | Pending | None:
        """In a topic that several clusters write: the smallest position over the other origins. It only
        grows, so one that was found earlier skips nothing either. None for any other topic.
        """
        origins = self.origins(topic)
        if not origins:
            return None
        if any(self._sealing(one, partition) for one in origins):
            return Pending(SEALING)
        return min(self._not_read(one, partition, committed) for one in origins)

    def origins(self, topic: str) -> tuple[Origin, ...]:
        if topic not in self._origins:
            self._origins[topic] = origins_of(self._router, self._way.route.flow, topic)
        return self._origins[topic]

    def _key(self, topic: str, partition: int) -> PartitionKey:
        return PartitionKey(self._way.route.flow, topic, partition)

    def _sealing(self, origin: Origin, partition: int) -> bool:
        back = PartitionKey(origin.back, origin.topic, partition)
        brings = PartitionKey(origin.brings or "", origin.topic, partition)
        return self._here.sealing(brings) or (self._there is not None and self._there.sealing(back))

    def _not_read(self, origin: Origin, partition: int, committed: int) -> int:
        key = PartitionKey(origin.back, origin.topic, partition)
        first = unread(self._there.map(key) if self._there is not None else None, committed)
        if origin.brings is None:
            return first
        return arriving(self._here.map(PartitionKey(origin.brings, origin.topic, partition)), first)
