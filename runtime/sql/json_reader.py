"""Reads the fields of JSON values in the slot where the result is certainly that of Spark's `from_json`.

Spark's parser takes most of the JVM's time for a record. msgspec is several times as fast, and makes nothing
of the members that no expression reads. It is as strict: it accepts JSON alone, and of a declared field its
type alone. A value that it does not accept goes to Spark as text, and so does one on which the two could
differ. So Spark alone decides what a bad record is.

The module is pure. `query.json_fields_of` makes the fields of a schema in Spark's types.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import accumulate, chain
from typing import Annotated, Any, NamedTuple

import msgspec
import numpy as np
import pyarrow as pa

from runtime.sql.columns import Flags, bytes_of

_INTEGERS = {
    "tinyint": (Annotated[int, msgspec.Meta(ge=-(2**7), le=2**7 - 1)], pa.int8()),
    "smallint": (Annotated[int, msgspec.Meta(ge=-(2**15), le=2**15 - 1)], pa.int16()),
    "int": (Annotated[int, msgspec.Meta(ge=-(2**31), le=2**31 - 1)], pa.int32()),
    "bigint": (Annotated[int, msgspec.Meta(ge=-(2**63), le=2**63 - 1)], pa.int64()),
}
_SCALARS: dict[str, tuple[Any, pa.DataType]] = {
    **_INTEGERS,
    "boolean": (bool, pa.bool_()),
    "double": (float, pa.float64()),
    "string": (str, pa.string()),
}
SCALARS = frozenset(_SCALARS)  # by Spark's names of types

# Jackson refuses numbers of more than 1,000 characters, and values that are deeper than 1,000 levels. A value
# of so many bytes has neither.
_SHORT, _LONGEST = 1_000, 50_000
_NUMBER = bytes(int(chr(one) not in "0123456789+-.eE") for one in range(256))
_DIGITS = bytes(_SHORT)
# An object in an array takes memory for all its fields, in Python and in Arrow, whatever members it has.
_NARROW, _MOST_FIELDS = 8, 4  # fields of an object; fields for each byte of a value


@dataclass(frozen=True, slots=True)
class JsonArray:
    """The type of a field that is an array."""

    element: JsonType


@dataclass(frozen=True, slots=True)
class JsonField:
    """A field of an object. `read` says whether an expression reads it; its type must match in any case."""

    name: str
    type: JsonType
    read: bool = True


@dataclass(frozen=True, slots=True)
class JsonObject:
    """The type of an object."""

    fields: tuple[JsonField, ...]


JsonType = str | JsonArray | JsonObject


class ReadValues(NamedTuple):
    """What was read of some values: which of them could be read, and their fields."""

    valid: Flags
    fields: pa.StructArray | None


class JsonReader:
    """A reader has one compiled decoder for the values of a transform."""

    def __init__(self, declared: JsonObject) -> None:
        # A text may hold anything in JSON, so one that is not read need not be looked at.
        self._object = JsonObject(tuple(one for one in declared.fields if one.read or one.type != "string"))
        self._decode: Callable[[bytes], Any] = msgspec.json.Decoder(_msgspec_type(self._object)).decode
        self._widest = _widest(self._object)
        read = tuple(one for one in self._object.fields if one.read)
        self.arrow = _arrow_type(JsonObject(read)) if read else None

    def read(self, values: pa.Array) -> ReadValues:
        """Returns the fields of the values. Those of other values are null."""
        raw = values.to_pylist()
        longest = int(np.diff(bytes_of(values).places).max(initial=0))
        found: list[Any]
        try:
            if longest > _SHORT or values.null_count or self._widest > _NARROW:
                raise ValueError  # one by one
            found = list(map(self._decode, raw))
        except (ValueError, RecursionError):
            found = [self._one(value) for value in raw]
        valid = np.fromiter((one is not None for one in found), np.bool_, len(found))
        if self.arrow is None:
            return ReadValues(valid, None)
        columns = (
            _column(_member(found, at), one.type) for at, one in enumerate(self._object.fields) if one.read
        )
        fields = pa.StructArray.from_arrays(list(columns), fields=list(self.arrow), mask=pa.array(~valid))
        return ReadValues(valid, fields)

    def _one(self, value: bytes | None) -> Any:
        if value is None or (len(value) > _SHORT and not _within_limits(value)):
            return None
        if self._widest > _NARROW and (value.count(b"{") - 1) * self._widest > len(value) * _MOST_FIELDS:
            return None
        try:
            return self._decode(value)
        except (ValueError, RecursionError):
            return None


def _within_limits(value: bytes) -> bool:
    """Returns whether Spark's parser certainly refuses nothing for its length or depth."""
    if len(value) > _LONGEST or value.count(b"[") + value.count(b"{") >= _SHORT:
        return False
    return _DIGITS not in value.translate(_NUMBER)


def _widest(kind: JsonType, *, many: bool = False) -> int:
    """Returns how many fields an object within arrays has at most."""
    match kind:
        case JsonObject(fields):
            own = len(fields) if many else 0
            return max([own, *(_widest(one.type, many=many) for one in fields)])
        case JsonArray(element):
            return _widest(element, many=True)
        case _:
            return 0


def _msgspec_type(kind: JsonType) -> Any:
    match kind:
        case JsonObject(fields):
            names = {f"f{at}": one.name for at, one in enumerate(fields)}
            members = [(f"f{at}", _msgspec_type(one.type) | None, None) for at, one in enumerate(fields)]
            return msgspec.defstruct("Object", members, rename=names, gc=False)
        case JsonArray(element):
            return list[_msgspec_type(element) | None]  # type: ignore[misc]
        case _:
            return _SCALARS[kind][0]


def _arrow_type(kind: JsonType) -> pa.DataType:
    match kind:
        case JsonObject(fields):
            return pa.struct([pa.field(one.name, _arrow_type(one.type)) for one in fields])
        case JsonArray(element):
            return pa.list_(_arrow_type(element))
        case _:
            return _SCALARS[kind][1]


def _member(objects: Sequence[Any], at: int) -> list[Any]:
    name = f"f{at}"
    return [None if one is None else getattr(one, name) for one in objects]


def _column(values: Sequence[Any], kind: JsonType) -> pa.Array:
    match kind:
        case JsonObject(fields):
            arrays = [_column(_member(values, at), one.type) for at, one in enumerate(fields)]
            return pa.StructArray.from_arrays(arrays, fields=list(_arrow_type(kind)), mask=_missing(values))
        case JsonArray(element):
            inner = _column(list(chain.from_iterable(one or () for one in values)), element)
            ends = list(accumulate((len(one or ()) for one in values), initial=0))
            return pa.ListArray.from_arrays(pa.array(ends, pa.int32()), inner, mask=_missing(values))
        case _:
            return pa.array(values, _SCALARS[kind][1])


def _missing(values: Sequence[Any]) -> pa.Array:
    return pa.array([one is None for one in values], pa.bool_())
