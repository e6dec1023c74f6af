"""`restart_from`: a flow starts over, once, because its topology says so; what was copied comes again."""

from __future__ import annotations

import time
from collections.abc import Iterable

from msgspec.structs import replace

from runtime.contract.records.advance import start_over
from runtime.contract.records.ledger import (
    GenerationKey,
    LedgerKey,
    LedgerValue,
    PartitionKey,
    Progress,
    ProgressKey,
)
from runtime.contract.spec import naming
from runtime.contract.spec.assignment import AssignedPartition
from runtime.contract.spec.jobspec import FlowSpec, Start
from runtime.driver.flows.takeover import Shared, wish
from runtime.kafka.cluster import Cluster
from runtime.kafka.codes import ErrorCode
from runtime.kafka.errors import BrokerError
from runtime.kafka.protocol.offsets import TopicPartition
from runtime.ledger.ledger import Undecided
from runtime.ledger.start_positions import first_positions, names


async def restart(
    spec: FlowSpec,
    shared: Shared,
    source: Cluster,
    partitions: Iterable[AssignedPartition],
    *,
    ledger_lost: bool,
) -> bool:
    """Before any of it is assigned under this generation: whether it was done now. New positions, a new map
    behind what the destination holds, and the note that it was done are one transaction: a crash leaves all
    or nothing (R1). The note goes with the wish, so that the same wish may be written again later.
    """
    generation = shared.ledger.generation(spec.name)
    if generation is None or generation.restarted == wish(spec):
        return False
    start = spec.restart_from
    records: dict[LedgerKey, LedgerValue | None] = {
        GenerationKey(spec.name): replace(generation, restarted=wish(spec))
    }
    if start is not None:
        asked = _asked(start, partitions, ledger_lost=ledger_lost)
        fresh = await first_positions(source, shared.destination, asked, start, generation.number)
        now_ms = int(time.time() * 1000)
        records |= {ProgressKey(key): _again(shared, key, first, now_ms) for key, first in fresh.items()}
    await shared.pulse.still()
    await shared.writer.commit(records)
    await shared.ledger.decided(spec.name)
    return start is not None


def _asked(
    start: Start, partitions: Iterable[AssignedPartition], *, ledger_lost: bool
) -> list[AssignedPartition]:
    """What is not named stays where it is; without a ledger there is no such place."""
    data = [one for one in partitions if one.topic != naming.HEARTBEATS]
    return [one for one in data if ledger_lost or names(start, TopicPartition(one.topic, one.partition))]


def _again(shared: Shared, key: PartitionKey, first: Progress, now_ms: int) -> Progress:
    before = shared.ledger.progress(key)
    match before:
        case None:
            return first
        case Undecided():
            raise BrokerError(ErrorCode.CONCURRENT_TRANSACTIONS, f"where {key.topic}-{key.partition} stands")
        case Progress():
            return start_over(
                before,
                position=first.position,
                destination_end=first.destination_end,
                source_topic_id=first.source_topic_id,
                destination_topic_id=first.destination_topic_id,
                generation=first.generation,
                now_ms=now_ms,
            )
