"""Where the source of a paused flow ends: no slot reads it, and a failover asks how much would be lost."""

from __future__ import annotations

import asyncio
import time

from runtime.contract.client.values import ClientSettingsError
from runtime.contract.records import job_status
from runtime.contract.records.job_status import EndsKey, SourceEnds
from runtime.contract.spec import naming
from runtime.driver.flows.flow import FlowWork
from runtime.driver.slots.channel import post
from runtime.kafka.errors import WireError
from runtime.kafka.protocol.fetch import Isolation
from runtime.kafka.protocol.offsets import LATEST, ListedOffset, TopicPartition
from runtime.kafka.queries.partitions import list_offsets
from runtime.ledger.records import Record

_EVERY_S = 5.0
_PURPOSE = "look"


async def keep_told(flow: FlowWork, notes: dict[str, str]) -> None:
    """What fails is said in `notes`, and tried again. Raises DriverFenced."""
    while True:
        try:
            await _tell(flow)
            notes.pop("source", None)
        except (WireError, ClientSettingsError) as error:
            notes["source"] = str(error)
        await asyncio.sleep(_EVERY_S)


async def _tell(flow: FlowWork) -> None:
    """Up to the last stable offsets, as slots tell them."""
    shared = flow.shared
    source = await shared.clusters.cluster(flow.spec.source)
    listed = await shared.clusters.listing(flow.spec.source)
    asked = {
        TopicPartition(topic, partition): LATEST
        for topic in flow.taken(listed)
        for partition in listed[topic].partitions
    }
    if not asked:
        return
    at_ms = int(time.time() * 1000)
    found = await list_offsets(source, asked, Isolation.READ_COMMITTED)
    topics: dict[str, dict[int, int]] = {}
    for at, answer in found.items():
        if isinstance(answer, ListedOffset):
            topics.setdefault(at.topic, {})[at.partition] = answer.offset
    key = job_status.encode_key(EndsKey(shared.job, flow.name))
    said = job_status.encode(SourceEnds(at_ms, topics))
    await shared.pulse.still()
    await post(shared.destination, naming.STATUS, [Record(key, said)], _PURPOSE)
