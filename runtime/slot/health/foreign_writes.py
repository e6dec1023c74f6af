"""Finds records in a flow's destination topics that the flow did not write: `foreign_writes`."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from itertools import chain

from runtime.batch import Batch, RecordSet, walk
from runtime.contract.records.ledger import PartitionKey
from runtime.kafka.cluster import KafkaCluster
from runtime.kafka.errors import BrokerError, ErrorCode, WireError
from runtime.kafka.fetch_many import fetch_many
from runtime.kafka.leaders import group_by_leader
from runtime.kafka.protocol.fetch import FetchedPartition, FetchFrom, Isolation
from runtime.kafka.protocol.offsets import EARLIEST, LATEST, ListedOffset
from runtime.kafka.queries import in_parts, list_offsets
from runtime.kafka.timing import in_time
from runtime.ledger.ledger import ProducerDirectory
from runtime.ledger.records import READ_FAILURES
from runtime.slot import log
from runtime.slot.offset_accounts import OffsetRange
from runtime.slot.partition import PartitionCopy

IDLE_EVERY_S = 30.0
_RESPONSE_BYTES = 256 << 10  # of one broker; the partitions of a request share them
_AT_ONCE = 128  # partitions of a request: each has room for about 25 markers
_FEWER = 8  # the next request for partitions that had no room has so many times fewer
_RETRY_S = 5.0
_WITHIN_S = 10.0
_PURPOSE = "foreign"


class _UnreadRanges:
    """The unexplained ranges of one partition, while they are read from the first to the last.

    A partition whose loss is accepted gets a new log and new accounts, to which they do not belong.
    """

    def __init__(self, copy: PartitionCopy) -> None:
        self.copy = copy
        self._accounts = copy.accounts
        self._ranges = deque(copy.accounts.unexplained())

    def __bool__(self) -> bool:
        return bool(self._ranges)

    @property
    def outdated(self) -> bool:
        """Whether the partition has other accounts by now."""
        return self.copy.accounts is not self._accounts

    @property
    def first(self) -> OffsetRange:
        """What is left of the range that is read now."""
        return self._ranges[0]

    def read_to(self, offset: int) -> None:
        """Removes the offsets of the first range that lie before `offset`."""
        low, end = self._ranges.popleft()
        if offset < end:
            self._ranges.appendleft(OffsetRange(max(low, offset), end))

    def restore_first(self) -> None:
        """Returns the first range to the accounts that it came from, so that it is read later."""
        self._accounts.restore_range(self._ranges.popleft())

    def clear(self) -> None:
        """Removes all ranges: they need not be read."""
        self._ranges.clear()


class ForeignWrites:
    """Reads the offset ranges that a partition's accounts can't explain, and flags foreign records in them.

    A data batch is the flow's own if `__repl.producers` names the flow for its producer id. The id is
    written there before its first data. This distinguishes own records of an aborted transaction, of an
    earlier slot and of a replay from those of any other producer, with or without transactions. Markers are
    not records. The flag stays until the partition is assigned again. Copying does not wait for this check,
    and a range that can't be read now is read later.

    After a start, the ranges of all idle partitions are due at once, and most of them hold one marker. So
    many partitions share a request. All brokers are read at the same time, and none for longer than
    `read_for_s` and one more request. One that is slow or can't be reached delays its own partitions, and the
    next check of the others by no more than that (R7). A response of a broker has at most 256 KiB, or one
    batch (R8).
    """

    def __init__(
        self,
        flow: str,
        destination: KafkaCluster,
        producers: ProducerDirectory,
        copies: Mapping[PartitionKey, PartitionCopy],
        read_for_s: float = 10.0,
    ) -> None:
        self._flow = flow
        self._destination = destination
        self._producers = producers
        self._copies = copies
        self._read_for_s = read_for_s
        self._due: dict[PartitionCopy, None] = {}
        self._wake = asyncio.Event()

    def committed(self, copies: Iterable[PartitionCopy]) -> None:
        """Schedules a check of partitions whose transaction was committed with unexplained offsets."""
        for copy in copies:
            if copy.accounts.doubtful:
                self._due[copy] = None
                self._wake.set()

    async def run(self) -> None:
        """Checks partitions after commits, and idle ones every 30 s, until it is cancelled."""
        loop = asyncio.get_running_loop()
        idle_at = loop.time() + IDLE_EVERY_S
        while True:
            try:
                async with asyncio.timeout_at(idle_at):
                    await self._wake.wait()
            except TimeoutError:
                idle_at = loop.time() + IDLE_EVERY_S
                await self.compare_ends()
            self._wake.clear()
            await self.read_due()
            if self._due:
                await asyncio.sleep(_RETRY_S)
                self._wake.set()

    async def compare_ends(self) -> None:
        """Compares the log end of idle partitions at the destination with the end that the flow wrote."""
        idle = {copy: copy.progress for copy in self._copies.values() if _is_idle(copy)}
        if not idle:
            return
        try:
            ends = await list_offsets(
                self._destination, dict.fromkeys((copy.at for copy in idle), LATEST), within=_WITHIN_S
            )
        except WireError:
            return
        for copy, progress in idle.items():
            end = ends[copy.at]
            if isinstance(end, ListedOffset) and _is_idle(copy) and copy.progress is progress:
                copy.accounts.idle(end.offset)
        self.committed(idle)

    async def read_due(self) -> None:
        """Reads the ranges of the partitions that have any; a range that can't be read now stays due."""
        due, self._due = self._due, {}
        current = [_UnreadRanges(copy) for copy in due if self._is_current(copy)]
        unread = {ranges.copy.at: ranges for ranges in current if ranges}
        if not unread:
            return
        try:
            names = {at.topic for at in unread}
            topics = await in_time(self._destination.topics(names), _WITHIN_S, "asking for leaders")
        except WireError:
            self._postpone(unread.values())
            return
        groups = group_by_leader(topics, unread)
        self._postpone(unread[at] for at in groups.errors)
        await asyncio.gather(
            *(self._read(node, [unread[at] for at in some]) for node, some in groups.by_node.items())
        )

    async def _read(self, node: int, unread: Sequence[_UnreadRanges]) -> None:
        """Reads ranges at one broker, those of many partitions with each request.

        A partition whose next batch is larger than its share of the response, or which has more batches, is
        read again with fewer others, in the end alone.
        """
        loop = asyncio.get_running_loop()
        until = loop.time() + self._read_for_s
        waiting = deque(in_parts(unread, _AT_ONCE))
        while waiting:
            group = [
                ranges
                for ranges in waiting.popleft()
                if self._is_current(ranges.copy) and not ranges.outdated
            ]
            if not group:
                continue
            try:
                await self._read_once(node, group)
            except BrokerError:
                if len(group) == 1:
                    self._restore(group[0])
            except WireError:
                self._postpone(group)
                break
            waiting.extend(in_parts([ranges for ranges in group if ranges], max(1, len(group) // _FEWER)))
            if loop.time() >= until:
                break
        self._postpone(chain.from_iterable(waiting))

    async def _read_once(self, node: int, unread: Sequence[_UnreadRanges]) -> None:
        """Reads from the position of each partition, as far as its share of one response goes.

        Raises WireError.
        """
        share = _RESPONSE_BYTES // len(unread)
        answers = await fetch_many(
            self._destination,
            node,
            {ranges.copy.at: FetchFrom(ranges.first.low, max_bytes=share) for ranges in unread},
            _PURPOSE,
            topic_ids={ranges.copy.at: ranges.copy.progress.destination_topic_id for ranges in unread},
            isolation=Isolation.READ_UNCOMMITTED,
            within=_WITHIN_S,
        )
        removed: list[_UnreadRanges] = []
        for ranges in unread:
            answer = answers.get(ranges.copy.at)
            if answer is None:
                continue
            if answer.error is ErrorCode.NONE:
                await self._take(ranges, answer)
            elif answer.error is ErrorCode.OFFSET_OUT_OF_RANGE:
                removed.append(ranges)
            else:
                self._restore(ranges)
        await self._read_to_log_start(removed)

    async def _take(self, unread: _UnreadRanges, answer: FetchedPartition) -> None:
        """Flags the partition if the answer holds a foreign batch, else moves behind what was read.

        Records that compaction or retention has removed are not foreign.
        """
        copy, within = unread.copy, unread.first
        walked = walk(answer.records, copy.at)
        sets = [record_set for record_set in walked.sets if record_set.next_offset > within.low]
        try:
            foreign = await self._any_foreign(
                [record_set for record_set in sets if record_set.base_offset < within.end]
            )
        except (WireError, *READ_FAILURES):
            self._restore(unread)
            return
        if foreign:
            unread.clear()
            copy.flag_foreign_writes()
            log.warning(
                "foreign_writes",
                key=copy.label,
                **copy.log_fields(),
                low=within.low,
                end=within.end,
                decision="flag",
            )
        elif sets:
            unread.read_to(sets[-1].next_offset)
        elif answer.high_watermark >= within.end:
            unread.read_to(within.end)
        else:
            self._restore(unread)

    async def _read_to_log_start(self, removed: Sequence[_UnreadRanges]) -> None:
        """Moves partitions to the log start that has passed their position."""
        wanted = {ranges.copy.at: EARLIEST for ranges in removed}
        try:
            starts = await list_offsets(self._destination, wanted, within=_WITHIN_S)
        except WireError:
            self._postpone(removed)
            return
        for ranges in removed:
            start = starts[ranges.copy.at]
            if isinstance(start, ListedOffset) and start.offset > ranges.first.low:
                ranges.read_to(start.offset)
            else:
                self._restore(ranges)

    async def _any_foreign(self, sets: Iterable[RecordSet]) -> bool:
        """Returns whether the producer directory names another flow, or none, for any batch."""
        ids: set[int] = set()
        for record_set in sets:
            if not isinstance(record_set, Batch):
                return True  # This product never writes an old message format.
            if not record_set.control:
                ids.add(record_set.producer_id)
        if self._producers.unknown(ids):
            await self._producers.resolve(ids)
        return any(self._producers.flow_of(producer_id) != self._flow for producer_id in ids)

    def _is_current(self, copy: PartitionCopy) -> bool:
        """Returns whether the slot has the partition, and no foreign record was found in it."""
        return not copy.foreign_writes and self._copies.get(copy.key) is copy

    def _restore(self, unread: _UnreadRanges) -> None:
        """Leaves a partition's first range for a later read."""
        unread.restore_first()
        self._due[unread.copy] = None

    def _postpone(self, some: Iterable[_UnreadRanges]) -> None:
        """Leaves all ranges of partitions for a later read."""
        for unread in some:
            while unread:
                self._restore(unread)


def _is_idle(copy: PartitionCopy) -> bool:
    """Returns whether the partition has no batch queued or in an open transaction."""
    return copy.fetchable and not copy.in_transaction and not copy.queue
