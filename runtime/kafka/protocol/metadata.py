"""Metadata, for the planner from version 1 and with rights, and DescribeQuorum.

The responses hold brokers, topics, and leaders with epochs. The announced addresses of brokers are checked,
because credentials are sent to them.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

from msgspec import Struct

from runtime.contract.spec.naming import NO_TOPIC_ID, name_id
from runtime.kafka.auth.login import quoted
from runtime.kafka.errors import ErrorCode
from runtime.kafka.protocol.last_decoded import LastDecoded
from runtime.kafka.protocol.layout import Layout
from runtime.kafka.protocol.request import Api, Message, Request, Rows

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
_CLUSTER_RIGHTS = range(8, 11)  # the versions that return what the principal may do with the cluster
_NO_RIGHTS = -(1 << 31)  # the authorized operations of a response that has none


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
    brokers: tuple[Broker, ...]
    cluster_id: str
    controller: int
    topics: tuple[TopicMetadata, ...]
    rights: Operations | None = None


METADATA = Message(
    Api.METADATA,
    9,
    """
    topics                []
      id                  uuid     10+
      name                string?
    _allow_auto_creation  bool     4+    = False
    cluster_rights        bool     8-10
    topic_rights          bool     8+
    """,
    """
    throttle_ms           int32    3+
    brokers               [10000] -> Broker
      node_id             int32
      host                string
      port                int32
      rack                string?
    cluster_id            string   2+
    controller            int32
    topics                rest
    """,
    Broker,
)
_TOPICS = Layout(
    """
    topics                []
      error               error
      name                string
      id                  uuid     10+
      internal            bool
      partitions          []
        error             error
        index             int32
        leader            int32
        leader_epoch      int32    7+    = -1
        replicas          []int32
        in_sync           []int32
        _offline          []int32  5+
      rights              int32    8+    = -2147483648
    cluster_rights        int32    8-10  = -2147483648
    """,
    METADATA.flexible,
)
DecodedTopics = tuple[tuple[TopicMetadata, ...], Operations | None]
"""The topics of a response, and what the principal may do with the cluster."""


class MetadataRequest(Request[MetadataResponse], frozen=True):
    """With `names` of None and no ids this request reads every topic.

    A topic without an id from the broker gets an id made of its name. `decoded` keeps topics from one
    response to the next.
    """

    MESSAGE: ClassVar[Message] = METADATA
    VERSIONS: ClassVar[tuple[int, int]] = (9, 12)
    NAME_IDS: ClassVar[bool] = True

    names: Sequence[str] | None = ()
    ids: Sequence[bytes] = ()
    decoded: LastDecoded[DecodedTopics] | None = None
    rights: bool = False

    @property
    def brokers_only(self) -> bool:
        """Returns whether the response lists brokers and no topic."""
        return self.names is not None and not self.names and not self.ids

    def values(self, version: int) -> Any:
        topics = None
        if self.names is not None:
            topics = [(NO_TOPIC_ID, name) for name in self.names] + [(known, None) for known in self.ids]
        return topics, self.rights, self.rights

    def answer(self, version: int, response: memoryview) -> tuple[int, MetadataResponse]:
        head, _ = self.MESSAGE.response.decode(version, response, self._begin(version, response))
        throttle_ms, brokers, cluster_id, controller, encoded = head
        for broker in brokers:
            check_address(broker.node_id, broker.host, broker.port)

        def decode() -> DecodedTopics:
            (topics, cluster_rights), _ = _TOPICS.decode(version, encoded)
            return tuple(self._topic(*topic) for topic in topics), operations(cluster_rights)

        if self.decoded is None:
            topics, rights = decode()
        else:
            names = None if self.names is None else tuple(self.names)
            topics, rights = self.decoded.value((version, names, tuple(self.ids)), encoded, decode)
        if not self.rights:
            rights = None
        return throttle_ms, MetadataResponse(tuple(brokers), cluster_id, controller, topics, rights)

    def _topic(
        self, error: ErrorCode, name: str, topic_id: bytes, internal: bool, partitions: Rows, rights: int
    ) -> TopicMetadata:
        if self.NAME_IDS and topic_id == NO_TOPIC_ID and not error:
            topic_id = name_id(name)
        by_index = {
            index: Partition(index, leader, epoch, replicas, in_sync, failure)
            for failure, index, leader, epoch, replicas, in_sync in partitions
        }
        return TopicMetadata(name, topic_id, error, internal, by_index, operations(rights))


class AnyMetadataRequest(MetadataRequest, frozen=True):
    """This request reads metadata from a broker of any age, by name only; topics may have no id.

    With `rights` the response has what the principal may do with each topic.
    """

    VERSIONS: ClassVar[tuple[int, int]] = (1, 12)
    NAME_IDS: ClassVar[bool] = False


class ClusterRightsRequest(AnyMetadataRequest, frozen=True):
    """This request reads what the principal may do with the cluster; later versions do not return it."""

    VERSIONS: ClassVar[tuple[int, int]] = (8, 10)

    rights: bool = True


class MetadataByIdRequest(MetadataRequest, frozen=True):
    """This request reads the same by topic id, which brokers from Kafka 3.0 on support."""

    VERSIONS: ClassVar[tuple[int, int]] = (12, 12)


def operations(bits: int) -> Operations | None:
    """Returns the operations of a bit field; None if the broker returned none."""
    return None if bits == _NO_RIGHTS else frozenset(number for number in range(31) if bits >> number & 1)


class QuorumReplica(Struct, frozen=True):
    """A QuorumReplica is a replica of the metadata log.

    For the leader itself, `caught_up_ms` is its present time.
    """

    node: int
    caught_up_ms: int


class DescribeQuorumResponse(Struct, frozen=True):
    error: ErrorCode
    leader: int
    voters: tuple[QuorumReplica, ...]


class DescribeQuorumRequest(Request[DescribeQuorumResponse], frozen=True):
    """Any broker forwards this request to the active controller.

    It needs Kafka 3.3 or newer, in KRaft mode.
    """

    MESSAGE: ClassVar[Message] = Message(
        Api.DESCRIBE_QUORUM,
        0,
        """
        topics                  []
          name                  string
          partitions            []
            index               int32
        """,
        """
        error                   error
        topics                  []
          _name                 string
          partitions            []
            _index              int32
            error               error
            leader              int32
            _epoch              int32
            _high_watermark     int64
            voters              [] -> QuorumReplica
              node              int32
              _end_offset       int64
              _fetched_ms       int64
              caught_up_ms      int64
            _observers          []
              _node             int32
              _end_offset       int64
              _fetched_ms       int64
              _caught_up_ms     int64
        """,
        QuorumReplica,
    )
    VERSIONS: ClassVar[tuple[int, int]] = (1, 1)

    def values(self, version: int) -> Rows:
        return [("__cluster_metadata", [0])]

    def result(self, error: ErrorCode, topics: Rows) -> DescribeQuorumResponse:
        for partitions in topics:
            for failure, leader, voters in partitions:
                return DescribeQuorumResponse(failure or error, leader, tuple(voters))
        return DescribeQuorumResponse(error, -1, ())
