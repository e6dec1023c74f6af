"""Identifies the writer of a replay: its transactional id, and the flow that its producer id stands for."""

from __future__ import annotations

from collections.abc import Callable

from runtime.contract.records.ledger import PartitionKey
from runtime.contract.records.producers import FlowProducer
from runtime.contract.spec.jobspec import TableRule
from runtime.kafka.cluster import KafkaCluster
from runtime.ledger.producer_directory import register
from runtime.ledger.transaction_writer import TransactionWriter
from runtime.slot.partition import now_ms


def replay_transactional_id(key: PartitionKey) -> str:
    """Returns the partition's transactional id: a new replay fences only earlier ones of its partition
    (R3).
    """
    return f"repl.replay.{key.flow}.{key.topic}.{key.partition}"


async def open_replay_writer(
    cluster: KafkaCluster, key: PartitionKey, producer: FlowProducer, failpoint: Callable[[str], None]
) -> TransactionWriter:
    """Opens a writer and aborts any open transaction of an earlier replay. Raises WireError.

    It registers the producer id before the id's first data: no flow in the opposite direction copies these
    records back (R5).
    """
    writer = await TransactionWriter.open(cluster, replay_transactional_id(key), failpoint=failpoint)
    await register(cluster, writer.producer_id, producer, now_ms())
    return writer


def replayer(flow: str, source: str, source_id: str, topic: str, mirror: str) -> FlowProducer:
    """Returns how flows in the opposite direction treat an id that replays `topic`.

    In the flow's own mirror its records count as copies of the flow; in any other topic they have no home.
    """
    return FlowProducer(flow, source, source_id, TableRule(names={topic: mirror}), only=mirror)
