"""Checks periodically for topics recreated while idle and for hanging transactions."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Mapping

from runtime.contract.records.ledger import PartitionKey
from runtime.contract.records.status import OpenTransaction
from runtime.contract.topic_ids import is_other_topic
from runtime.kafka.cluster import KafkaCluster
from runtime.kafka.codes import ErrorCode
from runtime.kafka.errors import WireError
from runtime.kafka.protocol.offsets import TopicPartition
from runtime.slot.health.open_transactions import explain, open_transactions
from runtime.slot.health.supervisor import PartitionSupervisor
from runtime.slot.partition import PartitionCopy

EVERY_S = 5.0
_BLOCKED_AFTER_S = 10.0


class TopicWatch:
    """A watch checks the partitions of a flow every 5 s: their topic ids, and whether they are blocked."""

    def __init__(
        self,
        source: KafkaCluster,
        destination: KafkaCluster,
        copies: Mapping[PartitionKey, PartitionCopy],
        supervisor: PartitionSupervisor,
    ) -> None:
        self._source = source
        self._destination = destination
        self._copies = copies
        self._supervisor = supervisor
        self._waiting: dict[PartitionCopy, float] = {}

    async def run(self) -> None:
        """Checks until it is cancelled.

        An error of a cluster is ignored here, because the copy loop reports it.
        """
        while True:
            await asyncio.sleep(EVERY_S)
            with contextlib.suppress(WireError):
                await self._compare_ids()
                await self._find_blocked()

    async def _compare_ids(self) -> None:
        """Inspects the partitions of topics whose ids differ from the ledger's at one side."""
        copies = [copy for copy in self._copies.values() if copy.fetchable]
        source_topics = await self._source.topics({copy.key.topic for copy in copies}, fresh=True)
        destination_topics = await self._destination.topics({copy.at.topic for copy in copies}, fresh=True)
        for copy in copies:
            topic, mirror = source_topics.get(copy.key.topic), destination_topics.get(copy.at.topic)
            progress = copy.progress
            changed = (
                topic is not None and not topic.error and is_other_topic(progress.source_topic_id, topic.id)
            )
            if mirror is not None:
                gone = mirror.error is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
                other = is_other_topic(progress.destination_topic_id, mirror.id)
                changed |= gone or (not mirror.error and other)
            if changed and copy.fetchable:
                self._supervisor.inspect_later(copy, "a topic's id changed")

    async def _find_blocked(self) -> None:
        """Names the transaction that blocks a partition which waits at its last stable offset for 10 s."""
        now = time.monotonic()
        waiting = [copy for copy in self._copies.values() if _waits_at_stable_offset(copy)]
        self._waiting = {copy: self._waiting.get(copy, now) for copy in waiting}
        blocked = [copy for copy, since in self._waiting.items() if now - since >= _BLOCKED_AFTER_S]
        if not blocked:
            return
        places = {copy: TopicPartition(copy.key.topic, copy.key.partition) for copy in blocked}
        found = await open_transactions(self._source, set(places.values()))
        for copy, place in places.items():
            if not copy.fetchable:  # It stopped during the request; its status has the reason.
                continue
            match found[place]:
                case OpenTransaction() as one:
                    copy.block(one, explain(one))
                case str(why):
                    copy.block(None, f"a transaction at the source holds its readers back; {why}")


def _waits_at_stable_offset(copy: PartitionCopy) -> bool:
    """Returns whether the partition has read all that an open transaction at the source lets it read."""
    ends = copy.source
    return (
        copy.fetchable
        and copy.cursor.offset >= ends.stable_end >= 0
        and ends.stable_end < ends.high_watermark
    )
