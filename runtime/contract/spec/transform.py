"""Defines the transform of a flow, and the quarantine of its bad records.

A transform defines which records are copied, and how their values change. Spark evaluates the expressions. A
path such as `value.address.city` names a field of a JSON value.

A quarantined record has the key, the value and the headers of the source's record, byte by byte. The headers
of `quarantine_headers` follow them. Its timestamp is the time of the quarantine, so that the topic's
retention counts from then. It is written in the transaction that moves the flow's position past the record:
exactly once.
"""

from collections.abc import Iterable, Iterator
from typing import Annotated, ClassVar, Literal

from msgspec import Struct, field

from runtime.contract.spec.schemas import RegistrySpec
from runtime.contract.spec.shapes import (
    AlternativesShape,
    Key,
    MapShape,
    RecordName,
    SpecStruct,
    TextShape,
    record_of,
)
from runtime.contract.spec.topic_settings import DEFAULT_MAX_MESSAGE_BYTES, MAX_MESSAGE_BYTES

VALUE = "value"


class SchemaFile(Struct, frozen=True, kw_only=True):
    """The schema of a format, in a file beside the topology."""

    record: ClassVar = RecordName("transform-schema-file", "a file with a schema")

    file: Annotated[
        str,
        Key(
            "The file, relative to the one that names it, in its folder or below.",
            TextShape("a path"),
            example="customer.avsc",
        ),
    ]
    message: Annotated[
        str | None,
        Key(
            "The message that the values are, for `format: protobuf`. The file is a FileDescriptorSet then.",
            TextShape("the full name of a message"),
            example="shop.Customer",
        ),
    ] = None


class FormatSpec(SpecStruct, frozen=True):
    """How the bytes of a key or a value are read.

    The schema of JSON is Spark's DDL, that of Avro the text of its `.avsc` file. That of Protobuf is the full
    name of a message, a blank, and a FileDescriptorSet in base64. With a registry, values have
    Confluent's wire format, and the schema is the reader's.
    """

    record: ClassVar = RecordName("transform-format", "a format")

    format: Annotated[
        Literal["json", "avro", "protobuf", "text", "binary"], Key("`text` is UTF-8.", example="json")
    ] = "binary"
    schema: Annotated[
        str | None,
        Key(
            "The fields of JSON that expressions read, in Spark's DDL, or the schema of Avro. Other fields"
            " travel unchanged. `{file: path}` reads it from a file beside the topology. For Protobuf,"
            " `{file: customer.desc, message: shop.Customer}` names a FileDescriptorSet and a message of it.",
            AlternativesShape((TextShape("a schema"), record_of(SchemaFile)), "a schema, or {file: path}"),
            example='"id BIGINT, email STRING, card STRING"',
            converter="schema",
        ),
    ] = None
    registry: Annotated[
        RegistrySpec | None,
        Key(
            "The schema registry of Avro or Protobuf in Confluent's wire format. The schema is the"
            " reader's then.",
            example="{url: https://registry.example.org:8081}",
            unset=True,
        ),
    ] = None


FIELDS = ("json", "avro", "protobuf")  # the formats whose values have fields


class TransformSpec(SpecStruct, frozen=True, kw_only=True):
    """What a flow does to a record on its way, in Spark SQL.

    Expressions read the columns `key`, `value`, `headers`, `topic`, `partition`, `offset`, `timestamp` and
    `timestamp_type` of the source's record.
    """

    record: ClassVar = RecordName("transform", "a transform")

    value: Annotated[
        FormatSpec, Key("How values are read.", example='{format: json, schema: "id BIGINT, email STRING"}')
    ] = FormatSpec()
    key: Annotated[FormatSpec, Key("How keys are read.", example="{format: text}")] = FormatSpec()
    where: Annotated[
        str | None,
        Key(
            "A record travels where this is true. A tombstone (null value) always travels.",
            TextShape("a condition in Spark SQL"),
            example="\"value.country <> 'DE' AND headers['test'] IS NULL\"",
        ),
    ] = None
    on_filtered: Annotated[
        Literal["skip", "tombstone"] | None,
        Key(
            "What is copied of a record that `where` leaves out: `skip` nothing, `tombstone` its key with a"
            " null value, so that compaction at the destination removes the key's older record. The keys of"
            " filtered records arrive at the destination then. A record without a key is skipped.",
            default_doc="`skip`",
            example="tombstone",
        ),
    ] = None
    set: Annotated[
        dict[str, str],
        Key(
            "New values of fields, each an expression over the source's record.",
            MapShape(
                TextShape("a field such as value.email"), TextShape("an expression in Spark SQL"), "field"
            ),
            example='{value.email: "sha2(value.email, 256)"}',
        ),
    ] = field(default_factory=dict)
    drop: Annotated[
        tuple[Annotated[str, TextShape("a field such as value.card")], ...],
        Key("Fields that are removed.", example="[value.card]"),
    ] = ()
    on_bad_record: Annotated[
        Literal["stop", "quarantine"],
        Key(
            "What happens at a record that does not match its format, or on which an expression fails: `stop`"
            " stops its partition and names the offset, `quarantine` writes the record as it came to"
            " TOPIC.quarantine at the destination, and goes on.",
            example="stop",
        ),
    ] = "stop"

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
    def registries(self) -> tuple[RegistrySpec, ...]:
        """The schema registries that values and keys are decoded by."""
        forms = (self.value, self.key)
        return tuple(form.registry for form in forms if form.registry is not None)

    @property
    def expressions(self) -> list[str]:
        """Every expression, in a fixed order: `where`, then those of `set` by path."""
        where = [self.where] if self.where is not None else []
        return [*where, *(self.set[path] for path in sorted(self.set))]


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
    most = int(largest) if largest is not None and largest.isdecimal() else DEFAULT_MAX_MESSAGE_BYTES
    return {**QUARANTINE_SETTINGS, MAX_MESSAGE_BYTES: str(most + _HEADER_ROOM)}


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


def quarantined_from(headers: Iterable[tuple[str, bytes | None]] | None) -> tuple[str, int, int] | None:
    """Returns topic, partition and offset at the source, of a record that a flow wrote to a quarantine topic.

    The flow's own headers are the last ones: the source's record may have headers of the same names. None
    where they tell no place: anybody may write headers.
    """
    named = dict(headers or ())
    topic, partition, offset = (named.get(name) for name in (_TOPIC, _PARTITION, _OFFSET))
    if topic is None or partition is None or offset is None:
        return None
    try:
        return topic.decode(), int(partition), int(offset)
    except ValueError:
        return None
