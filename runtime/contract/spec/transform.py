"""Defines the transform of a flow as a job runs it, and the quarantine of its bad records.

A transform defines which records are copied, and how their values change. Spark evaluates the expressions. A
path such as `value.address.city` names a field of a JSON value.

A quarantined record has the key, the value and the headers of the source's record, byte by byte. The headers
of `quarantine_headers` follow them. Its timestamp is the time of the quarantine, so that the topic's
retention counts from then. It is written in the transaction that moves the flow's position past the record:
exactly once.
"""

from collections.abc import Iterable, Iterator
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

    The schema of JSON is Spark's DDL, that of Avro the text of its `.avsc` file. That of Protobuf is the full
    name of a message, a blank, and a FileDescriptorSet in base64. With a registry, values have
    Confluent's wire format, and the schema is the reader's.
    """

    format: Literal["json", "avro", "protobuf", "text", "binary"] = "binary"
    schema: str | None = None
    registry: RegistrySpec | None = None


FIELDS = ("json", "avro", "protobuf")  # the formats whose values have fields


class TransformSpec(
    msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True
):
    """Describes the transform of a flow.

    A record is copied if `where` is true. A tombstone is always copied. `on_filtered` is for a record that
    `where` leaves out. `set` maps paths of the value to expressions, `drop` lists paths that are removed.
    `on_bad_record` is for a record that does not match its format, or on which an expression fails.
    """

    value: FormatSpec = FormatSpec()
    key: FormatSpec = FormatSpec()
    where: str | None = None
    set: dict[str, str] = {}
    drop: list[str] = []
    on_bad_record: Literal["stop", "quarantine"] = "stop"
    on_filtered: Literal["skip", "tombstone"] = "skip"

    def deletes(self, key: bytes | None) -> bool:
        """Returns whether a record with this key that `where` leaves out is copied as a tombstone."""
        return self.on_filtered == "tombstone" and key is not None

    @property
    def lossy(self) -> bool:
        """Whether the destination does not have the value that the source has."""
        return bool(self.set or self.drop)

    @property
    def quarantines(self) -> bool:
        """Whether a bad record is written to the quarantine topic, and the partition continues after it."""
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


QUARANTINE_SUFFIX = ".quarantine"
QUARANTINE_PATTERN = r".*\.quarantine"

_REASON = "repl.reason"
_FLOW = "repl.flow"
_TOPIC = "repl.topic"
_PARTITION = "repl.partition"
_OFFSET = "repl.offset"
_TIMESTAMP = "repl.timestamp"  # of the record at the source, in ms since 1970

_HEADER_ROOM = 64 << 10  # how much larger a record of the quarantine may be than one of the mirror
_LARGEST = "max.message.bytes"
_DEFAULT_LARGEST = 1_048_588

# Nothing is removed before an operator has decided. A topology that declares the topic may say otherwise.
QUARANTINE_SETTINGS = {
    "cleanup.policy": "delete",
    "compression.type": "producer",
    "message.timestamp.type": "CreateTime",
    "retention.ms": "-1",
}


def quarantine_topic(mirror: str) -> str:
    """Returns the name of the quarantine topic of a mirror, at the same cluster."""
    return mirror + QUARANTINE_SUFFIX


def quarantine_origin(flow: str) -> str:
    """Returns the origin of a flow's quarantine topics in the registry."""
    return f"quarantine of flow.{flow}"


def quarantine_settings(largest: str | None) -> dict[str, str]:
    """Returns the settings of a new quarantine topic. `largest` is the mirror's max.message.bytes."""
    most = int(largest) if largest is not None and largest.isdecimal() else _DEFAULT_LARGEST
    return {**QUARANTINE_SETTINGS, _LARGEST: str(most + _HEADER_ROOM)}


def quarantine_headers(
    reason: str, flow: str, topic: str, partition: int, offset: int, timestamp: int
) -> Iterator[tuple[bytes, bytes]]:
    """Yields the headers of a quarantined record.

    They hold no value of the record, whatever the reason is.
    """
    for name, value in (
        (_REASON, reason),
        (_FLOW, flow),
        (_TOPIC, topic),
        (_PARTITION, str(partition)),
        (_OFFSET, str(offset)),
        (_TIMESTAMP, str(timestamp)),
    ):
        yield name.encode(), value.encode()
