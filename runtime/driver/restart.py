"""`restart_from`: a flow starts over, once, because its topology says so; what was copied comes again."""

from __future__ import annotations

import time
from collections.abc import Iterable

import msgspec
from msgspec.structs import replace

from runtime.contract import naming
from runtime.contract.advance import start_over
from runtime.contract.jobspec import FlowSpec
from runtime.contract.ledger import (
    GenerationKey,
    LedgerKey,
    LedgerValue,
    PartitionKey,
    Progress,
    ProgressKey,
)
from runtime.copy.assignment import AssignedPartition
from runtime.copy.first import first_positions
from runtime.copy.ledger import Undecided
from runtime.copy.wire.cluster import Cluster
from runtime.copy.wire.codes import ErrorCode
from runtime.copy.wire.errors import BrokerError
from runtime.driver.takeover import Shared


def wish(spec: FlowSpec) -> str:
    """What the generation remembers once it was carried out, so that no later life does it again."""
    return msgspec.json.encode(spec.restart_from).decode() if spec.restart_from is not None else ""


async def restart(
    spec: FlowSpec, shared: Shared, source: Cluster, partitions: Iterable[AssignedPartition]
) -> None:
    """Before any of it is assigned under this generation. New positions, a new map behind what the
    destination holds, and the note that it was done are one transaction: a crash leaves all or nothing (R1).
    """
    generation = shared.ledger.generation(spec.name)
    if spec.restart_from is None or generation is None or generation.restarted == wish(spec):
        return
    asked = [one for one in partitions if one.topic != naming.HEARTBEATS]
    fresh = await first_positions(source, shared.destination, asked, spec.restart_from, generation.number)
    now_ms = int(time.time() * 1000)
    records: dict[LedgerKey, LedgerValue | None] = {
        ProgressKey(key): _again(shared, key, first, now_ms) for key, first in fresh.items()
    }
    records[GenerationKey(spec.name)] = replace(generation, restarted=wish(spec))
    await shared.pulse.still()
    await shared.writer.commit(records)
    await shared.ledger.decided(spec.name)


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
