"""This module supports topics of a flow that are promoted on their own.

They are copied like all others until the source holds no uncopied record of them, and are not copied
afterwards.
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Iterable
from dataclasses import dataclass, field

from runtime.contract.records.ledger import PartitionKey
from runtime.contract.spec import naming
from runtime.contract.spec.jobspec import FlowSpec
from runtime.contract.spec.selection import NamePatterns
from runtime.driver.flows.takeover import FlowContext
from runtime.kafka.cluster import KafkaCluster
from runtime.kafka.protocol.fetch import Isolation
from runtime.kafka.protocol.offsets import LATEST, TopicPartition
from runtime.kafka.queries.partitions import offsets_of


@dataclass(slots=True)
class DrainingTopics:
    """A DrainingTopics names the topics of a flow that are promoted on their own and still copied.

    The consumer groups of `topics` are still synced. `turn` is a lock: one task at a time commits the flow's
    groups.
    """

    topics: frozenset[str] = frozenset()
    group_sync_lock: asyncio.Lock = field(default_factory=asyncio.Lock)


def topics_to_drain(
    spec: FlowSpec, shared: FlowContext, patterns: Collection[str], closed: Iterable[str]
) -> frozenset[str]:
    """Returns the topics that match these patterns and that the flow has copied before.

    A topic that was never copied is not started, because its name is promoted. Topics that match `closed`
    patterns are promoted already.
    """
    wanted, done = NamePatterns(patterns), NamePatterns(closed)
    known = {key.topic for key in shared.ledger.all_progress(spec.name)}
    return frozenset(topic for topic in known if wanted.match(topic) and not done.match(topic))


async def count_uncopied(
    spec: FlowSpec, shared: FlowContext, source: KafkaCluster, keys: Collection[PartitionKey]
) -> int:
    """Returns how many records are not copied yet, up to the last stable offsets; heartbeats are not counted.

    A partition without progress counts as one record. Raises WireError.
    """
    await shared.ledger.refresh(spec.name)
    keys = [key for key in keys if key.topic != naming.HEARTBEATS]
    asked = dict.fromkeys((TopicPartition(key.topic, key.partition) for key in keys), LATEST)
    ends = await offsets_of(source, asked, Isolation.READ_COMMITTED)
    progress = shared.ledger.all_progress(spec.name)
    behind = 0
    for key in keys:
        end = ends[TopicPartition(key.topic, key.partition)]
        behind += max(end - progress[key].position, 0) if key in progress else 1
    return behind
