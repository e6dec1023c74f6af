"""The records of one flow at the destination: ledger, offset map and producer directory."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Mapping, Sequence

from runtime.batch import stamp
from runtime.contract.records.ledger import (
    LedgerKey,
    LedgerValue,
    PartitionKey,
    Progress,
    ProgressKey,
    SegmentKey,
    encode_key,
    encode_value,
    partition_of,
)
from runtime.contract.records.provenance import FlowProducer
from runtime.contract.spec import naming
from runtime.kafka.cluster import KafkaCluster
from runtime.kafka.errors import WireError
from runtime.kafka.protocol.offsets import TopicPartition
from runtime.kafka.protocol.transactions import ProducerIdentity
from runtime.kafka.transactions import add_partitions
from runtime.ledger.ledger import Ledger, UndecidedProgress
from runtime.ledger.producer_directory import register
from runtime.ledger.records import InternalRecord, batches_of
from runtime.ledger.transaction_writer import send
from runtime.slot.errors import ErrorPhase
from runtime.slot.partition import PartitionCopy, now_ms
from runtime.slot.write.quarantine import write_quarantined
from runtime.slot.write.sender import ProduceSender
from runtime.slot.write.transaction import CommitEntry, Transaction, TransactionFailure

_DECIDED_PAUSE_S = 0.02


class Superseded(Exception):
    """The ledger holds another generation of the flow, so this slot must not write for it (R3)."""


class FlowLedger:
    """A flow's ledger reads progress for the flow, and writes it within the transactions of the flow's lanes.

    `partition` holds the flow's progress. `generation` is the one under which this slot may write (R3).
    """

    def __init__(
        self,
        flow: str,
        generation: int,
        producer: FlowProducer,
        ledger: Ledger,
        cluster: KafkaCluster,
        map_partitions: int,
    ) -> None:
        self.generation = generation
        self.partition = TopicPartition(naming.LEDGER, ledger.partition(flow))
        self._offset_map = TopicPartition(naming.OFFSET_MAP, partition_of(flow, map_partitions))
        self.flow = flow
        self._producer = producer
        self._ledger = ledger
        self._cluster = cluster

    @property
    def topics(self) -> set[str]:
        """The internal topics that transactions of the flow write to."""
        return {self.partition.topic, self._offset_map.topic}

    async def await_decided(self) -> None:
        """Waits until no open transaction has written the generation, then checks it.

        Raises Superseded, WireError, and READ_FAILURES for a generation that can't be read.
        """
        await self._ledger.decided(self.flow)
        self._check_generation()

    async def refresh(self) -> None:
        """Reads the ledger up to its end. Raises Superseded, WireError, READ_FAILURES."""
        await self._ledger.refresh(self.flow)
        self._check_generation()

    def progress(self, key: PartitionKey) -> Progress | UndecidedProgress | None:
        """Returns the progress that was read last, or that an open transaction has written some."""
        return self._ledger.progress(key)

    async def decided_progress(self, key: PartitionKey) -> Progress | None:
        """Returns the committed progress, once no open transaction has written to it."""
        while True:
            with contextlib.suppress(WireError):
                await self._ledger.refresh(self.flow)
                found = self._ledger.progress(key)
                if not isinstance(found, UndecidedProgress):
                    return found
            await asyncio.sleep(_DECIDED_PAUSE_S)

    async def differences(self, expected: Mapping[PartitionCopy, Progress]) -> list[PartitionCopy]:
        """Returns the partitions whose progress in the ledger is not the expected one.

        Progress that an open transaction has written is waited for: the slot's last one, in another lane, may
        be open. Raises Superseded, WireError, READ_FAILURES.
        """
        await self.refresh()
        found = {copy: self.progress(copy.key) for copy in expected}
        for copy, progress in found.items():
            if isinstance(progress, UndecidedProgress):
                found[copy] = await self.decided_progress(copy.key)
        return [copy for copy, progress in expected.items() if found[copy] != progress]

    async def register(self, identity: ProducerIdentity) -> None:
        """Writes the producer id to the producer directory, before its first data (batch provenance)."""
        await register(self._cluster, identity.producer_id, self._producer, now_ms())

    async def write(self, tx: Transaction, sender: ProduceSender, transactional_id: str) -> None:
        """Writes the transaction's progress to the ledger, and its sealed segments to the offset map.

        The bad records that it passes are written before. Raises TransactionFailure.
        """
        await write_quarantined(self._cluster, tx, sender, transactional_id)
        records = self._records(tx.entries)
        missing = [at for at in records if at != self.partition or not tx.joined]
        try:
            if missing:
                await add_partitions(self._cluster, transactional_id, sender.identity, missing)
                tx.mark_joined()
            for at, values in records.items():
                for batch in batches_of(values):
                    producer, epoch = sender.identity.producer_id, sender.identity.epoch
                    stamped = stamp(batch, producer, epoch, sender.sequence(at, batch.records))
                    await send(self._cluster, at, stamped, transactional_id, f"produce {transactional_id}")
        except WireError as error:
            raise TransactionFailure(ErrorPhase.LEDGER, error) from error

    def _records(self, entries: Sequence[CommitEntry]) -> dict[TopicPartition, list[InternalRecord]]:
        """Returns the records of the entries, by the partition that they are written to."""
        found: dict[TopicPartition, list[InternalRecord]] = {self.partition: []}
        for entry in entries:
            key, progress, segments = entry.copy.key, entry.progress, entry.segments
            found[self.partition].append(_record(ProgressKey(key), progress))
            for number, segment in enumerate(segments, start=progress.segments - len(segments)):
                record = _record(SegmentKey(key, progress.incarnation, number), segment)
                found.setdefault(self._offset_map, []).append(record)
        return found

    def _check_generation(self) -> None:
        """Raises Superseded where the ledger's generation is not this slot's, or is not active."""
        found = self._ledger.generation(self.flow)
        if found is None or found.number != self.generation or found.state != "active":
            described = f"{found.number}, {found.state}" if found else "none"
            raise Superseded(
                f"the ledger's generation of {self.flow} is {described}; this slot's is {self.generation}"
            )


def _record(key: LedgerKey, value: LedgerValue) -> InternalRecord:
    return InternalRecord(encode_key(key), encode_value(value))
