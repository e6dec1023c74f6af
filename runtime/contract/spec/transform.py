"""Defines the transform of a flow as a job runs it: which records travel, and what of their values.

Spark evaluates the expressions. A path such as `value.address.city` names a field of a JSON value.
"""

from collections.abc import Iterable
from typing import Literal

import msgspec

VALUE = "value"


Setting = str | dict[str, str]  # text, or {"env": VAR}


class RegistrySpec(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """Says how a schema registry is reached. Secrets are references."""

    url: str
    client: dict[str, Setting] = {}


class FormatSpec(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """Says how the bytes of a key or a value are read.

    The schema of JSON is Spark's DDL, that of Avro the text of its `.avsc` file. With a registry, values have
    Confluent's wire format, and the schema is the reader's.
    """

    format: Literal["json", "avro", "text", "binary"] = "binary"
    schema: str | None = None
    registry: RegistrySpec | None = None


FIELDS = ("json", "avro")  # the formats whose values have fields


class TransformSpec(
    msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True
):
    """Describes the transform of a flow.

    A record travels where `where` is true, and a tombstone always does. `set` maps paths of the value to
    expressions, `drop` lists paths that are removed. `on_bad_record` is for a record that does not match its
    format, or on which an expression fails.
    """

    value: FormatSpec = FormatSpec()
    key: FormatSpec = FormatSpec()
    where: str | None = None
    set: dict[str, str] = {}
    drop: list[str] = []
    on_bad_record: Literal["stop", "quarantine"] = "stop"

    @property
    def lossy(self) -> bool:
        """Whether the destination does not have the value that the source has."""
        return bool(self.set or self.drop)

    @property
    def quarantines(self) -> bool:
        """Whether a bad record goes to the quarantine topic, and the partition goes on behind it."""
        return self.on_bad_record == "quarantine"

    @property
    def expressions(self) -> list[str]:
        """Every expression, in a fixed order: `where`, then those of `set` by path."""
        found = [self.where] if self.where is not None else []
        return [*found, *(self.set[path] for path in sorted(self.set))]


def fields_of(path: str) -> tuple[str, ...]:
    """Returns the names of the fields that a path leads through; none for the whole value."""
    return tuple(path.split(".")[1:])


def overlapping(paths: Iterable[str]) -> list[tuple[str, str]]:
    """Returns the pairs of paths of which the second is the first one, or lies inside it."""
    ordered = sorted(paths, key=lambda path: path.split("."))
    return [
        (outer, inner)
        for at, outer in enumerate(ordered)
        for inner in ordered[at + 1 :]
        if inner.split(".")[: len(outer.split("."))] == outer.split(".")
    ]
