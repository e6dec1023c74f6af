"""The producers topic says which producer id belongs to which flow, for batch provenance.

A record is written before the id's first data, and read by flows in the opposite direction. A producer id
writes for one flow only, so its records in a topic came from the one topic to which the flow's rename rule
leads back. So "do these records return to their home" is decided from names and ids (R5), once per id and
topic.
"""

import msgspec

from runtime.contract.records import record_values
from runtime.contract.records.ledger import UnreadableRecord
from runtime.contract.records.provenance import ClusterTopic
from runtime.contract.records.record_values import UnreadableValue
from runtime.contract.spec import rename
from runtime.contract.spec.jobspec import RenameRule
from runtime.contract.spec.jobspec import rename as as_rename

_VERSION = b"\x01"


class FlowProducer(msgspec.Struct, frozen=True):
    """Names the flow that a producer id writes for, and where that flow's records come from.

    `only`: the one topic in which the id's records are the flow's own copies. `undoes`: the cluster to which
    a failback flow copies; the rename rule is then the one of the flow that it reverses.
    """

    flow: str
    source: str  # the cluster's name in the topology, as the rename rule may use it
    source_cluster_id: str
    rename: RenameRule
    only: str | None = None
    undoes: str | None = None

    def home(self, topic: str) -> ClusterTopic | None:
        """Returns the topic from which this id copied into `topic`; None where the flow writes no such
        topic.
        """
        if self.only not in (None, topic):
            return None
        rule = as_rename(self.rename)
        origin: str | None = (
            rename.backward(rule, topic, self.source)
            if self.undoes is None
            else rename.forward(rule, topic, self.undoes)
        )
        return ClusterTopic(self.source_cluster_id, origin) if origin is not None else None


def encode_key(producer_id: int) -> bytes:
    return msgspec.json.encode(["producer", producer_id])


def decode_key(key: bytes | None) -> int:
    match record_values.key_parts(key):
        case ["producer", int(producer_id)]:
            return producer_id
    raise UnreadableRecord(f"producers: unknown key {key!r}")


def encode(producer: FlowProducer) -> bytes:
    return _VERSION + msgspec.json.encode(producer)


def decode(value: bytes) -> FlowProducer:
    if value[:1] != _VERSION:
        raise UnreadableRecord(
            f"producers: value of version {value[:1].hex() or 'none'}, this runtime reads 01"
        )
    try:
        return record_values.decode(_producer, value[1:])
    except UnreadableValue as error:
        raise UnreadableRecord(f"producers: {error}") from error


_producer = msgspec.json.Decoder(FlowProducer)
