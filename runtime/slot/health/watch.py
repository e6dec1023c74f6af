"""Now and then, what no answer of the copy loop shows: topics recreated while idle, transactions that
hang.
"""

from __future__ import annotations

import asyncio
import time
from typing import Protocol

from runtime.contract.records.ledger import PartitionKey
from runtime.contract.records.status import OpenTransaction
from runtime.kafka.cluster import Cluster
from runtime.kafka.codes import ErrorCode
from runtime.kafka.errors import WireError
from runtime.kafka.protocol.offsets import TopicPartition
from runtime.slot.health.open_transactions import explain, open_transactions
from runtime.slot.partition import PartitionCopy

EVERY_S = 5.0
_BLOCKED_AFTER_S = 10.0


class Watched(Protocol):
    copies: dict[PartitionKey, PartitionCopy]

    def look_at(self, topics: set[str]) -> None:
        """The topics' ids are not the ledger's any more, at one side."""


async def watch(flow: Watched, source: Cluster, destination: Cluster) -> None:
    """Until cancelled. A cluster that does not answer is the copy loop's to notice."""
    waiting: dict[PartitionCopy, float] = {}
    while True:
        await asyncio.sleep(EVERY_S)
        try:
            await _compare_ids(flow, source, destination)
            await _find_blocked(flow, source, waiting)
        except WireError:
            continue


async def _compare_ids(flow: Watched, source: Cluster, destination: Cluster) -> None:
    copies = [copy for copy in flow.copies.values() if copy.fetchable]
    there = await source.topics({copy.key.topic for copy in copies}, fresh=True)
    here = await destination.topics({copy.at.topic for copy in copies}, fresh=True)
    changed: set[str] = set()
    for copy in copies:
        topic, mirror = there.get(copy.key.topic), here.get(copy.at.topic)
        if topic is not None and not topic.error and topic.id != copy.progress.source_topic_id:
            changed.add(topic.name)
        if mirror is not None and (
            mirror.error is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            or (not mirror.error and mirror.id != copy.progress.destination_topic_id)
        ):
            changed.add(mirror.name)
    if changed:
        flow.look_at(changed)


async def _find_blocked(flow: Watched, source: Cluster, waiting: dict[PartitionCopy, float]) -> None:
    """A partition that has records beyond its last stable offset for long waits for a transaction: name
    it.
    """
    now = time.monotonic()
    blocked: list[PartitionCopy] = []
    for copy in flow.copies.values():
        there = copy.source
        behind = there.stable_end < there.high_watermark and copy.cursor.offset >= there.stable_end >= 0
        if not behind or not copy.fetchable:
            waiting.pop(copy, None)
        elif now - waiting.setdefault(copy, now) >= _BLOCKED_AFTER_S:
            blocked.append(copy)
    if not blocked:
        return
    places = {copy: TopicPartition(copy.key.topic, copy.key.partition) for copy in blocked}
    found = await open_transactions(source, set(places.values()))
    for copy, place in places.items():
        if not copy.fetchable:  # it stopped meanwhile, and says why
            continue
        match found[place]:
            case OpenTransaction() as one:
                copy.block(one, explain(one))
            case str(why):
                copy.block(None, f"a transaction at the source holds its readers back; {why}")
