"""What a flow does with records: where it starts to copy, which of them travel, and what of their values."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Annotated, ClassVar, Literal

from planner.model.shapes import (
    AlternativesShape,
    ChoiceShape,
    IntegerShape,
    Key,
    ListShape,
    MapShape,
    RecordKeyShape,
    RecordName,
    RecordShape,
    SettingsShape,
    TextShape,
    TimestampShape,
    TopicNameShape,
    record_of,
)
from planner.model.topology.resources import Setting


@dataclass(frozen=True, slots=True)
class StartAt:
    """A start at the first or behind the last record: `earliest` or `latest`."""

    at: Literal["earliest", "latest"]


@dataclass(frozen=True, slots=True)
class StartAtTimestamp:
    """A start at the first record that is as late as a time."""

    record: ClassVar = RecordName("start-timestamp", "a start by time")

    timestamp_ms: Annotated[
        int,
        Key("The first record at or after this time.", TimestampShape(), example="2026-01-01T00:00:00Z"),
    ]


@dataclass(frozen=True, slots=True)
class StartAtOffsets:
    """A start at an offset of each partition.

    What is not named starts at earliest; with restart_from it stays where it is.
    """

    record: ClassVar = RecordName("start-offsets", "a start by offsets")

    offsets: Annotated[
        Mapping[str, Mapping[int, int]],
        Key(
            "By source topic and partition, which may stand in quotes; what is not named starts at earliest,"
            " and with `restart_from` stays where it is.",
            MapShape(
                TopicNameShape(),
                MapShape(IntegerShape(quoted=True), IntegerShape(0, 2**63 - 1), "partition", least=1),
                "topic",
                least=1,
            ),
            example="{orders: {0: 42}}",
        ),
    ]


EARLIEST = StartAt("earliest")
Start = StartAt | StartAtTimestamp | StartAtOffsets
START = AlternativesShape(
    (ChoiceShape(("earliest", "latest")), record_of(StartAtTimestamp), record_of(StartAtOffsets)),
    "earliest, latest, {timestamp: …} or {offsets: …}",
)


class RecordFormat(StrEnum):
    JSON = "json"
    AVRO = "avro"
    PROTOBUF = "protobuf"
    TEXT = "text"
    BINARY = "binary"


class OnBadRecord(StrEnum):
    STOP = "stop"
    QUARANTINE = "quarantine"


class OnFiltered(StrEnum):
    SKIP = "skip"
    TOMBSTONE = "tombstone"


SCHEMA_FILE = RecordShape(
    "transform-schema-file",
    "a file with a schema",
    (
        RecordKeyShape(
            "file",
            TextShape("a path"),
            "The file, relative to the one that names it, in its folder or below.",
            example="customer.avsc",
            required=True,
            field="file",
        ),
        RecordKeyShape(
            "message",
            TextShape("the full name of a message"),
            "The message that the values are, for `format: protobuf`. The file is a FileDescriptorSet then.",
            default_doc="unset",
            example="shop.Customer",
            field="message",
        ),
    ),
)


@dataclass(frozen=True, slots=True)
class Registry:
    """A schema registry that speaks Confluent's API."""

    record: ClassVar = RecordName("transform-registry", "a schema registry")

    url: Annotated[
        str,
        Key(
            "Where the registry is.",
            TextShape(
                "a web address", r"https?://[^\s/@]+(?:/[^\s@]*)?", "write it as https://registry:8081"
            ),
            example="https://registry.example.org:8081",
        ),
    ]
    client: Annotated[
        Mapping[str, Setting],
        Key(
            "How to connect: `sasl.username` and `sasl.password` for basic authentication, `ssl.ca.location`,"
            " `ssl.certificate.location`, `ssl.key.location` and `ssl.key.password`. Secrets are"
            " `{env: VARIABLE}`, resolved where the job runs.",
            SettingsShape(client=True, expected="a map of settings"),
            example="{sasl.username: repl, sasl.password: {env: REGISTRY_PASSWORD}}",
        ),
    ] = field(default_factory=dict, repr=False)


@dataclass(frozen=True, slots=True)
class Format:
    """How the bytes of a key or a value are read."""

    record: ClassVar = RecordName("transform-format", "a format")

    format: Annotated[
        RecordFormat,
        Key("`text` is UTF-8.", example="json"),
    ] = RecordFormat.BINARY
    schema: Annotated[
        str | None,
        Key(
            "The fields of JSON that expressions read, in Spark's DDL, or the schema of Avro. Other fields"
            " travel unchanged. `{file: path}` reads it from a file beside the topology. For Protobuf,"
            " `{file: customer.desc, message: shop.Customer}` names a FileDescriptorSet and a message of it.",
            AlternativesShape((TextShape("a schema"), SCHEMA_FILE), "a schema, or {file: path}"),
            example='"id BIGINT, email STRING, card STRING"',
            converter="schema",
        ),
    ] = None
    registry: Annotated[
        Registry | None,
        Key(
            "The schema registry of Avro or Protobuf in Confluent's wire format. The schema is the"
            " reader's then.",
            example="{url: https://registry.example.org:8081}",
            unset=True,
        ),
    ] = None


@dataclass(frozen=True, slots=True)
class Transform:
    """What a flow does to a record on its way, in Spark SQL.

    Expressions read the columns `key`, `value`, `headers`, `topic`, `partition`, `offset`, `timestamp` and
    `timestamp_type` of the source's record.
    """

    record: ClassVar = RecordName("transform", "a transform")

    value: Annotated[
        Format, Key("How values are read.", example='{format: json, schema: "id BIGINT, email STRING"}')
    ] = Format()
    key: Annotated[Format, Key("How keys are read.", example="{format: text}")] = Format()
    where: Annotated[
        str | None,
        Key(
            "A record travels where this is true. A tombstone (null value) always travels.",
            TextShape("a condition in Spark SQL"),
            example="\"value.country <> 'DE' AND headers['test'] IS NULL\"",
        ),
    ] = None
    on_filtered: Annotated[
        OnFiltered | None,
        Key(
            "What is copied of a record that `where` leaves out: `skip` nothing, `tombstone` its key with a"
            " null value, so that compaction at the destination removes the key's older record. The keys of"
            " filtered records arrive at the destination then. A record without a key is skipped.",
            default_doc="`skip`",
            example="tombstone",
        ),
    ] = None
    set: Annotated[
        Mapping[str, str],
        Key(
            "New values of fields, each an expression over the source's record.",
            MapShape(
                TextShape("a field such as value.email"), TextShape("an expression in Spark SQL"), "field"
            ),
            example='{value.email: "sha2(value.email, 256)"}',
        ),
    ] = field(default_factory=dict)
    drop: Annotated[
        tuple[str, ...],
        Key(
            "Fields that are removed.",
            ListShape(TextShape("a field such as value.card"), lone=True),
            example="[value.card]",
        ),
    ] = ()
    on_bad_record: Annotated[
        OnBadRecord,
        Key(
            "What happens at a record that does not match its format, or on which an expression fails: `stop`"
            " stops its partition and names the offset, `quarantine` writes the record as it came to"
            " TOPIC.quarantine at the destination, and goes on.",
            example="stop",
        ),
    ] = OnBadRecord.STOP
