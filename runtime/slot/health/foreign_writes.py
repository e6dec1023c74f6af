"""Finds records in a flow's destination topics that the flow did not write: `foreign_writes`."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping

from runtime.batch import Batch, PartitionLocation, RecordSet, walk
from runtime.contract.records.ledger import PartitionKey, UnreadableRecord
from runtime.kafka.cluster import KafkaCluster
from runtime.kafka.errors import BrokerError, ErrorCode, WireError
from runtime.kafka.fetch import fetch_once
from runtime.kafka.protocol.fetch import FetchedPartition, Isolation
from runtime.kafka.protocol.offsets import EARLIEST, LATEST, ListedOffset
from runtime.kafka.queries import list_offsets, offsets_of
from runtime.ledger.ledger import ProducerDirectory
from runtime.ledger.records import TopicReplaced
from runtime.slot import log
from runtime.slot.offset_accounts import OffsetRange
from runtime.slot.partition import PartitionCopy

IDLE_EVERY_S = 30.0
_FETCH_BYTES = 256 << 10
_RETRY_S = 5.0
_WITHIN_S = 10.0
_PURPOSE = "foreign"


class ForeignWrites:
    """Reads the offset ranges that a partition's accounts can't explain, and flags foreign records in them.

    A data batch is the flow's own if `__repl.producers` names the flow for its producer id. The id is
    written there before its first data. This distinguishes own records of an aborted transaction, of an
    earlier slot and of a replay from those of any other producer, with or without transactions. Markers are
    not records. The flag stays until the partition is assigned again. Copying does not wait for this check,
    and a range that can't be read now is read later.
    """

    def __init__(
        self,
        flow: str,
        destination: KafkaCluster,
        producers: ProducerDirectory,
        copies: Mapping[PartitionKey, PartitionCopy],
    ) -> None:
        self._flow = flow
        self._destination = destination
        self._producers = producers
        self._copies = copies
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

    async def read_due(self) -> None:
        """Reads the ranges of the partitions that have any; a range that can't be read now stays due."""
        due, self._due = self._due, {}
        for copy in due:
            await self._check(copy)

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

    async def _check(self, copy: PartitionCopy) -> None:
        """Reads a partition's unexplained ranges until a foreign record is found."""
        accounts = copy.accounts
        for one in accounts.unexplained():
            if copy.foreign_writes or self._copies.get(copy.key) is not copy:
                return
            try:
                foreign = await self._is_foreign(copy, one)
            except (WireError, UnreadableRecord, TopicReplaced):
                accounts.restore_range(one)
                self._due[copy] = None
                continue
            if foreign:
                copy.flag_foreign_writes()
                log.warning(
                    "foreign_writes",
                    key=copy.label,
                    **copy.log_fields(),
                    low=one.low,
                    end=one.end,
                    decision="flag",
                )

    async def _is_foreign(self, copy: PartitionCopy, within: OffsetRange) -> bool:
        """Returns whether a range holds a foreign batch; reads until the first one or the end of the range.

        Records that compaction or retention has removed are not foreign. Raises WireError, UnreadableRecord,
        TopicReplaced.
        """
        at = within.low
        while at < within.end:
            answer = await self._fetch(copy, at)
            if answer.error is ErrorCode.OFFSET_OUT_OF_RANGE:
                start = (await offsets_of(self._destination, {copy.at: EARLIEST}, within=_WITHIN_S))[copy.at]
                if start > at:
                    at = start
                    continue
            if answer.error is not ErrorCode.NONE:
                raise BrokerError(answer.error, f"{copy.at.topic}-{copy.at.partition}")
            sets = [
                one for one in walk(answer.records, PartitionLocation(*copy.at)).sets if one.next_offset > at
            ]
            if await self._any_foreign([one for one in sets if one.base_offset < within.end]):
                return True
            if not sets:
                if answer.high_watermark >= within.end:
                    return False
                raise BrokerError(ErrorCode.OFFSET_NOT_AVAILABLE, f"{copy.at.topic}-{copy.at.partition}")
            at = sets[-1].next_offset
        return False

    async def _fetch(self, copy: PartitionCopy, offset: int) -> FetchedPartition:
        return await fetch_once(
            self._destination,
            copy.at,
            offset,
            _FETCH_BYTES,
            _PURPOSE,
            isolation=Isolation.READ_UNCOMMITTED,
            topic_id=copy.progress.destination_topic_id,
            within=_WITHIN_S,
        )

    async def _any_foreign(self, sets: Iterable[RecordSet]) -> bool:
        """Returns whether the producer directory names another flow, or none, for any batch."""
        ids: set[int] = set()
        for one in sets:
            if not isinstance(one, Batch):
                return True  # This product never writes an old message format.
            if not one.control:
                ids.add(one.producer_id)
        if self._producers.unknown(ids):
            await self._producers.resolve(ids)
        return any(self._producers.flow_of(one) != self._flow for one in ids)


def _is_idle(copy: PartitionCopy) -> bool:
    """Returns whether the partition has no batch queued or in an open transaction."""
    return copy.fetchable and not copy.in_transaction and not copy.queue
