"""DescribeQuorum v1: the quorum of the controllers. Its times are those of the active controller's clock."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from runtime.kafka.codes import ErrorCode
from runtime.kafka.protocol.fields import Reader, Writer
from runtime.kafka.protocol.request import Api, Buffer

_TOPIC = "__cluster_metadata"


@dataclass(frozen=True, slots=True)
class QuorumReplica:
    """A replica of the metadata log; of the leader itself, `caught_up_ms` is its present time."""

    node: int
    caught_up_ms: int


@dataclass(frozen=True, slots=True)
class DescribeQuorumResponse:
    throttle_ms: ClassVar[int] = 0

    error: ErrorCode
    leader: int
    voters: tuple[QuorumReplica, ...]


@dataclass(frozen=True, slots=True)
class DescribeQuorumRequest:
    """Any broker passes it on to the active controller. Kafka 3.3 and newer, in KRaft mode."""

    API: ClassVar[Api] = Api.DESCRIBE_QUORUM
    VERSIONS: ClassVar[tuple[int, int]] = (1, 1)
    FLEXIBLE: ClassVar[int] = 0

    def body(self, version: int) -> Sequence[Buffer]:
        writer = Writer()
        writer.count(1)
        writer.compact_string(_TOPIC)
        writer.count(1)
        writer.int32(0)
        for _ in range(3):
            writer.no_tags()
        return [writer.buffer]

    def answer(self, version: int, reader: Reader) -> DescribeQuorumResponse:
        error = ErrorCode(reader.int16())
        leader = -1
        voters: list[QuorumReplica] = []
        for _ in range(reader.count()):
            reader.compact_string()
            for _ in range(reader.count()):
                reader.int32()
                error = ErrorCode(reader.int16()) or error
                leader = reader.int32()
                reader.int32()
                reader.int64()
                voters = reader.array(lambda: _replica(reader))
                reader.array(lambda: _replica(reader))  # observers
                reader.skip_tags()
            reader.skip_tags()
        return DescribeQuorumResponse(error, leader, tuple(voters))


def _replica(reader: Reader) -> QuorumReplica:
    node = reader.int32()
    reader.int64()
    reader.int64()
    replica = QuorumReplica(node, reader.int64())
    reader.skip_tags()
    return replica
