"""Ids of schemas are found in exactly the keys and values that begin with them, and replaced there alone."""

import struct
from collections.abc import Iterator, Sequence
from uuid import UUID

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from runtime.batch import Codec, CorruptBatch, OutgoingBatch, Record, RewriteSpec, prepare, records
from runtime.batch.layout import Batch
from runtime.batch.schema_ids import schema_ids, source_offset, with_records
from tests.runtime.batch.forge import HERE, START, batch_bytes, sets

SPEC = RewriteSpec(HERE, 8 << 20)
numbers = st.integers(1, 5) | st.integers(1, 2**32 - 1) | st.sampled_from([0, 2**31 - 1, 2**31])


def framed(number: int, payload: bytes = b"") -> bytes:
    return b"\0" + struct.pack(">I", number) + payload


content = (
    st.none()
    | st.binary(max_size=12)
    | st.builds(framed, numbers, st.binary(max_size=20))
    | st.builds(framed, numbers, st.sampled_from([b"x" * 9_000]))
)
GUID = UUID(int=9)
guids = st.sampled_from([GUID, UUID(int=8)])
headers = st.lists(
    st.tuples(
        st.sampled_from(["a", "__key_schema_id", "__value_schema_id"]),
        st.none()
        | st.binary()
        | st.builds(framed, numbers, st.binary(max_size=3))
        | st.builds(lambda guid, more: b"\1" + guid.bytes + more, guids, st.sampled_from([b"", b"more"])),
    ),
    max_size=4,
)
rows = st.lists(st.tuples(content, content, headers), min_size=1, max_size=70)


Shapes = Sequence[tuple[bytes | None, bytes | None, Sequence[tuple[str, bytes | None]]]]


def forged(shapes: Shapes, codec: Codec) -> tuple[list[Record], OutgoingBatch]:
    inside = [
        Record(1_000 + at, START + at, key, value, tuple(more))
        for at, (key, value, more) in enumerate(shapes)
    ]
    (out,) = prepare(sets(batch_bytes(inside, codec)), SPEC, START).outgoing
    return inside, out


def framed_parts(record: Record) -> Iterator[tuple[str, bytes | None]]:
    """What may begin with an id, as Confluent's deserializers read it: the last header, or the payload."""
    for part, data in (("key", record.key), ("value", record.value)):
        last = dict(record.headers).get(f"__{part}_schema_id")
        yield part, data if last is None else last


def number_in(data: bytes | None) -> int | None:
    if data is None or len(data) < 5 or data[0] != 0 or data[1] > 0x7F:
        return None
    return int.from_bytes(data[1:5])


VALUE = "__value_schema_id"


@given(rows, st.sampled_from(list(Codec)))
@example([(None, framed(7), [(VALUE, framed(1)), (VALUE, None)])], Codec.NONE)  # the payload counts
@example([(None, framed(7), [(VALUE, b"")])], Codec.NONE)  # consumers fail
@example([(None, framed(7), [(VALUE, framed(2**31))])], Codec.NONE)  # no registry gives such an id
def test_each_id_is_found_where_a_deserializer_reads_it(shapes: Shapes, codec: Codec) -> None:
    inside, out = forged(shapes, codec)
    found = schema_ids(out.batch, SPEC)
    pairs = list(zip(found.records.tolist(), found.ids.tolist(), strict=True))
    for part, own in (("key", pairs[: found.keys]), ("value", pairs[found.keys :])):
        assert own == [
            (at, number)
            for at, record in enumerate(inside)
            for read, data in framed_parts(record)
            if read == part and (number := number_in(data)) is not None
        ]
    named = [
        (at, dict(record.headers).get(f"__{part}_schema_id") or b"")
        for at, record in enumerate(inside)
        for part in ("key", "value")
    ]
    assert sorted(found.guids) == sorted(
        (at, UUID(bytes=name[1:17])) for at, name in named if name[:1] == b"\1" and len(name) >= 17
    )


@given(rows, st.sampled_from(list(Codec)), st.integers(0, 2**20))
def test_only_ids_change(shapes: Shapes, codec: Codec, more: int) -> None:
    inside, out = forged(shapes, codec)
    found = schema_ids(out.batch, SPEC)
    known = {number: (number + more) % 2**32 for number in found.unknown({GUID}) if isinstance(number, int)}
    changed = found.translated(known)
    if changed is None:
        assert all(old == new for old, new in known.items())
        return
    (new,) = with_records(out, changed, SPEC)
    assert new.runs == out.runs
    assert new.position == out.position
    assert (new.batch.base_timestamp, new.batch.records) == (out.batch.base_timestamp, out.batch.records)
    for before, after in zip(inside, records(new.batch, HERE), strict=True):
        content, headers = {"key": before.key, "value": before.value}, list(before.headers)
        for part, old in framed_parts(before):
            if (number := number_in(old)) is None:
                continue
            assert old is not None
            new_content, name = framed(known[number], old[5:]), f"__{part}_schema_id"
            if dict(headers).get(name) is None:
                content[part] = new_content
            else:
                at = max(at for at, (known_name, _) in enumerate(headers) if known_name == name)
                headers[at] = name, new_content
        assert (after.key, after.value, after.headers) == (*content.values(), tuple(headers))


@given(rows, st.data())
def test_a_batch_ends_before_a_record_that_waits(shapes: Shapes, data: st.DataObject) -> None:
    inside, out = forged(shapes, Codec.LZ4)
    at = data.draw(st.integers(0, len(inside) - 1))
    parts = list(with_records(out, schema_ids(out.batch, SPEC).data, SPEC, at))
    kept = [record for part in parts for record in records(part.batch, HERE)]
    assert kept == inside[:at]
    assert [part.position for part in parts] == ([inside[at].offset] if at else [])
    assert source_offset(out, at) == inside[at].offset


@pytest.mark.parametrize(("up_to", "tombstones"), [(0, 0), (1, 1), (2, 1), (3, 2), (None, 3)])
def test_a_part_counts_the_tombstones_of_its_own_records(up_to: int | None, tombstones: int) -> None:
    shapes = [(b"k" * 200, value, ()) for value in (None, framed(7), None, None)]
    _, out = forged(shapes, Codec.NONE)
    parts = with_records(out._replace(tombstones=3), schema_ids(out.batch, SPEC).data, SPEC, up_to)
    assert sum(part.tombstones for part in parts) == tombstones


def test_a_batch_that_grows_over_the_limit_becomes_several_with_the_same_offsets() -> None:
    """Packed again, ids that differ may take more room than the same one."""
    shapes = [(None, framed(7, b"value"), ()) for _ in range(2_000)]
    inside, out = forged(shapes, Codec.ZSTD)
    small = RewriteSpec(HERE, out.batch.size)
    found = schema_ids(out.batch, small)
    noise = found._replace(ids=found.records + 1)
    changed = noise.translated({at + 1: at * 2_654_435_761 % 2**32 for at in range(2_000)})
    assert changed is not None
    parts = list(with_records(out, changed, small))
    assert len(parts) > 1
    assert all(part.batch.size <= small.max_batch for part in parts)
    sources = [run.source + at for part in parts for run in part.runs for at in range(run.records)]
    assert sources == [record.offset for record in inside]
    assert parts[-1].position == out.position


def test_records_that_wait_are_the_first_with_an_unknown_id() -> None:
    guid = [("a", None), ("a", b"\1" + GUID.bytes), ("__value_schema_id", b"\1" + GUID.bytes)]
    shapes = [
        (framed(1), framed(2), ()),
        (None, framed(9), ()),
        (framed(8), framed(2), ()),
        (None, b"", guid),
    ]
    _, out = forged(shapes, Codec.NONE)
    found = schema_ids(out.batch, SPEC)
    assert list(found.unknown({}).items()) == [(1, 0), (2, 0), (9, 1), (8, 2), (GUID, 3)]
    assert found.unknown({1, 2}) == {9: 1, 8: 2, GUID: 3}
    assert found.unknown({1, 2, 8, 9, GUID}) == {}
    assert found.without({9}, before=2).unknown({1, 2, GUID}) == {8: 2}
    assert found.without({9}, before=1).unknown({1, 2, GUID}) == {9: 1, 8: 2}
    assert found.without_part("key").unknown({GUID}) == {2: 0, 9: 1}
    assert found.without_part("value").unknown({GUID}) == {1: 0, 8: 2}
    assert list(found.without_part("value", before=1).unknown({GUID})) == [1, 9, 8, 2]
    assert (found.first_record_of("key"), found.first_record_of("value")) == (0, 0)
    assert list(found.before(1).unknown({})) == [1, 2]


@given(st.binary(min_size=1, max_size=60), st.integers(1, 5))
def test_bytes_that_are_no_records_are_a_corrupt_batch_or_records(body: bytes, count: int) -> None:
    _, out = forged([(None, b"v", ())], Codec.NONE)
    broken: Batch = out.batch._replace(body=memoryview(body), records=count)
    try:
        found = schema_ids(broken, SPEC)
    except CorruptBatch:
        return
    assert len(found.records) <= 2 * count


def test_a_size_that_reaches_beyond_the_batch_is_corrupt() -> None:
    _, out = forged([(None, b"v" * 60, ())], Codec.NONE)
    body = bytearray(out.batch.body)
    body[0] += 20
    with pytest.raises(CorruptBatch):
        schema_ids(out.batch._replace(body=memoryview(bytes(body))), SPEC)
