"""Defines what the slot needs of the format of a value: to show it to Spark, and to change its fields.

The slot decodes values of Avro and Protobuf to JSON. Spark reads that by the schema in its own types.
"""

from __future__ import annotations

import base64
from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import ClassVar

import msgspec

from runtime.contract.spec.transform import FormatSpec, fields_of


class BadSchema(ValueError):
    """The text is no schema that a transform can read; the error names the place."""


class UndecodableValue(ValueError):
    """The bytes are no value of the schema. The text contains nothing of them."""


class UneditableValue(ValueError):
    """The new fields can't be written into the value. The text contains nothing of it."""


@dataclass(slots=True)
class Changes:
    """The fields of one record that change: dropped, set by the number of the value, or changed inside.

    Values have the numbers of the sorted paths.
    """

    drop: set[str] = field(default_factory=set)
    set: dict[str, int] = field(default_factory=dict)
    inside: dict[str, Changes] = field(default_factory=dict)

    @classmethod
    def of(cls, paths: Iterable[str], drop: Iterable[str]) -> Changes:
        """Returns the changes of the outermost record."""
        root = cls()
        for path in drop:
            *outer, last = fields_of(path)
            root._at(outer).drop.add(last)
        for number, path in enumerate(sorted(paths)):
            *outer, last = fields_of(path)
            root._at(outer).set[last] = number
        return root

    def _at(self, names: Sequence[str]) -> Changes:
        changes = self
        for name in names:
            changes = changes.inside.setdefault(name, Changes())
        return changes


class RecordValues(ABC):
    """The values of one part of a flow's records, a key or a value, in one format.

    Where `decodes` says so, Spark reads what `json` returns in place of the bytes.
    """

    decodes: ClassVar[bool] = True

    def __init__(self, form: FormatSpec, changes: Changes) -> None:
        """Raises BadSchema. `changes` are the fields that change in each value."""
        self._changes = changes

    @classmethod
    def ddl(cls, schema: str) -> str:
        """Returns the fields of a schema in Spark's DDL. Raises BadSchema for what expressions can't read."""
        return schema

    @classmethod
    def check(cls, schema: str, changes: Changes) -> None:
        """Raises BadSchema where a field of the declared schema can't be changed."""
        return

    async def prepare(self, values: Iterable[bytes | None]) -> None:
        """Fetches the schemas of these values that are not known. Raises RegistryUnavailable."""
        return

    def json(self, data: bytes) -> bytes:
        """Returns a value as JSON. Raises UndecodableValue."""
        return data

    @abstractmethod
    def edited(self, data: bytes, values: Sequence[bytes]) -> bytes:
        """Returns a value with its new fields, which come as JSON by sorted path. Raises UneditableValue."""


class TextValues(RecordValues):
    """Texts, which change as a whole."""

    decodes = False

    def edited(self, data: bytes, values: Sequence[bytes]) -> bytes:
        text = msgspec.json.decode(values[0], type=str | None)
        if text is None:  # it would become a tombstone
            raise UneditableValue("its new value is null")
        return text.encode()


class BinaryValues(TextValues):
    """Bytes, which change as a whole. Their JSON is Base64."""

    def edited(self, data: bytes, values: Sequence[bytes]) -> bytes:
        return base64.b64decode(super().edited(data, values))
