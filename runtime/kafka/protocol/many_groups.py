"""Groups of a broker, and the offsets of many at once: ListGroups v0 to v5 and OffsetFetch v6 to v9."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar

from runtime.kafka.codes import ErrorCode
from runtime.kafka.protocol.fields import Reader, Writer, reader_of, writer_of
from runtime.kafka.protocol.groups import MANY_GROUPS, CommittedOffset, OffsetFetchRequest, read_group
from runtime.kafka.protocol.offsets import TopicPartition
from runtime.kafka.protocol.request import Api, Buffer

Offsets = Mapping[TopicPartition, CommittedOffset | ErrorCode]


@dataclass(frozen=True, slots=True)
class ListedGroup:
    """`kind` is `classic`, `consumer`, `share` or `streams`; empty in older versions, as `state`."""

    name: str
    protocol_type: str
    state: str
    kind: str = ""


@dataclass(frozen=True, slots=True)
class ListGroupsResponse:
    throttle_ms: int
    error: ErrorCode
    groups: tuple[ListedGroup, ...]


@dataclass(frozen=True, slots=True)
class ListGroupsRequest:
    """Those that the broker coordinates, of every state and kind."""

    API: ClassVar[Api] = Api.LIST_GROUPS
    VERSIONS: ClassVar[tuple[int, int]] = (0, 5)
    FLEXIBLE: ClassVar[int] = 3

    def body(self, version: int) -> list[Buffer]:
        writer = writer_of(version, self.FLEXIBLE)
        if version >= 4:
            writer.count(0)
        if version >= 5:
            writer.count(0)
        writer.no_tags()
        return [writer.buffer]

    def answer(self, version: int, reader: Reader) -> ListGroupsResponse:
        reader = reader_of(reader, version, self.FLEXIBLE)
        throttle_ms = reader.int32() if version >= 1 else 0
        error = ErrorCode(reader.int16())
        groups = reader.array(lambda: _listed(reader, version))
        return ListGroupsResponse(throttle_ms, error, tuple(groups))


def _listed(reader: Reader, version: int) -> ListedGroup:
    group = ListedGroup(
        reader.compact_string(),
        reader.compact_string(),
        reader.compact_string() if version >= 4 else "",
        reader.compact_string() if version >= 5 else "",
    )
    reader.skip_tags()
    return group


@dataclass(frozen=True, slots=True)
class FetchManyResponse:
    throttle_ms: int
    groups: Mapping[str, Offsets | ErrorCode]


@dataclass(frozen=True, slots=True)
class FetchManyRequest:
    """All that each of these groups ever committed, from the broker that coordinates them.

    Many groups in one request need version 8 (Kafka 3.0).
    """

    API: ClassVar[Api] = Api.OFFSET_FETCH
    VERSIONS: ClassVar[tuple[int, int]] = (6, 9)
    FLEXIBLE: ClassVar[int] = 6

    groups: Sequence[str]

    def body(self, version: int) -> list[Buffer]:
        if version < MANY_GROUPS:
            (group,) = self.groups
            return OffsetFetchRequest(group).body(version)
        writer = Writer()
        writer.count(len(self.groups))
        for group in self.groups:
            writer.compact_string(group)
            if version >= 9:
                writer.compact_string(None)
                writer.int32(-1)
            writer.count(None)
            writer.no_tags()
        writer.boolean(False)
        writer.no_tags()
        return [writer.buffer]

    def answer(self, version: int, reader: Reader) -> FetchManyResponse:
        if version < MANY_GROUPS:
            (group,) = self.groups
            one = OffsetFetchRequest(group).answer(version, reader)
            return FetchManyResponse(one.throttle_ms, {group: one.error or one.offsets})
        throttle_ms = reader.int32()
        found: dict[str, Offsets | ErrorCode] = {}
        for _ in range(reader.count()):
            name = reader.compact_string()
            offsets: dict[TopicPartition, CommittedOffset | ErrorCode] = {}
            read_group(reader, offsets)
            error = ErrorCode(reader.int16())
            reader.skip_tags()
            found[name] = error or offsets
        return FetchManyResponse(throttle_ms, found)
