"""Consumer groups: their list, their committed offsets, and their members."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Annotated, Any, ClassVar

from msgspec import Struct

from runtime.contract.spec.naming import TopicPartition
from runtime.kafka.errors import ErrorCode
from runtime.kafka.protocol.last_decoded import LastDecoded
from runtime.kafka.protocol.layout import (
    ERROR,
    KEY,
    VALUE,
    EntryOrder,
    Int8,
    Int16,
    Int32,
    Int64,
    Layout,
    Skipped,
    Uuid,
    since,
    until,
)
from runtime.kafka.protocol.metadata import Operations
from runtime.kafka.protocol.request import INT32, Api, Request

MANY_GROUPS = 8  # the version of OffsetFetch that names several groups


class CommittedOffset(Struct, frozen=True):
    """The `offset` of a CommittedOffset is -1 where nothing was committed.

    A leader epoch of -1 is unknown, and never written. With `of_share_group` the offset is the start offset
    of a share group, which has no epoch and no metadata.
    """

    WIRE: ClassVar[tuple[str, ...]] = ("offset", "leader_epoch", "metadata")

    offset: Int64
    leader_epoch: Int32 = -1
    metadata: str | None = None
    of_share_group: bool = False


Offsets = Annotated[Mapping[TopicPartition, CommittedOffset | ErrorCode], EntryOrder(KEY, VALUE, ERROR)]


class OffsetCommitRequest(Request[Mapping[TopicPartition, ErrorCode]], frozen=True):
    """This request commits without group membership; the broker refuses it while the group has members."""

    API = Api.OFFSET_COMMIT
    FLEXIBLE = 8
    VERSIONS = (8, 9)

    group: str
    _generation: ClassVar[Int32] = -1
    _member_id: ClassVar[str] = ""
    _instance_id: ClassVar[str | None] = None
    offsets: Mapping[TopicPartition, CommittedOffset]


OffsetsByGroup = Mapping[str, Offsets | ErrorCode]
DecodedOffsets = LastDecoded[tuple[int, OffsetsByGroup]]
"""The offsets of the last response to each request, behind the time that the broker throttles."""


class OffsetFetchRequest(Request[OffsetsByGroup], frozen=True):
    """This request reads the committed offsets of groups from the broker that coordinates them.

    With `partitions` of None it reads every offset. Several groups in one request need version 8 (Kafka 3.0).
    `decoded` keeps the offsets from one response to the next: the coordinator of idle groups repeats them.
    """

    API = Api.OFFSET_FETCH
    FLEXIBLE = 6
    VERSIONS = (6, 9)
    BODY = tuple[
        Annotated[str, until(7)],
        Annotated[Sequence[TopicPartition], until(7)],
        Annotated[
            Sequence[
                tuple[
                    str,
                    Annotated[str | None, since(9)],  # the member's id
                    Annotated[Int32, since(9)],  # the member's epoch
                    Sequence[TopicPartition],
                ]
            ],
            since(8),
        ],
        Annotated[Skipped[bool], since(7)],  # whether offsets of open transactions are waited for
    ]
    RESPONSE = tuple[
        Annotated[Offsets | None, until(7)],
        Annotated[ErrorCode, until(7)],
        Annotated[Mapping[str, Offsets | ErrorCode], EntryOrder(KEY, VALUE, ERROR), since(8)],
    ]

    groups: Sequence[str]
    partitions: Sequence[TopicPartition] | None = None
    decoded: DecodedOffsets | None = None

    def answer(self, version: int, response: memoryview) -> tuple[int, OffsetsByGroup]:
        if self.decoded is None:
            return super().answer(version, response)
        partitions = None if self.partitions is None else tuple(self.partitions)
        decode = partial(super().answer, version, response)
        return self.decoded.value((version, tuple(self.groups), partitions), response[INT32.size :], decode)

    def values(self, version: int) -> Any:
        return self.groups[0], self.partitions, [(group, None, -1, self.partitions) for group in self.groups]

    def result(self, value: Any) -> OffsetsByGroup:
        of_group, error, groups = value
        return groups if of_group is None else {self.groups[0]: error or of_group}


class ListedGroup(Struct, frozen=True):
    """A ListedGroup is a group as its coordinator lists it.

    `kind` is `classic`, `consumer`, `share` or `streams`; older versions leave it and `state` empty.
    """

    name: str
    protocol_type: str
    state: Annotated[str, since(4)]
    kind: Annotated[str, since(5)] = ""


class ListGroupsRequest(Request[Sequence[ListedGroup] | ErrorCode], frozen=True):
    """This request lists the groups that the broker coordinates, of every state and kind."""

    API = Api.LIST_GROUPS
    FLEXIBLE = 3
    VERSIONS = (0, 5)
    THROTTLED = since(1)
    _states: ClassVar[Annotated[Sequence[str], since(4)]] = ()
    _types: ClassVar[Annotated[Sequence[str], since(5)]] = ()


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
    tuple[Skipped[Int16], Mapping[str, Sequence[Int32]]]
)


def _assigned(protocol_type: str, assignment: bytes) -> Mapping[str, Sequence[int]]:
    """Returns the partitions of a member, by topic; none from bytes that can't be read."""
    if protocol_type != "consumer" or not assignment:
        return {}
    try:
        ((topics,), _) = _ASSIGNMENT.decode(0, memoryview(assignment))
    except ValueError:
        return {}
    assigned: Mapping[str, Sequence[int]] = topics
    return assigned


class DescribeGroupsRequest(Request[Mapping[str, GroupState | ErrorCode]], frozen=True):
    """This request reads groups of the classic protocol, and what the principal may do with groups.

    The groups need not exist: version 6 answers GROUP_ID_NOT_FOUND for those in place of the rights.
    """

    API = Api.DESCRIBE_GROUPS
    FLEXIBLE = 5
    VERSIONS = (3, 5)
    RESPONSE = Annotated[
        Mapping[
            str,
            tuple[
                str,
                str,  # the type of the protocol
                Skipped[str],  # the protocol
                Sequence[
                    tuple[
                        str,
                        Annotated[Skipped[str], since(4)],  # the instance's id
                        str,
                        str,
                        Skipped[bytes],  # the metadata
                        bytes,  # the assignment
                    ]
                ],
                Operations,
            ]
            | ErrorCode,
        ],
        EntryOrder(ERROR, KEY, VALUE),
    ]

    groups: Sequence[str]
    _include_rights: ClassVar[bool] = True

    def result(self, value: Any) -> Mapping[str, GroupState | ErrorCode]:
        groups = dict(value)
        for name, group in value.items():
            if not isinstance(group, ErrorCode):
                state, protocol_type, members, rights = group
                described = [
                    MemberState(member_id, client_id, host, _assigned(protocol_type, assignment))
                    for member_id, client_id, host, assignment in members
                ]
                groups[name] = GroupState(state, described, rights)
        return groups


class _Assignment(Struct, frozen=True):
    topics: Annotated[Mapping[str, Sequence[Int32]], EntryOrder(Uuid, KEY, VALUE)]


class DescribeConsumerGroupsRequest(Request[Mapping[str, GroupState | ErrorCode]], frozen=True):
    """This request reads groups of the consumer protocol (KIP-848), since Kafka 3.7."""

    API = Api.CONSUMER_GROUP_DESCRIBE
    FLEXIBLE = 0
    VERSIONS = (0, 1)
    RESPONSE = Annotated[
        Mapping[
            str,
            tuple[
                str,
                Skipped[Int32],  # the epoch
                Skipped[Int32],  # the assignment's epoch
                Skipped[str],  # the assignor
                Sequence[
                    tuple[
                        str,
                        Skipped[tuple[str, str, Int32]],  # the instance's id, the rack, the epoch
                        str,
                        str,
                        Skipped[tuple[Sequence[str], str]],  # the topics, and their pattern
                        _Assignment,
                        Skipped[_Assignment],  # the target
                        Annotated[Skipped[Int8], since(1)],  # the type
                    ]
                ],
            ]
            | ErrorCode,
        ],
        EntryOrder(ERROR, str, KEY, VALUE, Int32),  # behind the error, its message; at the end, the rights
    ]

    groups: Sequence[str]
    _include_rights: ClassVar[bool] = False

    def result(self, value: Any) -> Mapping[str, GroupState | ErrorCode]:
        groups = dict(value)
        for name, group in value.items():
            if not isinstance(group, ErrorCode):
                state, members = group
                described = [
                    MemberState(member_id, client_id, host, assignment.topics)
                    for member_id, client_id, host, assignment in members
                ]
                groups[name] = GroupState(state, described)
        return groups
