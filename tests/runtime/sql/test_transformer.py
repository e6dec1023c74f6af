"""Whatever the batches and the filter: the right records travel, and the offset map is exact (R6)."""

import asyncio
from collections.abc import Sequence
from typing import NamedTuple

import pyarrow as pa
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from msgspec.structs import replace

from runtime.batch import (
    BadRecord,
    Codec,
    OutgoingBatch,
    QuarantineLimit,
    QuarantineTooLarge,
    Record,
    RewriteSpec,
    TooLarge,
    prepare,
    records,
)
from runtime.batch.selection import quarantine_batches
from runtime.contract.spec.naming import TopicPartition
from runtime.contract.spec.transform import FormatSpec, TransformSpec
from runtime.sql.transformer import Transformed, Transformer
from tests.protobuf import schema
from tests.runtime.batch.forge import HERE, START, batch_bytes, record, sets, summed
from tests.runtime.batch.test_properties import logs

MASKED = "masked" * 20
JSON = FormatSpec(format="json", schema="id BIGINT, email STRING, card STRING")
FILTER = TransformSpec(where="offset >= 0")
PLAIN = RewriteSpec(HERE, 1 << 20)
QUARANTINING = RewriteSpec(HERE, 1 << 20, quarantine=QuarantineLimit("flow", 1 << 20))
MASK = TransformSpec(value=JSON, set={"value.email": "'x'"}, drop=("value.card",))


class Answers(NamedTuple):
    """Stands for Spark: what it answers to each offset; others travel."""

    filtered: frozenset[int] = frozenset()
    bad: frozenset[int] = frozenset()
    failing: frozenset[int] = frozenset()

    async def evaluate(self, rows: pa.RecordBatch) -> pa.Array:
        await asyncio.sleep(0)
        return pa.array([self._answer(at) for at in rows.column("offset").to_pylist()], pa.binary())

    def _answer(self, offset: int) -> bytes | None:
        if offset in self.failing:
            return None
        if offset in self.bad:
            return b"b"
        return b"f" if offset in self.filtered else b'k\n{"s":"%s"}' % MASKED.encode()


def transformed(
    parts: Sequence[bytes],
    answers: Answers,
    transform: TransformSpec = FILTER,
    limit: int = 1 << 20,
    spec: RewriteSpec | None = None,
) -> Transformed:
    spec = spec or RewriteSpec(HERE, limit)
    prepared = prepare(sets(*parts), spec, START)
    assert prepared.failure is None
    return applied(Transformer(transform, answers), prepared.outgoing, spec)


def applied(transformer: Transformer, batches: Sequence[OutgoingBatch], spec: RewriteSpec) -> Transformed:
    (found,) = asyncio.run(transformer.apply([(batches, spec)]))
    return found


def mapped(outgoing: Sequence[OutgoingBatch]) -> list[tuple[int, Record]]:
    """The source offset that the map gives each record that goes out, and the record."""
    found: list[tuple[int, Record]] = []
    for out in outgoing:
        offsets = [source + at for _, source, count in out.runs for at in range(count)]
        assert [delta for delta, _, _ in out.runs] == [
            sum(one.records for one in out.runs[:at]) for at in range(len(out.runs))
        ]
        inside = records(out.batch, HERE)
        assert len(inside) == len(offsets) == out.batch.records == out.batch.last_offset_delta + 1
        found += zip(offsets, inside, strict=True)
    return found


@given(logs(), st.data())
def test_any_filter_over_any_batches_leaves_an_exact_map(
    log: tuple[list[Record], list[bytes]], data: st.DataObject
) -> None:
    written, parts = log
    filtered = data.draw(st.sets(st.sampled_from([one.offset for one in written])))
    found = transformed(parts, Answers(filtered=frozenset(filtered)))
    travel = [one for one in written if one.value is None or one.offset not in filtered]
    arrived = mapped(found.outgoing)
    assert [(offset, one._replace(offset=offset)) for offset, one in arrived] == [
        (one.offset, one) for one in travel
    ]
    assert sum(one.records for one in found.filtered) == len(written) - len(travel)
    assert found.failure is None
    positions = [out.position for out in found.outgoing]
    assert positions == sorted(positions)
    gone = {one.offset for one in written} - {one.offset for one in travel}
    for position in positions:  # what a commit of this position counts
        before = sum(one.records for one in found.filtered if one.end <= position)
        assert before == sum(offset < position for offset in gone)
    for out in found.outgoing:
        last = out.runs[-1]
        assert out.position >= last.source + last.records
        assert not any(last.source + last.records <= one.offset < out.position for one in travel)


@given(logs(), st.data())
def test_what_lies_before_a_bad_record_travels_and_nothing_behind_it(
    log: tuple[list[Record], list[bytes]], data: st.DataObject
) -> None:
    written, parts = log
    with_value = [one for one in written if one.value is not None]
    assume(with_value)
    stop = data.draw(st.sampled_from(with_value))
    found = transformed(parts, Answers(bad=frozenset({stop.offset})))
    assert isinstance(found.failure, BadRecord)
    assert found.failure.offset == stop.offset
    arrived = mapped(found.outgoing)
    assert [offset for offset, _ in arrived] == [one.offset for one in written if one.offset < stop.offset]
    assert all(out.position <= stop.offset for out in found.outgoing)


@given(logs(), st.data())
def test_bad_records_are_quarantined_as_they_came_and_the_others_travel(
    log: tuple[list[Record], list[bytes]], data: st.DataObject
) -> None:
    written, parts = log
    offsets = st.sets(st.sampled_from([one.offset for one in written]))
    bad, failing, filtered = (frozenset(data.draw(offsets)) for _ in range(3))
    found = transformed(parts, Answers(filtered, bad, failing), spec=QUARANTINING)
    rejected = [one for one in written if one.value is not None and one.offset in bad | failing]
    travel = [one for one in written if one.value is None or one.offset not in bad | failing | filtered]
    assert [offset for offset, _ in mapped(found.outgoing)] == [one.offset for one in travel]
    assert found.failure is None
    assert sum(one.records for one in found.filtered) == len(written) - len(travel) - len(rejected)
    assert [one.offset for one in found.quarantined] == [one.offset for one in rejected]
    batches = list(quarantine_batches(found.quarantined, 1 << 20, HERE))
    for one, source in zip(
        [each for batch in batches for each in records(batch, HERE)], rejected, strict=True
    ):
        assert (one.key, one.value) == (source.key, source.value)
        assert one.headers[: len(source.headers)] == source.headers
        assert dict(one.headers[len(source.headers) :])["repl.offset"] == b"%d" % source.offset


def test_a_bad_record_that_the_quarantine_cannot_take_stops_its_partition() -> None:
    parts = [batch_bytes([record(0), record(1, b"x" * 2_000), record(2)])]
    spec = replace(QUARANTINING, quarantine=QuarantineLimit("flow", 2_000))
    found = transformed(parts, Answers(bad=frozenset({0, 1, 2})), spec=spec)
    assert isinstance(found.failure, QuarantineTooLarge)
    assert found.failure.offset == 1
    assert [one.offset for one in found.quarantined] == [0]


class ByPartition(NamedTuple):
    """Stands for Spark: what it answers to the offsets of each partition."""

    answers: Sequence[Answers]

    async def evaluate(self, rows: pa.RecordBatch) -> pa.Array:
        await asyncio.sleep(0)
        places = zip(rows.column("partition").to_pylist(), rows.column("offset").to_pylist(), strict=True)
        return pa.array([self.answers[partition]._answer(at) for partition, at in places], pa.binary())


@given(
    st.lists(st.tuples(logs(), st.booleans(), st.none() | st.integers(0, 4)), min_size=2, max_size=4),
    st.data(),
)
def test_partitions_are_transformed_together_as_each_alone(
    partitions: list[tuple[tuple[list[Record], list[bytes]], bool, int | None]], data: st.DataObject
) -> None:
    """A bad record stops its own partition alone, and so does a batch that can't be read. In any windows."""
    text = TransformSpec(value=FormatSpec(format="text"), set={"value": "concat(partition, offset)"})
    prepared: list[tuple[list[OutgoingBatch], RewriteSpec]] = []
    answers: list[Answers] = []
    for number, ((written, parts), quarantines, damaged) in enumerate(partitions):
        spec = replace(QUARANTINING if quarantines else PLAIN, where=TopicPartition("t", number))
        batches = list(prepare(sets(*parts), spec, START).outgoing)
        if damaged is not None and damaged < len(batches):
            batch = batches[damaged].batch
            cut = memoryview(bytes(batch.body)[:-1])
            batches[damaged] = batches[damaged]._replace(batch=batch._replace(body=cut))
        prepared.append((batches, spec))
        offsets = st.frozensets(st.sampled_from([one.offset for one in written]))
        answers.append(Answers(*(data.draw(offsets) for _ in range(3))))

    def apply(some: Sequence[tuple[list[OutgoingBatch], RewriteSpec]], window: int) -> list[object]:
        transforms = asyncio.run(Transformer(text, ByPartition(answers), window_records=window).apply(some))
        compared: list[object] = []
        for (batches, _), each in zip(some, transforms, strict=True):
            outgoing = each.outgoing
            arrived = [(source, record._replace(offset=source)) for source, record in mapped(outgoing)]
            if outgoing:  # how far its position lies behind the last record depends on the windows
                end = batches[-1].position if each.failure is None else each.failure.offset
                assert arrived[-1][0] < outgoing[-1].position <= end
            dropped = sum(dropped.records for dropped in each.filtered)
            rejected = [bad.offset for bad in each.quarantined]
            compared.append((arrived, dropped, str(each.failure), rejected))
        return compared

    window = data.draw(st.integers(1, 40))
    assert apply(prepared, window) == [each for alone in prepared for each in apply([alone], 4_096)]


def test_values_are_edited_and_all_else_stays() -> None:
    value = b'{"id": 1.50, "email": "a@b", "card": "4111", "more": [1, 2]}'
    parts = [batch_bytes([record(0, value, headers=[("h", b"1")])], Codec.LZ4)]
    ((_, one),) = mapped(transformed(parts, Answers(), MASK).outgoing)
    assert one.value == b'{"id": 1.50, "email": "%s", "more": [1, 2]}' % MASKED.encode()
    assert (one.key, one.headers, one.timestamp) == (b"k", (("h", b"1"),), START)


def test_a_whole_text_value_is_set() -> None:
    spec = TransformSpec(value=FormatSpec(format="text"), set={"value": "upper(value)"})
    found = transformed([batch_bytes([record(0)])], Answers(), spec)
    assert [one.value for _, one in mapped(found.outgoing)] == [MASKED.encode()]


def test_expressions_see_the_last_header_of_each_name_and_not_the_products_own() -> None:
    seen: list[list[tuple[str, str | None]]] = []

    class Remembering:
        async def evaluate(self, rows: pa.RecordBatch) -> pa.Array:
            seen.extend(rows.column("headers").to_pylist())
            return pa.array([b"k"] * rows.num_rows, pa.binary())

    several = [("a", b"1"), ("__repl", b"x"), ("a", b"2"), ("b", None), ("\u00e4", b"\xff")]
    parts = [batch_bytes([record(0, headers=several), record(1), record(2, headers=several)])]
    spec = RewriteSpec(HERE, 1 << 20)
    prepared = prepare(sets(*parts), spec, START)
    transform = TransformSpec(where="headers['a'] IS NULL")
    applied(Transformer(transform, Remembering()), prepared.outgoing, spec)
    shown = [("a", "2"), ("b", None), ("\u00e4", "\ufffd")]
    assert seen == [shown, [], shown]


def test_an_expression_that_fails_names_the_offset() -> None:
    found = transformed([batch_bytes([record(4), record(5)])], Answers(failing=frozenset({5})))
    assert str(found.failure) == "orders-3 at offset 5: an expression of the transform fails on it"
    assert [out.position for out in found.outgoing] == [5]


def test_a_value_that_is_no_object_is_bad() -> None:
    found = transformed([batch_bytes([record(4, b"[1]")])], Answers(), MASK)
    assert str(found.failure) == "orders-3 at offset 4: its value can't be edited: no JSON object"


def test_small_batches_are_joined_behind_the_filter() -> None:
    parts = [batch_bytes([record(at), record(at + 1)]) for at in range(0, 200, 2)]
    spec = RewriteSpec(HERE, 1 << 20)
    prepared = prepare(sets(*parts), spec, START).outgoing
    batches = [out._replace(epoch=number) for number, out in enumerate(prepared)]
    transformer = Transformer(FILTER, Answers(filtered=frozenset(range(1, 200, 2))))
    found = applied(transformer, batches, spec)
    assert [(out.batch.records, out.position, out.epoch) for out in found.outgoing] == [(100, 200, 99)]


def test_a_record_that_grows_beyond_the_limit_stops_before_it() -> None:
    parts = [batch_bytes([record(0, b"{}"), record(1, b'{"email":"' + b"y" * 3_900 + b'"}')])]
    found = transformed(parts, Answers(), TransformSpec(value=JSON, set={"value.card": "'x'"}), 4_000)
    assert isinstance(found.failure, TooLarge)
    assert [offset for offset, _ in mapped(found.outgoing)] == [0]


VALUES = (None, b'{"id":1,"email":"a","card":"c"}', b'{"card":1,"x":{"email":2}}', b"{}", b'{"id" : NaN}')
NEW = (b"null", b'"x"', b"12", b'{"a":[1]}')


@given(
    st.lists(st.tuples(st.sampled_from(VALUES), st.permutations(NEW)), min_size=1, max_size=12),
    st.sampled_from(
        [("value.id", "value.email", "value.more"), ("value.email", "value.id"), ("value.id",), ()]
    ),
    st.integers(1, 4),
)
def test_values_are_edited_together_as_they_are_one_by_one(
    written: list[tuple[bytes | None, list[bytes]]], paths: Sequence[str], step: int
) -> None:
    """Also with tombstones between them, in batches of any size. Each path gets its own new value."""
    transform = TransformSpec(
        value=JSON, where="offset >= 0", set=dict.fromkeys(paths, ""), drop=("value.card",)
    )
    answers = [
        b"k" + b"".join(b'\n{"s":%b}' % one for one in new[: len(paths)]) if value is not None else b"k"
        for value, new in written
    ]

    class Prepared:
        async def evaluate(self, rows: pa.RecordBatch) -> pa.Array:
            return pa.array([answers[at] for at in rows.column("offset").to_pylist()], pa.binary())

    numbered = [record(number, value) for number, (value, _) in enumerate(written)]
    parts = [batch_bytes(numbered[at : at + step]) for at in range(0, len(written), step)]
    transformer = Transformer(transform, Prepared())
    spec = RewriteSpec(HERE, 1 << 20)
    found = applied(transformer, prepare(sets(*parts), spec, START).outgoing, spec)
    assert found.failure is None
    assert [one.value for _, one in mapped(found.outgoing)] == [
        transformer.outcome(b"", value, (), answer).value
        for (value, _), answer in zip(written, answers, strict=True)
    ]


def test_a_batch_in_which_no_record_changes_is_passed_on_as_it_came() -> None:
    value = b'{"id":1}'
    parts = [batch_bytes([record(0, value), record(1, None)], Codec.LZ4), batch_bytes([record(2)])]
    spec = RewriteSpec(HERE, 1 << 20)
    prepared = prepare(sets(*parts), spec, START).outgoing
    drops = TransformSpec(value=JSON, drop=("value.card",))
    found = applied(Transformer(drops, Answers()), prepared, spec)
    assert found.outgoing == prepared[:1]


@pytest.mark.parametrize("form", [JSON, FormatSpec(format="protobuf", schema=schema("shop.Customer"))])
def test_nothing_is_before_unreadable_headers_in_the_first_batch(form: FormatSpec) -> None:
    """Also where the slot decodes the values itself."""
    first = batch_bytes([record(4, b"", headers=[("name", b"1")])])
    damaged = first.replace(b"\x08name", b"\x7ename")
    spec = RewriteSpec(HERE, 1 << 20)
    prepared = prepare(sets(summed(bytearray(damaged))), spec, START)
    transform = TransformSpec(value=form, where="headers['name'] = '1'")
    found = applied(Transformer(transform, Answers()), prepared.outgoing, spec)
    assert found.outgoing == []
    assert str(found.failure).startswith("orders-3 at offset 4: unreadable headers: ")
