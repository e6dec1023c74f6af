"""Starts partitions of a flow, by its `start` the first time, and by `restart_from` where it starts over.

`start` applies to the topics that existed when the flow or its selection began. The generation record keeps
that, in the transaction of the first positions. Therefore a pause, an edit or the end of a driver in between
never turns a topic that existed into one that appeared later, nor the other way round. `restart_from` copies
records again, once, because the topology declares it.
"""

from __future__ import annotations

import hashlib
import time
from collections.abc import Collection, Iterable, Mapping

import msgspec
from msgspec.structs import replace

from runtime.contract.records.advance import start_over
from runtime.contract.records.ledger import (
    Generation,
    GenerationKey,
    LedgerKey,
    LedgerValue,
    PartitionKey,
    Progress,
    ProgressKey,
)
from runtime.contract.spec import naming
from runtime.contract.spec.assignment import AssignedPartition
from runtime.contract.spec.jobspec import FlowSpec, Latest, Start
from runtime.driver.flows.takeover import FlowContext, restart_request
from runtime.kafka.cluster import KafkaCluster
from runtime.kafka.codes import ErrorCode
from runtime.kafka.errors import BrokerError, WireError
from runtime.kafka.protocol.offsets import TopicPartition
from runtime.ledger.ledger import UndecidedProgress
from runtime.ledger.start_positions import commit_first_positions, first_positions, names
from runtime.slot import log


def selection(spec: FlowSpec) -> str:
    """Returns a digest that is equal for specs that select the same topics.

    A topic that is new under an unchanged digest appeared later.
    """
    taken = msgspec.json.encode((spec.topics, spec.rename, spec.source), order="sorted")
    return hashlib.sha256(taken).hexdigest()


def initial_topics(
    spec: FlowSpec, generation: Generation | None, taken: Collection[str], known: Collection[str]
) -> frozenset[str]:
    """Returns the topics without progress that `start` applies to, by the ledger's state when the flow is
    first followed.
    """
    begun = generation is not None and generation.begun == selection(spec)
    return frozenset(generation.awaited if generation is not None and begun else taken).difference(known)


def group_by_start(
    spec: FlowSpec,
    initial: Collection[str],
    new: Iterable[AssignedPartition],
    copied: Collection[PartitionKey],
) -> list[tuple[Start | None, list[AssignedPartition]]]:
    """Returns the new partitions grouped by their start: the spec's start, the latest offset for heartbeats,
    or offset 0.

    The spec's start applies to topics in `initial` of which nothing is copied yet. Partitions of all other
    topics, and new partitions of topics that are copied, start at 0.
    """
    copied_topics = {key.topic for key in copied}
    heartbeats: list[AssignedPartition] = []
    at_start: list[AssignedPartition] = []
    later: list[AssignedPartition] = []
    for one in new:
        if one.topic == naming.HEARTBEATS:
            heartbeats.append(one)
        elif one.topic in initial and one.topic not in copied_topics:
            at_start.append(one)
        else:
            later.append(one)
    return [(Latest(), heartbeats), (spec.start, at_start), (None, later)]


async def commit_begun(
    spec: FlowSpec,
    shared: FlowContext,
    number: int,
    first: Mapping[PartitionKey, Progress],
    awaited: Collection[str],
) -> None:
    """Commits first positions, and with the first of a selection the note that the selection began, in one
    transaction (R1).

    The note names the topics that are still awaited. Raises WireError; the caller then retries.
    """
    mine = shared.ledger.generation(spec.name)
    if not first and mine is not None and mine.begun == selection(spec):
        return
    await shared.leadership.ensure()
    await shared.ledger.decided(spec.name)
    mine = shared.ledger.generation(spec.name)
    if mine is None or mine.number != number:
        raise WireError(f"generation {number} of {spec.name} is not the newest any more")
    note: dict[LedgerKey, LedgerValue | None] = {}
    if mine.begun != selection(spec):
        note[GenerationKey(spec.name)] = replace(mine, begun=selection(spec), awaited=sorted(awaited))
    await commit_first_positions(shared.writer, shared.ledger, first, note)
    await shared.ledger.decided(spec.name)


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
    if start is not None:
        restarted = sum(isinstance(key, ProgressKey) for key in records)
        log.info("flow_restarted", key=spec.name, flow=spec.name, partitions=restarted)
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
