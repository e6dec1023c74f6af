"""Marks the records that a source still holds as orphaned, for a flow that has ended.

The ledger then holds "orphaned from X to Y, position Y".
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType

from msgspec.structs import replace

from runtime.contract.records.control import AssignedPartition
from runtime.contract.records.ledger import (
    Generation,
    GenerationKey,
    LedgerKey,
    LedgerValue,
    Orphaned,
    OrphanedKey,
    PartitionKey,
    Progress,
    orphan,
)
from runtime.contract.spec.naming import is_other_topic
from runtime.contract.spec.route import is_reserved
from runtime.kafka.cluster import KafkaCluster
from runtime.kafka.errors import TimedOut
from runtime.kafka.protocol.offsets import LATEST, TopicPartition
from runtime.kafka.queries import offsets_of
from runtime.ledger.ledger import Ledger
from runtime.ledger.start_positions import first_positions
from runtime.ledger.transaction_writer import TransactionWriter, fence

_WITHIN_S = 60.0
NO_MIRRORS: Mapping[PartitionKey, str] = MappingProxyType({})


class FlowNotEnded(Exception):
    """The flow may still copy, or has not ended completely, so no record of it is orphaned yet."""


@dataclass(frozen=True, slots=True)
class OrphanMarks:
    """The committed orphan ranges, by their first source offset, and the flow's generation now."""

    generation: int
    orphaned: Mapping[OrphanedKey, Orphaned]


def orphans_transactional_id(flow: str) -> str:
    """Returns the transactional id that marks orphans of a flow."""
    return f"repl.orphans.{flow}"


async def leave_orphans(
    flow: str,
    source: KafkaCluster,
    destination: KafkaCluster,
    why: str,
    *,
    mirrors: Mapping[PartitionKey, str] = NO_MIRRORS,
    within_s: float = _WITHIN_S,
) -> OrphanMarks:
    """Marks the source's records beyond the flow's positions as orphaned, and moves the positions there.

    All partitions are written in one transaction. A repeated call marks the records that came since.
    `mirrors` are partitions that the flow has never copied, with their topics at the destination: all their
    records are orphaned.

    The order is that of a driver that takes a flow over (fencing 3). A generation record with this writer's
    id is written, every earlier id is fenced, and only then progress is read. A process that takes the flow
    over meanwhile fences this writer. An open transaction of the source is orphaned with the rest: whether
    it commits or not, it is older than the records that the other side wrote. Raises FlowNotEnded, WireError,
    UnreadableRecord.
    """
    ledger = await Ledger.open(destination)
    writer = await TransactionWriter.open(destination, orphans_transactional_id(flow))
    mine = await _take_over(flow, ledger, writer, destination, within_s)
    own = {key: one for key, one in ledger.all_progress(flow).items() if not is_reserved(key.topic)}
    new = [AssignedPartition(*key, destination_topic=mirrors[key]) for key in mirrors if key not in own]
    own |= await first_positions(source, destination, new, None, mine.number)
    ends = await _ends(source, own, within_s)
    marks: dict[LedgerKey, LedgerValue | None] = {}
    now_ms = int(time.time() * 1000)
    for key, end in ends.items():
        marks |= orphan(key, own[key], end, why, generation=mine.number, now_ms=now_ms)
    await writer.commit({**marks, GenerationKey(flow): mine})
    return OrphanMarks(
        mine.number,
        {
            key: one
            for key, one in marks.items()
            if isinstance(key, OrphanedKey) and isinstance(one, Orphaned)
        },
    )


async def _take_over(
    flow: str, ledger: Ledger, writer: TransactionWriter, destination: KafkaCluster, within_s: float
) -> Generation:
    """Takes the flow over: no other process writes its progress any more, and `ledger` has all of it.

    Raises FlowNotEnded, WireError.
    """
    own = orphans_transactional_id(flow)
    await ledger.decided(flow, within_s)
    before = _require_ended(flow, ledger.generation(flow))
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
        raise FlowNotEnded(f"{flow} was taken over by {now.job if now is not None else 'nobody'} meanwhile")
    return replace(taken, transactional_ids=[own])


def _require_ended(flow: str, generation: Generation | None) -> Generation:
    """Returns the flow's generation; raises FlowNotEnded where it has not ended."""
    if generation is None:
        raise FlowNotEnded(f"{flow} never ran")
    if not generation.ended:
        raise FlowNotEnded(
            f"{flow} is {generation.state}" + (f": {generation.note}" if generation.note else "")
        )
    return generation


async def _fence(destination: KafkaCluster, ids: Sequence[str], within_s: float) -> None:
    """Fences ids until none of them can write any more. Raises TimedOut."""
    stuck: Sequence[str] = ids
    try:
        async with asyncio.timeout(within_s):
            while stuck:
                stuck = await fence(destination, stuck)
    except TimeoutError:
        why = "it still waits for a partition that can't take its marker"
        raise TimedOut(stuck[0], why, sent=True) from None


async def _ends(
    source: KafkaCluster, progress: Mapping[PartitionKey, Progress], within_s: float
) -> dict[PartitionKey, int]:
    """Returns the source's log ends, for topics that are still the ones that were copied."""
    topics = await source.topics({key.topic for key in progress}, fresh=True)
    same = {
        TopicPartition(key.topic, key.partition): key
        for key, one in progress.items()
        if not topics[key.topic].error and not is_other_topic(one.source_topic_id, topics[key.topic].id)
    }
    ends = await offsets_of(source, dict.fromkeys(same, LATEST), within=within_s)
    return {same[at]: end for at, end in ends.items()}
