"""Runs in a Spark task's Python worker: it copies the orphans of some partitions exactly once.

Each partition has a transactional id of its own, and a producer id that is registered before its first data.
The transform of a flow is evaluated as a slot evaluates it, by a query whose collecting worker replays.
"""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

import uvloop
from msgspec import structs
from msgspec.structs import replace

from runtime.audit.ledger import AuditFailure, producers_at
from runtime.audit.partition_logs import open_spec
from runtime.batch import Batch, BatchFailure, PartitionLocation, RewriteSpec, WalkedBatches, walk
from runtime.batch.selection import quarantine_batches
from runtime.batch.spec import QuarantineLimit
from runtime.contract.records.ledger import (
    NO_ORPHANS,
    LedgerKey,
    LedgerValue,
    OrphanedRange,
    PartitionKey,
    Replayed,
    ReplayedKey,
    UnreadableRecord,
    uncopied_ranges,
)
from runtime.contract.records.provenance import ClusterPartition, ClusterTopic, FlowProducer
from runtime.contract.results.records import ReplayedPartition
from runtime.contract.spec.jobspec import FlowSpec
from runtime.contract.spec.naming import is_other_topic
from runtime.contract.spec.rename import Table
from runtime.kafka.cluster import KafkaCluster
from runtime.kafka.errors import BrokerError, ErrorCode, WireError
from runtime.kafka.fetch import fetch_once
from runtime.kafka.protocol.fetch import FetchedPartition, Isolation
from runtime.kafka.protocol.offsets import EARLIEST, LATEST, TopicPartition
from runtime.kafka.queries import offsets_of
from runtime.kafka.timing import RetryDeadline
from runtime.ledger.ledger import Ledger, register
from runtime.ledger.offset_maps import OffsetMapReader
from runtime.ledger.transaction_writer import TransactionWriter, is_fenced, may_succeed_later
from runtime.replay.request import (
    ReplayPartition,
    ReplayRequest,
    decode_part,
    decode_request,
    encode_replayed,
)
from runtime.slot.failpoints import from_environment
from runtime.slot.partition import Cursor, now_ms
from runtime.slot.read.batch_filter import MERGE, FilteredBatches, filter_batches, transformed

if TYPE_CHECKING:
    import pyarrow as pa

    from runtime.sql.query_input import QueryInput
    from runtime.sql.transformer import Transformer

RESULT = "result"  # the column of the result, in the output of replay_partitions_with_sql
SAID = "salvage: "  # lines with this prefix are shown to the user of the command
_PAUSE_S = 0.5


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
    await register(cluster, writer.producer_id, producer)
    return writer


def replayer(flow: str, source: str, source_id: str, topic: str, mirror: str) -> FlowProducer:
    """Returns how flows in the opposite direction treat an id that replays `topic`.

    In the flow's own mirror its records count as copies of the flow; in any other topic they have no home.
    """
    return FlowProducer(flow, source, source_id, Table(names={topic: mirror}), only=mirror)


class ReplayStopped(Exception):
    """The partition can't be copied to its end; the text is for people."""


def replay_partitions(request: bytes, parts: Iterable[bytes]) -> Iterator[bytes]:
    """Replays the given partitions. Spark calls it through mapPartitions."""
    asked = decode_request(request)
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        for part in map(decode_part, parts):
            yield encode_replayed(runner.run(_replayed(asked, part)))


def replay_partitions_with_sql(
    request: bytes,
    parts: Sequence[bytes],
    token: str,
    wanted: QueryInput,
    answers: Iterable[pa.RecordBatch],
) -> Iterator[pa.RecordBatch]:
    """Replays the given partitions of a flow with a transform, as the collecting worker of a query."""
    import pyarrow as pa

    asked = decode_request(request)
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        found = runner.run(
            _replayed_with_sql(asked, [decode_part(one) for one in parts], token, wanted, answers)
        )
    encoded = pa.array([encode_replayed(found)], pa.binary())
    yield pa.RecordBatch.from_arrays([encoded], [RESULT])


async def _replayed_with_sql(
    asked: ReplayRequest,
    parts: Sequence[ReplayPartition],
    token: str,
    wanted: QueryInput,
    answers: Iterable[pa.RecordBatch],
) -> list[ReplayedPartition]:
    from runtime.sql.evaluator import serving_evaluator
    from runtime.sql.transformer import Transformer

    transform = asked.flow.transform
    assert transform is not None, "replay_partitions replays without a transform"
    async with serving_evaluator(token, transform, wanted, answers) as evaluator:
        transformer = Transformer(transform, evaluator)
        return [await _replayed(asked, part, transformer) for part in parts]


async def _replayed(
    asked: ReplayRequest, part: ReplayPartition, transformer: Transformer | None = None
) -> ReplayedPartition:
    records = 0
    try:
        async with (
            open_spec(asked.source, asked.flow.source) as source,
            open_spec(asked.destination, asked.flow.destination) as destination,
        ):
            copy = PartitionReplay(asked, part, source, destination, transformer)
            try:
                await copy.run()
            finally:
                records = copy.records
    except (AuditFailure, ReplayStopped, BatchFailure, UnreadableRecord) as error:
        return ReplayedPartition(part.topic, part.partition, part.into, records, str(error))
    return ReplayedPartition(part.topic, part.partition, part.into, records)


class PartitionReplay:
    """Replays one partition. It resumes where an earlier one stopped, even by kill -9, by the ledger (R1)."""

    def __init__(
        self,
        asked: ReplayRequest,
        part: ReplayPartition,
        source: KafkaCluster,
        destination: KafkaCluster,
        transformer: Transformer | None = None,
    ) -> None:
        self.records = 0
        self.passed = 0  # source offsets that are on record as replayed, also of records that don't travel
        self._transformer = transformer
        self._asked, self._part = asked, part
        self._source, self._destination = source, destination
        self._key = part.key(asked.flow.name)
        self._source_partition = TopicPartition(part.topic, part.partition)
        self._destination_partition = TopicPartition(part.into, part.partition)
        self._spec = rewrite_spec(asked.flow, part, source.cluster_id, destination.cluster_id)
        self._producers: Mapping[int, FlowProducer] = {}
        self._counted_before: int | None = None  # records on record when this began

    async def run(self) -> None:
        """Copies all orphans.

        After a failure it starts again from the committed state (fencing 1), while it makes progress.
        """
        producer = replayer(
            self._key.flow,
            self._asked.flow.source,
            self._source.cluster_id,
            self._key.topic,
            self._part.mirror,
        )
        timeout = RetryDeadline(self._asked.within_s)
        while True:
            try:
                self._producers = await producers_at(self._source)
                writer = await open_replay_writer(self._destination, self._key, producer, _failpoint)
                await self._copy(writer)
                return
            except WireError as error:
                timeout.advance(self.passed)
                trimmed = isinstance(error, BrokerError) and error.code is ErrorCode.OFFSET_OUT_OF_RANGE
                if timeout.over() or not (trimmed or may_succeed_later(error)):
                    raise ReplayStopped(_message(error)) from error
            await asyncio.sleep(_PAUSE_S)

    async def _copy(self, writer: TransactionWriter) -> None:
        ledger = await Ledger.open(self._destination)
        maps = OffsetMapReader(self._destination, ledger)
        await maps.refresh(self._key.flow)
        progress = ledger.all_progress(self._key.flow).get(self._key)
        if progress is None:
            raise ReplayStopped("the ledger does not know it")
        topic = (await self._source.topics([self._key.topic], fresh=True))[self._key.topic]
        if is_other_topic(progress.source_topic_id, topic.id):
            raise ReplayStopped(f"{self._key.topic} is not the topic that was copied: it was recreated")
        start, end = await self._log()
        orphans = ledger.orphans(self._key.flow).get(self._key, NO_ORPHANS)
        self._count(sum(one.records for _, one in orphans.replayed))
        self.passed = sum(one.end - low for low, one in orphans.replayed)
        # Offsets behind the flow's position are left alone: the flow itself may still copy them.
        for one in uncopied_ranges(
            progress, orphans, maps.get(self._key), topic.id, min(end, progress.position)
        ):
            if one.end > start:
                await self._stretch(writer, one._replace(low=max(one.low, start)), topic.id)

    def _count(self, on_record: int) -> None:
        """Counts the records by the ledger: a transaction whose response was lost counts if it was
        committed.
        """
        if self._counted_before is None:
            self._counted_before = on_record
        self.records = on_record - self._counted_before

    async def _log(self) -> tuple[int, int]:
        within, found = self._asked.within_s, []
        for question in (EARLIEST, LATEST):
            asked = await offsets_of(
                self._source, {self._source_partition: question}, Isolation.READ_COMMITTED, within
            )
            found.append(asked[self._source_partition])
        return found[0], found[1]

    async def _stretch(self, writer: TransactionWriter, stretch: OrphanedRange, topic_id: bytes) -> None:
        position, copied, destination_end = stretch.low, 0, -1
        while position < stretch.end:
            kept = self._keep(await self._fetch(position), position, stretch.end)
            if self._transformer is not None:
                kept = await transformed(self._transformer, kept, self._spec)
            batches = [out.batch for out, _ in kept.outgoing]
            if kept.failure is not None and not batches and not kept.quarantined:
                raise kept.failure
            before, position = position, min(kept.cursor.offset, stretch.end)
            copied += sum(batch.records for batch in batches)
            into = self._destination_partition.topic
            done = Replayed(position, topic_id, into, copied, now_ms(), destination_end)
            bad = self._quarantined(kept)
            destination_end = await self._commit(
                writer, ReplayedKey(self._key, stretch.low), done, batches, bad
            )
            self.records += sum(batch.records for batch in batches)
            self.passed += position - before
            _report(f"{self._key.topic}-{self._key.partition}: {self.records:,} records, up to {position}")
            if kept.failure is not None:
                raise kept.failure

    def _quarantined(self, kept: FilteredBatches) -> dict[TopicPartition, Sequence[Batch]]:
        """Returns the batches of the bad records that the transaction passes."""
        into = self._part.quarantine
        if into is None or not kept.quarantined:
            return {}
        batches = quarantine_batches(kept.quarantined, into.max_message_bytes, self._spec.where)
        return {TopicPartition(into.topic, into.partition): list(batches)}

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

    def _keep(self, answer: FetchedPartition, position: int, end: int) -> FilteredBatches:
        walked = walk(answer.records, self._spec.where)
        if not walked.sets and walked.failure is None:
            if answer.last_stable_offset < end:
                raise BrokerError(ErrorCode.OFFSET_NOT_AVAILABLE, str(self._spec.where))
            return FilteredBatches([], Cursor(end, -1), (), None)  # compaction removed all remaining records
        returning = self._returning_producer_ids(walked)
        spec = replace(self._spec, end=end)
        return filter_batches(walked, spec, Cursor(position, -1), answer.aborted, returning, now_ms())

    def _returning_producer_ids(self, walked: WalkedBatches) -> set[int]:
        flow, home = self._asked.flow, self._spec.home
        mine = flow.provenance == "batch" and flow.native_only
        ids = {one.producer_id for one in walked.sets if isinstance(one, Batch)}
        known = ((one, self._producers.get(one)) for one in ids)
        return {
            one
            for one, producer in known
            if producer is not None and (mine or producer.home(self._key.topic) == home)
        }

    async def _fetch(self, position: int) -> FetchedPartition:
        answer = await fetch_once(
            self._source, self._source_partition, position, self._asked.bytes, "salvage"
        )
        if answer.error is not ErrorCode.NONE:
            raise BrokerError(
                answer.error, f"{self._source_partition.topic}-{self._source_partition.partition}"
            )
        return answer


_failpoint = from_environment(os.environ)


def rewrite_spec(flow: FlowSpec, part: ReplayPartition, source_id: str, destination_id: str) -> RewriteSpec:
    """Returns the rewrite rule that a slot of the flow would use, and always with the header.

    Only the header records where these records came from. A record whose header names the destination as its
    home is not copied, whatever the flow's provenance.
    """
    bad = part.quarantine
    return RewriteSpec(
        where=PartitionLocation(part.topic, part.partition),
        max_batch=part.max_message_bytes,
        provenance=ClusterPartition(source_id, part.topic, part.partition),
        home=ClusterTopic(destination_id, part.mirror),
        native_only=flow.native_only and flow.provenance == "headers",
        merge=MERGE if flow.transform is None else None,  # small batches are joined after the transform
        quarantine=QuarantineLimit(flow.name, bad.max_message_bytes) if bad is not None else None,
    )


def _message(error: WireError) -> str:
    if is_fenced(error):
        return "another replay of it began, or its transaction took too long"
    return str(error)


def _report(text: str) -> None:
    sys.stderr.write(f"{SAID}{text}\n")
    sys.stderr.flush()
