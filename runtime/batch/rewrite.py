"""This module rewrites batches whose records must change: it unpacks, filters, renumbers and packs again.

`runtime.batch.arrays` is imported where it is called, because it loads numpy. Commands that only read records
do not need it.

`records` reads whole records one by one, for verify, salvage, read and tests. The copy loop never uses it.
"""

from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

from runtime.batch.codecs import UnpackedSizeExceeded, pack, unpack
from runtime.batch.failure import CorruptBatch, TooLarge, UnpacksTooLarge
from runtime.batch.layout import (
    CODEC_MASK,
    HEADER_SIZE,
    LOG_APPEND_TIME,
    LOG_OVERHEAD,
    MAGIC,
    NO_PRODUCER,
    Batch,
    Codec,
    RecordSet,
    epoch_before,
)
from runtime.batch.legacy import codec_of, scan_legacy
from runtime.batch.origin import OriginRule
from runtime.batch.spec import (
    LEAST_RECORD,
    READ_UNPACKED,
    OffsetDeltaRun,
    OutgoingBatch,
    RewriteReason,
    RewriteSpec,
)
from runtime.batch.splice import Raw, extend, headers_of, join, scan, sized
from runtime.batch.varint import MalformedBytes
from runtime.contract.spec.naming import TopicPartition

_FROM_LENGTH = HEADER_SIZE - LOG_OVERHEAD
_LEAST_FOR_ARRAYS = 300  # records of batches that are handled together; fewer are faster one by one
_MOST_FOR_ARRAYS = 4 << 20  # unpacked bytes of batches that are handled together (R8)
MOST_MERGED = 4 << 20  # unpacked bytes of batches that are merged into one (R8)


def rewrite_neighbours(
    batches: Sequence[Batch], spec: RewriteSpec, rule: OriginRule
) -> Iterator[OutgoingBatch]:
    """Yields whole batches with the header added to every record, neighbours together.

    A batch that provenance drops as a whole is left out. Raises a BatchFailure as `rewrite` does.
    """
    bodies: list[bytes | memoryview | None] = []
    begin = size = 0
    for at, batch in enumerate(batches):
        try:
            body = unpacked_body(batch, spec.max_unpacked)
        except (UnpackedSizeExceeded, MalformedBytes):
            body = None  # `rewrite` says why
        bodies.append(body)
        size += len(body or b"")
        if size >= _MOST_FOR_ARRAYS or at + 1 == len(batches):
            yield from _together(batches[begin : at + 1], bodies, spec, rule)
            bodies, begin, size = [], at + 1, 0


def _together(
    batches: Sequence[Batch],
    unpacked: Sequence[bytes | memoryview | None],
    spec: RewriteSpec,
    rule: OriginRule,
) -> Iterator[OutgoingBatch]:
    bodies: list[memoryview | None] = [None] * len(batches)
    if sum(batch.records for batch in batches) >= _LEAST_FOR_ARRAYS and None not in unpacked:
        from runtime.batch.headers import add_header

        readable = [body for body in unpacked if body is not None]
        counts, firsts = [batch.records for batch in batches], [batch.base_offset for batch in batches]
        bodies = add_header(readable, counts, firsts, rule)
    for batch, body in zip(batches, bodies, strict=True):
        if body is None:
            yield from rewrite([batch], spec, rule, RewriteReason.RECORDS)
        elif not len(body):
            rule.drop(batch.next_offset, batch.records)
        elif out := _with_body(batch, body, spec):
            yield out
        else:
            yield from rewrite([batch], spec, rule, RewriteReason.RECORDS)


def rewrite(
    group: Sequence[RecordSet],
    spec: RewriteSpec,
    rule: OriginRule,
    reason: RewriteReason,
    bodies: Sequence[bytes | memoryview] = (),
) -> Iterator[OutgoingBatch]:
    """Yields the remaining records of the group as batches: one, several if one is too large, or none.

    `bodies` are the unpacked bytes of batches that are merged. Raises a BatchFailure where it can't continue:
    the batches that it yielded before stay valid.
    """
    first = group[0]
    try:
        if (
            reason is RewriteReason.RECORDS
            and isinstance(first, Batch)
            and (out := _extended(first, spec, rule))
        ):
            yield out
            return
        if bodies:
            members = [member for member in group if isinstance(member, Batch)]
            if out := _merged(members, bodies, spec, rule):
                yield out
                return
            scanned: Iterable[list[Raw]] = map(_scanned, members, bodies)
        else:
            scanned = (records_of(member, spec.max_unpacked) for member in group)
        kept: list[Raw] = []
        for member, raw in zip(group, scanned, strict=True):
            whole = isinstance(member, Batch) and spec.start <= member.base_offset
            if not (whole and member.last_offset < spec.end):
                raw = [record for record in raw if spec.start <= record[0] < spec.end]
            kept += raw
        if rule.active:
            kept = rule.apply(kept)
        codec = _codec(group) if spec.codec is None else spec.codec
    except UnpackedSizeExceeded:
        raise unpacks_too_large(first, spec.where, spec.max_unpacked) from None
    except (MalformedBytes, IndexError) as error:
        raise CorruptBatch(spec.where, first.base_offset, f"unreadable records: {error}") from None
    if kept:
        for part in fitting(kept, codec, min(group[-1].next_offset, spec.end), spec, reason):
            yield part._replace(epoch=epoch_before(group, part.position))


def records_of(member: RecordSet, limit: int) -> list[Raw]:
    """Returns all records as they are stored, with the timestamps that the source's readers see."""
    if not isinstance(member, Batch):
        return scan_legacy(member, limit)
    return _scanned(member, unpacked_body(member, limit)) if member.records else []


def _scanned(member: Batch, data: bytes | memoryview) -> list[Raw]:
    """Returns all records of a batch that is not empty, from its unpacked bytes."""
    raw: list[Raw] = []
    scan(bytes(data), member.records, member.base_offset, member.base_timestamp, raw)
    if raw[-1][0] > member.base_offset + member.last_offset_delta:
        raise MalformedBytes("a record behind the batch's last offset")
    if member.attributes & LOG_APPEND_TIME:
        appended = member.max_timestamp
        return [(offset, appended, tail) for offset, _, tail in raw]
    return raw


def unpacks_too_large(member: RecordSet, where: TopicPartition, limit: int) -> UnpacksTooLarge:
    size = f"a batch of {member.size} bytes unpacks to more than {limit}, the memory bound"
    why = f"{size} (a record counts as {LEAST_RECORD} at least)"
    return UnpacksTooLarge(where, member.base_offset, member.size, limit, why)


def _codec(group: Sequence[RecordSet]) -> Codec:
    """Returns the codec of the members; some may be plain because they would not have shrunk."""
    packed = 0
    for member in group:
        packed = max(
            packed, member.attributes & CODEC_MASK if isinstance(member, Batch) else codec_of(member)
        )
    return Codec(packed)


def _extended(batch: Batch, spec: RewriteSpec, rule: OriginRule) -> OutgoingBatch | None:
    """Adds the header to a whole batch of which every record stays, fast; returns None for other batches."""
    if not rule.header:
        return None
    body = unpacked_body(batch, spec.max_unpacked)
    data = extend(bytes(body), batch.records, batch.base_offset, rule.header, rule.drops)
    return None if data is None else _with_body(batch, data, spec)


def _with_body(batch: Batch, data: bytes | memoryview, spec: RewriteSpec) -> OutgoingBatch | None:
    """Returns a whole batch with these records in place of its own, or None where they are too large."""
    codec = batch.codec if spec.codec is None else spec.codec
    body = pack(codec, data)
    if HEADER_SIZE + len(body) > spec.max_batch:
        return None
    new = batch._replace(length=_FROM_LENGTH + len(body), attributes=int(codec), crc=0, body=body)
    return OutgoingBatch.whole(new, RewriteReason.RECORDS)


def unpacked_together(group: Iterable[Batch], spec: RewriteSpec) -> list[bytes | memoryview]:
    """Returns the unpacked bytes of the first batches, as many as are merged into one. Raises MalformedBytes.

    The first batch is left out, too, where it unpacks to more than that (R8).
    """
    bodies: list[bytes | memoryview] = []
    room = most = min(spec.max_unpacked, MOST_MERGED)
    for member in group:
        try:
            body = unpacked_body(member, most)
        except UnpackedSizeExceeded:
            break
        room -= len(body)
        if room < 0:
            break
        bodies.append(body)
    return bodies


def _merged(
    members: Sequence[Batch], bodies: Sequence[bytes | memoryview], spec: RewriteSpec, rule: OriginRule
) -> OutgoingBatch | None:
    """Merges small whole batches of which every record stays, fast; returns None for other groups."""
    from runtime.batch.arrays import merge_bodies, offset_runs, worth_merging

    if members[0].base_offset < spec.start or members[-1].next_offset > spec.end:
        return None
    bases, _, _, _, _, attributes, deltas, times, _, _, _, _, counts, _ = zip(*members, strict=True)
    kinds = set(attributes)
    whole = sum(counts) == sum(deltas) + len(deltas)  # no batch has more records than offsets
    if not whole or any(kind & LOG_APPEND_TIME for kind in kinds) or not worth_merging(counts):
        return None
    packed = max(kind & CODEC_MASK for kind in kinds)
    merged = merge_bodies(bodies, counts, times, bases, rule.header if rule.active else None)
    if merged is None:
        return None
    data, base, latest = merged
    codec = Codec(packed) if spec.codec is None else spec.codec
    body = pack(codec, data)
    if HEADER_SIZE + len(body) > spec.max_batch:
        return None
    batch = batch_of(bases[0], sum(counts), codec, body, base, latest)
    runs = offset_runs(bases, counts)
    last = members[-1]
    return OutgoingBatch(batch, runs, last.next_offset, RewriteReason.MERGE, last.leader_epoch)


def unpacked_body(batch: Batch, limit: int) -> bytes | memoryview:
    """Returns the bytes of a batch's records. Raises MalformedBytes, and UnpackedSizeExceeded.

    What is made of many small records takes more memory than their bytes, so they count as LEAST_RECORD each.
    """
    if batch.records * LEAST_RECORD > limit:
        raise UnpackedSizeExceeded
    packed = batch.attributes & CODEC_MASK
    return unpack(Codec(packed), batch.body, limit) if packed else batch.body


def fitting(
    kept: Sequence[Raw], codec: Codec, position: int, spec: RewriteSpec, reason: RewriteReason
) -> Iterator[OutgoingBatch]:
    """Packs records as one batch, or as several parts if it exceeds the limit.

    A part that is still too large is cut again.
    """
    data, base, latest = join(kept)
    body = pack(codec, data)
    size = HEADER_SIZE + len(body)
    if size > spec.max_batch:
        if len(kept) == 1:
            why = f"the record takes {size} bytes, the destination's limit is {spec.max_batch}"
            raise TooLarge(spec.where, kept[0][0], size, spec.max_batch, why)
        step = max(len(kept) * spec.max_batch // size, 1)
        for at in range(0, len(kept), step):
            part = kept[at : at + step]
            after = position if at + step >= len(kept) else part[-1][0] + 1
            yield from fitting(part, codec, after, spec, reason | RewriteReason.TOO_LARGE)
        return
    batch = batch_of(kept[0][0], len(kept), codec, body, base, latest)
    yield OutgoingBatch(batch, _runs(kept), position, reason)


def batch_of(first: int, records: int, codec: Codec, body: memoryview, base: int, latest: int) -> Batch:
    """Returns the records, numbered from 0 on, as a batch that is not stamped yet."""
    return Batch(
        base_offset=first,
        length=_FROM_LENGTH + len(body),
        leader_epoch=-1,
        magic=MAGIC,
        crc=0,
        attributes=int(codec),
        last_offset_delta=records - 1,
        base_timestamp=base,
        max_timestamp=latest,
        producer_id=NO_PRODUCER,
        producer_epoch=-1,
        base_sequence=-1,
        records=records,
        body=body,
    )


def _runs(kept: Sequence[Raw]) -> tuple[OffsetDeltaRun, ...]:
    first, last = kept[0][0], kept[-1][0]
    if last - first == len(kept) - 1:  # offsets ascend, so nothing is missing between
        return (OffsetDeltaRun(0, first, len(kept)),)
    runs: list[OffsetDeltaRun] = []
    begin, source, due = 0, first, first
    for delta, (offset, _, _) in enumerate(kept):
        if offset != due:
            runs.append(OffsetDeltaRun(begin, source, delta - begin))
            begin, source = delta, offset
        due = offset + 1
    runs.append(OffsetDeltaRun(begin, source, len(kept) - begin))
    return tuple(runs)


class Record(NamedTuple):
    offset: int
    timestamp: int  # as the cluster's readers see it; -1: none
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...]


def records(member: RecordSet, where: TopicPartition, max_unpacked: int = READ_UNPACKED) -> list[Record]:
    """Returns all records of a set, also of a control batch.

    AbortedTransactions decides which of them a reader may see.
    """
    try:
        decoded = []
        for offset, timestamp, tail in records_of(member, max_unpacked):
            key, position = sized(tail, 0)
            value, position = sized(tail, position)
            headers = tuple((name.decode(), content) for name, content in headers_of(tail, position))
            decoded.append(Record(offset, timestamp, key, value, headers))
        return decoded
    except UnpackedSizeExceeded:
        raise unpacks_too_large(member, where, max_unpacked) from None
    except (MalformedBytes, IndexError, UnicodeDecodeError) as error:
        raise CorruptBatch(where, member.base_offset, f"unreadable records: {error}") from None
