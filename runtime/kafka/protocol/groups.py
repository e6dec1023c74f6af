"""This module encodes the requests for consumer groups: ListGroups, OffsetCommit, OffsetFetch, and rights."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import ClassVar

from msgspec import Struct

from runtime.kafka.errors import ErrorCode
from runtime.kafka.protocol.metadata import Operations, operations
from runtime.kafka.protocol.offsets import TopicPartition, write_by_topic
from runtime.kafka.protocol.request import Api, Buffer, Reader, Writer, reader_of, writer_of

# The versions of OffsetFetch that brought some of its fields.
MANY_GROUPS = 8
REQUIRE_STABLE = 7
_STATIC_MEMBERS = 4  # of DescribeGroups


class CommittedOffset(Struct, frozen=True):
    """The `offset` of a CommittedOffset is -1 where nothing was committed.

    A leader epoch of -1 is unknown, and never written. With `of_share_group` the offset is the start offset
    of a share group, which has no epoch and no metadata.
    """

    offset: int
    leader_epoch: int = -1
    metadata: str | None = None
    of_share_group: bool = False


class OffsetCommitResponse(Struct, frozen=True):
    throttle_ms: int
    errors: Mapping[TopicPartition, ErrorCode]


class OffsetCommitRequest(Struct, frozen=True):
    """This request commits without group membership; the broker refuses it while the group has members."""

    API: ClassVar[Api] = Api.OFFSET_COMMIT
    VERSIONS: ClassVar[tuple[int, int]] = (8, 9)
    FLEXIBLE: ClassVar[int] = 8

    group: str
    offsets: Mapping[TopicPartition, CommittedOffset]

    def body(self, version: int) -> list[Buffer]:
        writer = Writer()
        writer.compact_string(self.group)
        writer.int32(-1)
        writer.compact_string("")
        writer.compact_string(None)

        def committed(offset: CommittedOffset) -> None:
            writer.int64(offset.offset)
            writer.int32(offset.leader_epoch)
            writer.compact_string(offset.metadata)

        write_by_topic(writer, self.offsets, committed)
        writer.no_tags()
        return [writer.buffer]

    def answer(self, version: int, reader: Reader) -> OffsetCommitResponse:
        throttle_ms = reader.int32()
        errors: dict[TopicPartition, ErrorCode] = {}
        for _ in range(reader.count()):
            topic = reader.compact_string()
            for _ in range(reader.count()):
                partition = reader.int32()
                errors[TopicPartition(topic, partition)] = reader.error_code()
                reader.skip_tags()
            reader.skip_tags()
        return OffsetCommitResponse(throttle_ms, errors)


class OffsetFetchResponse(Struct, frozen=True):
    throttle_ms: int
    error: ErrorCode
    offsets: Mapping[TopicPartition, CommittedOffset | ErrorCode]


class OffsetFetchRequest(Struct, frozen=True):
    """With `partitions` of None this request reads every committed offset of the group."""

    API: ClassVar[Api] = Api.OFFSET_FETCH
    VERSIONS: ClassVar[tuple[int, int]] = (6, 9)
    FLEXIBLE: ClassVar[int] = 6

    group: str
    partitions: Sequence[TopicPartition] | None = None

    def body(self, version: int) -> list[Buffer]:
        writer = Writer()
        if version >= MANY_GROUPS:
            writer.count(1)
        writer.compact_string(self.group)
        if version >= 9:
            writer.compact_string(None)
            writer.int32(-1)
        if self.partitions is None:
            writer.count(None)
        else:
            writer.by_topic(self.partitions)
        if version >= MANY_GROUPS:
            writer.no_tags()
        if version >= REQUIRE_STABLE:
            writer.boolean(False)
        writer.no_tags()
        return [writer.buffer]

    def answer(self, version: int, reader: Reader) -> OffsetFetchResponse:
        throttle_ms = reader.int32()
        offsets: dict[TopicPartition, CommittedOffset | ErrorCode] = {}
        error = ErrorCode.NONE
        if version < MANY_GROUPS:
            read_group(reader, offsets)
            return OffsetFetchResponse(throttle_ms, reader.error_code(), offsets)
        for _ in range(reader.count()):
            reader.compact_string()
            read_group(reader, offsets)
            error = reader.error_code()
            reader.skip_tags()
        return OffsetFetchResponse(throttle_ms, error, offsets)


def read_group(reader: Reader, offsets: dict[TopicPartition, CommittedOffset | ErrorCode]) -> None:
    """Reads the topics of one group in a response."""
    for _ in range(reader.count()):
        topic = reader.compact_string()
        for _ in range(reader.count()):
            partition = reader.int32()
            committed = CommittedOffset(reader.int64(), reader.int32(), reader.nullable_string())
            error = reader.error_code()
            reader.skip_tags()
            offsets[TopicPartition(topic, partition)] = error or committed
        reader.skip_tags()


Offsets = Mapping[TopicPartition, CommittedOffset | ErrorCode]


class ListedGroup(Struct, frozen=True):
    """A ListedGroup is a group as its coordinator lists it.

    `kind` is `classic`, `consumer`, `share` or `streams`; older versions leave it and `state` empty.
    """

    name: str
    protocol_type: str
    state: str
    kind: str = ""


class ListGroupsResponse(Struct, frozen=True):
    throttle_ms: int
    error: ErrorCode
    groups: tuple[ListedGroup, ...]


class ListGroupsRequest(Struct, frozen=True):
    """This request lists the groups that the broker coordinates, of every state and kind."""

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
        error = reader.error_code()
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


class FetchManyResponse(Struct, frozen=True):
    throttle_ms: int
    groups: Mapping[str, Offsets | ErrorCode]


class FetchManyRequest(Struct, frozen=True):
    """This request reads every committed offset of these groups from the broker that coordinates them.

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
            error = reader.error_code()
            reader.skip_tags()
            found[name] = error or offsets
        return FetchManyResponse(throttle_ms, found)


class GroupRightsResponse(Struct, frozen=True):
    """The `groups` of this response have the rights on each group; None if the broker returns none."""

    throttle_ms: int
    groups: Mapping[str, Operations | ErrorCode | None]


class GroupRightsRequest(Struct, frozen=True):
    """This request is DescribeGroups v3 to v5. It reads what the principal may do with groups.

    The groups need not exist: version 6 answers GROUP_ID_NOT_FOUND for those in place of the rights.
    """

    API: ClassVar[Api] = Api.DESCRIBE_GROUPS
    VERSIONS: ClassVar[tuple[int, int]] = (3, 5)
    FLEXIBLE: ClassVar[int] = 5

    groups: Sequence[str]

    def body(self, version: int) -> list[Buffer]:
        writer = writer_of(version, self.FLEXIBLE)
        writer.count(len(self.groups))
        for group in self.groups:
            writer.compact_string(group)
        writer.boolean(True)
        writer.no_tags()
        return [writer.buffer]

    def answer(self, version: int, reader: Reader) -> GroupRightsResponse:
        reader = reader_of(reader, version, self.FLEXIBLE)
        throttle_ms = reader.int32()
        groups: dict[str, Operations | ErrorCode | None] = {}
        for _ in range(reader.count()):
            error = reader.error_code()
            name = reader.compact_string()
            for _ in range(3):  # state, type and protocol
                reader.compact_string()
            for _ in range(reader.count()):
                reader.compact_string()  # id of the member
                if version >= _STATIC_MEMBERS:
                    reader.nullable_string()
                reader.compact_string()  # client id
                reader.compact_string()  # host
                reader.take(max(0, reader.bytes_size()))  # metadata
                reader.take(max(0, reader.bytes_size()))  # assignment
                reader.skip_tags()
            rights = operations(reader.int32())
            reader.skip_tags()
            groups[name] = error or rights
        return GroupRightsResponse(throttle_ms, groups)
