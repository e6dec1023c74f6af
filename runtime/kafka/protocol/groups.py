"""Consumer groups: their list, their committed offsets, and their members."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

from msgspec import Struct

from runtime.kafka.errors import ErrorCode
from runtime.kafka.protocol.layout import Layout, grouped, indexes
from runtime.kafka.protocol.metadata import Operations, operations
from runtime.kafka.protocol.offsets import TopicPartition, partition_errors
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
        return partition_errors(topics)


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

    def result(
        self, _throttle_ms: int, error: ErrorCode, groups: list[ListedGroup]
    ) -> Sequence[ListedGroup] | ErrorCode:
        return error or groups


class MemberState(Struct, frozen=True):
    """A MemberState is a member of a group, with its partitions by topic."""

    member_id: str
    client_id: str
    host: str
    assigned: Mapping[str, Sequence[int]]


class GroupState(Struct, frozen=True):
    """The `state` of a GroupState is Kafka's name: Stable, Empty, …

    `rights` is None where the broker returns none.
    """

    state: str
    members: Sequence[MemberState]
    rights: Operations | None = None


_ASSIGNMENT = Layout(  # what the leader of a group of the classic protocol sends to its members
    """
    _version         int16
    topics           []
      name           string
      indexes        []int32
    """,
    flexible=1 << 15,
)


def _assigned(protocol_type: str, assignment: bytes) -> Mapping[str, Sequence[int]]:
    """Returns the partitions of a member, by topic; none from bytes that can't be read."""
    if protocol_type != "consumer" or not assignment:
        return {}
    try:
        topics, _ = _ASSIGNMENT.decode(0, memoryview(assignment))
    except ValueError:
        return {}
    return dict(topics)


class DescribeGroupsRequest(Request[Mapping[str, GroupState | ErrorCode]], frozen=True):
    """This request reads groups of the classic protocol, and what the principal may do with groups.

    The groups need not exist: version 6 answers GROUP_ID_NOT_FOUND for those in place of the rights.
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
          state            string
          protocol_type    string
          _protocol        string
          members          []
            member_id      string
            _instance_id   string?   4+
            client_id      string
            host           string
            _metadata      bytes
            assignment     bytes
          rights           int32
        """,
    )
    VERSIONS: ClassVar[tuple[int, int]] = (3, 5)

    groups: Sequence[str]

    def values(self, version: int) -> Sequence[str]:
        return self.groups

    def result(self, _throttle_ms: int, groups: Rows) -> Mapping[str, GroupState | ErrorCode]:
        return {
            name: error
            or GroupState(
                state,
                [
                    MemberState(member_id, client_id, host, _assigned(protocol_type, assignment))
                    for member_id, client_id, host, assignment in members
                ],
                operations(rights),
            )
            for error, name, state, protocol_type, members, rights in groups
        }


class DescribeConsumerGroupsRequest(DescribeGroupsRequest, frozen=True):
    """This request reads groups of the consumer protocol (KIP-848), since Kafka 3.7."""

    MESSAGE: ClassVar[Message] = Message(
        Api.CONSUMER_GROUP_DESCRIBE,
        0,
        """
        groups               []string
        _include_rights      bool      = False
        """,
        """
        throttle_ms          int32
        groups               []
          error              error
          _message           string
          name               string
          state              string
          _epoch             int32
          _assignment_epoch  int32
          _assignor          string
          members            []
            member_id        string
            _instance_id     string
            _rack            string
            _epoch           int32
            client_id        string
            host             string
            _topics          []string
            _topic_regex     string
            assignment       {}
              topics         []
                _id          uuid
                name         string
                indexes      []int32
            _target          {}
              _topics        []
                _id          uuid
                _name        string
                _indexes     []int32
            _member_type     int8      1+
          _rights            int32
        """,
    )
    VERSIONS: ClassVar[tuple[int, int]] = (0, 1)

    def result(self, _throttle_ms: int, groups: Rows) -> Mapping[str, GroupState | ErrorCode]:
        return {
            name: error
            or GroupState(
                state,
                [
                    MemberState(member_id, client_id, host, dict(assigned))
                    for member_id, client_id, host, assigned in members
                ],
            )
            for error, name, state, members in groups
        }
