"""Copies the orphans of a partition to the destination exactly once, as a slot of its flow would.

Each partition has a producer id that is registered before its first data. The transform of a flow is
evaluated as a slot evaluates it, by a query whose collecting worker replays.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from msgspec import structs
from msgspec.structs import replace

from runtime.audit.on_spark import show
from runtime.audit.partition_logs import bounds_of, open_spec
from runtime.batch import Batch, RewriteSpec, walk
from runtime.batch.selection import quarantine_batches
from runtime.batch.spec import READ_UNPACKED
from runtime.contract.records.control import AssignedPartition
from runtime.contract.records.ledger import (
    LedgerKey,
    LedgerValue,
    OrphanedRange,
    Replayed,
    ReplayedKey,
)
from runtime.contract.records.provenance import ClusterTopic, FlowProducer
from runtime.contract.spec.jobspec import FlowSpec
from runtime.contract.spec.naming import TopicPartition, is_other_topic
from runtime.contract.spec.rename import Table
from runtime.kafka.cluster import KafkaCluster
from runtime.kafka.errors import BrokerError, ErrorCode, WireError
from runtime.kafka.fetch import fetch_loaded
from runtime.kafka.protocol.fetch import FetchedPartition, Isolation
from runtime.kafka.timing import now_ms
from runtime.ledger.ledger import Ledger, ProducerDirectory, register
from runtime.ledger.offset_maps import OffsetMaps
from runtime.ledger.positions import leave_orphans
from runtime.ledger.transaction_writer import TransactionWriter
from runtime.replay.repeated_copy import RepeatedCopy
from runtime.replay.request import CopyStopped, ReplayRequest
from runtime.replay.schemas import ReplayedSchemas
from runtime.schemas.copier import SchemaCopier
from runtime.schemas.id_map import SchemaIdMap
from runtime.slot.failpoints import failpoint
from runtime.slot.partition import Cursor
from runtime.slot.read.batch_filter import FilteredBatches, filter_batches, rewrite_spec, transformed

if TYPE_CHECKING:
    from runtime.sql.transformer import Transformer


async def orphan_uncopied(request: ReplayRequest) -> None:
    """Records the uncopied source offsets of the partitions as orphaned. Raises FlowNotEnded, AuditFailure.

    From then on the flow never sends them itself: only the replay does. Other partitions need not answer.
    """
    flow = request.flow
    async with (
        open_spec(request.source, flow.source) as source,
        open_spec(request.destination, flow.destination) as destination,
    ):
        await leave_orphans(flow.name, source, destination, "replay", request.parts)


class PartitionReplay(RepeatedCopy):
    """Replays one partition. It resumes where an earlier one stopped, even by kill -9, by the ledger (R1).

    `progress` counts source offsets that are on record as replayed, also of records that don't travel.
    """

    command, noun = "salvage", "replay"

    def __init__(
        self,
        request: ReplayRequest,
        part: AssignedPartition,
        source: KafkaCluster,
        destination: KafkaCluster,
        transformer: Transformer | None = None,
        schemas: SchemaCopier | None = None,
    ) -> None:
        self._transformer = transformer
        self._schemas = None
        if schemas is not None:
            self._schemas = ReplayedSchemas(SchemaIdMap(schemas, part.topic, request.into(part)))
        self._request, self._part = request, part
        self._source, self._destination = source, destination
        self._key = part.key
        self._source_partition = self._key.at
        self._destination_partition = TopicPartition(request.into(part), part.partition)
        self._spec = replayed_spec(part, request.flow, source.cluster_id, destination.cluster_id)
        self._directory = ProducerDirectory(source)
        self._counted_before: int | None = None  # records on record when this began

    async def _attempt(self) -> None:
        # A new replay aborts an open transaction of an earlier one, and fences those of its partition (R3).
        flow, topic, mirror = self._key.flow, self._key.topic, self._part.destination_topic
        transactional_id = f"repl.replay.{flow}.{topic}.{self._key.partition}"
        writer = await TransactionWriter.open(self._destination, transactional_id, failpoint=failpoint)
        # The producer id is registered before its first data, so that no flow in the opposite direction
        # copies these records back (R5). In the flow's own mirror they count as copies of the flow; in any
        # other topic they have no home.
        source, source_id = self._request.flow.source, self._source.cluster_id
        owner = FlowProducer(flow, source, source_id, Table(names={topic: mirror}), only=mirror)
        await register(self._destination, writer.producer_id, owner)
        maps = OffsetMaps(self._destination, await Ledger.open(self._destination))
        await maps.decided(self._key.flow)
        progress = maps.progress(self._key.flow).get(self._key)
        if progress is None:
            raise CopyStopped("the ledger does not know it")
        topic_id = (await self._source.topics([topic], fresh=True))[topic].id
        if is_other_topic(progress.source_topic_id, topic_id):
            raise CopyStopped(f"{topic} is not the topic that was copied: it was recreated")
        at, within = self._source_partition, self._request.within_s
        start, end = (await bounds_of(self._source, [at], within, Isolation.READ_COMMITTED))[at]
        orphans = maps.ledger.orphans(self._key.flow)[self._key]
        # By the ledger, a transaction whose response was lost counts if it was committed.
        on_record = sum(replayed.records for _, replayed in orphans.replayed)
        if self._counted_before is None:
            self._counted_before = on_record
        self.records = on_record - self._counted_before
        self.progress = sum(replayed.end - low for low, replayed in orphans.replayed)
        # Offsets behind the flow's position are left alone: the flow itself may still copy them.
        end = min(end, progress.position)
        for stretch in orphans.uncopied(progress, maps.get(self._key), topic_id, end):
            if stretch.end > start:
                await self._stretch(writer, stretch._replace(low=max(stretch.low, start)), topic_id)

    def _may_succeed_later(self, error: WireError) -> bool:
        trimmed = isinstance(error, BrokerError) and error.code is ErrorCode.OFFSET_OUT_OF_RANGE
        return trimmed or super()._may_succeed_later(error)

    async def _stretch(self, writer: TransactionWriter, stretch: OrphanedRange, topic_id: bytes) -> None:
        position, copied, destination_end = stretch.low, 0, -1
        while position < stretch.end:
            at, most_bytes = self._source_partition, self._request.bytes
            answer = await fetch_loaded(self._source, at, position, most_bytes, "salvage")
            if answer.error is not ErrorCode.NONE:
                raise BrokerError(answer.error, str(at))
            kept = await self._keep(answer, position, stretch.end)
            if self._transformer is not None:
                (kept,) = await transformed(self._transformer, [(kept, self._spec)])
            if self._schemas is not None:
                kept = await self._schemas.admit(kept, self._spec)
                self.note = self._schemas.note
            batches = [out.batch for out in kept.outgoing]
            if kept.failure is not None and not batches and not kept.quarantined:
                raise kept.failure
            before, position = position, min(kept.cursor.offset, stretch.end)
            copied += sum(batch.records for batch in batches)
            into = self._destination_partition.topic
            done = Replayed(position, topic_id, into, copied, now_ms(), destination_end)
            bad: dict[TopicPartition, Sequence[Batch]] = {}
            if (aside := self._part.quarantine) is not None and kept.quarantined:
                some = quarantine_batches(kept.quarantined, aside.max_message_bytes, self._spec.where)
                partitions = (await self._destination.topics([aside.topic]))[aside.topic].partitions
                number = self._part.partition % max(len(partitions), 1)
                bad[TopicPartition(aside.topic, number)] = list(some)
            destination_end = await self._commit(
                writer, ReplayedKey(self._key, stretch.low), done, batches, bad
            )
            self.records += sum(batch.records for batch in batches)
            self.progress += position - before
            show(
                self.command,
                f"{self._key.at}: {self.records:,} records, up to {position}",
            )
            if kept.failure is not None:
                raise kept.failure

    async def _commit(
        self,
        writer: TransactionWriter,
        key: ReplayedKey,
        done: Replayed,
        batches: Sequence[Batch],
        bad: Mapping[TopicPartition, Sequence[Batch]],
    ) -> int:
        """Commits the batches and their ledger record, and returns where they end at the destination."""
        at = self._destination_partition
        assert at not in bad, "a partition takes either the records or the bad ones"
        end = done.destination_end

        def record(bases: Mapping[TopicPartition, Sequence[int]]) -> dict[LedgerKey, LedgerValue | None]:
            nonlocal end
            if batches:
                end = bases[at][-1] + batches[-1].last_offset_delta + 1
            return {key: structs.replace(done, destination_end=end)}

        await writer.commit(record, {at: batches, **bad})
        return end

    async def _keep(self, answer: FetchedPartition, position: int, end: int) -> FilteredBatches:
        walked = walk(answer.records, self._spec.where)
        if not walked.sets and walked.failure is None:
            raise BrokerError(ErrorCode.OFFSET_NOT_AVAILABLE, str(self._spec.where))
        spec, flow = replace(self._spec, end=end), self._request.flow
        ids = {batch.producer_id for batch in walked.sets if isinstance(batch, Batch)}
        if self._directory.unknown(ids):
            await self._directory.resolve(ids)
        native_only = flow.provenance == "batch" and flow.native_only
        home = ClusterTopic(self._destination.cluster_id, self._part.destination_topic)
        returning = self._directory.returning_producer_ids(ids, self._key.topic, home, native_only)
        return filter_batches(walked, spec, Cursor(position, -1), answer.aborted, returning, now_ms())


def replayed_spec(
    part: AssignedPartition, flow: FlowSpec, source_id: str, destination_id: str
) -> RewriteSpec:
    """Returns the rewrite rule that a slot of the flow would use, and always with the header.

    Only the header records where these records came from. A record whose header names the destination as its
    home is not copied, whatever the flow's provenance.
    """
    spec = rewrite_spec(part, replace(flow, provenance="headers"), source_id, destination_id, READ_UNPACKED)
    native_only = spec.native_only and flow.provenance == "headers"
    return replace(spec, native_only=native_only)
