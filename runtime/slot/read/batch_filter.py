"""From a partition's fetched bytes to what goes out: walk, keep?, prepare. No client, no clock."""

from __future__ import annotations

from collections.abc import Container, Sequence
from dataclasses import replace
from typing import NamedTuple

from runtime.batch import (
    AbortedTransactions,
    Batch,
    BatchFailure,
    Merge,
    Outgoing,
    RecordSet,
    RewriteSpec,
    Walked,
    Where,
    prepare,
)
from runtime.contract.records.provenance import Home, Place
from runtime.contract.spec.assignment import AssignedPartition
from runtime.contract.spec.jobspec import FlowSpec
from runtime.slot.partition import Cursor

MERGE = Merge()


class Kept(NamedTuple):
    """`outgoing`, each with the leader epoch of what lies before its position; `cursor` is behind all of
    it.
    """

    outgoing: list[tuple[Outgoing, int]]
    cursor: Cursor
    dropped: int
    failure: BatchFailure | None


def rewrite_spec(
    assigned: AssignedPartition, flow: FlowSpec, source_id: str, destination_id: str
) -> RewriteSpec:
    """How this partition's batches are rewritten where they must be; `start` is each fetch's own."""
    headers = flow.provenance == "headers"
    return RewriteSpec(
        where=Where(assigned.topic, assigned.partition),
        max_batch=assigned.max_message_bytes,
        provenance=Place(source_id, assigned.topic, assigned.partition) if headers else None,
        home=Home(destination_id, assigned.destination_topic) if headers else None,
        native_only=flow.native_only and headers,
        merge=MERGE,
    )


def restoring(spec: RewriteSpec, restored: int) -> RewriteSpec:
    """Up to there records go home even where they came from: home lost them (R5 is for what it still has)."""
    return replace(spec, home=None, native_only=False, end=restored)


def keep(
    walked: Walked,
    spec: RewriteSpec,
    cursor: Cursor,
    aborted: Sequence[tuple[int, int]],
    going_home: Container[int],
    now_ms: int,
) -> Kept:
    """What of a response goes out, from the cursor on."""
    here = replace(spec, start=cursor.offset)
    prepared = prepare(walked.sets, here, now_ms, AbortedTransactions(aborted), going_home)
    epochs = _Epochs(walked.sets, cursor)
    outgoing = [(out, epochs.before(out.position)) for out in prepared.outgoing]
    behind = Cursor(prepared.position, epochs.before(prepared.position))
    return Kept(outgoing, behind, prepared.dropped, prepared.failure or walked.failure)


class _Epochs:
    """The leader epoch of what lies right before a position: the broker compares it with its own (R4).

    A position may lie inside a batch, where one is split or stops at a record. What lies before it may be
    compacted away: then the epoch of what follows holds, as the older one may have ended inside the hole.
    """

    def __init__(self, sets: Sequence[RecordSet], start: Cursor) -> None:
        self._sets = sets
        self._start = start
        self._at = 0

    def before(self, position: int) -> int:
        """Positions ascend, and reach no further than the last set."""
        if position <= self._start.offset:
            return self._start.epoch
        while self._sets[self._at].next_offset < position:
            self._at += 1
        member = self._sets[self._at]
        return member.leader_epoch if isinstance(member, Batch) else -1
