"""What the data path does not ask brokers: ACL rules, quotas, SCRAM users, log directories, reassignments.

The numbers for types and operations of ACL rules are Kafka's.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Annotated, ClassVar, Self

from msgspec import Struct, field

from runtime.contract.spec.acls import AclRule
from runtime.contract.spec.naming import TopicPartition
from runtime.kafka.errors import ErrorCode, Refusal
from runtime.kafka.protocol.layout import (
    KEY,
    VALUE,
    EntryOrder,
    Int8,
    Int32,
    Int64,
    Nested,
    since,
)
from runtime.kafka.protocol.request import Api, Request

RESOURCE_TYPES = {
    2: "TOPIC",
    3: "GROUP",
    4: "CLUSTER",
    5: "TRANSACTIONAL_ID",
    6: "DELEGATION_TOKEN",
    7: "USER",
}
OPERATIONS = {
    2: "ALL",
    3: "READ",
    4: "WRITE",
    5: "CREATE",
    6: "DELETE",
    7: "ALTER",
    8: "DESCRIBE",
    9: "CLUSTER_ACTION",
    10: "DESCRIBE_CONFIGS",
    11: "ALTER_CONFIGS",
    12: "IDEMPOTENT_WRITE",
    13: "CREATE_TOKENS",
    14: "DESCRIBE_TOKENS",
    15: "TWO_PHASE_COMMIT",
}
_LITERAL, _PREFIXED = 3, 4
_DENY, _ALLOW = 2, 3
_TYPE_NUMBERS = {name: number for number, name in RESOURCE_TYPES.items()}
_OPERATION_NUMBERS = {name: number for number, name in OPERATIONS.items()}


class AclBinding(Struct, frozen=True):
    """An AclBinding is one rule. Its numbers are those of Kafka's protocol."""

    resource_type: Int8
    resource: str
    pattern: Int8
    principal: str
    host: str
    operation: Int8
    permission: Int8

    @classmethod
    def of(cls, rule: AclRule) -> Self:
        return cls(
            _TYPE_NUMBERS[rule.resource_type],
            rule.resource,
            _PREFIXED if rule.pattern == "PREFIXED" else _LITERAL,
            rule.principal,
            rule.host,
            _OPERATION_NUMBERS[rule.operation],
            _DENY if rule.permission == "DENY" else _ALLOW,
        )

    def rule(self, cluster: str) -> AclRule | None:
        """Returns the rule by Kafka's names; None if its kind is not known."""
        if self.resource_type not in RESOURCE_TYPES or self.operation not in OPERATIONS:
            return None
        return AclRule(
            cluster,
            RESOURCE_TYPES[self.resource_type],
            self.resource,
            "PREFIXED" if self.pattern == _PREFIXED else "LITERAL",
            self.principal,
            self.host,
            OPERATIONS[self.operation],
            "DENY" if self.permission == _DENY else "ALLOW",
        )


class DescribeAclsRequest(Request[Annotated[Sequence[AclBinding], Nested(3)] | Refusal], frozen=True):
    """This request reads the bindings of one type of resource. In its filter, 1 stands for any."""

    API = Api.DESCRIBE_ACLS
    FLEXIBLE = 2
    VERSIONS = (1, 3)

    resource_type: Int8 = 1
    _resource: ClassVar[str | None] = None
    _pattern: ClassVar[Int8] = 1
    _principal: ClassVar[str | None] = None
    _host: ClassVar[str | None] = None
    _operation: ClassVar[Int8] = 1
    _permission: ClassVar[Int8] = 1


class QuotaEntry(Struct, frozen=True):
    """Holds the quotas of one entity, by their keys.

    `entity` maps a type (`user`, `client-id`, `ip`) to a name; None is the default entity of that type.
    """

    entity: Mapping[str, str | None]
    values: Mapping[str, float]


class DescribeClientQuotasRequest(Request[Sequence[QuotaEntry] | Refusal], frozen=True):
    """This request reads the quotas of every entity."""

    API = Api.DESCRIBE_CLIENT_QUOTAS
    FLEXIBLE = 1
    VERSIONS = (0, 1)
    _components: ClassVar[Sequence[str]] = ()
    _strict: ClassVar[bool] = False


class QuotaAlteration(Struct, frozen=True):
    """A QuotaAlteration sets some limits of one entity and removes others; what it does not name stays.

    An operation is the limit, and whether it is removed.
    """

    entity: Mapping[str, str | None]
    operations: Mapping[str, tuple[float, bool]]


RefusedQuotas = Annotated[Mapping[frozenset[tuple[str, str | None]], Refusal], EntryOrder(VALUE, KEY)]


class AlterClientQuotasRequest(Request[RefusedQuotas], frozen=True):
    """This request alters quotas, or only checks that it could. It may be sent again.

    The result has the entities that were refused; the others are altered.
    """

    API = Api.ALTER_CLIENT_QUOTAS
    FLEXIBLE = 1
    VERSIONS = (0, 1)

    alterations: Sequence[QuotaAlteration]
    validate_only: bool = False


class ScramCredentials(Struct, frozen=True):
    """A ScramCredentials has credentials: mechanism (1 is SCRAM-SHA-256, 2 is SCRAM-SHA-512) → iterations."""

    name: str
    error: ErrorCode = ErrorCode.NONE
    _message: ClassVar[str | None]
    iterations: Mapping[Int8, Int32] = field(default_factory=dict)


class DescribeScramRequest(Request[Sequence[ScramCredentials] | Refusal], frozen=True):
    """This request reads the SCRAM mechanisms of every user. Kafka never returns the secrets.

    It sends an empty list: with null, a broker that refuses the request never answers.
    """

    API = Api.DESCRIBE_USER_SCRAM_CREDENTIALS
    FLEXIBLE = 0
    VERSIONS = (0, 0)
    _users: ClassVar[Sequence[str]] = ()


class LogDir(Struct, frozen=True):
    """The replicas of a log directory, with their bytes; none if the directory has an error.

    A replica that moves between disks is in two directories. `usable_bytes` is the room of the directory's
    volume, since Kafka 3.3, and -1 if it is offline.
    """

    _error: ClassVar[ErrorCode]
    _path: ClassVar[str]
    replicas: Annotated[Mapping[TopicPartition, Int64], EntryOrder(KEY, VALUE, Int64, bool)]  # lag, is future
    _total_bytes: ClassVar[Annotated[Int64, since(4)]]
    usable_bytes: Annotated[Int64, since(4)] = -1


class DescribeLogDirsRequest(Request[Sequence[LogDir] | Annotated[ErrorCode, since(3)]], frozen=True):
    """This request reads the log directories of a broker."""

    API = Api.DESCRIBE_LOG_DIRS
    FLEXIBLE = 2
    VERSIONS = (1, 4)

    partitions: Sequence[TopicPartition]


RefusedMoves = Mapping[TopicPartition, Refusal]


class AlterReassignmentsRequest(Request[RefusedMoves | Refusal], frozen=True):
    """This request moves each partition to its replicas, the preferred leader first. It may be sent again.

    The result is a refusal of the whole request, or has the partitions that were refused; the others are
    being moved.
    """

    API = Api.ALTER_PARTITION_REASSIGNMENTS
    FLEXIBLE = 0
    VERSIONS = (0, 0)
    WIRE: ClassVar[tuple[str, ...]] = ("timeout_ms", "replicas")

    replicas: Mapping[TopicPartition, Sequence[Int32]]
    timeout_ms: Int32
