"""Spark gets what the expressions of a transform read, and no more."""

from collections.abc import Sequence

import numpy as np
import pyarrow as pa
import pytest

from runtime.batch import RewriteSpec, prepare
from runtime.contract.records.consumer_record import ConsumerRecord
from runtime.contract.spec.transform import FormatSpec, TransformSpec
from runtime.sql.columns import columns_of, rows_of
from runtime.sql.formats.encoded import Changes, RecordValues, UndecodableValue
from runtime.sql.query_input import (
    InputRows,
    QueryInput,
    decoded_rows,
    read_columns,
    read_fields,
    reads_value,
)
from tests.runtime.batch.forge import HERE, START, batch_bytes, record, sets

PLAIN = RewriteSpec(HERE, 1 << 20)
JSON = FormatSpec(format="json", schema="id BIGINT, email STRING")
FIELDS = [
    ("value.id > 1 AND VALUE . `Email` IS NULL", {"id", "email"}),
    ("`value`.id > 1", {"id"}),
    ("value.`a``b`.c > 1", {"a`b"}),
    ("headers['test'] IS NULL", set()),
    ("headers['value.x'] IS NULL", {"x"}),  # more than is read, never less
    ("value IS NOT NULL", None),
    ("value['id'] > 1", None),
    ("value.* IS NULL", None),
    ("to_json(value) LIKE '%x%'", None),
    ("value /* all of it */ .id > 1", None),
]


@pytest.mark.parametrize(("where", "fields"), FIELDS)
def test_the_fields_that_an_expression_reads(where: str, fields: set[str] | None) -> None:
    assert read_fields(TransformSpec(value=JSON, where=where, set={"value.email": "'x'"})) == fields


def test_the_columns_that_an_expression_reads() -> None:
    where = TransformSpec(where="Topic = 'a' AND offset > 1")
    assert read_columns(where) == {"__value", "topic", "offset"}
    assert not reads_value(where)
    assert read_columns(TransformSpec(where="key IS NULL")) == {"__value", "__key"}


@pytest.mark.parametrize(
    ("timestamp", "shown"),
    [
        (0, 0),
        (1_700_000_000_000, 1_700_000_000_000_000),
        (-1, None),
        (-5, None),
        (9_223_372_036_854_775, 9_223_372_036_854_775_000),
        (1_700_000_000_000_000_000, None),
    ],
)
def test_a_time_that_spark_cannot_hold_is_null(timestamp: int, shown: int | None) -> None:
    """A producer that counts nanoseconds must not stop the flow, nor be shown another time."""
    alone = rows_of([ConsumerRecord("t", 0, 0, timestamp, b"k", b"v", ())])
    assert alone.column("timestamp").cast(pa.int64()).to_pylist() == [shown]
    (out,) = prepare(
        sets(batch_bytes([record(0, b"v")._replace(timestamp=timestamp)])), PLAIN, START
    ).outgoing
    columns = columns_of([out], [bytes(out.batch.body)])
    batch = columns.rows(frozenset({"timestamp"}), [(HERE, 1)], lambda _: [])
    assert batch.column("timestamp").cast(pa.int64()).to_pylist() == [shown]


def rows(*found: bytes | None) -> pa.RecordBatch:
    return rows_of([ConsumerRecord("t", 0, at, 0, b"k", value, ()) for at, value in enumerate(found)])


def test_fields_are_sent_instead_of_the_text_where_they_could_be_read() -> None:
    declared = pa.struct([("id", pa.int64()), ("email", pa.string())])
    sent = InputRows(QueryInput(("__value", "offset"), "fields", declared, ("id",)))
    found = sent.of(rows(b'{"id": 1, "email": "a"}', None, b'{"id": "x"}'))
    assert found.to_pylist() == [
        {"__value": None, "offset": 0, "__read": True, "__fields": {"id": 1}, "__flush": None},
        {"__value": None, "offset": 1, "__read": False, "__fields": None, "__flush": None},
        {"__value": b'{"id": "x"}', "offset": 2, "__read": False, "__fields": None, "__flush": None},
    ]
    assert found.schema == sent.flush.schema == sent.schema


def test_a_value_that_no_expression_reads_is_not_sent() -> None:
    sent = InputRows(QueryInput(("offset",), "presence"))
    assert sent.of(rows(b"x", None)).to_pylist() == [
        {"offset": 0, "__read": True, "__flush": None},
        {"offset": 1, "__read": False, "__flush": None},
    ]


def test_spark_reads_the_values_itself_where_the_slot_can_not() -> None:
    sent = InputRows(QueryInput(("__value",), "text"))
    assert sent.of(rows(b"x", None)).to_pylist() == [
        {"__value": b"x", "__flush": None},
        {"__value": None, "__flush": None},
    ]


MIB = 1 << 20


@pytest.mark.parametrize(
    ("value", "times", "widest", "too_large"),
    [
        (b"x" * 64 * MIB, 1, 0, True),  # with its key
        (b"x" * 60 * MIB, 1, 0, False),
        (b"x" * 30 * MIB, 3, 0, True),
        (b"x" * 30 * MIB, 3, 500, True),
        (b"x" * 30 * MIB, 2, 500, False),  # a text is not many items
        (b'{"a":[' + b"1," * 4 * MIB + b"1]}", 1, 1, True),
        (b'{"a":[' + b"1," * 4 * MIB + b"1]}", 1, 0, False),  # of a field that is not declared
        (b'{"a":[' + b"1," * 2 * MIB + b"1]}", 1, 1, False),
        (b'{"a":[' + b"1," * 2 * MIB + b"1]}", 2, 1, True),
        (b'{"a":[' + b"{}," * 60_000 + b"{}]}", 1, 500, True),
        (b'{"a":[' + b"{}," * 60_000 + b"{}]}", 1, 50, False),
        (None, 1, 500, False),
    ],
)
def test_a_record_that_needs_too_much_memory_is_not_sent(
    value: bytes | None, times: float, widest: int, too_large: bool
) -> None:
    wanted = QueryInput(("__value",), "text", times=times, widest=widest)
    found = rows(b"{}", value)
    sizes = np.array([3, len(value or b"") + 1])
    assert wanted.too_large(found, sizes).tolist() == [False, too_large]


class Sized(RecordValues):
    """Values whose bytes say how many MiB of JSON they are, as those of Avro and Protobuf may."""

    def edited(self, data: bytes, values: Sequence[bytes]) -> bytes:
        raise NotImplementedError

    def json(self, data: bytes) -> bytes:
        if not data.isdigit():
            raise UndecodableValue("no number")
        return b"x" * (int(data) << 20)


@pytest.mark.parametrize(
    ("sizes", "pieces"),
    [
        ([], []),
        ([b"1", None, b"1"], [3]),
        ([b"8", b"8", b"8"], [2, 1]),
        ([b"40", b"40", None], [1, 1, 1]),
        ([None, b"no number", b"20", b"1", b"15"], [3, 2]),
    ],
)
def test_rows_with_much_json_are_handed_to_spark_in_pieces(
    sizes: list[bytes | None], pieces: list[int]
) -> None:
    found = [
        [(row["offset"], row["__value"]) for row in piece.to_pylist()]
        for piece in decoded_rows(rows(*sizes), {"value": Sized(FormatSpec(format="json"), Changes())})
    ]
    assert [len(one) for one in found] == pieces
    shown = [b"" if one == b"no number" else one and b"x" * (int(one) << 20) for one in sizes]
    assert [row for piece in found for row in piece] == list(enumerate(shown))
    keyed = list(decoded_rows(rows(*sizes), {"key": Sized(FormatSpec(format="json"), Changes())}))
    assert [key for one in keyed for key in one.column("__key").to_pylist()] == [b""] * len(sizes)
