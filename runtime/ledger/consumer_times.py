"""Consumer timestamps of one flow are read from the source's records and stored at the destination.

They translate group offsets below the map, for data that was copied before the flow had a map.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping
from contextlib import suppress
from typing import NamedTuple

from runtime.batch import Record, records
from runtime.batch.failure import BatchFailure
from runtime.contract.records import group_records
from runtime.contract.records.group_records import (
    NO_TIME,
    ConsumerTimes,
    GroupPartition,
    OffsetTimestamp,
)
from runtime.contract.records.record_values import UnreadableValue
from runtime.contract.spec import naming
from runtime.contract.spec.naming import TopicPartition
from runtime.kafka.cluster import KafkaCluster
from runtime.kafka.errors import WireError
from runtime.kafka.fetch import fetch_loaded
from runtime.kafka.protocol.offsets import EARLIEST, ListedOffset
from runtime.kafka.queries import list_offsets, offsets_of
from runtime.kafka.records import InternalRecord, visible_sets
from runtime.kafka.timing import now_ms
from runtime.ledger.records import InternalTopicScan, TopicReplaced

_WINDOW_BYTES = 64 << 10
_BACK = 100  # Markers and aborted records may precede an offset.
_PURPOSE = "groups"
_CONCURRENT = 8
_RETRY_MS = 5 * 60 * 1000
_DAY_MS = 24 * 60 * 60 * 1000


async def time_at(cluster: KafkaCluster, at: TopicPartition, committed: int) -> int | None:
    """Returns the earliest timestamp in ms among the next records that one fetch returns.

    Timestamps may be out of order, and a later record with an earlier timestamp must not be skipped. At the
    end of the log, the result is the timestamp of the last record before the offset.

    The result is None where the source no longer holds the next record, because the records after it do not
    show when it was written, and where a record can't be read. It is NO_TIME where records have no timestamp.
    Raises WireError.
    """
    start = (await list_offsets(cluster, {at: EARLIEST}))[at]
    if not isinstance(start, ListedOffset) or start.offset > committed:
        return None
    try:
        after = await _from(cluster, at, committed)
        if ahead := [record.timestamp for record in after if record.offset >= committed]:
            return min(ahead)
        before = await _from(cluster, at, max(start.offset, committed - _BACK))
    except BatchFailure:
        return None
    behind = [record.timestamp for record in before if record.offset < committed]
    return behind[-1] if behind else None


async def _from(cluster: KafkaCluster, at: TopicPartition, offset: int) -> list[Record]:
    """Returns the committed records of one fetch. Raises WireError, BatchFailure."""
    answer = await fetch_loaded(cluster, at, offset, _WINDOW_BYTES, _PURPOSE)
    return [
        record for member, visible in visible_sets(answer, at) if visible for record in records(member, at)
    ]


Place = tuple[TopicPartition, int]  # A partition, and an offset or a timestamp in it.


class LookupRetries:
    """The commits whose record was not found at the source, and when each is looked up again.

    That is every `retry_ms`, five minutes where it is None, for `expiry_ms` since the first time; None has no
    end. A new commit of the same group starts anew.
    """

    def __init__(self, retry_ms: int | None = None, expiry_ms: int | None = None) -> None:
        self._retry_ms = _RETRY_MS if retry_ms is None else retry_ms
        self._expiry_ms = expiry_ms
        self._failed: dict[GroupPartition, _FailedLookup] = {}

    def is_due(self, item: GroupPartition, offset: int, now_ms: int) -> bool:
        """Returns whether the commit may be looked up now."""
        failed = self._failed.get(item)
        if failed is None or failed.offset != offset:
            return True
        if self._expiry_ms is not None and now_ms >= failed.first_ms + self._expiry_ms:
            return False
        return now_ms >= failed.last_ms + self._retry_ms

    def note_failure(self, item: GroupPartition, offset: int, now_ms: int) -> None:
        """Notes that no record was found for the commit."""
        before = self._failed.get(item)
        first_ms = before.first_ms if before is not None and before.offset == offset else now_ms
        self._failed[item] = _FailedLookup(offset, first_ms, now_ms)

    def retain_only(self, items: Collection[GroupPartition], unread: Collection[str]) -> None:
        """Removes commits that are gone from the source. The groups in `unread` may be there (R8)."""
        for gone in self._failed.keys() - set(items):
            if gone.group not in unread:
                del self._failed[gone]


class _FailedLookup(NamedTuple):
    offset: int
    first_ms: int
    last_ms: int


class ConsumerTimeTable:
    """The consumer timestamps of a flow: those stored at the destination, and new ones not stored yet.

    `refresh` must come first. `most` is the number of commits that are kept for a partition of a group.
    """

    def __init__(
        self,
        flow: str,
        source: KafkaCluster | None,
        destination: KafkaCluster,
        most: int = 1,
        retries: LookupRetries | None = None,
    ) -> None:
        self._flow = flow
        self._source = source
        self._destination = destination
        self._most = most
        self._scans: dict[int, InternalTopicScan] = {}
        self._known: dict[GroupPartition, ConsumerTimes] = {}
        self._unsaved: set[GroupPartition] = set()
        self._retries = retries or LookupRetries()

    async def refresh(self) -> None:
        """Reads the timestamps that are stored at the destination. Raises WireError."""
        try:
            for scan in await self._open_scans():
                await scan.refresh()
                for stored, value in scan.fold.news():
                    self._take_record(stored, value)
        except TopicReplaced:  # All known timestamps are written to the new topic again.
            self._scans.clear()
            self._unsaved.update(self._known)

    def time_of(self, item: GroupPartition, committed: int) -> int | None:
        """Returns the known timestamp in ms of a committed offset, or None."""
        times = self._known.get(item)
        return times.time_of(committed) if times is not None else None

    async def read_from_source(
        self, offsets: Mapping[GroupPartition, int], at_most: int | None = None
    ) -> None:
        """Reads the timestamps of commits that are not known yet from the source's records.

        A commit whose record can't be read is omitted. At most `at_most` positions are read in one call.
        """
        if self._source is None:
            return
        source, wanted = self._source, self._not_known(offsets, at_most)
        for place, timestamp in (
            await _request_all(wanted, lambda at, offset: time_at(source, at, offset))
        ).items():
            for item in wanted[place]:
                if timestamp is None:
                    self._retries.note_failure(item, place[1], now_ms())
                    continue
                before = self._known.get(item, ConsumerTimes((), 0))
                self._known[item] = before.later(OffsetTimestamp(place[1], timestamp), self._most, now_ms())
                self._unsaved.add(item)

    def retain_lookups(self, items: Collection[GroupPartition], unread: Collection[str]) -> None:
        """Forgets failed lookups of commits that are gone from the source, as `LookupRetries` does."""
        self._retries.retain_only(items, unread)

    def _not_known(
        self, offsets: Mapping[GroupPartition, int], at_most: int | None
    ) -> dict[Place, list[GroupPartition]]:
        """Returns the positions that must be read, each with the commits that have it."""
        at_ms = now_ms()
        wanted: dict[Place, list[GroupPartition]] = {}
        for item, offset in offsets.items():
            place = TopicPartition(item.topic, item.partition), offset
            times = self._known.get(item)
            if times is not None and times.has(offset):
                if times.at_ms < at_ms - _DAY_MS:  # A record that is not written again expires.
                    self._unsaved.add(item)
            elif not self._retries.is_due(item, offset, at_ms):
                continue
            elif place in wanted or at_most is None or len(wanted) < at_most:
                wanted.setdefault(place, []).append(item)
        return wanted

    def unsaved_records(self, partitions: int) -> dict[int, list[InternalRecord]]:
        """Returns the records that are not stored yet, by partition of the timestamps topic."""
        unsaved: dict[int, list[InternalRecord]] = {}
        for item in self._unsaved:
            key = group_records.encode_times_key(self._flow, item)
            times = ConsumerTimes(self._known[item].moments, now_ms())
            record = InternalRecord(key, group_records.encode_times(times))
            unsaved.setdefault(group_records.partition_of(key, partitions), []).append(record)
        return unsaved

    def mark_saved(self) -> None:
        """Marks all timestamps as stored."""
        self._unsaved.clear()

    async def places(
        self, wanted: Mapping[GroupPartition, tuple[TopicPartition, int]]
    ) -> dict[GroupPartition, int | None]:
        """Returns the first destination offset whose record is as late as the next record of each group.

        The offset is None where no record is that late. A commit without a known timestamp is omitted, and
        so is one whose partition did not answer.
        """
        times = {item: self.time_of(item, committed) for item, (_, committed) in wanted.items()}
        wanted_places: dict[Place, list[GroupPartition]] = {}
        for item, timestamp in times.items():
            if timestamp is not None:
                when = EARLIEST if timestamp == NO_TIME else timestamp
                wanted_places.setdefault((wanted[item][0], when), []).append(item)
        offsets = await _request_all(wanted_places, self._first)
        return {item: offset for place, offset in offsets.items() for item in wanted_places[place]}

    async def _first(self, at: TopicPartition, timestamp: int) -> int | None:
        """Returns the first destination offset at or after a timestamp, or None."""
        offset = (await offsets_of(self._destination, {at: timestamp}))[at]
        return offset if offset >= 0 else None

    async def _open_scans(self) -> Iterable[InternalTopicScan]:
        """Returns a scan for each partition of the timestamps topic."""
        topic = (await self._destination.topics([naming.TIMESTAMPS]))[naming.TIMESTAMPS]
        for partition in topic.partitions if not topic.error else ():
            self._scans.setdefault(
                partition,
                InternalTopicScan(self._destination, naming.TIMESTAMPS, partition, keep_values=False),
            )
        return self._scans.values()

    def _take_record(self, stored: bytes, value: bytes | None) -> None:
        flow, item = group_records.decode_times_key(stored) or (None, None)
        if item is None or flow != self._flow or item in self._unsaved:
            return
        try:
            if value is not None:
                self._known[item] = group_records.decode_times(value)
        except UnreadableValue:
            return


async def _request_all(
    places: Iterable[Place], ask: Callable[[TopicPartition, int], Awaitable[int | None]]
) -> dict[Place, int | None]:
    """Requests all places, several at a time; a place whose request fails is omitted."""
    limit = asyncio.Semaphore(_CONCURRENT)
    results: dict[Place, int | None] = {}

    async def request(place: Place) -> None:
        """Requests one place, and stores its result unless the request fails."""
        async with limit:
            with suppress(WireError):
                results[place] = await ask(*place)

    await asyncio.gather(*(request(place) for place in places))
    return results
