"""This module encodes DescribeAcls v1 to v3, with Kafka's numbers for types and operations."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from runtime.kafka.codes import ErrorCode
from runtime.kafka.protocol.fields import Reader, reader_of, writer_of
from runtime.kafka.protocol.request import Api, Buffer

_ANY = 1


@dataclass(frozen=True, slots=True)
class AclBinding:
    """An AclBinding is one rule. Its numbers are those of Kafka's protocol."""

    resource_type: int
    resource: str
    pattern: int
    principal: str
    host: str
    operation: int
    permission: int


@dataclass(frozen=True, slots=True)
class DescribeAclsResponse:
    throttle_ms: int
    error: ErrorCode
    message: str | None
    bindings: tuple[AclBinding, ...]


@dataclass(frozen=True, slots=True)
class DescribeAclsRequest:
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
        error = ErrorCode(reader.int16())
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
