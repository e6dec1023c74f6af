"""This module encodes the requests that change topics and ACL rules.

These are CreateTopics v2 to v7, DeleteTopics v1 to v5, CreatePartitions v0 to v3, IncrementalAlterConfigs v0
and v1, and CreateAcls and DeleteAcls v1 to v3. A broker takes the first four where it is the controller, or
forwards them in KRaft mode. Each answers for every object by itself: some may be refused and the others done.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import ClassVar

from msgspec import Struct, field

from runtime.kafka.protocol.administration import AclBinding, Refusal, refusal
from runtime.kafka.protocol.config_entries import TOPIC
from runtime.kafka.protocol.request import Api, Buffer, Reader, Writer, reader_of, writer_of

BROKERS_DEFAULT = -1
"""A number that the brokers choose, since Kafka 2.4."""

_SET, _DELETE = 0, 1
_TOPIC_ID = 7  # the versions of CreateTopics that brought some of its fields
_DETAILS = 5
_MESSAGE = 5  # of DeleteTopics


class NewTopic(Struct, frozen=True):
    """A topic to create."""

    name: str
    partitions: int = BROKERS_DEFAULT
    replication: int = BROKERS_DEFAULT
    config: Mapping[str, str] = field(default_factory=dict)


class TopicsResponse(Struct, frozen=True):
    """The `refused` of this response maps a topic to the reason; the others are changed."""

    throttle_ms: int
    refused: Mapping[str, Refusal]


class CreateTopicsRequest(Struct, frozen=True):
    """This request creates topics, or only checks that it could."""

    API: ClassVar[Api] = Api.CREATE_TOPICS
    VERSIONS: ClassVar[tuple[int, int]] = (2, 7)
    FLEXIBLE: ClassVar[int] = 5

    topics: Sequence[NewTopic]
    timeout_ms: int
    validate_only: bool = False

    def body(self, version: int) -> list[Buffer]:
        writer = writer_of(version, self.FLEXIBLE)
        writer.count(len(self.topics))
        for topic in self.topics:
            writer.compact_string(topic.name)
            writer.int32(topic.partitions)
            writer.int16(topic.replication)
            writer.count(0)  # the brokers choose the replicas
            writer.count(len(topic.config))
            for key, value in topic.config.items():
                writer.compact_string(key)
                writer.compact_string(value)
                writer.no_tags()
            writer.no_tags()
        writer.int32(self.timeout_ms)
        writer.boolean(self.validate_only)
        writer.no_tags()
        return [writer.buffer]

    def answer(self, version: int, reader: Reader) -> TopicsResponse:
        reader = reader_of(reader, version, self.FLEXIBLE)
        throttle_ms = reader.int32()
        refused: dict[str, Refusal] = {}
        for _ in range(reader.count()):
            name = reader.compact_string()
            if version >= _TOPIC_ID:
                reader.uuid()
            _note(refused, name, reader)
            if version >= _DETAILS:
                reader.int32()  # partitions
                reader.int16()  # replication
                for _ in range(reader.count()):
                    reader.compact_string()
                    reader.nullable_string()
                    reader.boolean()  # read-only
                    reader.int8()  # source
                    reader.boolean()  # sensitive
                    reader.skip_tags()
            reader.skip_tags()
        return TopicsResponse(throttle_ms, refused)


class DeleteTopicsRequest(Struct, frozen=True):
    """This request deletes topics by name."""

    API: ClassVar[Api] = Api.DELETE_TOPICS
    VERSIONS: ClassVar[tuple[int, int]] = (1, 5)
    FLEXIBLE: ClassVar[int] = 4

    names: Sequence[str]
    timeout_ms: int

    def body(self, version: int) -> list[Buffer]:
        writer = writer_of(version, self.FLEXIBLE)
        writer.count(len(self.names))
        for name in self.names:
            writer.compact_string(name)
        writer.int32(self.timeout_ms)
        writer.no_tags()
        return [writer.buffer]

    def answer(self, version: int, reader: Reader) -> TopicsResponse:
        reader = reader_of(reader, version, self.FLEXIBLE)
        throttle_ms = reader.int32()
        refused: dict[str, Refusal] = {}
        for _ in range(reader.count()):
            name = reader.compact_string()
            if version >= _MESSAGE:
                _note(refused, name, reader)
            elif error := reader.error_code():
                refused[name] = Refusal(error, None)
            reader.skip_tags()
        return TopicsResponse(throttle_ms, refused)


class CreatePartitionsRequest(Struct, frozen=True):
    """This request raises the numbers of partitions, or only checks that it could."""

    API: ClassVar[Api] = Api.CREATE_PARTITIONS
    VERSIONS: ClassVar[tuple[int, int]] = (0, 3)
    FLEXIBLE: ClassVar[int] = 2

    partitions: Mapping[str, int]
    timeout_ms: int
    validate_only: bool = False

    def body(self, version: int) -> list[Buffer]:
        writer = writer_of(version, self.FLEXIBLE)
        writer.count(len(self.partitions))
        for topic, count in self.partitions.items():
            writer.compact_string(topic)
            writer.int32(count)
            writer.count(None)  # the brokers choose the replicas
            writer.no_tags()
        writer.int32(self.timeout_ms)
        writer.boolean(self.validate_only)
        writer.no_tags()
        return [writer.buffer]

    def answer(self, version: int, reader: Reader) -> TopicsResponse:
        reader = reader_of(reader, version, self.FLEXIBLE)
        throttle_ms = reader.int32()
        refused: dict[str, Refusal] = {}
        for _ in range(reader.count()):
            _note(refused, reader.compact_string(), reader)
            reader.skip_tags()
        return TopicsResponse(throttle_ms, refused)


class ConfigAlteration(Struct, frozen=True):
    """A ConfigAlteration sets some keys of one topic and removes others; what it does not name stays."""

    topic: str
    set: Mapping[str, str]
    remove: Sequence[str] = ()


class AlterConfigsRequest(Struct, frozen=True):
    """This request alters the configs of topics, or only checks that it could. It may be sent again."""

    API: ClassVar[Api] = Api.INCREMENTAL_ALTER_CONFIGS
    VERSIONS: ClassVar[tuple[int, int]] = (0, 1)
    FLEXIBLE: ClassVar[int] = 1

    alterations: Sequence[ConfigAlteration]
    validate_only: bool = False

    def body(self, version: int) -> list[Buffer]:
        writer = writer_of(version, self.FLEXIBLE)
        writer.count(len(self.alterations))
        for alteration in self.alterations:
            writer.int8(TOPIC)
            writer.compact_string(alteration.topic)
            writer.count(len(alteration.set) + len(alteration.remove))
            for key, value in (*alteration.set.items(), *((key, None) for key in alteration.remove)):
                writer.compact_string(key)
                writer.int8(_DELETE if value is None else _SET)
                writer.compact_string(value)
                writer.no_tags()
            writer.no_tags()
        writer.boolean(self.validate_only)
        writer.no_tags()
        return [writer.buffer]

    def answer(self, version: int, reader: Reader) -> TopicsResponse:
        reader = reader_of(reader, version, self.FLEXIBLE)
        throttle_ms = reader.int32()
        refused: dict[str, Refusal] = {}
        for _ in range(reader.count()):
            why = refusal(reader)
            reader.int8()
            name = reader.compact_string()
            reader.skip_tags()
            if why is not None:
                refused[name] = why
        return TopicsResponse(throttle_ms, refused)


class AclsResponse(Struct, frozen=True):
    """The `results` of this response are in the order of the request; None stands for one that is done."""

    throttle_ms: int
    results: tuple[Refusal | None, ...]


class CreateAclsRequest(Struct, frozen=True):
    """This request creates rules. A rule that exists is done."""

    API: ClassVar[Api] = Api.CREATE_ACLS
    VERSIONS: ClassVar[tuple[int, int]] = (1, 3)
    FLEXIBLE: ClassVar[int] = 2

    bindings: Sequence[AclBinding]

    def body(self, version: int) -> list[Buffer]:
        return [_with_bindings(writer_of(version, self.FLEXIBLE), self.bindings).buffer]

    def answer(self, version: int, reader: Reader) -> AclsResponse:
        reader = reader_of(reader, version, self.FLEXIBLE)
        throttle_ms = reader.int32()
        results = []
        for _ in range(reader.count()):
            results.append(refusal(reader))
            reader.skip_tags()
        return AclsResponse(throttle_ms, tuple(results))


class DeleteAclsRequest(Struct, frozen=True):
    """This request deletes exactly these rules. A rule that does not exist is done."""

    API: ClassVar[Api] = Api.DELETE_ACLS
    VERSIONS: ClassVar[tuple[int, int]] = (1, 3)
    FLEXIBLE: ClassVar[int] = 2

    bindings: Sequence[AclBinding]

    def body(self, version: int) -> list[Buffer]:
        return [_with_bindings(writer_of(version, self.FLEXIBLE), self.bindings).buffer]

    def answer(self, version: int, reader: Reader) -> AclsResponse:
        reader = reader_of(reader, version, self.FLEXIBLE)
        throttle_ms = reader.int32()
        results = []
        for _ in range(reader.count()):
            why = refusal(reader)
            for _ in range(reader.count()):
                why = refusal(reader) or why
                reader.int8()
                reader.compact_string()
                reader.int8()
                reader.compact_string()
                reader.compact_string()
                reader.int8()
                reader.int8()
                reader.skip_tags()
            reader.skip_tags()
            results.append(why)
        return AclsResponse(throttle_ms, tuple(results))


def _with_bindings(writer: Writer, bindings: Iterable[AclBinding]) -> Writer:
    listed = list(bindings)
    writer.count(len(listed))
    for binding in listed:
        writer.int8(binding.resource_type)
        writer.compact_string(binding.resource)
        writer.int8(binding.pattern)
        writer.compact_string(binding.principal)
        writer.compact_string(binding.host)
        writer.int8(binding.operation)
        writer.int8(binding.permission)
        writer.no_tags()
    writer.no_tags()
    return writer


def _note(refused: dict[str, Refusal], name: str, reader: Reader) -> None:
    """Reads an error and its text, and keeps them if the object was refused."""
    why = refusal(reader)
    if why is not None:
        refused[name] = why
