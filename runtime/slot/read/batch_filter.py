"""Decides which fetched batches of a flow are copied: by its spec, their producers (R5) and its transform.

The functions that select and prepare batches use no client and no clock. The transform is applied between the
filter and the queue.
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Sequence
from typing import TYPE_CHECKING, NamedTuple

from msgspec.structs import replace

from runtime.batch import (
    AbortedTransactions,
    Batch,
    BatchFailure,
    DroppedRecords,
    Merge,
    OutgoingBatch,
    QuarantineLimit,
    RewriteSpec,
    WalkedBatches,
    prepare,
)
from runtime.batch.layout import epoch_before
from runtime.batch.selection import QuarantinedRecord
from runtime.contract.records.control import AssignedPartition
from runtime.contract.records.provenance import ClusterPartition, ClusterTopic
from runtime.contract.spec.jobspec import FlowSpec
from runtime.contract.spec.naming import TopicPartition
from runtime.kafka.errors import Disconnected
from runtime.ledger.ledger import ProducerDirectory
from runtime.schemas.client import RegistryUnavailable
from runtime.slot.partition import Cursor, PartitionCopy

if TYPE_CHECKING:
    from runtime.sql.transformer import Transformed, Transformer

MERGE = Merge()


class FilteredBatches(NamedTuple):
    """The batches of a response that are copied.

    `cursor` is the position behind the whole response. `failure` is why the rest of it could not be prepared.
    `quarantined` are the bad records of a transform that lie before the cursor, as `dropped` does, in the
    order of its offsets.
    """

    outgoing: list[OutgoingBatch]
    cursor: Cursor
    dropped: Sequence[DroppedRecords]
    failure: BatchFailure | None
    quarantined: Sequence[QuarantinedRecord] = ()

    def stopped(self, passed: list[OutgoingBatch], at: int, failure: BatchFailure) -> FilteredBatches:
        """Returns the batches that passed, with the cursor before the record of a failure in batch `at`."""
        offset = failure.offset
        return FilteredBatches(
            passed,
            Cursor(offset, self.outgoing[at].epoch),
            [dropped for dropped in self.dropped if dropped.end <= offset],
            failure,
            [record for record in self.quarantined if record.offset < offset],
        )


def rewrite_spec(
    assigned: AssignedPartition,
    flow: FlowSpec,
    source_id: str,
    destination_id: str,
    unpacked_bytes: int,
) -> RewriteSpec:
    """Returns how this partition's batches are rewritten where they must be; each fetch sets `start`.

    Small batches of a flow with a transform are joined after the transform. `unpacked_bytes` bounds the
    records of a batch (R8).
    """
    headers = flow.provenance == "headers"
    topic = assigned.quarantine
    return RewriteSpec(
        where=TopicPartition(assigned.topic, assigned.partition),
        max_batch=assigned.max_message_bytes,
        provenance=ClusterPartition(source_id, assigned.topic, assigned.partition) if headers else None,
        home=ClusterTopic(destination_id, assigned.destination_topic) if headers else None,
        native_only=flow.native_only and headers,
        merge=MERGE if flow.transform is None else None,
        max_unpacked=unpacked_bytes,
        quarantine=QuarantineLimit(flow.name, topic.max_message_bytes) if topic is not None else None,
    )


def without_provenance_filter(spec: RewriteSpec, restored: int) -> RewriteSpec:
    """Returns the spec without the provenance filter up to the offset `restored`.

    Before this offset, records are copied even to the cluster that they came from. That cluster lost them,
    and R5 concerns only records that it still has.
    """
    return replace(spec, home=None, native_only=False, end=restored)


def filter_batches(
    walked: WalkedBatches,
    spec: RewriteSpec,
    cursor: Cursor,
    aborted: Sequence[tuple[int, int]],
    returning_producer_ids: Container[int],
    now_ms: int,
) -> FilteredBatches:
    """Returns which batches of a response are copied, from the cursor on."""
    from_cursor = replace(spec, start=cursor.offset)
    prepared = prepare(walked.sets, from_cursor, now_ms, AbortedTransactions(aborted), returning_producer_ids)
    behind = cursor
    if prepared.position > cursor.offset:
        behind = Cursor(prepared.position, epoch_before(walked.sets, prepared.position))
    return FilteredBatches(prepared.outgoing, behind, prepared.dropped, prepared.failure or walked.failure)


class FlowFilter:
    """A flow's filter knows the flow's spec, both cluster ids, and the producers of the source.

    `directory` is the producer directory of the source, or None where the flow's provenance is not by batch.
    """

    def __init__(
        self,
        spec: FlowSpec,
        source_id: str,
        destination_id: str,
        directory: ProducerDirectory | None,
        unpacked_bytes: int,
    ) -> None:
        self._spec = spec
        self._unpacked_bytes = unpacked_bytes
        self._source_id = source_id
        self._destination_id = destination_id
        self._directory = directory

    def rewrite_spec(self, assigned: AssignedPartition) -> RewriteSpec:
        """Returns how a partition's batches are rewritten where they must be."""
        ids = self._source_id, self._destination_id
        return rewrite_spec(assigned, self._spec, *ids, self._unpacked_bytes)

    async def resolve_producers(self, walks: Iterable[WalkedBatches]) -> None:
        """Looks up the producer ids that are not known yet.

        It fails closed: on an error, no batch of the response is copied. Raises WireError, READ_FAILURES.
        """
        if self._directory is not None:
            ids = {producer_id for walked in walks for producer_id in _producer_ids(walked)}
            if self._directory.unknown(ids):
                await self._directory.resolve(ids)

    def filter(
        self,
        copy: PartitionCopy,
        walked: WalkedBatches,
        spec: RewriteSpec,
        aborted: Sequence[tuple[int, int]],
        now_ms: int,
    ) -> FilteredBatches:
        """Returns which batches of a response are copied, from the partition's cursor on.

        Before the offset `restored`, provenance is not filtered: the original records were lost at the
        cluster that they came from.
        """
        returning: set[int] = set()
        if copy.cursor.offset < copy.progress.restored:
            spec = without_provenance_filter(spec, copy.progress.restored)
        elif self._directory is not None:
            origin = ClusterTopic(self._destination_id, copy.at.topic)
            returning = self._directory.returning_producer_ids(
                _producer_ids(walked), copy.key.topic, origin, self._spec.native_only
            )
        return filter_batches(walked, spec, copy.cursor, aborted, returning, now_ms)


def _producer_ids(walked: WalkedBatches) -> set[int]:
    return {record_set.producer_id for record_set in walked.sets if isinstance(record_set, Batch)}


async def transformed(
    transformer: Transformer, partitions: Sequence[tuple[FilteredBatches, RewriteSpec]]
) -> list[FilteredBatches]:
    """Returns partitions' filtered batches after the transform. Raises EvaluationEnded if the query ends.

    A schema registry that does not answer is a WireError: the partitions are retried.

    At a record that can't be handled, the cursor stays before it (R4). Records that the transform drops count
    as dropped; quarantined records do not.
    """
    batches = [(filtered.outgoing, spec) for filtered, spec in partitions]
    try:
        results = await transformer.apply(batches)
    except RegistryUnavailable as error:
        raise Disconnected("schema registry", str(error), sent=False) from None
    return [_transformed(filtered, result) for (filtered, _), result in zip(partitions, results, strict=True)]


def _transformed(filtered: FilteredBatches, result: Transformed) -> FilteredBatches:
    """Returns the filtered batches of a partition as the transform leaves them."""
    outgoing = result.outgoing
    dropped = sorted([*filtered.dropped, *result.filtered])
    if result.failure is None:
        return filtered._replace(outgoing=outgoing, dropped=dropped, quarantined=result.quarantined)
    at = result.failure.offset
    dropped = [records for records in dropped if records.end <= at]
    epoch = next(out.epoch for out in filtered.outgoing if at < out.position)
    return FilteredBatches(outgoing, Cursor(at, epoch), dropped, result.failure, result.quarantined)
