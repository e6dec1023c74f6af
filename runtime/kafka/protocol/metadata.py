"""This module encodes Metadata v9 to v12, for the planner from v1 and with rights, and DescribeQuorum.

The responses hold brokers, topics, and leaders with epochs. The announced addresses of brokers are checked,
because credentials are sent to them.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import ClassVar

from msgspec import Struct

from runtime.contract.spec.naming import NO_TOPIC_ID, name_id
from runtime.kafka.auth.login import quoted
from runtime.kafka.errors import ErrorCode
from runtime.kafka.protocol.last_decoded import LastDecoded
from runtime.kafka.protocol.request import Api, Buffer, Reader, Writer, reader_of, writer_of

MAX_BROKERS = 10_000
MAX_BROKER_LIST_BYTES = 1 << 20
"""The largest metadata answer that lists brokers and no topic."""

_HOST_NAME = re.compile(
    r"[A-Za-z0-9_]([A-Za-z0-9._-]{0,253}[A-Za-z0-9_.])?"  # a name or an IPv4 address
    r"|[0-9A-Fa-f:.]{2,45}(%[A-Za-z0-9_.-]{1,32})?"  # an IPv6 address, perhaps with its zone
)


def check_address(node: int, host: str, port: int) -> None:
    """Raises ValueError for an announced address that cannot be the address of a host."""
    if len(host) > 255 or _HOST_NAME.fullmatch(host) is None:
        raise ValueError(f"broker {node} is announced as '{quoted(host[:64])}', which is no host name")
    if not 0 < port < 65_536:
        raise ValueError(f"broker {node} is announced with port {port}; ports go from 1 to 65535")


NO_LEADER = -1
NO_EPOCH = -1
_METADATA_TOPIC = "__cluster_metadata"

# These versions introduced some of the fields, or are the only ones with them.
_TOPIC_IDS = 10
_TOPIC_RIGHTS = 8
_CLUSTER_RIGHTS = range(8, 11)
_NOT_TOLD = -(1 << 31)  # the authorized operations of a response that has none


class Broker(Struct, frozen=True):
    node_id: int
    host: str
    port: int
    rack: str | None = None


class Partition(Struct, frozen=True):
    """The `leader` of a Partition is -1 while there is none."""

    index: int
    leader: int
    leader_epoch: int
    replicas: tuple[int, ...]
    in_sync: tuple[int, ...]
    error: ErrorCode = ErrorCode.NONE


Operations = frozenset[int]
"""What the principal may do, by Kafka's numbers of operations."""


class TopicMetadata(Struct, frozen=True):
    """The `name` of a TopicMetadata is empty for an id that the cluster does not know.

    `rights` is None where they were not requested, or the broker does not return them.
    """

    name: str
    id: bytes
    error: ErrorCode
    internal: bool
    partitions: Mapping[int, Partition]
    rights: Operations | None = None


class MetadataResponse(Struct, frozen=True):
    throttle_ms: int
    brokers: tuple[Broker, ...]
    cluster_id: str
    controller: int
    topics: tuple[TopicMetadata, ...]
    rights: Operations | None = None


@dataclass(frozen=True, slots=True)
class MetadataRequest:
    """With `names` of None and no ids this request reads every topic.

    A topic without an id from the broker gets an id made of its name. `decoded` keeps topics from one
    response to the next.
    """

    API: ClassVar[Api] = Api.METADATA
    VERSIONS: ClassVar[tuple[int, int]] = (9, 12)
    FLEXIBLE: ClassVar[int] = 9
    NAME_IDS: ClassVar[bool] = True

    names: Sequence[str] | None = ()
    ids: Sequence[bytes] = ()
    decoded: LastDecoded[tuple[TopicMetadata, ...]] | None = field(default=None, repr=False, compare=False)
    rights: bool = False

    @property
    def brokers_only(self) -> bool:
        """Returns whether the response lists brokers and no topic."""
        return self.names is not None and not self.names and not self.ids

    def body(self, version: int) -> list[Buffer]:
        writer = writer_of(version, self.FLEXIBLE)
        if self.names is None:
            writer.count(None)
        else:
            writer.count(len(self.names) + len(self.ids))
            for name in self.names:
                if version >= _TOPIC_IDS:
                    writer.raw(NO_TOPIC_ID)
                writer.compact_string(name)
                writer.no_tags()
            for topic_id in self.ids:
                writer.raw(topic_id)
                writer.compact_string(None)
                writer.no_tags()
        if version >= 4:
            writer.boolean(False)  # the request must never create a topic
        if version in _CLUSTER_RIGHTS:
            writer.boolean(self.rights)
        if version >= _TOPIC_RIGHTS:
            writer.boolean(self.rights)
        writer.no_tags()
        return [writer.buffer]

    def answer(self, version: int, reader: Reader) -> MetadataResponse:
        reader = reader_of(reader, version, self.FLEXIBLE)
        throttle_ms = reader.int32() if version >= 3 else 0
        count = reader.count()
        if count > MAX_BROKERS:
            raise ValueError(f"it lists {count} brokers; at most {MAX_BROKERS} are expected")
        brokers = [_broker(reader) for _ in range(count)]
        cluster_id = reader.compact_string() if version >= 2 else ""
        controller = reader.int32()
        topics = self._topics(version, reader)
        rights = operations(reader.int32()) if self.rights and version in _CLUSTER_RIGHTS else None
        return MetadataResponse(throttle_ms, tuple(brokers), cluster_id, controller, topics, rights)

    def _topics(self, version: int, reader: Reader) -> tuple[TopicMetadata, ...]:
        def decode() -> tuple[TopicMetadata, ...]:
            return tuple(reader.array(lambda: _topic(reader, version, self.NAME_IDS)))

        if self.decoded is None:
            return decode()
        names = None if self.names is None else tuple(self.names)
        encoded = reader.buffer[reader.position :]
        return self.decoded.value((version, names, tuple(self.ids)), encoded, decode)


@dataclass(frozen=True, slots=True)
class AnyMetadataRequest(MetadataRequest):
    """This request reads metadata from a broker of any age, by name only; topics may have no id.

    With `rights` the response has what the principal may do with each topic.
    """

    VERSIONS: ClassVar[tuple[int, int]] = (1, 12)
    NAME_IDS: ClassVar[bool] = False


@dataclass(frozen=True, slots=True)
class ClusterRightsRequest(AnyMetadataRequest):
    """This request reads what the principal may do with the cluster; later versions do not return it."""

    VERSIONS: ClassVar[tuple[int, int]] = (8, 10)

    rights: bool = True


def operations(bits: int) -> Operations | None:
    """Returns the operations of a bit field; None if the broker returned none."""
    return None if bits == _NOT_TOLD else frozenset(number for number in range(31) if bits >> number & 1)


@dataclass(frozen=True, slots=True)
class MetadataByIdRequest(MetadataRequest):
    """This request reads the same by topic id, which brokers from Kafka 3.0 on support."""

    VERSIONS: ClassVar[tuple[int, int]] = (12, 12)


def _broker(reader: Reader) -> Broker:
    broker = Broker(reader.int32(), reader.compact_string(), reader.int32(), reader.nullable_string())
    reader.skip_tags()
    check_address(broker.node_id, broker.host, broker.port)
    return broker


def _topic(reader: Reader, version: int, name_ids: bool) -> TopicMetadata:
    error = reader.error_code()
    name = reader.compact_string()
    topic_id = reader.uuid() if version >= _TOPIC_IDS else NO_TOPIC_ID
    internal = reader.boolean()
    partitions = reader.array(lambda: _partition(reader, version))
    rights = operations(reader.int32()) if version >= _TOPIC_RIGHTS else None
    reader.skip_tags()
    if name_ids and topic_id == NO_TOPIC_ID and not error:
        topic_id = name_id(name)
    by_index = {partition.index: partition for partition in partitions}
    return TopicMetadata(name, topic_id, error, internal, by_index, rights)


_PARTITION = struct.Struct(">hiii")  # error, index, leader, leader epoch
_OLD_PARTITION = struct.Struct(">hii")


def _partition(reader: Reader, version: int) -> Partition:
    if version >= 7:
        error, index, leader, epoch = reader.fields(_PARTITION)
    else:
        error, index, leader, epoch = *reader.fields(_OLD_PARTITION), NO_EPOCH
    replicas = reader.int32s()
    in_sync = reader.int32s()
    if version >= 5:
        reader.int32s()  # offline replicas
    reader.skip_tags()
    return Partition(index, leader, epoch, replicas, in_sync, ErrorCode(error) if error else ErrorCode.NONE)


class QuorumReplica(Struct, frozen=True):
    """A QuorumReplica is a replica of the metadata log.

    For the leader itself, `caught_up_ms` is its present time.
    """

    node: int
    caught_up_ms: int


class DescribeQuorumResponse(Struct, frozen=True):
    throttle_ms: ClassVar[int] = 0

    error: ErrorCode
    leader: int
    voters: tuple[QuorumReplica, ...]


class DescribeQuorumRequest(Struct, frozen=True):
    """Any broker forwards this request to the active controller.

    It needs Kafka 3.3 or newer, in KRaft mode.
    """

    API: ClassVar[Api] = Api.DESCRIBE_QUORUM
    VERSIONS: ClassVar[tuple[int, int]] = (1, 1)
    FLEXIBLE: ClassVar[int] = 0

    def body(self, version: int) -> Sequence[Buffer]:
        writer = Writer()
        writer.count(1)
        writer.compact_string(_METADATA_TOPIC)
        writer.count(1)
        writer.int32(0)
        for _ in range(3):
            writer.no_tags()
        return [writer.buffer]

    def answer(self, version: int, reader: Reader) -> DescribeQuorumResponse:
        error = reader.error_code()
        leader = -1
        voters: list[QuorumReplica] = []
        for _ in range(reader.count()):
            reader.compact_string()
            for _ in range(reader.count()):
                reader.int32()
                error = reader.error_code() or error
                leader = reader.int32()
                reader.int32()
                reader.int64()
                voters = reader.array(lambda: _quorum_replica(reader))
                reader.array(lambda: _quorum_replica(reader))  # observers
                reader.skip_tags()
            reader.skip_tags()
        return DescribeQuorumResponse(error, leader, tuple(voters))


def _quorum_replica(reader: Reader) -> QuorumReplica:
    node = reader.int32()
    reader.int64()
    reader.int64()
    replica = QuorumReplica(node, reader.int64())
    reader.skip_tags()
    return replica
