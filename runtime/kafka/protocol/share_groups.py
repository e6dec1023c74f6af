"""The positions of share groups (KIP-932), since Kafka 4.2.

Kafka 4.1 offers version 0 of both, and refuses them unless an operator switched the preview on.

A share group has no committed offsets. Of each partition, the share coordinator keeps the start offset: all
records before it are acknowledged or archived. Records behind it may be acknowledged, acquired or available.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

from runtime.kafka.errors import ErrorCode
from runtime.kafka.protocol.layout import grouped
from runtime.kafka.protocol.offsets import TopicPartition, partition_errors
from runtime.kafka.protocol.request import Api, Message, Request, Rows

StartOffsets = Mapping[TopicPartition, int | ErrorCode]


class DescribeShareOffsetsRequest(Request[Mapping[str, StartOffsets | ErrorCode]], frozen=True):
    """This request reads the start offsets of groups from their coordinator.

    A start offset of -1 says that no consumer of the group has fetched from the partition yet.
    """

    MESSAGE: ClassVar[Message] = Message(
        Api.DESCRIBE_SHARE_GROUP_OFFSETS,
        0,
        """
        groups            []
          group           string
          topics          []
            name          string
            indexes       []int32
        """,
        """
        throttle_ms       int32
        groups            []
          group           string
          topics          []
            name          string
            _id           uuid
            partitions    []
              index       int32
              start       int64
              _epoch      int32
              _lag        int64
              error       error
              _message    string?
          error           error
          _message        string?
        """,
    )
    VERSIONS: ClassVar[tuple[int, int]] = (1, 1)

    groups: Sequence[str]

    def values(self, version: int) -> Rows:
        return [(group, None) for group in self.groups]  # every topic of the group

    def result(self, _throttle_ms: int, groups: Rows) -> Mapping[str, StartOffsets | ErrorCode]:
        return {
            group: error
            or {
                TopicPartition(topic, index): failure or start
                for topic, partitions in topics
                for index, start, failure in partitions
            }
            for group, topics, error in groups
        }


class AlterShareOffsetsRequest(Request[Mapping[TopicPartition, ErrorCode] | ErrorCode], frozen=True):
    """This request sets start offsets, and creates the group where there is none.

    The broker refuses it while the group has members.
    """

    MESSAGE: ClassVar[Message] = Message(
        Api.ALTER_SHARE_GROUP_OFFSETS,
        0,
        """
        group             string
        topics            []
          name            string
          partitions      []
            index         int32
            start         int64
        """,
        """
        throttle_ms       int32
        error             error
        _message          string?
        topics            []
          name            string
          _id             uuid
          partitions      []
            index         int32
            error         error
            _message      string?
        """,
    )
    VERSIONS: ClassVar[tuple[int, int]] = (0, 0)

    group: str
    offsets: Mapping[TopicPartition, int]

    def values(self, version: int) -> Any:
        return self.group, grouped((at, (offset,)) for at, offset in self.offsets.items())

    def result(
        self, _throttle_ms: int, error: ErrorCode, topics: Rows
    ) -> Mapping[TopicPartition, ErrorCode] | ErrorCode:
        return error or partition_errors(topics)
