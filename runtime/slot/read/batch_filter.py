"""Pure functions select and prepare the batches to copy from a partition's fetched record sets.

They use no client and no clock.
"""

from __future__ import annotations

from collections.abc import Container, Sequence
from dataclasses import replace
from typing import NamedTuple

from runtime.batch import (
    AbortedTransactions,
    Batch,
    BatchFailure,
    Merge,
    OutgoingBatch,
    PartitionLocation,
    RecordSet,
    RewriteSpec,
    WalkedBatches,
    prepare,
)
from runtime.contract.records.provenance import ClusterPartition, ClusterTopic
from runtime.contract.spec.assignment import AssignedPartition
from runtime.contract.spec.jobspec import FlowSpec
from runtime.slot.partition import Cursor

MERGE = Merge()


class FilteredBatches(NamedTuple):
    """The batches of a response that are copied.

    Each of `outgoing` comes with the leader epoch of the record before its position. `cursor` is the position
    behind the whole response. `failure` is why the rest of it could not be prepared.
    """

    outgoing: list[tuple[OutgoingBatch, int]]
    cursor: Cursor
    dropped: int
    failure: BatchFailure | None


def rewrite_spec(
    assigned: AssignedPartition, flow: FlowSpec, source_id: str, destination_id: str
) -> RewriteSpec:
    """Returns how this partition's batches are rewritten where they must be; each fetch sets `start`.

    Small batches of a flow with a transform are joined after the transform.
    """
    headers = flow.provenance == "headers"
    return RewriteSpec(
        where=PartitionLocation(assigned.topic, assigned.partition),
        max_batch=assigned.max_message_bytes,
        provenance=ClusterPartition(source_id, assigned.topic, assigned.partition) if headers else None,
        home=ClusterTopic(destination_id, assigned.destination_topic) if headers else None,
        native_only=flow.native_only and headers,
        merge=MERGE if flow.transform is None else None,
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
    epochs = _Epochs(walked.sets, cursor)
    outgoing = [(out, epochs.before(out.position)) for out in prepared.outgoing]
    behind = Cursor(prepared.position, epochs.before(prepared.position))
    return FilteredBatches(outgoing, behind, prepared.dropped, prepared.failure or walked.failure)


class _Epochs:
    """Finds the leader epoch of the record before a position, which the broker compares with its own (R4).

    A position may lie inside a batch that is split, or that stops at a record. The record before it may be
    compacted away. The epoch of the next record is used then, because the older epoch may have ended inside
    the gap.
    """

    def __init__(self, sets: Sequence[RecordSet], start: Cursor) -> None:
        self._sets = sets
        self._start = start
        self._at = 0

    def before(self, position: int) -> int:
        """Returns the leader epoch of the record before a position.

        Positions must ascend from call to call, and not exceed the end of the last record set.
        """
        if position <= self._start.offset:
            return self._start.epoch
        while self._sets[self._at].next_offset < position:
            self._at += 1
        member = self._sets[self._at]
        return member.leader_epoch if isinstance(member, Batch) else -1
