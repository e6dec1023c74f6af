"""The positions of share groups (KIP-932), since Kafka 4.2.

Kafka 4.1 offers version 0 of both, and refuses them unless an operator switched the preview on.

A share group has no committed offsets. Of each partition, the share coordinator keeps the start offset: all
records before it are acknowledged or archived. Records behind it may be acknowledged, acquired or available.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Annotated, Any

from runtime.contract.spec.naming import TopicPartition
from runtime.kafka.errors import ErrorCode
from runtime.kafka.protocol.groups import CommittedOffset
from runtime.kafka.protocol.layout import (
    ERROR,
    KEY,
    VALUE,
    Converted,
    EntryOrder,
    Int32,
    Int64,
    Nested,
    Skipped,
    Uuid,
)
from runtime.kafka.protocol.request import Api, Request

_Starts = Annotated[
    Mapping[
        TopicPartition,
        Annotated[CommittedOffset, Converted(partial(CommittedOffset, of_share_group=True), Int64)]
        | ErrorCode,
    ],
    Nested(1, Uuid),  # the topic's id
    EntryOrder(KEY, VALUE, Int32, Int64, ERROR, str),  # the leader's epoch and the lag; the error's message
]
_Groups = Annotated[Mapping[str, _Starts | ErrorCode], EntryOrder(KEY, VALUE, ERROR, str)]


class DescribeShareOffsetsRequest(Request[_Groups], frozen=True):
    """This request reads the start offsets of groups from their coordinator.

    A start offset of -1 says that no consumer of the group has fetched from the partition yet.
    """

    API = Api.DESCRIBE_SHARE_GROUP_OFFSETS
    FLEXIBLE = 0
    VERSIONS = (1, 1)
    BODY = tuple[Sequence[tuple[str, Sequence[str]]]]

    groups: Sequence[str]

    def values(self, version: int) -> Any:
        return ([(group, None) for group in self.groups],)  # every topic of the group


class AlterShareOffsetsRequest(Request[Mapping[TopicPartition, ErrorCode] | ErrorCode], frozen=True):
    """This request sets start offsets, and creates the group where there is none.

    The broker refuses it while the group has members.
    """

    API = Api.ALTER_SHARE_GROUP_OFFSETS
    FLEXIBLE = 0
    VERSIONS = (0, 0)
    RESPONSE = tuple[
        ErrorCode,
        Skipped[str],  # its message
        Annotated[Mapping[TopicPartition, ErrorCode], Nested(1, Uuid), EntryOrder(KEY, VALUE, str)],
    ]

    group: str
    offsets: Mapping[TopicPartition, Int64]

    def result(self, value: Any) -> Mapping[TopicPartition, ErrorCode] | ErrorCode:
        result: Mapping[TopicPartition, ErrorCode] | ErrorCode = value[0] or value[1]
        return result
