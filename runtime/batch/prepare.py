"""This module prepares a partition's batches between fetch and stamp: it filters, rewrites and merges."""

from collections.abc import Container, Iterator, Sequence

from runtime.batch.failure import BatchFailure
from runtime.batch.layout import CODEC_MASK, LOG_APPEND_TIME, LOG_OVERHEAD, Batch, RecordSet
from runtime.batch.origin import OriginRule
from runtime.batch.rewrite import rewrite, rewrite_neighbours, unpacked_together
from runtime.batch.spec import (
    Merge,
    OutgoingBatch,
    PreparedBatches,
    RewriteReason,
    RewriteSpec,
)
from runtime.batch.varint import MalformedBytes
from runtime.batch.walk import AbortedTransactions

_NO_MERGE = Merge(records=0, size=0, up_to=0)


def needs_rewrite(batch: Batch, spec: RewriteSpec) -> RewriteReason:
    """Returns why the batch must be rewritten; NONE for nearly all batches."""
    whole = batch.records == batch.last_offset_delta + 1
    touched = spec.provenance or spec.home or spec.native_only
    appended = batch.attributes & LOG_APPEND_TIME
    large = batch.size > spec.max_batch
    inside = spec.start <= batch.base_offset and batch.last_offset < spec.end
    reason = RewriteReason.NONE if inside else RewriteReason.START
    if whole and not appended and not touched and not large:
        return reason
    if not whole:
        reason |= RewriteReason.HOLES
    if appended:
        reason |= RewriteReason.APPEND_TIME
    if touched:
        reason |= RewriteReason.RECORDS
    if large:
        reason |= RewriteReason.TOO_LARGE
    return reason


def prepare(
    sets: Sequence[RecordSet],
    spec: RewriteSpec,
    now_ms: int,
    aborted: AbortedTransactions | None = None,
    returning_producer_ids: Container[int] = frozenset(),
) -> PreparedBatches:
    """Returns the outgoing batches of one partition's fetched sets, in order.

    `aborted` is the response's list; `returning_producer_ids` are those of flows from the destination to this
    source (batch provenance).
    """
    rule = OriginRule(spec, now_ms)
    out: list[OutgoingBatch] = []
    try:
        neighbours: list[Batch] = []
        for group in _groups(sets, spec, aborted or AbortedTransactions(), returning_producer_ids, rule):
            first = group[0]
            if (
                rule.header
                and isinstance(first, Batch)
                and len(group) == 1
                and needs_rewrite(first, spec) is RewriteReason.RECORDS
            ):
                neighbours.append(first)
                continue
            out.extend(rewrite_neighbours(neighbours, spec, rule))
            neighbours.clear()
            _send(group, spec, rule, out)
        out.extend(rewrite_neighbours(neighbours, spec, rule))
    except BatchFailure as failure:
        good = _good_up_to(sets, failure.offset)
        position = max(good, spec.start, out[-1].position if out else 0)
        return PreparedBatches(out, position, rule.dropped_before(position), failure)
    position = max(min(sets[-1].next_offset, spec.end), spec.start) if sets else spec.start
    return PreparedBatches(out, position, rule.dropped_before(position), None)


def _good_up_to(sets: Sequence[RecordSet], offset: int) -> int:
    """Returns the offset up to which the sets are good; a compressed old message has only its last offset."""
    before = 0
    for member in sets:
        if offset < member.next_offset:
            return offset if isinstance(member, Batch) else before
        before = member.next_offset
    return offset


def _groups(
    sets: Sequence[RecordSet],
    spec: RewriteSpec,
    aborted: AbortedTransactions,
    returning_producer_ids: Container[int],
    rule: OriginRule,
) -> Iterator[list[RecordSet]]:
    """Yields the sets that a read_committed reader sees and that may be copied; groups small neighbours."""
    merge = spec.merge or _NO_MERGE
    up_to, start, end = min(merge.up_to, spec.max_batch), spec.start, spec.end
    group: list[RecordSet] = []
    size = codec = 0
    for member in sets:
        if isinstance(member, Batch):
            records, base, member_size = member.records, member.base_offset, LOG_OVERHEAD + member.length
            if not aborted.keeps(member) or not records:
                continue
            if base + member.last_offset_delta < start or base >= end:
                continue
            if member.producer_id in returning_producer_ids:
                rule.drop(member.next_offset, records)
                continue
            if records <= merge.records and member_size <= merge.size:
                packed = member.attributes & CODEC_MASK
                # A producer with compression sends a batch plain if it would not shrink: that counts as the
                # same codec.
                if group and ((packed and codec and packed != codec) or size + member_size > up_to):
                    yield group
                    group, size, codec = [], 0, 0
                group.append(member)
                size += member_size
                codec = codec or packed
                continue
        if group:
            yield group
            group, size, codec = [], 0, 0
        yield [member]
    if group:
        yield group


def _send(group: list[RecordSet], spec: RewriteSpec, rule: OriginRule, out: list[OutgoingBatch]) -> None:
    while len(group) > 1:
        group = group[_send_joined(group, spec, rule, out) :]
    if group:
        _send_alone(group[0], spec, rule, out)


def _send_alone(member: RecordSet, spec: RewriteSpec, rule: OriginRule, out: list[OutgoingBatch]) -> None:
    if not isinstance(member, Batch):
        out.extend(rewrite([member], spec, rule, RewriteReason.FORMAT))
    elif reason := needs_rewrite(member, spec):
        out.extend(rewrite([member], spec, rule, reason))
    else:
        out.append(OutgoingBatch.whole(member, RewriteReason.NONE))


def _send_joined(
    group: list[RecordSet], spec: RewriteSpec, rule: OriginRule, out: list[OutgoingBatch]
) -> int:
    """Sends the first members of the group as one batch, and returns how many.

    They are all members, unless these unpack to too many bytes.
    """
    sent, dropped = len(out), len(rule.dropped)
    try:
        bodies = unpacked_together((member for member in group if isinstance(member, Batch)), spec)
        if len(bodies) > 1:
            out.extend(rewrite(group[: len(bodies)], spec, rule, RewriteReason.MERGE, bodies))
            return len(bodies)
    except (BatchFailure, MalformedBytes):
        # One member is bad: each is rewritten alone, so that those before it are copied and the failure names
        # it.
        del out[sent:]
        del rule.dropped[dropped:]
        for member in group:
            out.extend(rewrite([member], spec, rule, RewriteReason.MERGE))
        return len(group)
    _send_alone(group[0], spec, rule, out)
    return 1
