"""Cutovers: clients leave a cluster for good, wave by wave.

A wave is a part of the topics of some flows. How far it is stands in the YAML: `fenced` says that its
producers are stopped at the source, and `promoted` of the flows, or their state, that its topics have moved.
"""

from enum import StrEnum
from typing import Annotated, ClassVar, Literal

from msgspec import Meta, Struct

from planner.model.diagnostic import SourceLocation
from planner.model.topology.quotas import QuotaEntity
from planner.model.topology.resources import NAME
from runtime.contract.spec.shapes import (
    Duration,
    Key,
    ListShape,
    RecordName,
    Regex,
    TextShape,
    ValueShape,
    record_of,
)

PERCENTAGE = TextShape(
    "a percentage such as 1%", r"(?:100|\d{1,2}(?:\.\d{1,4})?)%", "write 1%, or 0% for none"
)
FLOW_REFERENCES = ListShape(TextShape("the name of a flow", placed=True), lone=True, least=1)
PRODUCER = TextShape("a principal such as User:app, or a client id", r"\S(?:.*\S)?")
USER = "User:"


class Fence(StrEnum):
    """How the producers of a wave are stopped at the source."""

    ACL = "acl"
    QUOTA = "quota"
    NONE = "none"


HandOutFormat = Literal["properties", "config_map", "secret", "kroxylicious", "confluent_gateway"]
GATEWAYS: tuple[HandOutFormat, ...] = ("kroxylicious", "confluent_gateway")


class HandOut(Struct, frozen=True, omit_defaults=True):
    """A file with the new address, which `repl cutover` writes when a wave has moved."""

    record: ClassVar = RecordName("hand-out", "a handed-out file")

    file: Annotated[
        str,
        Key(
            "Its path in the folder of the topology; `{wave}` is the wave's name.",
            TextShape("a path", placed=True),
            example="clients/{wave}.properties",
        ),
    ]
    format: Annotated[
        HandOutFormat,
        Key(
            "What it is: settings of a Kafka client, a manifest for Kubernetes that holds them, or the"
            " configuration of a gateway. All but `properties` are JSON, which every reader of YAML takes.",
            example="config_map",
        ),
    ] = "properties"
    endpoint: Annotated[
        str | None,
        Key(
            "Where clients reach the gateway.",
            TextShape("host:port", r"[A-Za-z0-9.-]+:\d{1,5}", "write host:port"),
            default_doc="unset; a gateway needs it",
            example="kafka.example.org:9192",
        ),
    ] = None


class WaveGate(Struct, frozen=True, omit_defaults=True):
    """What must hold before the producers of a wave are stopped."""

    record: ClassVar = RecordName("gate", "a gate")

    lag: Annotated[
        Annotated[int, Meta(ge=0)],
        Key(
            "How many records the copies may be behind those that the source held a second before.",
            example="1000",
        ),
    ] = 0
    for_ms: Annotated[Duration, Key("For how long that must hold.", example="10s")] = 30_000
    verify: Annotated[
        str,
        Key(
            "The share of the records that `repl verify` compares before, in random ranges; `0%` compares"
            " none.",
            PERCENTAGE,
            example="5%",
        ),
    ] = "1%"

    @property
    def percent(self) -> float:
        return float(self.verify.removesuffix("%"))


class Wave(Struct, frozen=True, omit_defaults=True):
    """Topics that move together, with the groups that read them and the producers that write them."""

    record: ClassVar = RecordName("wave", "a wave")

    name: Annotated[str, Key("Its name.", NAME, example="billing")]
    topics: Annotated[
        tuple[Regex, ...],
        Key(
            "Regexes for whole names at the source. A topic that several waves match belongs to the first.",
            ListShape(ValueShape.REGEX, lone=True, least=1),
            example='["orders\\\\..*"]',
        ),
    ]
    groups: Annotated[
        tuple[Regex, ...],
        Key(
            "Regexes for the consumer groups that move with the topics.",
            ListShape(ValueShape.REGEX, lone=True),
            default_doc="none",
            example="[billing]",
        ),
    ] = ()
    producers: Annotated[
        tuple[str, ...],
        Key(
            "Whom the fence stops: principals such as `User:app`; with `fence: quota` client ids too.",
            ListShape(PRODUCER, lone=True),
            default_doc="with `fence: acl` everyone",
            example='["User:shop"]',
        ),
    ] = ()
    gate: Annotated[
        WaveGate, Key("What must hold before its producers are stopped.", example="{for: 10s}")
    ] = WaveGate()
    fenced: Annotated[
        bool,
        Key(
            "Whether its producers are stopped at the source. `repl cutover` writes it.",
            example="true",
        ),
    ] = False
    source: SourceLocation | None = None

    @property
    def limited(self) -> tuple[QuotaEntity, ...]:
        """Returns the entities that `fence: quota` limits: users and client ids."""
        return tuple(
            QuotaEntity(user=producer.removeprefix(USER))
            if producer.startswith(USER)
            else QuotaEntity(client_id=producer)
            for producer in self.producers
        )


class Cutover(Struct, frozen=True, omit_defaults=True):
    """Clients that leave a cluster for good, in waves that move one after the other."""

    record: ClassVar = RecordName("cutover", "a cutover")

    name: Annotated[str, Key("Its name: `repl cutover NAME`.", NAME, example="to-cloud")]
    flows: Annotated[
        tuple[str, ...],
        Key(
            "The flows whose topics move. All of them leave one cluster.",
            FLOW_REFERENCES,
            example="[dc1-to-dc2]",
        ),
    ]
    waves: Annotated[
        tuple[Wave, ...],
        Key(
            "What moves together, in the order in which it moves.",
            ListShape(record_of(Wave), least=1),
            example="[{name: billing, topics: [orders.eu], groups: [billing]}]",
        ),
    ]
    fence: Annotated[
        Fence,
        Key(
            "How producers are stopped at the source: `acl` denies them WRITE, `quota` limits them to a byte"
            " a second, and with `none` you stop them.",
            example="quota",
        ),
    ] = Fence.ACL
    hand_out: Annotated[
        tuple[HandOut, ...],
        Key(
            "Files with the new address, which are written when a wave has moved.",
            ListShape(record_of(HandOut)),
            default_doc="none",
            example="[{file: 'clients/{wave}.properties'}]",
        ),
    ] = ()
    source: SourceLocation | None = None
