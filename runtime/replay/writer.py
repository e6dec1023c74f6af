"""Writes replayed batches and their ledger records in one transaction, or not at all (R1)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Self

from runtime.batch import Batch
from runtime.contract.records.ledger import LedgerKey, LedgerValue, PartitionKey
from runtime.contract.records.producers import FlowProducer
from runtime.contract.spec.jobspec import TableRule
from runtime.kafka.cluster import KafkaCluster
from runtime.kafka.protocol.offsets import TopicPartition
from runtime.kafka.transactions import add_partitions, end_transaction
from runtime.ledger.producer_directory import register
from runtime.ledger.transaction_writer import LedgerWriter
from runtime.slot.failpoints import Passing, nowhere
from runtime.slot.partition import now_ms


def replay_transactional_id(key: PartitionKey) -> str:
    """Returns the partition's transactional id: a new replay fences only earlier ones of its partition
    (R3).
    """
    return f"repl.replay.{key.flow}.{key.topic}.{key.partition}"


class ReplayWriter(LedgerWriter):
    """Writes transactions of one replay: batches and ledger records together."""

    passing: Passing = staticmethod(nowhere)

    @classmethod
    async def begin(cls, cluster: KafkaCluster, key: PartitionKey, producer: FlowProducer) -> Self:
        """Opens a writer and aborts any open transaction of an earlier replay.

        It registers the producer id before the id's first data: no flow in the opposite direction copies
        these records back (R5).
        """
        writer = await cls.open(cluster, replay_transactional_id(key))
        await register(cluster, writer._identity.producer_id, producer, now_ms())
        return writer

    async def carry(
        self, at: TopicPartition, batches: Sequence[Batch], records: Mapping[LedgerKey, LedgerValue | None]
    ) -> None:
        """Commits batches and ledger records in one transaction.

        After a WireError another writer must begin, and read the ledger again: the ledger shows whether this
        transaction was committed (fencing 1 and 5).
        """
        async with self._writing:
            ledger = await self._placed(records)
            touched = [at, *ledger] if batches else list(ledger)
            await add_partitions(self._cluster, self._transactional_id, self._identity, touched)
            for batch in batches:
                await self._send_batch(at, batch)
            self.passing("before_ledger")
            await self._put(ledger)
            self.passing("after_ledger")
            await end_transaction(self._cluster, self._transactional_id, self._identity, commit=True)
            self.passing("after_end")


def replayer(flow: str, source: str, source_id: str, topic: str, mirror: str) -> FlowProducer:
    """Returns how flows in the opposite direction treat an id that replays `topic`.

    In the flow's own mirror its records count as copies of the flow; in any other topic they have no home.
    """
    return FlowProducer(flow, source, source_id, TableRule(names={topic: mirror}), only=mirror)
