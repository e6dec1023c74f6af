"""Defines which columns the query of a transform reads, and makes them from the rows of the slot.

A column that no expression reads is not sent. Nor is the text of a value whose fields the slot has read
(`json_reader`): Spark gets those of its fields that expressions read.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Literal

import numpy as np
import pyarrow as pa

from runtime.batch.arrays import Integers
from runtime.contract.spec.transform import FIELDS, TransformSpec
from runtime.contract.spec.transform import VALUE as VALUE_PART
from runtime.sql.columns import SCHEMA, Flags
from runtime.sql.formats.encoded import RecordValues, UndecodableValue
from runtime.sql.json_reader import JsonReader
from runtime.sql.rows import COLUMNS, FLUSH, KEY, VALUE

# Beside the columns of a row: whether the slot has read the value, and the fields that it has read.
READ, READ_FIELDS = "__read", "__fields"

PARTS = {VALUE_PART: VALUE, "key": KEY}  # the columns of the parts of a record
_MOST_BYTES = 64 << 20  # of what the query may make of one record
ITEM_BYTES = 16  # of an item of an array, or of a field of an object in one, at least
_DECODED_BYTES = 16 << 20  # of the JSON about which Spark is asked together; one larger value goes alone

_WORDS = re.compile(r"\w+")
_VALUE = re.compile(r"\bvalue\b", re.IGNORECASE)
_MEMBER = re.compile(r"`?\s*\.\s*(?:(\w+)|`((?:[^`]|``)+)`)")


@dataclass(frozen=True, slots=True)
class QueryInput:
    """Says what the query gets of each record.

    `value` is `text` where Spark reads the values itself, `fields` where the slot reads them by `declared`,
    and `presence` where no expression reads them and all bytes are valid. `shown` are the fields that
    expressions read, and `whole` says that one may read the value as a whole.

    A record that could take too much memory (`too_large`) is not sent, and its answer is that of a record on
    which an expression fails. `times` is how many times as large as a record that is which expressions make
    of it. `widest` is how many fields an item of the schema's arrays and maps has at most, 0 without any.
    """

    columns: tuple[str, ...]
    value: Literal["text", "fields", "presence"]
    declared: pa.StructType | None = None
    shown: tuple[str, ...] = ()
    whole: bool = False
    times: float = 1.0
    widest: int = 0

    def too_large(self, rows: pa.RecordBatch, sizes: Integers) -> Flags:
        """Returns which records could take more memory than the JVM of a job can give.

        `sizes` are the bytes of their keys and values. A text of two characters may be an item of an array,
        and one of three an object without members, which takes the memory of all its fields.
        """
        too_large = sizes * self.times > _MOST_BYTES
        if self.widest:
            most = sizes * self.times * (1 + ITEM_BYTES * (1 + self.widest / 3))
            for at in np.flatnonzero(~too_large & (most > _MOST_BYTES)):
                texts = [rows.column(name)[int(at)].as_py() or b"" for name in (KEY, VALUE)]
                items = sum(text.count(b",") + text.count(b"{") * self.widest for text in texts)
                too_large[at] = (sizes[at] + items * ITEM_BYTES) * self.times > _MOST_BYTES
        return too_large


def read_columns(transform: TransformSpec) -> frozenset[str]:
    """Returns the columns that the expressions may read; the others need not be sent.

    It goes by the names that occur in their texts, so it may name a column that is not read.
    """
    words = _words(transform)
    columns = {name for name, _ in COLUMNS if name in words}
    if "key" in words or transform.key.format in FIELDS:
        columns.add(KEY)
    return frozenset({*columns, VALUE})


def reads_value(transform: TransformSpec) -> bool:
    """Returns whether an expression may read the value."""
    return "value" in _words(transform)


def read_fields(transform: TransformSpec) -> frozenset[str] | None:
    """Returns the fields of the value, in lower case, that expressions may read; None for all of them.

    It goes by the texts: all are read where `value` stands without a field behind it.
    """
    fields: set[str] = set()
    for text in transform.expressions:
        for place in _VALUE.finditer(text):
            member = _MEMBER.match(text, place.end())
            if member is None:
                return None
            fields.add((member[1] or member[2].replace("``", "`")).lower())
    return frozenset(fields)


def _words(transform: TransformSpec) -> frozenset[str]:
    return frozenset(word.lower() for text in transform.expressions for word in _WORDS.findall(text))


class InputRows:
    """Makes the query's rows from those of the slot."""

    def __init__(self, wanted: QueryInput) -> None:
        self._wanted = wanted
        self._reader = JsonReader(wanted.declared, wanted.shown) if wanted.value == "fields" else None
        columns = [SCHEMA.field(name) for name in wanted.columns]
        if wanted.value != "text":
            columns.append(pa.field(READ, pa.bool_()))
        if self._reader is not None and wanted.shown:
            columns.append(pa.field(READ_FIELDS, self._reader.arrow))
        columns.append(pa.field(FLUSH, pa.bool_()))
        self.schema = pa.schema(columns)
        nulls = {each.name: pa.nulls(2, each.type) for each in columns}
        # Spark passes answers on when it sees that there is another row.
        nulls[FLUSH] = pa.array([True, None])
        self.flush = pa.RecordBatch.from_arrays([*nulls.values()], schema=self.schema)

    def of(self, rows: pa.RecordBatch) -> pa.RecordBatch:
        """Returns what the query gets of these rows."""
        columns = {name: rows.column(name) for name in self._wanted.columns if name != VALUE}
        value = rows.column(VALUE)
        match self._wanted.value:
            case "text":
                columns[VALUE] = value
            case "presence":
                columns[READ] = value.is_valid()
            case "fields":
                assert self._reader is not None
                fields = self._reader.read(value)
                columns[READ] = fields.is_valid()
                columns[READ_FIELDS] = fields
                columns[VALUE] = pa.nulls(len(value), value.type)
                if fields.null_count:  # the text of a value that was read is not needed
                    columns[VALUE] = pa.compute.if_else(fields.is_valid(), columns[VALUE], value)
        columns[FLUSH] = pa.nulls(len(value), pa.bool_())
        return pa.RecordBatch.from_arrays([columns[name] for name in self.schema.names], schema=self.schema)


def decoded_rows(rows: pa.RecordBatch, encoded: Mapping[str, RecordValues]) -> Iterator[pa.RecordBatch]:
    """Yields the rows with JSON for the parts that the slot decodes, in pieces of bounded size.

    A value can be much larger as JSON, and the JSON of a piece is held in memory (R8).
    """
    raw = {part: rows.column(PARTS[part]).to_pylist() for part in encoded}
    texts: dict[str, list[bytes | None]] = {part: [] for part in encoded}
    begin = size = 0
    for end in range(1, rows.num_rows + 1):
        for part, values in encoded.items():
            text = _readable(values, raw[part][end - 1])
            texts[part].append(text)
            size += len(text or b"")
        if size >= _DECODED_BYTES or end == rows.num_rows:
            piece = rows.slice(begin, end - begin)
            for part, column in texts.items():
                at = SCHEMA.get_field_index(PARTS[part])
                piece = piece.set_column(at, SCHEMA.field(at), pa.array(column, pa.binary()))
                column.clear()
            yield piece
            begin, size = end, 0


def _readable(values: RecordValues, data: bytes | None) -> bytes | None:
    """Returns the bytes as Spark reads them: JSON, or nothing where they can't be decoded."""
    if data is None:
        return data
    try:
        return values.json(data)
    except UndecodableValue:
        return b""  # no JSON object, so Spark answers that the record does not match its format
