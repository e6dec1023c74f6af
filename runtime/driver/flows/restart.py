"""This module carries out `restart_from`: a flow starts over once because its topology declares it, and
copies its records again.
"""

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
from runtime.driver.flows.takeover import FlowContext, restart_request
from runtime.kafka.cluster import KafkaCluster
from runtime.kafka.codes import ErrorCode
from runtime.kafka.errors import BrokerError
from runtime.kafka.protocol.offsets import TopicPartition
from runtime.ledger.ledger import UndecidedProgress
from runtime.ledger.start_positions import first_positions, names


async def restart(
    spec: FlowSpec,
    shared: FlowContext,
    source: KafkaCluster,
    partitions: Iterable[AssignedPartition],
    *,
    ledger_lost: bool,
) -> bool:
    """Starts a flow over before any partition is assigned under this generation, and returns whether it did
    so now.

    New positions, a new map behind what the destination holds, and the note that it was done are one
    transaction: a crash leaves all or nothing (R1). The note is removed together with `restart_from`, so that
    the same value may be declared again later.
    """
    generation = shared.ledger.generation(spec.name)
    if generation is None or generation.restarted == restart_request(spec):
        return False
    start = spec.restart_from
    records: dict[LedgerKey, LedgerValue | None] = {
        GenerationKey(spec.name): replace(generation, restarted=restart_request(spec))
    }
    if start is not None:
        partitions_to_restart = _named_partitions(start, partitions, ledger_lost=ledger_lost)
        fresh = await first_positions(
            source, shared.destination, partitions_to_restart, start, generation.number
        )
        now_ms = int(time.time() * 1000)
        records |= {
            ProgressKey(key): _progress_after_restart(shared, key, first, now_ms)
            for key, first in fresh.items()
        }
    await shared.leadership.ensure()
    await shared.writer.commit(records)
    await shared.ledger.decided(spec.name)
    return start is not None


def _named_partitions(
    start: Start, partitions: Iterable[AssignedPartition], *, ledger_lost: bool
) -> list[AssignedPartition]:
    """Returns the partitions that `restart_from` names; others keep their position, but without a ledger
    no position exists.
    """
    data = [one for one in partitions if one.topic != naming.HEARTBEATS]
    return [one for one in data if ledger_lost or names(start, TopicPartition(one.topic, one.partition))]


def _progress_after_restart(shared: FlowContext, key: PartitionKey, first: Progress, now_ms: int) -> Progress:
    """Returns the progress with which a partition starts over."""
    before = shared.ledger.progress(key)
    match before:
        case None:
            return first
        case UndecidedProgress():
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
