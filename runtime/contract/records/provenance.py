"""Provenance tells where a record came from: by its header `__repl`, or by the producer id of its batch (R5).

The header has one entry per hop; the first names the record's origin. Value, version 1: version, then cluster
id and topic (each a length byte and UTF-8), partition (4 bytes), time of the copy (8 bytes, ms), offset (8
bytes; last, so that all before it is the same for a whole batch). Every later version begins with all of this
and only adds behind it: an older reader still prevents loops.

The producers topic says which producer id belongs to which flow, for batch provenance. A record is written
before the id's first data, and read by flows in the opposite direction. A producer id writes for one flow
only, so its records in a topic came from the one topic to which the flow's rename rule leads back. So whether
these records return to their origin is decided from names and ids, once per id and topic.
"""

from collections.abc import Iterable, Sequence
from struct import Struct
from typing import Final, NamedTuple

import msgspec

from runtime.contract.records import record_values
from runtime.contract.records.ledger import UnreadableRecord
from runtime.contract.records.record_values import RecordCodec
from runtime.contract.spec import rename
from runtime.contract.spec.rename import Rename

HEADER: Final = "__repl"
OLDEST_VERSION: Final = 1
NEWEST_VERSION: Final = 31  # other applications' text under this name begins with a larger byte

_NUMBERS: Final = Struct(">iq")
_OFFSET: Final = Struct(">q")
_LONGEST_NAME: Final = 255


class ClusterPartition(NamedTuple):
    """Names a partition of a topic of a cluster: the source of a copied record."""

    cluster: str  # the cluster's own id, not its name in the topology
    topic: str
    partition: int


class ClusterTopic(NamedTuple):
    """Names a topic of a cluster: records that originated in it must not return to it."""

    cluster: str
    topic: str


class Origin(NamedTuple):
    """Holds one hop of a record: the place that it was copied from, and the time of the copy in ms."""

    cluster: str
    topic: str
    partition: int
    offset: int
    copied_at: int  # ms since 1970

    @property
    def home(self) -> ClusterTopic:
        return ClusterTopic(self.cluster, self.topic)


def names(cluster: str, topic: str) -> bytes:
    """Encodes the part of a value that follows the version: it suffices to identify a record's home."""
    encoded = [name.encode() for name in (cluster, topic)]
    for name in encoded:
        if len(name) > _LONGEST_NAME:
            raise ValueError(
                f"{name.decode()} is longer than {_LONGEST_NAME} bytes and can't be in a provenance header"
            )
    return b"".join(bytes([len(name)]) + name for name in encoded)


def constant_part(place: ClusterPartition, copied_at: int) -> bytes:
    """Encodes a value up to its offset; `offset_part` completes it."""
    return (
        bytes([OLDEST_VERSION])
        + names(place.cluster, place.topic)
        + _NUMBERS.pack(place.partition, copied_at)
    )


offset_part = _OFFSET.pack
OFFSET_SIZE: Final = _OFFSET.size
REST_SIZE: Final = _NUMBERS.size + OFFSET_SIZE  # of a value, behind the names


def encode(origin: Origin) -> bytes:
    place = ClusterPartition(origin.cluster, origin.topic, origin.partition)
    return constant_part(place, origin.copied_at) + offset_part(origin.offset)


def decode(value: bytes | None) -> Origin | None:
    """Decodes a value.

    Returns None when the product did not write it: other producers may use the header's name.
    """
    if not value or not OLDEST_VERSION <= value[0] <= NEWEST_VERSION:
        return None
    cluster_end = 2 + value[1] if len(value) > 1 else len(value)
    topic_end = cluster_end + 1 + value[cluster_end] if len(value) > cluster_end else len(value)
    if topic_end + REST_SIZE > len(value):
        return None
    try:
        cluster, topic = value[2:cluster_end].decode(), value[cluster_end + 1 : topic_end].decode()
    except UnicodeDecodeError:
        return None
    partition, copied_at = _NUMBERS.unpack_from(value, topic_end)
    (offset,) = _OFFSET.unpack_from(value, topic_end + _NUMBERS.size)
    return Origin(cluster, topic, partition, offset, copied_at)


def origins(headers: Iterable[tuple[str, bytes | None]] | None) -> Sequence[Origin]:
    """Returns the hops of a record in their order; empty for a record that originated where it is read."""
    decoded = (decode(value) for name, value in headers or () if name == HEADER)
    return tuple(origin for origin in decoded if origin is not None)


class FlowProducer(msgspec.Struct, frozen=True):
    """Names the flow that a producer id writes for, and where that flow's records come from.

    `only`: the one topic in which the id's records are the flow's own copies. `undoes`: the cluster to which
    a failback flow copies; the rename rule is then the one of the flow that it reverses.
    """

    flow: str
    source: str  # the cluster's name in the topology, as the rename rule may use it
    source_cluster_id: str
    rename: Rename
    only: str | None = None
    undoes: str | None = None

    def home(self, topic: str) -> ClusterTopic | None:
        """Returns the topic from which this id copied into `topic`.

        It is None where the flow writes no such topic.
        """
        if self.only not in (None, topic):
            return None
        rule = self.rename
        origin: str | None = (
            rename.backward(rule, topic, self.source)
            if self.undoes is None
            else rename.forward(rule, topic, self.undoes)
        )
        return ClusterTopic(self.source_cluster_id, origin) if origin is not None else None


def encode_producer_key(producer_id: int) -> bytes:
    return msgspec.json.encode(["producer", producer_id])


def decode_producer_key(key: bytes | None) -> int:
    match record_values.key_parts(key):
        case ["producer", int(producer_id)]:
            return producer_id
    raise UnreadableRecord(f"producers: unknown key {key!r}")


_producer = RecordCodec[FlowProducer]("producers", FlowProducer, error=UnreadableRecord)
encode_producer, decode_producer = _producer.encode, _producer.decode
