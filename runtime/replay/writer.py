"""Writes what is copied on an operator's word: batches and the ledger's word of them together, or nothing
(R1).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Self

from runtime.batch import Batch
from runtime.contract.records.ledger import LedgerKey, LedgerValue, PartitionKey
from runtime.contract.records.producers import Producer
from runtime.contract.spec.jobspec import TableRule
from runtime.kafka.cluster import Cluster
from runtime.kafka.protocol.offsets import TopicPartition
from runtime.kafka.transactions import add_partitions, end_transaction
from runtime.ledger.ledger_writer import LedgerWriter
from runtime.ledger.producer_directory import register
from runtime.slot.failpoints import Passing, nowhere
from runtime.slot.partition import now_ms


def replay_transactional_id(key: PartitionKey) -> str:
    """One for each partition: whoever replays it fences who did before, and no one else (R3)."""
    return f"repl.replay.{key.flow}.{key.topic}.{key.partition}"


class ReplayWriter(LedgerWriter):
    passing: Passing = staticmethod(nowhere)

    @classmethod
    async def begin(cls, cluster: Cluster, key: PartitionKey, producer: Producer) -> Self:
        """Whatever an earlier replay had open is aborted. Whose the id is stands written before its first
        data: no flow takes home what came from there (R5).
        """
        writer = await cls.open(cluster, replay_transactional_id(key))
        await register(cluster, writer._identity.producer_id, producer, now_ms())
        return writer

    async def carry(
        self, at: TopicPartition, batches: Sequence[Batch], records: Mapping[LedgerKey, LedgerValue | None]
    ) -> None:
        """One transaction. After a WireError another writer must begin, and read the ledger again: it tells
        whether this was committed (fencing 1 and 5).
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


def replayer(flow: str, source: str, source_id: str, topic: str, mirror: str) -> Producer:
    """What an id that replays `topic` is to the ways back: in the flow's own mirror it brought what a slot
    would have brought, anywhere else its records are at no home.
    """
    return Producer(flow, source, source_id, TableRule(names={topic: mirror}), only=mirror)
