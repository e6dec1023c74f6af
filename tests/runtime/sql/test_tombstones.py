"""`on_filtered: tombstone`: what `where` leaves out is deleted, and the offset map is exact (R6)."""

from collections.abc import Iterable, Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from runtime.batch import BadRecord, Codec, DroppedRecords, OutgoingBatch, Record, RewriteSpec, prepare
from runtime.batch.varint import varint
from runtime.contract.records.provenance import HEADER, ClusterPartition, Origin, encode
from runtime.contract.spec.transform import TransformSpec
from runtime.sql.transformer import Transformed, Transformer
from tests.runtime.batch.forge import HERE, START, batch_bytes, record, sets, summed
from tests.runtime.batch.test_properties import logs
from tests.runtime.sql.test_transformer import (
    JSON,
    MASKED,
    QUARANTINING,
    Answers,
    applied,
    mapped,
    transformed,
)

DELETING = TransformSpec(where="offset >= 0", on_filtered="tombstone")
DC1 = ClusterPartition("dc1-id", "orders", 3)
HOP = encode(Origin("dc0-id", "orders", 3, 17, START))


def outgoing(found: Transformed) -> list[OutgoingBatch]:
    return found.outgoing


def arrived(found: Transformed) -> list[Record]:
    """The records at the destination, each with the offset of its source record."""
    return [one._replace(offset=offset) for offset, one in mapped(outgoing(found))]


def tombstone(one: Record, spec: RewriteSpec) -> Record:
    hops = ((HEADER, encode(Origin(*DC1, one.offset, START))),) if spec.provenance is not None else ()
    return one._replace(value=None, headers=hops)


@given(logs(), st.sampled_from([None, DC1]), st.sampled_from([100_000, 1 << 20]), st.data())
def test_any_filter_over_any_batches_leaves_tombstones_at_their_places(
    log: tuple[list[Record], list[bytes]],
    provenance: ClusterPartition | None,
    limit: int,
    data: st.DataObject,
) -> None:
    written, parts = log
    filtered = data.draw(st.sets(st.sampled_from([one.offset for one in written])))
    spec = RewriteSpec(HERE, limit, provenance=provenance)
    found = transformed(parts, Answers(filtered=frozenset(filtered)), DELETING, spec=spec)
    left_out = [one for one in written if one.value is not None and one.offset in filtered]
    skipped = [one for one in left_out if one.key is None]
    assert found.failure is None
    assert sum(one.records for one in found.filtered) == len(skipped)
    assert sum(out.tombstones for out in outgoing(found)) == len(left_out) - len(skipped)
    wanted = []
    for one in written:
        if one in left_out:
            wanted += [tombstone(one, spec)] if one.key is not None else []
        elif spec.provenance is not None:
            wanted.append(one._replace(headers=(*one.headers, *tombstone(one, spec).headers)))
        else:
            wanted.append(one)
    assert arrived(found) == wanted
    positions = [out.position for out in outgoing(found)]
    assert positions == sorted(positions)


keyed = st.tuples(st.sampled_from([b"a", b"b", b"", None]), st.sampled_from([None, b"in", b"out"]))


@given(st.lists(keyed, min_size=1, max_size=30), st.integers(1, 7), st.integers(1, 3), st.data())
def test_compacting_the_destination_gives_the_transform_of_the_compacted_source(
    content: Sequence[tuple[bytes | None, bytes | None]], size: int, responses: int, data: st.DataObject
) -> None:
    """Also where compaction has removed any older records before they were copied."""
    log = [record(at, value, key=key) for at, (key, value) in enumerate(content)]
    newest = {one.key: one.offset for one in log}
    older = [one.offset for one in log if one.key is not None and newest[one.key] > one.offset]
    gone = data.draw(st.sets(st.sampled_from(older))) if older else set()
    written = [one for one in log if one.offset not in gone]
    out = frozenset(one.offset for one in written if one.value == b"out")
    parts = [batch_bytes(written[at : at + size]) for at in range(0, len(written), size)]
    per_response = -(-len(parts) // responses)
    copied: list[Record] = []
    for at in range(0, len(parts), per_response):
        copied += arrived(transformed(parts[at : at + per_response], Answers(out), DELETING))
    assert last_values(copied) == {key: value for key, value in last_values(log).items() if value == b"in"}


def last_values(log: Iterable[Record]) -> dict[bytes, bytes]:
    """What a compacted topic holds in the end: the last value of each key that is not deleted."""
    found = {one.key: one.value for one in log if one.key is not None}
    return {key: value for key, value in found.items() if value is not None}


def test_a_tombstone_has_no_header_but_those_of_the_products_provenance() -> None:
    headers = [("name", b"Ann"), (HEADER, HOP), (HEADER, b"free text"), (HEADER, None), ("x", None)]
    parts = [batch_bytes([record(4, b"secret", headers=headers), record(5)], Codec.LZ4)]
    deleted, travels = arrived(transformed(parts, Answers(frozenset({4})), DELETING))
    assert deleted == Record(4, START + 4, b"k", None, ((HEADER, HOP),))
    assert travels == record(5)


def test_a_batch_of_tombstones_alone_stands_for_its_records() -> None:
    found = transformed([batch_bytes([record(4), record(7)])], Answers(frozenset({4, 7})), DELETING)
    (out,) = outgoing(found)
    assert (out.batch.records, out.tombstones, out.position, found.filtered) == (2, 2, 8, [])


def test_values_that_travel_are_edited_between_tombstones() -> None:
    transform = replace(DELETING, value=JSON, set={"value.email": "'x'"})
    parts = [batch_bytes([record(at, b'{"email":"a@b"}') for at in range(5)])]
    found = transformed(parts, Answers(frozenset({0, 3})), transform)
    masked = b'{"email":"%s"}' % MASKED.encode()
    assert [one.value for one in arrived(found)] == [None, masked, masked, None, masked]
    assert [out.tombstones for out in outgoing(found)] == [2]


def test_parts_of_a_batch_that_is_too_large_count_their_own_tombstones() -> None:
    parts = [batch_bytes([record(at, b"v", key=b"%03d" % at * 300) for at in range(8)])]
    found = transformed(parts, Answers(frozenset({0, 1, 7})), DELETING, 4_000)
    counts = [sum(record.value is None for _, record in mapped([out])) for out in outgoing(found)]
    assert len(counts) > 1
    assert [out.tombstones for out in outgoing(found)] == counts
    assert sum(counts) == 3


def test_a_bad_record_is_quarantined_and_deletes_nothing() -> None:
    """Whether `where` lets it through is not known, so the destination keeps what it has of the key."""
    parts = [batch_bytes([record(0), record(1), record(2), record(3, key=None)])]
    answers = Answers(filtered=frozenset({0, 3}), bad=frozenset({1}))
    found = transformed(parts, answers, DELETING, spec=QUARANTINING)
    assert [(one.offset, one.value) for one in arrived(found)] == [(0, None), (2, b"v")]
    assert [one.offset for one in found.quarantined] == [1]
    assert found.filtered == [DroppedRecords(4, 1)]


def test_no_tombstone_lies_behind_a_bad_record() -> None:
    parts = [batch_bytes([record(at) for at in range(4)])]
    found = transformed(parts, Answers(filtered=frozenset({1, 3}), bad=frozenset({2})), DELETING)
    assert isinstance(found.failure, BadRecord)
    assert [(one.offset, one.value) for one in arrived(found)] == [(0, b"v"), (1, None)]
    assert [(out.position, out.tombstones) for out in outgoing(found)] == [(2, 1)]


@pytest.mark.parametrize("quarantines", [False, True])
def test_headers_that_cannot_be_read_stop_the_partition_where_provenance_may_be_among_them(
    quarantines: bool,
) -> None:
    whole = batch_bytes([record(4, headers=[(HEADER, HOP)])])
    size = varint(len(HOP))
    damaged = summed(bytearray(whole.replace(b"__repl" + size, b"__repl" + b"\x7f" * len(size))))
    other = summed(
        bytearray(batch_bytes([record(5, headers=[("name", b"1")])]).replace(b"\x08name", b"\x7ename"))
    )
    spec = QUARANTINING if quarantines else RewriteSpec(HERE, 1 << 20)
    found = transformed([other], Answers(frozenset({5})), DELETING, spec=spec)
    assert [(one.offset, one.value, one.headers) for one in arrived(found)] == [(5, None, ())]
    prepared = prepare(sets(damaged), spec, START)
    transformer = Transformer(DELETING, Answers(frozenset({4})))
    found = applied(transformer, prepared.outgoing, spec)
    assert found.outgoing == []
    assert found.failure is not None
    assert (found.failure.offset, "headers" in str(found.failure)) == (4, True)
