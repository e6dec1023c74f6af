"""What the data path does not ask brokers: ACL rules, quotas, SCRAM users, log directories, reassignments.

The numbers for types and operations of ACL rules are Kafka's.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, ClassVar, Self

from msgspec import Struct, field

from runtime.contract.client.secrets import redacted
from runtime.contract.spec.acls import AclRule
from runtime.kafka.errors import ErrorCode
from runtime.kafka.protocol.layout import grouped, indexes
from runtime.kafka.protocol.offsets import TopicPartition
from runtime.kafka.protocol.request import Api, Message, Request, Rows

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


class Refusal(Struct, frozen=True):
    """A Refusal is the reason why brokers rejected a request; `message` is their text, if there is one."""

    error: ErrorCode
    message: str | None

    @property
    def text(self) -> str:
        """The brokers' text without the secrets that it may repeat, or the name of the error."""
        return redacted(self.message) if self.message else self.error.name


class AclBinding(Struct, frozen=True):
    """An AclBinding is one rule. Its numbers are those of Kafka's protocol."""

    resource_type: int
    resource: str
    pattern: int
    principal: str
    host: str
    operation: int
    permission: int

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


class DescribeAclsRequest(Request[Sequence[AclBinding] | Refusal], frozen=True):
    """This request reads the bindings of one type of resource. In its filter, 1 stands for any."""

    MESSAGE: ClassVar[Message] = Message(
        Api.DESCRIBE_ACLS,
        2,
        """
        resource_type     int8
        _resource         string?  = None
        _pattern          int8     = 1
        _principal        string?  = None
        _host             string?  = None
        _operation        int8     = 1
        _permission       int8     = 1
        """,
        """
        throttle_ms       int32
        error             error
        message           string?
        resources         []
          resource_type   int8
          resource        string
          pattern         int8
          bindings        []
            principal     string
            host          string
            operation     int8
            permission    int8
        """,
    )
    VERSIONS: ClassVar[tuple[int, int]] = (1, 3)

    resource_type: int = 1

    def values(self, version: int) -> int:
        return self.resource_type

    def result(
        self, _throttle_ms: int, error: ErrorCode, message: str | None, resources: Rows
    ) -> Sequence[AclBinding] | Refusal:
        if error:
            return Refusal(error, message)
        return [AclBinding(*resource, *binding) for *resource, bindings in resources for binding in bindings]


class QuotaEntry(Struct, frozen=True):
    """A QuotaEntry holds the quotas of one entity, by their keys.

    `entity` maps a type (`user`, `client-id`, `ip`) to a name; None is the default entity of that type.
    """

    entity: Mapping[str, str | None]
    values: Mapping[str, float]


class DescribeClientQuotasRequest(Request[Sequence[QuotaEntry] | Refusal], frozen=True):
    """This request reads the quotas of every entity."""

    MESSAGE: ClassVar[Message] = Message(
        Api.DESCRIBE_CLIENT_QUOTAS,
        1,
        """
        _components       []string  = ()
        _strict           bool      = False
        """,
        """
        throttle_ms       int32
        error             error
        message           string?
        entries           []
          entity          []
            kind          string
            name          string?
          values          []
            key           string
            value         float64
        """,
    )
    VERSIONS: ClassVar[tuple[int, int]] = (0, 1)

    def result(
        self, _throttle_ms: int, error: ErrorCode, message: str | None, entries: Rows
    ) -> Sequence[QuotaEntry] | Refusal:
        if error:
            return Refusal(error, message)
        return [QuotaEntry(dict(entity), dict(values)) for entity, values in entries]


class QuotaAlteration(Struct, frozen=True):
    """A QuotaAlteration sets some limits of one entity and removes others; what it does not name stays."""

    entity: Mapping[str, str | None]
    set: Mapping[str, float]
    remove: Sequence[str] = ()


RefusedQuotas = Mapping[frozenset[tuple[str, str | None]], Refusal]


class AlterClientQuotasRequest(Request[RefusedQuotas], frozen=True):
    """This request alters quotas, or only checks that it could. It may be sent again.

    The result has the entities that were refused; the others are altered.
    """

    MESSAGE: ClassVar[Message] = Message(
        Api.ALTER_CLIENT_QUOTAS,
        1,
        """
        entries           []
          entity          []
            kind          string
            name          string?
          operations      []
            key           string
            value         float64
            remove        bool
        validate_only     bool
        """,
        """
        throttle_ms       int32
        entries           []
          error           error
          message         string?
          entity          []
            kind          string
            name          string?
        """,
    )
    VERSIONS: ClassVar[tuple[int, int]] = (0, 1)

    alterations: Sequence[QuotaAlteration]
    validate_only: bool = False

    def values(self, version: int) -> Any:
        entries = [
            (
                altered.entity.items(),
                [
                    *((key, value, False) for key, value in altered.set.items()),
                    *((key, 0.0, True) for key in altered.remove),
                ],
            )
            for altered in self.alterations
        ]
        return entries, self.validate_only

    def result(self, _throttle_ms: int, entries: Rows) -> RefusedQuotas:
        return {frozenset(entity): Refusal(error, message) for error, message, entity in entries if error}


class ScramCredentials(Struct, frozen=True):
    """A ScramCredentials has credentials: mechanism (1 is SCRAM-SHA-256, 2 is SCRAM-SHA-512) → iterations."""

    name: str
    error: ErrorCode = ErrorCode.NONE
    iterations: Mapping[int, int] = field(default_factory=dict)


class DescribeScramRequest(Request[Sequence[ScramCredentials] | Refusal], frozen=True):
    """This request reads the SCRAM mechanisms of every user. Kafka never returns the secrets.

    It sends an empty list: with null, a broker that refuses the request never answers.
    """

    MESSAGE: ClassVar[Message] = Message(
        Api.DESCRIBE_USER_SCRAM_CREDENTIALS,
        0,
        "        _users            []string  = ()",
        """
        throttle_ms       int32
        error             error
        message           string?
        users             []
          name            string
          error           error
          _message        string?
          credentials     []
            mechanism     int8
            iterations    int32
        """,
    )
    VERSIONS: ClassVar[tuple[int, int]] = (0, 0)

    def result(
        self, _throttle_ms: int, error: ErrorCode, message: str | None, users: Rows
    ) -> Sequence[ScramCredentials] | Refusal:
        if error:
            return Refusal(error, message)
        return [ScramCredentials(name, failure, dict(credentials)) for name, failure, credentials in users]


class LogDirs(Struct, frozen=True):
    """The `replicas` of a broker's log directories, with their bytes.

    A replica that moves between disks occurs twice. `usable_bytes` is the room of each log directory's volume
    that the broker tells: since Kafka 3.3.
    """

    replicas: Sequence[tuple[TopicPartition, int]]
    usable_bytes: Sequence[int] = ()


class DescribeLogDirsRequest(Request[LogDirs | ErrorCode], frozen=True):
    """With an error of a directory, the response leaves out its replicas."""

    MESSAGE: ClassVar[Message] = Message(
        Api.DESCRIBE_LOG_DIRS,
        2,
        """
        topics            []
          name            string
          indexes         []int32
        """,
        """
        throttle_ms       int32
        error             error    3+
        directories       []
          _error          int16
          _path           string
          topics          []
            name          string
            partitions    []
              index       int32
              size        int64
              _lag        int64
              _is_future  bool
          _total_bytes    int64    4+
          usable_bytes    int64    4+  = -1
        """,
    )
    VERSIONS: ClassVar[tuple[int, int]] = (1, 4)

    partitions: Iterable[TopicPartition]

    def values(self, version: int) -> Rows:
        return indexes(self.partitions)

    def result(self, _throttle_ms: int, error: ErrorCode, directories: Rows) -> LogDirs | ErrorCode:
        return error or LogDirs(
            [
                (TopicPartition(topic, index), size)
                for topics, _ in directories
                for topic, partitions in topics
                for index, size in partitions
            ],
            [usable for _, usable in directories if usable >= 0],  # -1: the directory is offline
        )


RefusedMoves = Mapping[TopicPartition, Refusal]


class AlterReassignmentsRequest(Request[RefusedMoves | Refusal], frozen=True):
    """This request moves each partition to its replicas, the preferred leader first. It may be sent again.

    The result is a refusal of the whole request, or has the partitions that were refused; the others are
    being moved.
    """

    MESSAGE: ClassVar[Message] = Message(
        Api.ALTER_PARTITION_REASSIGNMENTS,
        0,
        """
        timeout_ms        int32
        topics            []
          name            string
          partitions      []
            index         int32
            replicas      []int32
        """,
        """
        throttle_ms       int32
        error             error
        message           string?
        topics            []
          name            string
          partitions      []
            index         int32
            error         error
            message       string?
        """,
    )
    VERSIONS: ClassVar[tuple[int, int]] = (0, 0)

    replicas: Mapping[TopicPartition, Sequence[int]]
    timeout_ms: int

    def values(self, version: int) -> Any:
        return self.timeout_ms, grouped((at, (replicas,)) for at, replicas in self.replicas.items())

    def result(
        self, _throttle_ms: int, error: ErrorCode, message: str | None, topics: Rows
    ) -> RefusedMoves | Refusal:
        if error:
            return Refusal(error, message)
        return {
            TopicPartition(topic, index): Refusal(failure, why)
            for topic, partitions in topics
            for index, failure, why in partitions
            if failure
        }
