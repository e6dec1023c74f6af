"""ACLs: the entries of the YAML, and the bindings of Kafka that they stand for."""

from dataclasses import dataclass
from typing import Annotated, ClassVar, Literal

from planner.model.diagnostic import SourceLocation
from planner.model.keys import Key, RecordName
from planner.model.shapes import (
    ChoiceShape,
    ListShape,
    TextShape,
)
from planner.model.topology.resources import CLUSTER_REFERENCES, PRINCIPAL
from runtime.contract.spec.acls import AclRule

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
OPERATIONS = ListShape(
    ChoiceShape(
        (
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
        ),
        any_case=True,
    ),
    lone=True,
    least=1,
)


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
