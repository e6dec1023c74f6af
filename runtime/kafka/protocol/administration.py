"""This module encodes what the data path does not ask brokers: principals, log directories, reassignments.

These are DescribeAcls v1 to v3, with Kafka's numbers for types and operations, DescribeClientQuotas and
AlterClientQuotas v0 and v1, DescribeUserScramCredentials v0, DescribeLogDirs v1 to v4, and
AlterPartitionReassignments v0.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Mapping, Sequence
from typing import ClassVar

from msgspec import Struct, field

from runtime.kafka.errors import ErrorCode
from runtime.kafka.protocol.offsets import TopicPartition
from runtime.kafka.protocol.request import Api, Buffer, Reader, Writer, reader_of, writer_of

_ANY = 1
_FLOAT64 = struct.Struct(">d")


class AclBinding(Struct, frozen=True):
    """An AclBinding is one rule. Its numbers are those of Kafka's protocol."""

    resource_type: int
    resource: str
    pattern: int
    principal: str
    host: str
    operation: int
    permission: int


class DescribeAclsResponse(Struct, frozen=True):
    throttle_ms: int
    error: ErrorCode
    message: str | None
    bindings: tuple[AclBinding, ...]


class DescribeAclsRequest(Struct, frozen=True):
    """This request reads every binding."""

    API: ClassVar[Api] = Api.DESCRIBE_ACLS
    VERSIONS: ClassVar[tuple[int, int]] = (1, 3)
    FLEXIBLE: ClassVar[int] = 2

    def body(self, version: int) -> list[Buffer]:
        writer = writer_of(version, self.FLEXIBLE)
        writer.int8(_ANY)  # type of resource
        writer.compact_string(None)
        writer.int8(_ANY)  # type of pattern
        writer.compact_string(None)  # principal
        writer.compact_string(None)  # host
        writer.int8(_ANY)  # operation
        writer.int8(_ANY)  # permission
        writer.no_tags()
        return [writer.buffer]

    def answer(self, version: int, reader: Reader) -> DescribeAclsResponse:
        reader = reader_of(reader, version, self.FLEXIBLE)
        throttle_ms = reader.int32()
        error = reader.error_code()
        message = reader.nullable_string()
        bindings: list[AclBinding] = []
        for _ in range(reader.count()):
            resource = (reader.int8(), reader.compact_string(), reader.int8())
            for _ in range(reader.count()):
                holder = (reader.compact_string(), reader.compact_string())
                bindings.append(AclBinding(*resource, *holder, reader.int8(), reader.int8()))
                reader.skip_tags()
            reader.skip_tags()
        return DescribeAclsResponse(throttle_ms, error, message, tuple(bindings))


class QuotaEntry(Struct, frozen=True):
    """A QuotaEntry holds the quotas of one entity, by their keys.

    `entity` maps a type (`user`, `client-id`, `ip`) to a name; None is the default entity of that type.
    """

    entity: Mapping[str, str | None]
    values: Mapping[str, float]


class DescribeClientQuotasResponse(Struct, frozen=True):
    throttle_ms: int
    error: ErrorCode
    message: str | None
    entries: tuple[QuotaEntry, ...]


class DescribeClientQuotasRequest(Struct, frozen=True):
    """This request reads the quotas of every entity."""

    API: ClassVar[Api] = Api.DESCRIBE_CLIENT_QUOTAS
    VERSIONS: ClassVar[tuple[int, int]] = (0, 1)
    FLEXIBLE: ClassVar[int] = 1

    def body(self, version: int) -> list[Buffer]:
        writer = writer_of(version, self.FLEXIBLE)
        writer.count(0)
        writer.boolean(False)
        writer.no_tags()
        return [writer.buffer]

    def answer(self, version: int, reader: Reader) -> DescribeClientQuotasResponse:
        reader = reader_of(reader, version, self.FLEXIBLE)
        throttle_ms = reader.int32()
        error = reader.error_code()
        message = reader.nullable_string()
        entries = reader.array(lambda: _entry(reader))
        return DescribeClientQuotasResponse(throttle_ms, error, message, tuple(entries))


def _entity(reader: Reader) -> dict[str, str | None]:
    entity: dict[str, str | None] = {}
    for _ in range(reader.count()):
        kind = reader.compact_string()
        entity[kind] = reader.nullable_string()
        reader.skip_tags()
    return entity


def _entry(reader: Reader) -> QuotaEntry:
    entity = _entity(reader)
    values: dict[str, float] = {}
    for _ in range(reader.count()):
        key = reader.compact_string()
        (values[key],) = _FLOAT64.unpack(reader.take(_FLOAT64.size))
        reader.skip_tags()
    reader.skip_tags()
    return QuotaEntry(entity, values)


class QuotaAlteration(Struct, frozen=True):
    """A QuotaAlteration sets some limits of one entity and removes others; what it does not name stays."""

    entity: Mapping[str, str | None]
    set: Mapping[str, float]
    remove: Sequence[str] = ()


class AlterClientQuotasResponse(Struct, frozen=True):
    """The `refused` of this response maps an entity to the reason; the others are altered."""

    throttle_ms: int
    refused: Mapping[frozenset[tuple[str, str | None]], Refusal]


class AlterClientQuotasRequest(Struct, frozen=True):
    """This request alters quotas, or only checks that it could. It may be sent again."""

    API: ClassVar[Api] = Api.ALTER_CLIENT_QUOTAS
    VERSIONS: ClassVar[tuple[int, int]] = (0, 1)
    FLEXIBLE: ClassVar[int] = 1

    alterations: Sequence[QuotaAlteration]
    validate_only: bool = False

    def body(self, version: int) -> list[Buffer]:
        writer = writer_of(version, self.FLEXIBLE)
        writer.count(len(self.alterations))
        for one in self.alterations:
            writer.count(len(one.entity))
            for kind, name in one.entity.items():
                writer.compact_string(kind)
                writer.compact_string(name)
                writer.no_tags()
            writer.count(len(one.set) + len(one.remove))
            for key, value in (*one.set.items(), *((key, None) for key in one.remove)):
                writer.compact_string(key)
                writer.raw(_FLOAT64.pack(value or 0.0))
                writer.boolean(value is None)
                writer.no_tags()
            writer.no_tags()
        writer.boolean(self.validate_only)
        writer.no_tags()
        return [writer.buffer]

    def answer(self, version: int, reader: Reader) -> AlterClientQuotasResponse:
        reader = reader_of(reader, version, self.FLEXIBLE)
        throttle_ms = reader.int32()
        refused: dict[frozenset[tuple[str, str | None]], Refusal] = {}
        for _ in range(reader.count()):
            error, message = reader.error_code(), reader.nullable_string()
            entity = frozenset(_entity(reader).items())
            reader.skip_tags()
            if error:
                refused[entity] = Refusal(error, message)
        return AlterClientQuotasResponse(throttle_ms, refused)


class ScramCredentials(Struct, frozen=True):
    """A ScramCredentials has credentials: mechanism (1 is SCRAM-SHA-256, 2 is SCRAM-SHA-512) → iterations."""

    name: str
    error: ErrorCode = ErrorCode.NONE
    iterations: Mapping[int, int] = field(default_factory=dict)


class DescribeScramResponse(Struct, frozen=True):
    throttle_ms: int
    error: ErrorCode
    message: str | None
    users: tuple[ScramCredentials, ...]


class DescribeScramRequest(Struct, frozen=True):
    """This request reads the SCRAM mechanisms of every user. Kafka never returns the secrets.

    It sends an empty list: with null, a broker that refuses the request never answers.
    """

    API: ClassVar[Api] = Api.DESCRIBE_USER_SCRAM_CREDENTIALS
    VERSIONS: ClassVar[tuple[int, int]] = (0, 0)
    FLEXIBLE: ClassVar[int] = 0

    def body(self, version: int) -> list[Buffer]:
        writer = Writer()
        writer.count(0)
        writer.no_tags()
        return [writer.buffer]

    def answer(self, version: int, reader: Reader) -> DescribeScramResponse:
        throttle_ms = reader.int32()
        error = reader.error_code()
        message = reader.nullable_string()
        users = reader.array(lambda: _user(reader))
        return DescribeScramResponse(throttle_ms, error, message, tuple(users))


def _user(reader: Reader) -> ScramCredentials:
    name, error = reader.compact_string(), reader.error_code()
    reader.nullable_string()
    iterations: dict[int, int] = {}
    for _ in range(reader.count()):
        mechanism = reader.int8()
        iterations[mechanism] = reader.int32()
        reader.skip_tags()
    reader.skip_tags()
    return ScramCredentials(name, error, iterations)


_WITH_ERROR, _WITH_VOLUME = 3, 4


class DescribeLogDirsResponse(Struct, frozen=True):
    """The `replicas` of this response hold each replica and its bytes.

    A replica that moves between disks occurs twice. `usable_bytes` is the room of each log directory's volume
    that the broker tells: since Kafka 3.3.
    """

    throttle_ms: int
    error: ErrorCode
    replicas: tuple[tuple[TopicPartition, int], ...]
    usable_bytes: tuple[int, ...] = ()


class DescribeLogDirsRequest(Struct, frozen=True):
    API: ClassVar[Api] = Api.DESCRIBE_LOG_DIRS
    VERSIONS: ClassVar[tuple[int, int]] = (1, 4)
    FLEXIBLE: ClassVar[int] = 2

    partitions: Iterable[TopicPartition]

    def body(self, version: int) -> list[Buffer]:
        writer = writer_of(version, self.FLEXIBLE)
        writer.by_topic(self.partitions)
        writer.no_tags()
        return [writer.buffer]

    def answer(self, version: int, reader: Reader) -> DescribeLogDirsResponse:
        reader = reader_of(reader, version, self.FLEXIBLE)
        throttle_ms = reader.int32()
        error = reader.error_code() if version >= _WITH_ERROR else ErrorCode.NONE
        replicas: list[tuple[TopicPartition, int]] = []
        usable: list[int] = []
        for _ in range(reader.count()):
            reader.int16()  # an error of this directory: the response then leaves out its replicas
            reader.compact_string()
            for _ in range(reader.count()):
                topic = reader.compact_string()
                for _ in range(reader.count()):
                    partition, size = reader.int32(), reader.int64()
                    reader.int64()  # offset lag
                    reader.boolean()  # whether it is to replace the present replica
                    reader.skip_tags()
                    replicas.append((TopicPartition(topic, partition), size))
                reader.skip_tags()
            if version >= _WITH_VOLUME:
                reader.int64()  # bytes of the volume
                usable.append(reader.int64())
            reader.skip_tags()
        known = tuple(one for one in usable if one >= 0)  # -1: the directory is offline
        return DescribeLogDirsResponse(throttle_ms, error, tuple(replicas), known)


class Refusal(Struct, frozen=True):
    """A Refusal is the reason why the brokers rejected a change; `message` is their text, if there is one."""

    error: ErrorCode
    message: str | None


class AlterReassignmentsResponse(Struct, frozen=True):
    """In this response, `refusal` concerns the whole request and `refused` single partitions.

    The others are being moved.
    """

    throttle_ms: int
    refusal: Refusal | None
    refused: Mapping[TopicPartition, Refusal]


class AlterReassignmentsRequest(Struct, frozen=True):
    """This request moves each partition to its replicas, the preferred leader first. It may be sent again."""

    API: ClassVar[Api] = Api.ALTER_PARTITION_REASSIGNMENTS
    VERSIONS: ClassVar[tuple[int, int]] = (0, 0)
    FLEXIBLE: ClassVar[int] = 0

    replicas: Mapping[TopicPartition, Sequence[int]]
    timeout_ms: int

    def body(self, version: int) -> list[Buffer]:
        topics: dict[str, list[tuple[int, Sequence[int]]]] = {}
        for place, replicas in self.replicas.items():
            topics.setdefault(place.topic, []).append((place.partition, replicas))
        writer = Writer()
        writer.int32(self.timeout_ms)
        writer.count(len(topics))
        for topic, partitions in topics.items():
            writer.compact_string(topic)
            writer.count(len(partitions))
            for partition, replicas in partitions:
                writer.int32(partition)
                writer.int32s(list(replicas))
                writer.no_tags()
            writer.no_tags()
        writer.no_tags()
        return [writer.buffer]

    def answer(self, version: int, reader: Reader) -> AlterReassignmentsResponse:
        throttle_ms = reader.int32()
        whole = refusal(reader)
        refused = {}
        for _ in range(reader.count()):
            topic = reader.compact_string()
            for _ in range(reader.count()):
                partition = reader.int32()
                if (why := refusal(reader)) is not None:
                    refused[TopicPartition(topic, partition)] = why
                reader.skip_tags()
            reader.skip_tags()
        return AlterReassignmentsResponse(throttle_ms, whole, refused)


def refusal(reader: Reader) -> Refusal | None:
    """Reads an error code and the broker's text; None where nothing was refused."""
    error, message = reader.error_code(), reader.nullable_string()
    return Refusal(error, message) if error else None
