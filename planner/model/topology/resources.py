"""Clusters, topics and ACLs, and the shapes of names that all parts of the language share.

An ACL is an entry of the YAML; it stands for bindings of Kafka.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Annotated, ClassVar, Literal, get_args

from planner.model.diagnostic import SourceLocation
from runtime.contract.spec.acls import AclRule
from runtime.contract.spec.cluster import ClusterSpec
from runtime.contract.spec.files import EndpointSpec, SourceFormat
from runtime.contract.spec.schemas import RegistrySpec
from runtime.contract.spec.shapes import (
    AlternativesShape,
    ChoiceShape,
    IntegerShape,
    Key,
    ListShape,
    MapShape,
    RecordName,
    RecordShape,
    SettingsShape,
    TextShape,
    ValueShape,
    record_of,
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
_ENDPOINT = record_of(EndpointSpec).by_name
SOURCE_REFERENCE = AlternativesShape(
    (
        CLUSTER_REFERENCE,
        RecordShape(
            "lines-source",
            "the files that a flow reads",
            (
                replace(
                    _ENDPOINT["file"],
                    doc="The folder, or `s3a://bucket/prefix` of a store that speaks S3. A path that begins"
                    " with `./` starts at the folder of the topology.",
                    example="./inbox",
                ),
                replace(
                    _ENDPOINT["format"],
                    doc="Each line is a record: any UTF-8 text, or a JSON value. Of `parquet`, each row is"
                    " one.",
                    shape=ChoiceShape(get_args(SourceFormat)),
                    default="text",
                    example="text",
                ),
                replace(_ENDPOINT["recursive"], doc="Whether files in folders below it are read, too."),
                replace(
                    _ENDPOINT["client"],
                    doc="How an object store is reached: the keys of `client` of an endpoint.",
                ),
            ),
        ),
    ),
    "the name of a cluster or of an endpoint, or {file: FOLDER, format: text}",
)
CLUSTER_REFERENCES = ListShape(CLUSTER_REFERENCE, lone=True, least=1)
REPLICATION = IntegerShape(1, 32_767)
PRINCIPAL = TextShape("a principal", r"[A-Za-z]+:.+", 'write its type too, for example "User:app"')


def secret_variable(cluster: str, key: str) -> str:
    """Returns the environment variable that takes the place of a secret: DC1_SASL_PASSWORD."""
    text = re.sub(r"[^A-Z0-9]", "_", f"{cluster}_{key}".upper())
    return text if not text[0].isdigit() else f"_{text}"


class Cluster(ClusterSpec, frozen=True):
    """One Kafka cluster."""

    name: str
    labels: Annotated[
        Mapping[str, str],
        Key(
            "What rules of `policies` and readers know of the cluster.",
            MapShape(NAME, TextShape("a word"), "label"),
            example="{env: prod, region: eu}",
        ),
    ] = {}
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

    def __repr__(self) -> str:
        return f"Cluster({self.name!r}, bootstrap={self.bootstrap!r})"  # the settings may hold a password


class Registry(RegistrySpec, frozen=True):
    """The schema registry of the cluster of its name. `source` is the place of its entry."""

    record: ClassVar = RecordName("registry", "a schema registry", "A schema registry with Confluent's API.")

    name: str
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

    name: Annotated[str, Key("Its name.", ValueShape.TOPIC_NAME, example="orders")]
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


# The keys of an ACL that name resources, and Kafka's word for each kind.
RESOURCES = {
    "topic": "TOPIC",
    "group": "GROUP",
    "transactional_id": "TRANSACTIONAL_ID",
    "delegation_token": "DELEGATION_TOKEN",
    "user": "USER",
}
KAFKA_CLUSTER = "kafka-cluster"  # the only name that Kafka has for a cluster as a resource
RESOURCE_NAMES = ListShape(TextShape("a name, or *"), lone=True, least=1)
OPERATION_NAMES = (
    "ALL",
    "READ",
    "WRITE",
    "CREATE",
    "DELETE",
    "ALTER",
    "DESCRIBE",
    "CLUSTER_ACTION",
    "DESCRIBE_CONFIGS",
    "ALTER_CONFIGS",
    "IDEMPOTENT_WRITE",
    "CREATE_TOKENS",
    "DESCRIBE_TOKENS",
)
OPERATIONS = ListShape(ChoiceShape(OPERATION_NAMES, any_case=True), lone=True, least=1)


@dataclass(frozen=True, slots=True)
class Acl:
    """A declared binding with its place in the file."""

    rule: AclRule
    source: SourceLocation | None = None


@dataclass(frozen=True, slots=True)
class AclEntry:
    """One or more ACL bindings: each operation on each name at each cluster."""

    record: ClassVar = RecordName("acl", "an ACL")

    cluster: Annotated[
        tuple[str, ...],
        Key("The cluster it applies to; a list makes one at each.", CLUSTER_REFERENCES, example="dc1"),
    ]
    principal: Annotated[
        str,
        Key(
            "The user or group that the ACL is for.",
            PRINCIPAL,
            example='"User:app"',
        ),
    ]
    allow: Annotated[
        tuple[str, ...],
        Key("Operations that are allowed.", OPERATIONS, default_doc="none", example="[READ, DESCRIBE]"),
    ] = ()
    deny: Annotated[
        tuple[str, ...],
        Key("Operations that are denied.", OPERATIONS, default_doc="none", example="[WRITE]"),
    ] = ()
    topic: Annotated[
        tuple[str, ...], Key("On these topics.", RESOURCE_NAMES, default_doc="none", example="orders")
    ] = ()
    group: Annotated[
        tuple[str, ...],
        Key("On these consumer groups.", RESOURCE_NAMES, default_doc="none", example="billing"),
    ] = ()
    transactional_id: Annotated[
        tuple[str, ...],
        Key("On these transactional ids.", RESOURCE_NAMES, default_doc="none", example="billing-"),
    ] = ()
    delegation_token: Annotated[
        tuple[str, ...],
        Key("On these delegation tokens.", RESOURCE_NAMES, default_doc="none", example='"*"'),
    ] = ()
    user: Annotated[
        tuple[str, ...],
        Key("On these users (for their tokens).", RESOURCE_NAMES, default_doc="none", example='"User:app"'),
    ] = ()
    whole_cluster: Annotated[bool, Key("On the cluster itself.", example="true")] = False
    prefixed: Annotated[bool, Key("Whether the names are prefixes.", example="true")] = False
    host: Annotated[
        str, Key("The host that clients connect from.", TextShape("a host, or *"), example='"10.0.0.7"')
    ] = "*"
    source: SourceLocation | None = None

    def acls(self) -> list[Acl]:
        """Returns its bindings: each operation on each name at each cluster is one."""
        resources = [(kind, name) for key, kind in RESOURCES.items() for name in getattr(self, key)]
        if self.whole_cluster:
            resources.append(("CLUSTER", KAFKA_CLUSTER))
        operations: list[tuple[Literal["ALLOW", "DENY"], str]] = [
            *(("ALLOW", operation) for operation in self.allow),
            *(("DENY", operation) for operation in self.deny),
        ]
        return [
            Acl(
                AclRule(
                    cluster=cluster,
                    resource_type=kind,
                    resource=name,
                    pattern="PREFIXED" if self.prefixed and kind != "CLUSTER" else "LITERAL",
                    principal=self.principal,
                    host=self.host,
                    operation=operation,
                    permission=permission,
                ),
                self.source,
            )
            for cluster in self.cluster
            for kind, name in resources
            for permission, operation in operations
        ]
