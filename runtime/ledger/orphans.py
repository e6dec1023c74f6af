"""A flow that has ended lets go of what its source still holds: "orphaned from X to Y, position Y"."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType

from msgspec.structs import replace

from runtime.contract.records.ledger import (
    Generation,
    GenerationKey,
    LedgerKey,
    LedgerValue,
    Orphaned,
    OrphanedKey,
    PartitionKey,
    Progress,
)
from runtime.contract.records.orphans import orphan
from runtime.contract.spec.assignment import AssignedPartition
from runtime.contract.spec.route import is_reserved
from runtime.kafka.cluster import Cluster
from runtime.kafka.errors import TimedOut
from runtime.kafka.protocol.offsets import LATEST, TopicPartition
from runtime.kafka.queries.partitions import offsets_of
from runtime.ledger.ledger import Ledger
from runtime.ledger.ledger_writer import LedgerWriter, fence
from runtime.ledger.start_positions import first_positions

_WITHIN_S = 60.0
NO_MIRRORS: Mapping[PartitionKey, str] = MappingProxyType({})


class NotEnded(Exception):
    """The flow may still copy, or its end is not done: nothing of it is an orphan yet."""


@dataclass(frozen=True, slots=True)
class Marks:
    """What was committed, by the first source offset of each range; `generation` is the flow's own now."""

    generation: int
    orphaned: Mapping[OrphanedKey, Orphaned]


def orphans_transactional_id(flow: str) -> str:
    return f"repl.orphans.{flow}"


async def leave_orphans(
    flow: str,
    source: Cluster,
    destination: Cluster,
    why: str,
    *,
    mirrors: Mapping[PartitionKey, str] = NO_MIRRORS,
    within_s: float = _WITHIN_S,
) -> Marks:
    """For every partition that the flow copied: what the source holds beyond its position is orphaned, and
    its position lies behind, in one transaction. Done again, it marks what came since. `mirrors` are
    partitions that the flow never came to, with their topics at the destination: all of them is orphaned.

    The same order as when a driver takes a flow over (fencing 3): a generation record with this writer's id,
    every id before it fenced, and only then progress is read; whoever takes the flow over meanwhile fences
    this writer. An open transaction of the source is orphaned with the rest: whatever becomes of it, it is
    older than what the other side wrote. Raises NotEnded, WireError, UnreadableRecord.
    """
    ledger = await Ledger.open(destination)
    writer = await LedgerWriter.open(destination, orphans_transactional_id(flow))
    mine = await _take(flow, ledger, writer, destination, within_s)
    own = {key: one for key, one in ledger.all_progress(flow).items() if not is_reserved(key.topic)}
    new = [AssignedPartition(*key, destination_topic=mirrors[key]) for key in mirrors if key not in own]
    own |= await first_positions(source, destination, new, None, mine.number)
    ends = await _ends(source, own, within_s)
    marks: dict[LedgerKey, LedgerValue | None] = {}
    now_ms = int(time.time() * 1000)
    for key, end in ends.items():
        marks |= orphan(key, own[key], end, why, generation=mine.number, now_ms=now_ms)
    await writer.commit({**marks, GenerationKey(flow): mine})
    return Marks(
        mine.number,
        {
            key: one
            for key, one in marks.items()
            if isinstance(key, OrphanedKey) and isinstance(one, Orphaned)
        },
    )


async def _take(
    flow: str, ledger: Ledger, writer: LedgerWriter, destination: Cluster, within_s: float
) -> Generation:
    """When this returns nobody else writes the flow's progress, and `ledger` has all of it."""
    own = orphans_transactional_id(flow)
    await ledger.decided(flow, within_s)
    before = _ended(flow, ledger.generation(flow))
    older = [one for one in before.transactional_ids if one != own]
    taken = replace(
        before,
        number=before.number + 1,
        transactional_ids=[own, *older],
        written_at=int(time.time() * 1000),
    )
    await writer.commit({GenerationKey(flow): taken})
    await _fence(destination, older, within_s)
    await ledger.decided(flow, within_s)
    now = ledger.generation(flow)
    if now != taken:
        raise NotEnded(f"{flow} was taken over by {now.job if now is not None else 'nobody'} meanwhile")
    return replace(taken, transactional_ids=[own])


def _ended(flow: str, generation: Generation | None) -> Generation:
    if generation is None:
        raise NotEnded(f"{flow} never ran")
    if not generation.ended:
        raise NotEnded(f"{flow} is {generation.state}" + (f": {generation.note}" if generation.note else ""))
    return generation


async def _fence(destination: Cluster, ids: Sequence[str], within_s: float) -> None:
    """Until none of them could still write."""
    stuck: Sequence[str] = ids
    try:
        async with asyncio.timeout(within_s):
            while stuck:
                stuck = await fence(destination, stuck)
    except TimeoutError:
        why = "it still waits for a partition that can't take its marker"
        raise TimedOut(stuck[0], why, sent=True) from None


async def _ends(
    source: Cluster, progress: Mapping[PartitionKey, Progress], within_s: float
) -> dict[PartitionKey, int]:
    """Of topics that are still those that were copied."""
    topics = await source.topics({key.topic for key in progress}, fresh=True)
    same = {
        TopicPartition(key.topic, key.partition): key
        for key, one in progress.items()
        if not topics[key.topic].error and topics[key.topic].id == one.source_topic_id
    }
    ends = await offsets_of(source, dict.fromkeys(same, LATEST), within=within_s)
    return {same[at]: end for at, end in ends.items()}
