"""Defines what the slot needs of a format that Spark does not read by itself: Avro and Protobuf.

The slot decodes such a value to JSON. Spark reads that by the schema in its own types.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from runtime.contract.spec.transform import fields_of


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
        found = self
        for name in names:
            found = found.inside.setdefault(name, Changes())
        return found


class EncodedValues(Protocol):
    """The values of one part of a flow's records, a key or a value."""

    async def prepare(self, values: Iterable[bytes | None]) -> None:
        """Fetches the schemas of these values that are not known. Raises RegistryUnavailable."""

    def json(self, data: bytes) -> bytes:
        """Returns a value as JSON. Raises UndecodableValue."""

    def edited(self, data: bytes, values: Sequence[bytes]) -> bytes:
        """Returns a value with its new fields, which come as JSON by sorted path. Raises UneditableValue."""
