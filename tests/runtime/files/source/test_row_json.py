"""Rows of Parquet as JSON objects: each type as Spark's to_json writes it."""

import datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from runtime.contract.records.job_status import PartitionState
from tests.runtime.files.source.rows import reader_of, values_of


def written(path: Path, column: pa.Array, **options: Any) -> list[bytes | None]:
    """The values of the records that a file with this one column gives."""
    pq.write_table(pa.table({"a": column}), path, **options)
    return values_of(path)


SECOND = [0, 1_500, -1, None]


@pytest.mark.parametrize(
    ("column", "expected"),
    [
        (pa.array([1, None], pa.int8()), [b'{"a":1}', b"{}"]),
        (pa.array([2**64 - 1], pa.uint64()), [b'{"a":18446744073709551615}']),
        (pa.array([True, False]), [b'{"a":true}', b'{"a":false}']),
        (pa.array(['é"\n']), ['{"a":"é\\"\\n"}'.encode()]),
        (pa.array([b"\xff\x00", b""]), [b'{"a":"/wA="}', b'{"a":""}']),
        (pa.array([b"\xff\x00\x01"], pa.binary(3)), [b'{"a":"/wAB"}']),
        (pa.array([Decimal("1.50"), Decimal("0.00")], pa.decimal128(9, 2)), [b'{"a":1.50}', b'{"a":0.00}']),
        (pa.array([0.1, 1.0], pa.float32()), [b'{"a":0.1}', b'{"a":1.0}']),
        (
            pa.array([0.1, float("nan"), float("inf"), float("-inf")]),
            [b'{"a":0.1}', b'{"a":"NaN"}', b'{"a":"Infinity"}', b'{"a":"-Infinity"}'],
        ),
        (pa.array([datetime.date(2026, 1, 31), None]), [b'{"a":"2026-01-31"}', b"{}"]),
        (pa.array([datetime.time(1, 2, 3)]), [b'{"a":"01:02:03.000000"}']),
        (
            pa.array(SECOND, pa.timestamp("ms", "UTC")),
            [
                b'{"a":"1970-01-01T00:00:00.000Z"}',
                b'{"a":"1970-01-01T00:00:01.500Z"}',
                b'{"a":"1969-12-31T23:59:59.999Z"}',
                b"{}",
            ],
        ),
        (
            pa.array([1, 1_000, 10**9], pa.timestamp("ns", "Europe/Berlin")),
            [
                b'{"a":"1970-01-01T00:00:00.000000001Z"}',
                b'{"a":"1970-01-01T00:00:00.000001Z"}',
                b'{"a":"1970-01-01T00:00:01.000Z"}',
            ],
        ),
        (pa.array([1_500_000], pa.timestamp("us")), [b'{"a":"1970-01-01T00:00:01.500"}']),
        (pa.array([1_500], pa.duration("ms")), [b'{"a":1500}']),
        (
            pa.array([[1, None], [], None], pa.list_(pa.int32())),
            [b'{"a":[1,null]}', b'{"a":[]}', b"{}"],
        ),
        (
            pa.array([[1, 2], None, [3, 4]], pa.list_(pa.int32(), 2)),
            [b'{"a":[1,2]}', b"{}", b'{"a":[3,4]}'],
        ),
        (
            pa.array([{"x": 1, "y": None}, None], pa.struct([("x", pa.int32()), ("y", pa.string())])),
            [b'{"a":{"x":1}}', b"{}"],
        ),
        (
            pa.array([[("k", 1), ("l", None)], [], None], pa.map_(pa.string(), pa.int32())),
            [b'{"a":{"k":1,"l":null}}', b'{"a":{}}', b"{}"],
        ),
        (
            pa.array([[(1, [{"t": 0}])]], pa.map_(pa.int32(), pa.list_(pa.struct([("t", pa.date32())])))),
            [b'{"a":{"1":[{"t":"1970-01-01"}]}}'],
        ),
        (
            pa.array(["u", "v", None, "u"]).dictionary_encode(),
            [b'{"a":"u"}', b'{"a":"v"}', b"{}", b'{"a":"u"}'],
        ),
        (pa.nulls(2), [b"{}", b"{}"]),
    ],
    ids=lambda one: str(one.type) if isinstance(one, pa.Array) else "",
)
def test_each_type_is_written_as_spark_writes_it(
    tmp_path: Path, column: pa.Array, expected: list[bytes]
) -> None:
    assert written(tmp_path / "a.parquet", column) == expected


def test_timestamps_of_the_old_type_of_spark_are_instants(tmp_path: Path) -> None:
    column = pa.array([1_500_000], pa.timestamp("us"))
    found = written(tmp_path / "a.parquet", column, use_deprecated_int96_timestamps=True)
    assert found == [b'{"a":"1970-01-01T00:00:01.500Z"}']


def test_columns_keep_the_order_of_the_schema(tmp_path: Path) -> None:
    path = tmp_path / "a.parquet"
    pq.write_table(pa.table({"z": [1], "a": [2], "m": [3]}), path)
    assert values_of(path) == [b'{"z":1,"a":2,"m":3}']


def test_two_columns_of_one_name_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "a.parquet"
    pq.write_table(pa.table([pa.array([1]), pa.array([2])], names=["a", "a"]), path)
    with reader_of(path) as reader:
        problem = reader.problem()
    assert problem is not None
    assert problem == (
        PartitionState.RECORD_CORRUPT,
        "its footer can't be read: two fields have the name a",
    )
