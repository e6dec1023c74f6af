"""Writes rows of Arrow columns as JSON objects, as the function to_json of Spark writes them.

Null fields are left out, binary is Base64, a decimal is a number with its scale, NaN and the infinities are
strings. Timestamps are ISO-8601, instants in UTC. One difference: Spark cuts a timestamp to milliseconds, and
here it keeps its microseconds and nanoseconds, unless they are zero.
"""

from __future__ import annotations

import base64
import math
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from itertools import pairwise
from typing import Any, Final

import msgspec
import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import types

_MILLIS: Final = 3  # digits
_NOT_FINITE: Final = {math.inf: "Infinity", -math.inf: "-Infinity"}
_encoder = msgspec.json.Encoder(decimal_format="number")

Values = Callable[[pa.Array], list[Any]]


class UnreadableRows(Exception):
    """Rows hold a value of which no record can be made."""


class RowEncoder:
    """Writes the rows of one schema."""

    def __init__(self, schema: pa.Schema, instants: Sequence[bool]) -> None:
        """Raises UnreadableRows.

        `instants` says of each leaf column, in their order, whether its timestamps are instants although
        their type has no time zone, as those of the Parquet type INT96 are.
        """
        _distinct(schema.names)
        leaves = iter(instants)
        self._names: list[str] = schema.names
        self._columns = [_values_of(field.type, field.name, leaves) for field in schema]

    def encode(self, rows: pa.RecordBatch) -> list[bytes]:
        """Returns a JSON object for each row. Raises UnreadableRows, and what Arrow raises."""
        columns = [values(column) for values, column in zip(self._columns, rows.columns, strict=True)]
        encode = _encoder.encode
        return [encode(row) for row in _objects(self._names, columns, rows.num_rows)]


def _timestamps(mark: str) -> Values:
    """Returns what writes timestamps as text. `mark` stands behind those that are instants."""

    def written(text: str) -> str:
        if text.startswith("<"):
            raise UnreadableRows(f"a timestamp has no date: {text.strip('<>')}")
        seconds, _, fraction = text.replace(" ", "T", 1).partition(".")
        fraction = fraction.ljust(3, "0")
        while len(fraction) > _MILLIS and fraction.endswith("000"):
            fraction = fraction[:-_MILLIS]
        return f"{seconds}.{fraction}{mark}"

    def values(array: pa.Array) -> list[Any]:
        plain = array.cast(pa.int64()).cast(pa.timestamp(array.type.unit))
        return [
            None if timestamp is None else written(timestamp)
            for timestamp in plain.cast(pa.string()).to_pylist()
        ]

    return values


def _values_of(kind: pa.DataType, path: str, leaves: Iterator[bool]) -> Values:
    """Returns the function that reads arrays of a type as values of JSON. Raises UnreadableRows."""
    if isinstance(kind, pa.BaseExtensionType):
        storage = _values_of(kind.storage_type, path, leaves)
        return lambda array: storage(array.storage)
    if types.is_dictionary(kind):
        words = _values_of(kind.value_type, path, leaves)
        return lambda array: words(array.dictionary_decode())
    if types.is_struct(kind):
        return _struct(kind, path, leaves)
    if types.is_map(kind):
        return _map(kind, path, leaves)
    if types.is_list(kind) or types.is_large_list(kind) or types.is_fixed_size_list(kind):
        items = _values_of(kind.value_type, path, leaves)
        return lambda array: _lists(array, items(array.flatten()))
    instant = next(leaves, False)
    if types.is_timestamp(kind):
        return _timestamps("Z" if instant or kind.tz is not None else "")
    if types.is_date(kind) or types.is_time(kind):
        return lambda array: array.cast(pa.string()).to_pylist()
    if types.is_duration(kind):
        return lambda array: array.cast(pa.int64()).to_pylist()
    if types.is_floating(kind):
        return _floats
    return lambda array: array.to_pylist()


def _struct(kind: pa.DataType, path: str, leaves: Iterator[bool]) -> Values:
    names = [kind.field(at).name for at in range(kind.num_fields)]
    _distinct(names, f" of {path}")
    fields = [_values_of(kind.field(at).type, f"{path}.{name}", leaves) for at, name in enumerate(names)]

    def values(array: pa.Array) -> list[Any]:
        columns = [read(column) for read, column in zip(fields, array.flatten(), strict=True)]
        rows = _objects(names, columns, len(array))
        return [row if valid else None for row, valid in zip(rows, array.is_valid().to_pylist(), strict=True)]

    return values


def _map(kind: pa.DataType, path: str, leaves: Iterator[bool]) -> Values:
    keys = _values_of(kind.key_type, f"{path}.key", leaves)
    items = _values_of(kind.item_type, f"{path}.value", leaves)
    pairs = pa.list_(pa.struct([("key", kind.key_type), ("value", kind.item_type)]))

    def values(array: pa.Array) -> list[Any]:
        plain = array.cast(pairs)
        names, contents = plain.flatten().flatten()
        entries = list(zip(map(_key, keys(names)), items(contents), strict=True))
        return [None if members is None else dict(members) for members in _lists(plain, entries)]

    return values


def _lists(array: pa.Array, items: list[Any]) -> list[Any]:
    """Returns the items of all lists, one behind the other, as lists."""
    lengths = pc.list_value_length(array).to_pylist()
    ends = [0]
    for length in lengths:
        ends.append(ends[-1] + (length or 0))
    return [
        None if length is None else items[begin:end]
        for length, (begin, end) in zip(lengths, pairwise(ends), strict=True)
    ]


def _floats(array: pa.Array) -> list[Any]:
    """Returns numbers with the fewest digits that name them: a float of 32 bits is 0.1."""
    if types.is_float16(array.type):
        array = array.cast(pa.float32())
    if types.is_float32(array.type):
        array = array.cast(pa.string()).cast(pa.float64())
    return [
        value if value is None or math.isfinite(value) else _NOT_FINITE.get(value, "NaN")
        for value in array.to_pylist()
    ]


def _objects(names: Sequence[str], columns: Sequence[list[Any]], count: int) -> list[dict[str, Any]]:
    if not columns:
        return [{} for _ in range(count)]
    return [
        {name: value for name, value in zip(names, row, strict=True) if value is not None}
        for row in zip(*columns, strict=True)
    ]


def _key(value: Any) -> str:
    """Returns the key of a map as the name of a field."""
    if isinstance(value, str):
        return value
    if isinstance(value, bytes):
        return base64.b64encode(value).decode()
    return _encoder.encode(value).decode()


def _distinct(names: Sequence[str], where: str = "") -> None:
    if len(set(names)) < len(names):  # a file may have very many columns
        twice = Counter(names).most_common(1)[0][0]
        raise UnreadableRows(f"two fields{where} have the name {twice}")
