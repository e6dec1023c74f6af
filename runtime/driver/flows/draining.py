"""Topics of a flow that are promoted on their own: until nothing of them is left at the source they are
copied like all others, then nobody copies them any more.
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Iterable
from dataclasses import dataclass, field

from runtime.contract.records.ledger import PartitionKey
from runtime.contract.spec import naming
from runtime.contract.spec.jobspec import FlowSpec
from runtime.contract.spec.selection import Names
from runtime.driver.flows.takeover import Shared
from runtime.kafka.cluster import Cluster
from runtime.kafka.protocol.fetch import Isolation
from runtime.kafka.protocol.offsets import LATEST, TopicPartition
from runtime.kafka.queries.partitions import offsets_of


@dataclass(slots=True)
class Draining:
    """`topics` are still copied, and their groups synced. `turn`: one at a time moves the flow's groups."""

    topics: frozenset[str] = frozenset()
    turn: asyncio.Lock = field(default_factory=asyncio.Lock)


def begun(spec: FlowSpec, shared: Shared, patterns: Collection[str], closed: Iterable[str]) -> frozenset[str]:
    """The topics behind these patterns that the flow ever copied. One that it never came to stays so: nobody
    begins to copy what is promoted. `closed` patterns have theirs already.
    """
    wanted, done = Names(patterns), Names(closed)
    known = {key.topic for key in shared.ledger.all_progress(spec.name)}
    return frozenset(topic for topic in known if wanted.match(topic) and not done.match(topic))


async def left(spec: FlowSpec, shared: Shared, source: Cluster, keys: Collection[PartitionKey]) -> int:
    """How many records are not copied yet, up to the last stable offsets; the heartbeats never end. Raises
    WireError.
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
