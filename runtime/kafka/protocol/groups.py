"""Consumer groups: ListGroups, OffsetCommit, OffsetFetch, and the rights of DescribeGroups."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

from msgspec import Struct

from runtime.kafka.errors import ErrorCode
from runtime.kafka.protocol.layout import grouped, indexes
from runtime.kafka.protocol.metadata import Operations, operations
from runtime.kafka.protocol.offsets import TopicPartition
from runtime.kafka.protocol.request import Api, Message, Request, Rows

MANY_GROUPS = 8  # the version of OffsetFetch that names several groups


class CommittedOffset(Struct, frozen=True):
    """The `offset` of a CommittedOffset is -1 where nothing was committed.

    A leader epoch of -1 is unknown, and never written. With `of_share_group` the offset is the start offset
    of a share group, which has no epoch and no metadata.
    """

    offset: int
    leader_epoch: int = -1
    metadata: str | None = None
    of_share_group: bool = False


Offsets = Mapping[TopicPartition, CommittedOffset | ErrorCode]


class OffsetCommitRequest(Request[Mapping[TopicPartition, ErrorCode]], frozen=True):
    """This request commits without group membership; the broker refuses it while the group has members."""

    MESSAGE: ClassVar[Message] = Message(
        Api.OFFSET_COMMIT,
        8,
        """
        group            string
        _generation      int32    = -1
        _member_id       string   = ""
        _instance_id     string?  = None
        topics           []
          name           string
          partitions     []
            index        int32
            offset       int64
            leader_epoch int32
            metadata     string?
        """,
        """
        throttle_ms      int32
        topics           []
          name           string
          partitions     []
            index        int32
            error        error
        """,
    )
    VERSIONS: ClassVar[tuple[int, int]] = (8, 9)

    group: str
    offsets: Mapping[TopicPartition, CommittedOffset]

    def values(self, version: int) -> Any:
        return self.group, grouped(
            (at, (committed.offset, committed.leader_epoch, committed.metadata))
            for at, committed in self.offsets.items()
        )

    def result(self, _throttle_ms: int, topics: Rows) -> Mapping[TopicPartition, ErrorCode]:
        return {
            TopicPartition(topic, index): error for topic, partitions in topics for index, error in partitions
        }


OFFSET_FETCH = Message(
    Api.OFFSET_FETCH,
    6,
    """
    group              string   -7
    topics             []       -7
      name             string
      indexes          []int32
    groups             []       8+
      group            string
      _member_id       string?  9+  = None
      _member_epoch    int32    9+  = -1
      topics           []
        name           string
        indexes        []int32
    _require_stable    bool     7+  = False
    """,
    """
    throttle_ms        int32
    topics             []       -7  = None
      name             string
      partitions       []
        index          int32
        offset         int64
        leader_epoch   int32
        metadata       string?
        error          error
    error              error    -7
    groups             []       8+
      group            string
      topics           []
        name           string
        partitions     []
          index        int32
          offset       int64
          leader_epoch int32
          metadata     string?
          error        error
      error            error
    """,
)


class OffsetFetchRequest(Request[Mapping[str, Offsets | ErrorCode]], frozen=True):
    """This request reads the committed offsets of groups from the broker that coordinates them.

    With `partitions` of None it reads every offset. Several groups in one request need version 8 (Kafka 3.0).
    """

    MESSAGE: ClassVar[Message] = OFFSET_FETCH
    VERSIONS: ClassVar[tuple[int, int]] = (6, 9)

    groups: Sequence[str]
    partitions: Sequence[TopicPartition] | None = None

    def values(self, version: int) -> Any:
        topics = None if self.partitions is None else indexes(self.partitions)
        return self.groups[0], topics, [(group, topics) for group in self.groups]

    def result(
        self, _throttle_ms: int, topics: Rows | None, error: ErrorCode, groups: Rows
    ) -> Mapping[str, Offsets | ErrorCode]:
        if topics is not None:  # a version for one group
            groups = [(self.groups[0], topics, error)]
        return {
            group: failure
            or {
                TopicPartition(topic, index): refused or CommittedOffset(offset, epoch, metadata)
                for topic, partitions in of_group
                for index, offset, epoch, metadata, refused in partitions
            }
            for group, of_group, failure in groups
        }


class ListedGroup(Struct, frozen=True):
    """A ListedGroup is a group as its coordinator lists it.

    `kind` is `classic`, `consumer`, `share` or `streams`; older versions leave it and `state` empty.
    """

    name: str
    protocol_type: str
    state: str
    kind: str = ""


class ListGroupsRequest(Request[Sequence[ListedGroup] | ErrorCode], frozen=True):
    """This request lists the groups that the broker coordinates, of every state and kind."""

    MESSAGE: ClassVar[Message] = Message(
        Api.LIST_GROUPS,
        3,
        """
        _states          []string  4+  = ()
        _types           []string  5+  = ()
        """,
        """
        throttle_ms      int32     1+
        error            error
        groups           [] -> ListedGroup
          name           string
          protocol_type  string
          state          string    4+
          kind           string    5+
        """,
        ListedGroup,
    )
    VERSIONS: ClassVar[tuple[int, int]] = (0, 5)

    def values(self, version: int) -> None:
        return None

    def result(
        self, _throttle_ms: int, error: ErrorCode, groups: list[ListedGroup]
    ) -> Sequence[ListedGroup] | ErrorCode:
        return error or groups


class GroupRightsRequest(Request[Mapping[str, Operations | ErrorCode | None]], frozen=True):
    """This request is DescribeGroups. It reads what the principal may do with groups.

    The result is None for a group whose rights the broker does not return. The groups need not exist:
    version 6 answers GROUP_ID_NOT_FOUND for those in place of the rights.
    """

    MESSAGE: ClassVar[Message] = Message(
        Api.DESCRIBE_GROUPS,
        5,
        """
        groups             []string
        _include_rights    bool      = True
        """,
        """
        throttle_ms        int32
        groups             []
          error            error
          name             string
          _state           string
          _protocol_type   string
          _protocol        string
          _members         []
            _member_id     string
            _instance_id   string?   4+
            _client_id     string
            _host          string
            _metadata      bytes
            _assignment    bytes
          rights           int32
        """,
    )
    VERSIONS: ClassVar[tuple[int, int]] = (3, 5)

    groups: Sequence[str]

    def values(self, version: int) -> Sequence[str]:
        return self.groups

    def result(self, _throttle_ms: int, groups: Rows) -> Mapping[str, Operations | ErrorCode | None]:
        return {name: error or operations(rights) for error, name, rights in groups}
