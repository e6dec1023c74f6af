"""A transform in a flow into files: which records are written, with which values, and where it stops."""

import asyncio
import json
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from msgspec.structs import replace

from runtime.batch import BadRecord, CorruptBatch, Record
from runtime.batch.spec import MAX_UNPACKED
from runtime.contract.records.manifest import DataFile
from runtime.contract.records.provenance import HEADER, Origin, encode
from runtime.contract.spec.naming import TopicPartition
from runtime.contract.spec.transform import FormatSpec, TransformSpec
from runtime.files import transformed
from runtime.files.transformed import FileTransform, Window, windows
from runtime.sql.rows import DECODED, FLAG
from tests.runtime.batch.forge import batch_bytes, record, sets, summed
from tests.runtime.files.backups import partition_files

WHERE = TopicPartition("customers", 0)
NOON = 1_700_049_600_000  # 2023-11-15T12:00:00Z
DAY_MS = 86_400_000
FIELDS = TransformSpec(value=FormatSpec(format="json", schema="id BIGINT"), where="value.id > 0")
TEXT = TransformSpec(value=FormatSpec(format="text"), set={"value": "upper(value)"})
STRUCT = pa.struct([pa.field("id", pa.int64())])


class Answers(NamedTuple):
    """Stands for Spark: its flags by offset, and values by their type; the others travel."""

    kind: pa.DataType
    flags: dict[int, bytes | None]

    async def evaluate(self, rows: pa.RecordBatch) -> pa.Array:
        offsets = rows.column("offset").to_pylist()
        flags = [self.flags.get(at, b"k") for at in offsets]
        if pa.types.is_binary(self.kind):
            return pa.array([b'k\n{"s":"NEW"}' if one == b"k" else one for one in flags], pa.binary())
        made: list[Any] = [{"id": at} for at in offsets]
        if pa.types.is_string(self.kind):
            made = [json.dumps(one) for one in made]
        given = zip(flags, rows.column("__value").to_pylist(), made, strict=True)
        values = [new if flag == b"k" and old is not None else None for flag, old, new in given]
        columns = [pa.array(flags, pa.binary()), pa.array(values, self.kind)]
        return pa.StructArray.from_arrays(columns, [FLAG, DECODED])


def of(*offsets: int, value: bytes | None = b"raw", every_ms: int = 0) -> list[tuple[Record, int]]:
    return [(Record(at, NOON + at * every_ms, b"k", value, ()), 0) for at in offsets]


def values_of(found: Window) -> list[Any]:
    assert found.values is not None
    values: list[Any] = found.values.to_pylist()
    return values


def applied(rows: list[tuple[Record, int]], answers: Answers, transform: TransformSpec) -> Window:
    window = Window(rows, rows[-1][0].offset + 1, 0, None)
    return asyncio.run(FileTransform(transform, answers).apply(WHERE, window))


def written(tmp_path: Path, form: Any, layout: str, *found: Window) -> list[DataFile]:
    files = partition_files(tmp_path, form, WHERE, layout=layout)
    for one in found:
        files.write_rows(one.rows, one.values)
    return files.finish()


def test_what_travels_has_its_decoded_value_and_what_does_not_is_counted() -> None:
    rows = [*of(1, 2, 3), *of(4, value=None), *of(5)]
    found = applied(rows, Answers(STRUCT, {2: b"f", 4: b"f"}), FIELDS)
    assert [one.offset for one, _ in found.rows] == [1, 3, 4, 5]  # a tombstone always travels
    assert values_of(found) == [{"id": 1}, {"id": 3}, None, {"id": 5}]
    assert (found.filtered, found.through, found.failure) == (1, 6, None)


def test_a_filtered_record_is_a_null_value_without_headers_where_the_transform_says_so() -> None:
    deleting = replace(FIELDS, on_filtered="tombstone")
    hop = (HEADER, encode(Origin("dc0-id", "customers", 0, 2, NOON)))
    named = [(one._replace(headers=(("name", b"Ann"), hop)), kind) for one, kind in of(2)]
    unkeyed = [(one._replace(key=None), kind) for one, kind in of(3)]
    for kind, transform in ((STRUCT, deleting), (pa.binary(), replace(TEXT, on_filtered="tombstone"))):
        found = applied([*of(1), *named, *unkeyed, *of(4)], Answers(kind, {2: b"f", 3: b"f"}), transform)
        assert [one.offset for one, _ in found.rows] == [1, 2, 4]
        deleted = found.rows[1][0]
        assert (deleted.key, deleted.value, deleted.headers) == (b"k", None, (hop,))
        assert (found.filtered, found.tombstones, found.through) == (1, 1, 5)
        if found.values is not None:
            assert values_of(found) == [{"id": 1}, None, {"id": 4}]


def test_a_window_of_which_nothing_travels_is_passed() -> None:
    found = applied(of(1, 2), Answers(STRUCT, {1: b"f", 2: b"f"}), FIELDS)
    assert (found.rows, values_of(found), found.filtered, found.through) == ([], [], 2, 3)


def test_a_bad_record_ends_a_window_behind_those_before_it() -> None:
    for flag, why in ((b"b", "value is not json of this schema"), (None, "an expression of the transform")):
        found = applied(of(1, 2, 3, 4), Answers(STRUCT, {2: b"f", 3: flag}), FIELDS)
        assert [one.offset for one, _ in found.rows] == [1]
        assert values_of(found) == [{"id": 1}]
        assert (found.filtered, found.through) == (1, 3)
        assert isinstance(found.failure, BadRecord)
        assert "customers-0 at offset 3: " in str(found.failure)
        assert why in str(found.failure)


def test_a_value_without_fields_stays_bytes() -> None:
    rows = [*of(1, 2), *of(3, value=None), *of(4)]
    found = applied(rows, Answers(pa.binary(), {2: b"f", 4: None}), TEXT)
    assert [(one.offset, one.value) for one, _ in found.rows] == [(1, b"NEW"), (3, None)]
    assert found.values is None
    assert (found.filtered, found.through) == (1, 4)
    assert "an expression of the transform fails on it" in str(found.failure)


def test_json_has_the_value_as_an_object(tmp_path: Path) -> None:
    found = applied([*of(1, 2), *of(3, value=None)], Answers(pa.string(), {2: b"f"}), FIELDS)
    (file,) = written(tmp_path, "json", "{topic}/", found)
    lines = [json.loads(text) for text in (tmp_path / "_repl/f" / file.staged).read_text().splitlines()]
    assert [(line["offset"], line["key"], line["value"]) for line in lines] == [
        (1, "k", {"id": 1}),
        (3, "k", None),
    ]
    assert (file.first, file.end, file.records) == (1, 4, 2)


def test_parquet_has_typed_columns_also_where_all_are_tombstones(tmp_path: Path) -> None:
    some = applied(of(1, 2), Answers(STRUCT, {}), FIELDS)
    gone = applied(of(3, value=None), Answers(STRUCT, {}), FIELDS)
    (file,) = written(tmp_path, "parquet", "{topic}/", some, gone)
    table = pq.ParquetFile(tmp_path / "_repl/f" / file.staged).read()
    assert table.schema.field("value").type == STRUCT
    assert table["value"].to_pylist() == [{"id": 1}, {"id": 2}, None]
    assert table["key"].to_pylist() == [b"k"] * 3


def test_each_day_has_the_values_of_its_own_records(tmp_path: Path) -> None:
    found = applied(of(0, 1, 2, every_ms=DAY_MS // 2), Answers(STRUCT, {}), FIELDS)
    files = written(tmp_path, "parquet", "{topic}/date={date}/", found)
    seen = {
        file.path.split("/")[1]: pq.ParquetFile(tmp_path / "_repl/f" / file.staged)
        .read()["value"]
        .to_pylist()
        for file in files
    }
    assert seen == {"date=2023-11-15": [{"id": 0}], "date=2023-11-16": [{"id": 1}, {"id": 2}]}


def test_a_large_batch_is_in_several_windows(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(transformed, "ROWS_AT_ONCE", 3)
    members = sets(batch_bytes([record(at) for at in range(1, 8)]), batch_bytes([record(9)]))
    found = list(windows(members, WHERE, 0, MAX_UNPACKED))
    assert [([one.offset for one, _ in part.rows], part.through) for part in found] == [
        ([1, 2, 3], 4),
        ([4, 5, 6], 7),
        ([7, 9], 10),
    ]
    assert sum(part.bytes for part in found) == sum(member.size for member in members)


def test_a_batch_behind_held_records_makes_no_window_larger(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(transformed, "ROWS_AT_ONCE", 3)
    members = sets(batch_bytes([record(1), record(2)]), batch_bytes([record(at) for at in range(3, 8)]))
    parts = [
        ([row.offset for row, _ in part.rows], part.through)
        for part in windows(members, WHERE, 0, MAX_UNPACKED)
    ]
    assert parts == [([1, 2, 3], 4), ([4, 5, 6], 7), ([7], 8)]


def test_windows_are_whole_batches_up_to_one_that_can_not_be_read() -> None:
    large = [Record(7, NOON, None, bytes(3 << 20), ()), Record(8, NOON, None, b"", (("h", bytes(3 << 20)),))]
    bad = bytearray(batch_bytes([Record(9, NOON, None, b"v", ())], base=9))
    bad[61] ^= 0xFF
    members = sets(batch_bytes([Record(5, NOON, b"k", b"v", ())], base=5), batch_bytes(large), summed(bad))
    first, second = windows(members, WHERE, 6, MAX_UNPACKED)
    assert ([one.offset for one, _ in first.rows], first.through, first.failure) == ([7, 8], 9, None)
    assert ([one.offset for one, _ in second.rows], second.through) == ([], 9)
    assert isinstance(second.failure, CorruptBatch)
