"""Checks periodically for topics recreated while idle and for hanging transactions."""

from __future__ import annotations

import asyncio
import time
from typing import Protocol

from runtime.contract.records.ledger import PartitionKey
from runtime.contract.records.status import OpenTransaction
from runtime.contract.topic_ids import is_other_topic
from runtime.kafka.cluster import KafkaCluster
from runtime.kafka.codes import ErrorCode
from runtime.kafka.errors import WireError
from runtime.kafka.protocol.offsets import TopicPartition
from runtime.slot.health.open_transactions import explain, open_transactions
from runtime.slot.partition import PartitionCopy

EVERY_S = 5.0
_BLOCKED_AFTER_S = 10.0


class WatchedFlow(Protocol):
    """The flow whose partitions are checked."""

    copies: dict[PartitionKey, PartitionCopy]

    def look_at(self, topics: set[str]) -> None:
        """Inspects the partitions of topics whose ids differ from the ledger's at one side."""


async def watch(flow: WatchedFlow, source: KafkaCluster, destination: KafkaCluster) -> None:
    """Checks a flow every 5 s until it is cancelled.

    An error of a cluster is ignored here, because the copy loop reports it.
    """
    waiting: dict[PartitionCopy, float] = {}
    while True:
        await asyncio.sleep(EVERY_S)
        try:
            await _compare_ids(flow, source, destination)
            await _find_blocked(flow, source, waiting)
        except WireError:
            continue


async def _compare_ids(flow: WatchedFlow, source: KafkaCluster, destination: KafkaCluster) -> None:
    """Compares the topic ids of both sides with the ledger's."""
    copies = [copy for copy in flow.copies.values() if copy.fetchable]
    source_topics = await source.topics({copy.key.topic for copy in copies}, fresh=True)
    destination_topics = await destination.topics({copy.at.topic for copy in copies}, fresh=True)
    changed: set[str] = set()
    for copy in copies:
        topic, mirror = source_topics.get(copy.key.topic), destination_topics.get(copy.at.topic)
        known = copy.progress
        if topic is not None and not topic.error and is_other_topic(known.source_topic_id, topic.id):
            changed.add(topic.name)
        if mirror is not None and (
            mirror.error is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            or (not mirror.error and is_other_topic(known.destination_topic_id, mirror.id))
        ):
            changed.add(mirror.name)
    if changed:
        flow.look_at(changed)


async def _find_blocked(flow: WatchedFlow, source: KafkaCluster, waiting: dict[PartitionCopy, float]) -> None:
    """Names the transaction that blocks a partition which waits at its last stable offset for 10 s."""
    now = time.monotonic()
    blocked: list[PartitionCopy] = []
    for copy in flow.copies.values():
        source_ends = copy.source
        behind = (
            source_ends.stable_end < source_ends.high_watermark
            and copy.cursor.offset >= source_ends.stable_end >= 0
        )
        if not behind or not copy.fetchable:
            waiting.pop(copy, None)
        elif now - waiting.setdefault(copy, now) >= _BLOCKED_AFTER_S:
            blocked.append(copy)
    if not blocked:
        return
    places = {copy: TopicPartition(copy.key.topic, copy.key.partition) for copy in blocked}
    found = await open_transactions(source, set(places.values()))
    for copy, place in places.items():
        if not copy.fetchable:  # It stopped during the request; its status has the reason.
            continue
        match found[place]:
            case OpenTransaction() as one:
                copy.block(one, explain(one))
            case str(why):
                copy.block(None, f"a transaction at the source holds its readers back; {why}")
