"""Clusters and topics, and the shapes of names that all parts of the language share."""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Annotated, ClassVar, Literal

from planner.model.diagnostic import SourceLocation
from planner.model.keys import Key, RecordName
from planner.model.shapes import (
    IntegerShape,
    ListShape,
    SettingsShape,
    TextShape,
    TopicNameShape,
)

NAME = TextShape(
    "a name of letters, digits, dots, _ and -",
    r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}",
    "begin it with a letter or digit, then letters, digits, dots, _ and -, at most 100",
)
CLUSTER_NAME = TextShape(
    "a cluster's name",
    r"[A-Za-z0-9][A-Za-z0-9_-]{0,99}",
    "use letters, digits, _ and -, without dots: topics and addresses are named after it",
)
CLUSTER_REFERENCE = TextShape("the name of a cluster", placed=True)
CLUSTER_REFERENCES = ListShape(CLUSTER_REFERENCE, lone=True, least=1)
REPLICATION = IntegerShape(1, 32_767)
PRINCIPAL = TextShape("a principal", r"[A-Za-z]+:.+", 'write its type too, for example "User:app"')
HOST_PORT = r"(?:[A-Za-z0-9._-]+|\[[0-9A-Fa-f:.]+\]):\d{1,5}"


@dataclass(frozen=True, slots=True)
class SecretRef:
    """`{env: VAR}` or `{file: path}`: resolved only at the edge that opens a connection, never shown."""

    kind: Literal["env", "file"]
    name: str
    source: SourceLocation | None = field(default=None, compare=False)


Setting = str | SecretRef


def secret_variable(cluster: str, key: str) -> str:
    """Returns the environment variable that takes the place of a secret: DC1_SASL_PASSWORD."""
    text = re.sub(r"[^A-Z0-9]", "_", f"{cluster}_{key}".upper())
    return text if not text[0].isdigit() else f"_{text}"


@dataclass(frozen=True, slots=True)
class Cluster:
    """One Kafka cluster."""

    record: ClassVar = RecordName("cluster", "a cluster")

    name: str
    bootstrap: Annotated[
        str,
        Key(
            "Brokers to connect to first, `host:port`, separated by commas.",
            ListShape(
                TextShape(
                    "a broker's host:port",
                    rf"\s*{HOST_PORT}\s*(?:,\s*{HOST_PORT}\s*)*",
                    "write it as kafka1.example.org:9092",
                ),
                lone=True,
                least=1,
            ),
            example="127.0.0.1:19092",
            converter="bootstrap",
        ),
    ]
    id: Annotated[
        str | None,
        Key(
            "Pins the cluster: any other one is refused.",
            TextShape("a cluster id"),
            example="5L6g3nShT-eMCtK--X86sw",
        ),
    ] = None
    client: Annotated[
        Mapping[str, Setting],
        Key(
            "How to connect, by librdkafka's names; [operations.md](operations.md) lists which are taken. "
            "Credentials may be `{env: VARIABLE}` or `{file: path}`.",
            SettingsShape(client=True, expected="a map of librdkafka's settings"),
            example="{security.protocol: SASL_SSL, sasl.password: {env: DC1_PASSWORD}}",
        ),
    ] = field(default_factory=dict, repr=False)  # may hold a literal password
    principal: Annotated[
        str | None,
        Key(
            "The principal of the jobs at this cluster. `protect: acl` keeps its right to write. With mutual "
            "TLS it is the certificate's distinguished name, as the brokers map it.",
            PRINCIPAL,
            default_doc="`User:` and the `sasl.username`",
            example='"User:CN=repl,O=shop"',
        ),
    ] = None
    allow_everyone_if_no_acl_found: Annotated[
        bool,
        Key(
            "What the brokers' `allow.everyone.if.no.acl.found` is. Brokers hide its value; `protect: acl` "
            "needs it.",
            example="true",
        ),
    ] = False
    source: SourceLocation | None = None


class OnRemove(StrEnum):
    KEEP = "keep"
    DELETE = "delete"


@dataclass(frozen=True, slots=True)
class Topic:
    """A topic that this topology manages.

    It is one topic at one cluster: `cluster: [a, b]` in the YAML becomes two.
    """

    record: ClassVar = RecordName("topic", "a topic")

    name: Annotated[str, Key("Its name.", TopicNameShape(), example="orders")]
    cluster: Annotated[
        str,
        Key(
            "The cluster it is at; a list makes one topic at each.",
            CLUSTER_REFERENCES,
            example="[dc1, dc2]",
            each=True,
        ),
    ]
    partitions: Annotated[
        int | None,
        Key(
            "How many; it can grow, never shrink.",
            IntegerShape(1, 1_000_000),
            default_doc="the broker's",
            example="12",
            inherited=True,
        ),
    ] = None
    replication: Annotated[
        int | None,
        Key(
            "Copies of each partition.",
            REPLICATION,
            default_doc="the broker's",
            example="3",
            inherited=True,
        ),
    ] = None
    config: Annotated[
        Mapping[str, str],
        Key(
            "Topic settings by Kafka's names. Only what stands here is managed.",
            SettingsShape(),
            example="{retention.ms: 7d}",
            inherited=True,
        ),
    ] = field(default_factory=dict)
    protect: Annotated[
        bool,
        Key(
            "Never delete the topic. The cluster keeps this mark when the block is removed.",
            example="true",
            inherited=True,
        ),
    ] = False
    on_remove: Annotated[
        OnRemove,
        Key("What a plan does when the topic leaves the topology.", example="delete", inherited=True),
    ] = OnRemove.KEEP
    source: SourceLocation | None = None
