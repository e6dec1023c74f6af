"""Consumer timestamps of one flow: what is kept of them at the destination, what is learned at the source.

By them an offset below the map is placed: data that was there before the flow kept a map.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Iterable, Mapping
from contextlib import suppress

from runtime.batch.failure import BatchFailure
from runtime.contract.groups import consumer_times
from runtime.contract.groups.consumer_times import NO_TIME, ConsumerTimes, Moment, TimesKey, UnreadableTimes
from runtime.contract.groups.decisions import Item
from runtime.contract.spec import naming
from runtime.kafka.cluster import Cluster
from runtime.kafka.errors import WireError
from runtime.kafka.protocol.offsets import EARLIEST, TopicPartition
from runtime.kafka.queries.partitions import offsets_of
from runtime.ledger.record_times import time_at
from runtime.ledger.records import Record
from runtime.ledger.scan import Scan, TopicReplaced

_TOGETHER = 8
_AGAIN_MS = 5 * 60 * 1000
_DAY_MS = 24 * 60 * 60 * 1000

Place = tuple[TopicPartition, int]  # a partition, and an offset or a time in it


class Times:
    """`refresh` first. `most`: so many commits are remembered of one group's partition."""

    def __init__(self, flow: str, source: Cluster | None, destination: Cluster, most: int = 1) -> None:
        self._flow = flow
        self._source = source
        self._destination = destination
        self._most = most
        self._scans: dict[int, Scan] = {}
        self._known: dict[TimesKey, ConsumerTimes] = {}
        self._unsaid: set[TimesKey] = set()
        self._gone: dict[TimesKey, tuple[int, int]] = {}  # nothing tells of this offset; when to ask again

    async def refresh(self) -> None:
        """Raises WireError."""
        try:
            for scan in await self._opened():
                await scan.refresh()
                for stored, value in scan.fold.news():
                    self._take_in(stored, value)
        except TopicReplaced:  # all that is known is said again in the new one
            self._scans.clear()
            self._unsaid.update(self._known)

    def time_of(self, item: Item, committed: int) -> int | None:
        known = self._known.get(self._key(item))
        return known.time_of(committed) if known is not None else None

    async def learn(self, offsets: Mapping[Item, int], at_most: int | None = None) -> None:
        """Of commits that are not known: what the source's records tell. What can't be read is left out; of
        more than so many the rest is for the next time.
        """
        if self._source is None:
            return
        source, wanted = self._source, self._not_known(offsets, at_most)
        for place, found in (await _together(wanted, lambda at, offset: time_at(source, at, offset))).items():
            for item in wanted[place]:
                if found is not None:
                    self._learned(item, Moment(place[1], found))
                else:
                    self._gone[self._key(item)] = (place[1], _now_ms() + _AGAIN_MS)

    def _not_known(self, offsets: Mapping[Item, int], at_most: int | None) -> dict[Place, list[Item]]:
        now_ms = _now_ms()
        wanted: dict[Place, list[Item]] = {}
        for item, offset in offsets.items():
            key, place = self._key(item), (TopicPartition(item.topic, item.partition), offset)
            known, gone = self._known.get(key), self._gone.get(key)
            if known is not None and known.has(offset):
                if known.at_ms < now_ms - _DAY_MS:  # what is not said again is forgotten
                    self._unsaid.add(key)
            elif gone is not None and gone[0] == offset and now_ms < gone[1]:
                continue
            elif place in wanted or at_most is None or len(wanted) < at_most:
                wanted.setdefault(place, []).append(item)
        return wanted

    def unsaid(self, partitions: int) -> dict[int, list[Record]]:
        """What was learned and is not kept yet, by partition of the topic."""
        found: dict[int, list[Record]] = {}
        for key in self._unsaid:
            at = consumer_times.partition_of(key, partitions)
            said = ConsumerTimes(self._known[key].moments, _now_ms())
            record = Record(consumer_times.encode_key(key), consumer_times.encode(said))
            found.setdefault(at, []).append(record)
        return found

    def said(self) -> None:
        self._unsaid.clear()

    async def places(self, wanted: Mapping[Item, tuple[TopicPartition, int]]) -> dict[Item, int | None]:
        """The first record at the destination that is as late as the one a group goes on with, None where
        none is. A group whose record's time is not known is left out, and so is what could not be asked.
        """
        times = {item: self.time_of(item, committed) for item, (_, committed) in wanted.items()}
        asked: dict[Place, list[Item]] = {}
        for item, timestamp in times.items():
            if timestamp is not None:
                when = EARLIEST if timestamp == NO_TIME else timestamp
                asked.setdefault((wanted[item][0], when), []).append(item)
        found = await _together(asked, self._first)
        return {item: offset for place, offset in found.items() for item in asked[place]}

    async def _first(self, at: TopicPartition, timestamp: int) -> int | None:
        offset = (await offsets_of(self._destination, {at: timestamp}))[at]
        return offset if offset >= 0 else None

    async def _opened(self) -> Iterable[Scan]:
        topic = (await self._destination.topics([naming.TIMESTAMPS]))[naming.TIMESTAMPS]
        for partition in topic.partitions if not topic.error else ():
            self._scans.setdefault(partition, Scan(self._destination, naming.TIMESTAMPS, partition))
        return self._scans.values()

    def _take_in(self, stored: bytes, value: bytes | None) -> None:
        key = consumer_times.decode_key(stored)
        if key is None or key.flow != self._flow or key in self._unsaid:
            return
        try:
            if value is not None:
                self._known[key] = consumer_times.decode(value)
        except UnreadableTimes:
            return

    def _learned(self, item: Item, moment: Moment) -> None:
        key = self._key(item)
        before = self._known.get(key, ConsumerTimes((), 0))
        self._known[key] = before.later(moment, self._most, _now_ms())
        self._unsaid.add(key)

    def _key(self, item: Item) -> TimesKey:
        return TimesKey(self._flow, *item)


async def _together(
    places: Iterable[Place], ask: Callable[[TopicPartition, int], Awaitable[int | None]]
) -> dict[Place, int | None]:
    """The answers, several at a time; of what does not answer there is none."""
    turn = asyncio.Semaphore(_TOGETHER)
    found: dict[Place, int | None] = {}

    async def one(place: Place) -> None:
        async with turn:
            with suppress(WireError, BatchFailure):
                found[place] = await ask(*place)

    await asyncio.gather(*(one(place) for place in places))
    return found


def _now_ms() -> int:
    return int(time.time() * 1000)
