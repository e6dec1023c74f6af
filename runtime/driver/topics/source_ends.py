"""This module reports the end offsets of a paused flow's source.

No slot reads the source then, and a failover asks how much would be lost.
"""

from __future__ import annotations

import asyncio
import time

from runtime.contract.client.values import ClientSettingsError
from runtime.contract.records import job_status
from runtime.contract.records.job_status import EndsKey, SourceEnds
from runtime.contract.spec import naming
from runtime.driver.flows.flow import DriverFlow
from runtime.driver.slots.channel import post
from runtime.kafka.errors import WireError
from runtime.kafka.protocol.fetch import Isolation
from runtime.kafka.protocol.offsets import LATEST, ListedOffset, TopicPartition
from runtime.kafka.queries.partitions import list_offsets
from runtime.ledger.records import InternalRecord

_EVERY_S = 5.0
_PURPOSE = "look"


async def publish_source_ends(flow: DriverFlow, notes: dict[str, str]) -> None:
    """Reports the end offsets every five seconds.

    A failure is noted in `notes` and retried. Raises DriverFenced.
    """
    while True:
        try:
            await _report(flow)
            notes.pop("source", None)
        except (WireError, ClientSettingsError) as error:
            notes["source"] = str(error)
        await asyncio.sleep(_EVERY_S)


async def _report(flow: DriverFlow) -> None:
    """Reports the last stable offsets of the flow's topics, which slots report as well.

    Raises WireError, DriverFenced.
    """
    shared = flow.shared
    source = await shared.clusters.cluster(flow.spec.source)
    topics_at_source = await shared.clusters.listing(flow.spec.source)
    asked = {
        TopicPartition(topic, partition): LATEST
        for topic in flow.selected(topics_at_source)
        for partition in topics_at_source[topic].partitions
    }
    if not asked:
        return
    at_ms = int(time.time() * 1000)
    listed_offsets = await list_offsets(source, asked, Isolation.READ_COMMITTED)
    topics: dict[str, dict[int, int]] = {}
    for at, answer in listed_offsets.items():
        if isinstance(answer, ListedOffset):
            topics.setdefault(at.topic, {})[at.partition] = answer.offset
    key = job_status.encode_key(EndsKey(shared.job, flow.name))
    value = job_status.encode(SourceEnds(at_ms, topics))
    await shared.leadership.ensure()
    await post(shared.destination, naming.STATUS, [InternalRecord(key, value)], _PURPOSE)
