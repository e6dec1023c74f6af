"""Metadata, for the planner from version 1 and with rights, and DescribeQuorum.

The responses hold brokers, topics, and leaders with epochs. The announced addresses of brokers are checked,
because credentials are sent to them.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Annotated, Any, ClassVar

from msgspec import Struct
from msgspec.structs import replace

from runtime.contract.spec.naming import NO_TOPIC_ID, illegal_because, name_id
from runtime.kafka.auth.login import quoted
from runtime.kafka.errors import ErrorCode
from runtime.kafka.protocol.last_decoded import LastDecoded
from runtime.kafka.protocol.layout import (
    INLINE,
    Converted,
    Int32,
    Int64,
    Layout,
    Rest,
    Skipped,
    Uuid,
    between,
    since,
)
from runtime.kafka.protocol.request import Api, Request

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
_MOST_BROKERS = 10_000
_NO_RIGHTS = -(1 << 31)  # the authorized operations of a response that has none


class Broker(Struct, frozen=True):
    node_id: Int32
    host: str
    port: Int32
    rack: str | None = None


class Partition(Struct, frozen=True):
    """The `leader` of a Partition is -1 while there is none."""

    WIRE: ClassVar[tuple[str, ...]] = (
        "error",
        "index",
        "leader",
        "leader_epoch",
        "replicas",
        "in_sync",
        "_offline",
    )

    index: Int32
    leader: Int32
    leader_epoch: Annotated[Int32, since(7, absent=-1)]
    replicas: tuple[Int32, ...]
    in_sync: tuple[Int32, ...]
    error: ErrorCode = ErrorCode.NONE
    _offline: ClassVar[Annotated[Sequence[Int32], since(5)]]


def operations(bits: int | None) -> frozenset[int] | None:
    """Returns the operations of a bit field; None if the broker returned none."""
    if bits is None or bits == _NO_RIGHTS:
        return None
    return frozenset(number for number in range(31) if bits >> number & 1)


Operations = Annotated[frozenset[int], Converted(operations, Int32)]
"""What the principal may do, by Kafka's numbers of operations."""


def _by_index(partitions: Sequence[Partition]) -> dict[int, Partition]:
    """Raises ValueError for a number that no partition has: it would be a key of the ledger."""
    by_index = {partition.index: partition for partition in partitions}
    if by_index and min(by_index) < 0:
        raise ValueError(f"it lists a partition with the number {min(by_index)}")
    return by_index


class TopicMetadata(Struct, frozen=True):
    """The `rights` of a TopicMetadata are None where they were not requested, or the broker returns none."""

    WIRE: ClassVar[tuple[str, ...]] = ("error", "name", "id", "internal", "partitions", "rights")

    name: str
    id: Annotated[Uuid, since(10)]
    error: ErrorCode
    internal: bool
    partitions: Annotated[Mapping[int, Partition], Converted(_by_index, Sequence[Partition])]
    rights: Annotated[frozenset[int] | None, Converted(operations, Int32), since(8)] = None


class MetadataResponse(Struct, frozen=True):
    brokers: tuple[Broker, ...]
    cluster_id: str
    controller: int
    topics: tuple[TopicMetadata, ...]
    rights: Operations | None = None


_FLEXIBLE = 9
_TOPICS = Layout(
    tuple[tuple[TopicMetadata, ...], Annotated[Operations, between(8, 10, absent=None)]], _FLEXIBLE
)
DecodedTopics = tuple[tuple[TopicMetadata, ...], Operations | None]
"""The topics of a response, and what the principal may do with the cluster."""


class MetadataRequest(Request[MetadataResponse], frozen=True):
    """With `names` of None this request reads every topic.

    A topic without an id from the broker gets an id made of its name. `decoded` keeps topics from one
    response to the next.

    A list of every topic leaves out those that have no error and a name that Kafka does not allow. No broker
    of Kafka has one, and another system may list any: a name becomes a path, a part of a request and a line
    on a screen.
    """

    API = Api.METADATA
    FLEXIBLE = _FLEXIBLE
    VERSIONS = (9, 12)
    THROTTLED = since(3)
    BODY = tuple[
        Sequence[tuple[Annotated[Uuid, since(10)], str | None]],  # the topics by name, with no id
        Annotated[Skipped[bool], since(4)],  # whether topics may be created
        Annotated[bool, between(8, 10)],  # whether the rights at the cluster are read
        Annotated[bool, since(8)],  # whether the rights at the topics are read
    ]
    RESPONSE = tuple[
        tuple[Broker, ...],
        Annotated[str, since(2)],  # the cluster's id
        Int32,  # the controller
        Rest,  # the topics
    ]
    NAME_IDS: ClassVar[bool] = True

    names: Sequence[str] | None = ()
    decoded: LastDecoded[DecodedTopics] | None = None
    rights: bool = False

    @property
    def versions(self) -> tuple[int, int]:
        return (8, 10) if self.rights and self.brokers_only else self.VERSIONS

    @property
    def brokers_only(self) -> bool:
        """Returns whether the response lists brokers and no topic."""
        return self.names is not None and not self.names

    def values(self, version: int) -> Any:
        topics = None if self.names is None else [(NO_TOPIC_ID, name) for name in self.names]
        return topics, self.rights, self.rights

    def answer(self, version: int, response: memoryview) -> tuple[int, MetadataResponse]:
        throttle_ms, (brokers, cluster_id, controller, encoded) = self.decoded_response(version, response)
        if len(brokers) > _MOST_BROKERS:
            raise ValueError(f"it lists {len(brokers)} brokers; at most {_MOST_BROKERS} are expected")
        for broker in brokers:
            check_address(broker.node_id, broker.host, broker.port)

        def decode() -> DecodedTopics:
            (topics, cluster_rights), _ = _TOPICS.decode(version, encoded)
            if self.names is None:
                topics = tuple(topic for topic in topics if topic.error or not illegal_because(topic.name))
            if self.NAME_IDS:
                topics = tuple(map(_with_id, topics))
            return topics, cluster_rights

        if self.decoded is None:
            topics, rights = decode()
        else:
            names = None if self.names is None else tuple(self.names)
            topics, rights = self.decoded.value((version, names), encoded, decode)
        if not self.rights:
            rights = None
        return throttle_ms, MetadataResponse(brokers, cluster_id, controller, topics, rights)


def _with_id(topic: TopicMetadata) -> TopicMetadata:
    """Returns the topic with an id made of its name if the broker has none for it."""
    unnamed = topic.id == NO_TOPIC_ID and not topic.error
    return replace(topic, id=name_id(topic.name)) if unnamed else topic


class AnyMetadataRequest(MetadataRequest, frozen=True):
    """This request reads metadata from a broker of any age, by name only; topics may have no id.

    With `rights` the response has what the principal may do with each topic; without topics, with the
    cluster, which later versions do not return.
    """

    VERSIONS = (1, 12)
    NAME_IDS = False


class QuorumReplica(Struct, frozen=True):
    """A QuorumReplica is a replica of the metadata log.

    For the leader itself, `caught_up_ms` is its present time.
    """

    node: Int32
    _end_offset: ClassVar[Int64]
    _fetched_ms: ClassVar[Int64]
    caught_up_ms: Int64


class DescribeQuorumResponse(Struct, frozen=True):
    error: ErrorCode
    leader: Int32
    _epoch: ClassVar[Int32]
    _high_watermark: ClassVar[Int64]
    voters: tuple[QuorumReplica, ...]
    _observers: ClassVar[tuple[QuorumReplica, ...]]


class DescribeQuorumRequest(Request[DescribeQuorumResponse], frozen=True):
    """Any broker forwards this request to the active controller.

    It needs Kafka 3.3 or newer, in KRaft mode.
    """

    API = Api.DESCRIBE_QUORUM
    FLEXIBLE = 0
    VERSIONS = (1, 1)
    THROTTLED = None
    RESPONSE = tuple[
        ErrorCode,
        Sequence[
            tuple[Skipped[str], Sequence[tuple[Skipped[Int32], Annotated[DescribeQuorumResponse, INLINE]]]]
        ],
    ]
    _topics: ClassVar[Sequence[tuple[str, Sequence[tuple[Int32]]]]] = (("__cluster_metadata", ((0,),)),)

    def result(self, value: Any) -> DescribeQuorumResponse:
        error, topics = value
        for (partitions,) in topics:
            for (quorum,) in partitions:
                described: DescribeQuorumResponse = replace(quorum, error=quorum.error or error)
                return described
        return DescribeQuorumResponse(error, -1, ())
