"""Reads the fields of JSON values in the slot where the result is certainly that of Spark's `from_json`.

Spark's parser takes most of the JVM's time for a record. msgspec is several times as fast, and makes nothing
of the members that no expression reads. It is as strict: it accepts JSON alone, and of a declared field its
type alone. A value that it does not accept goes to Spark as text, and so does one on which the two could
differ. So Spark alone decides what a bad record is.

The module is pure. `query.input_of` finds the schemas whose values can be read so.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from itertools import accumulate, chain
from typing import Annotated, Any

import msgspec
import pyarrow as pa

from runtime.sql.columns import lengths_of

# The types that it reads, by Spark's names.
SCALARS: dict[str, pa.DataType] = {
    "tinyint": pa.int8(),
    "smallint": pa.int16(),
    "int": pa.int32(),
    "bigint": pa.int64(),
    "boolean": pa.bool_(),
    "double": pa.float64(),
    "string": pa.string(),
}

# Jackson refuses numbers of more than 1,000 characters, and values that are deeper than 1,000 levels. A value
# of so many bytes has neither.
_SHORT, _LONGEST = 1_000, 50_000
_NUMBER = bytes(int(chr(byte) not in "0123456789+-.eE") for byte in range(256))
_DIGITS = bytes(_SHORT)
# An object in an array takes memory for all its fields, in Python and in Arrow, whatever members it has.
_NARROW, _MOST_FIELDS = 8, 4  # fields of an object; fields for each byte of a value


class JsonReader:
    """A reader has one compiled decoder for the values of a transform.

    `read` names the fields that expressions use. The other declared fields are not returned, but a value must
    have their types, too. `arrow` is the type of the fields that are returned.
    """

    def __init__(self, declared: pa.StructType, read: Collection[str]) -> None:
        # A text may hold anything in JSON, so one that is not read need not be looked at.
        self._fields = [each for each in declared if each.name in read or each.type != pa.string()]
        self._read = [at for at, each in enumerate(self._fields) if each.name in read]
        self._decode: Callable[[bytes], Any] = msgspec.json.Decoder(
            _msgspec_type(pa.struct(self._fields))
        ).decode
        self._widest = _widest(pa.struct(self._fields))
        self.arrow = pa.struct([self._fields[at] for at in self._read])

    def read(self, values: pa.Array) -> pa.StructArray:
        """Returns the fields of the values, null for a value that Spark has to read."""
        raw = values.to_pylist()
        longest = int(lengths_of(values).max(initial=0))
        objects: list[Any]
        try:
            if longest > _SHORT or values.null_count or self._widest > _NARROW:
                raise ValueError  # one by one
            objects = list(map(self._decode, raw))
        except (ValueError, RecursionError):
            objects = [self._one(value) for value in raw]
        if not self._read:
            return pa.array([None if value is None else {} for value in objects], self.arrow)
        columns = [_column(_member(objects, at), self._fields[at].type) for at in self._read]
        return pa.StructArray.from_arrays(columns, fields=list(self.arrow), mask=_missing(objects))

    def _one(self, value: bytes | None) -> Any:
        if value is None or len(value) > _LONGEST:
            return None
        if len(value) > _SHORT and (
            value.count(b"[") + value.count(b"{") >= _SHORT or _DIGITS in value.translate(_NUMBER)
        ):
            return None
        if self._widest > _NARROW and (value.count(b"{") - 1) * self._widest > len(value) * _MOST_FIELDS:
            return None
        try:
            return self._decode(value)
        except (ValueError, RecursionError):
            return None


def _widest(kind: pa.DataType, *, many: bool = False) -> int:
    """Returns how many fields an object within arrays has at most."""
    if isinstance(kind, pa.StructType):
        width = kind.num_fields if many else 0
        return max([width, *(_widest(field.type, many=many) for field in kind)])
    return _widest(kind.value_type, many=True) if isinstance(kind, pa.ListType) else 0


def _msgspec_type(kind: pa.DataType) -> Any:
    if isinstance(kind, pa.StructType):
        names = {f"f{at}": field.name for at, field in enumerate(kind)}
        members = [(f"f{at}", _msgspec_type(field.type) | None, None) for at, field in enumerate(kind)]
        return msgspec.defstruct("Object", members, rename=names, gc=False)
    if isinstance(kind, pa.ListType):
        return list[_msgspec_type(kind.value_type) | None]  # type: ignore[misc]
    if pa.types.is_integer(kind):
        most = 2 ** (kind.bit_width - 1)
        return Annotated[int, msgspec.Meta(ge=-most, le=most - 1)]
    return {pa.bool_(): bool, pa.float64(): float, pa.string(): str}[kind]


def _member(objects: Sequence[Any], at: int) -> list[Any]:
    name = f"f{at}"
    return [None if item is None else getattr(item, name) for item in objects]


def _column(values: Sequence[Any], kind: pa.DataType) -> pa.Array:
    if isinstance(kind, pa.StructType):
        arrays = [_column(_member(values, at), field.type) for at, field in enumerate(kind)]
        return pa.StructArray.from_arrays(arrays, fields=list(kind), mask=_missing(values))
    if isinstance(kind, pa.ListType):
        inner = _column(list(chain.from_iterable(items or () for items in values)), kind.value_type)
        ends = list(accumulate((len(items or ()) for items in values), initial=0))
        return pa.ListArray.from_arrays(pa.array(ends, pa.int32()), inner, mask=_missing(values))
    return pa.array(values, kind)


def _missing(values: Sequence[Any]) -> pa.Array:
    return pa.array([value is None for value in values], pa.bool_())
