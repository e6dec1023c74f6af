"""Decides which records provenance drops (R5), and of which original a record is a replay. Pure."""

from __future__ import annotations

from collections.abc import Mapping

from msgspec import Struct

from runtime.audit.verify.pieces import RecordContent
from runtime.contract.records.consumer_record import ConsumerRecord
from runtime.contract.records.provenance import (
    HEADER,
    ClusterPartition,
    ClusterTopic,
    FlowProducer,
    decode,
    origins,
)
from runtime.contract.spec.jobspec import FlowSpec


class ProvenanceFilter(Struct, frozen=True):
    """Applies a flow's provenance filter.

    `producers`: the flow of each producer id that writes into the source.
    """

    flow: FlowSpec
    topic: str
    home: ClusterTopic
    producers: Mapping[int, FlowProducer]

    def drops(self, record: ConsumerRecord) -> bool:
        """Returns whether the slot would drop this record by the flow's provenance."""
        match self.flow.provenance:
            case "off":
                return False
            case "headers":
                hops = origins(record.headers)
                return any(self.flow.native_only or hop.home == self.home for hop in hops)
            case "batch":
                producer = self.producers.get(record.producer_id)
                if producer is None:
                    return False
                return self.flow.native_only or producer.home(self.topic) == self.home

    def originated_at_destination(self, record: ConsumerRecord) -> bool:
        """Returns whether the record originated at the flow's destination, so that it is there already.

        The flow's provenance mode does not matter.
        """
        producer = self.producers.get(record.producer_id)
        by_batch = producer is not None and producer.home(self.topic) == self.home
        return by_batch or any(hop.home == self.home for hop in origins(record.headers))


def own_headers(record: ConsumerRecord) -> tuple[tuple[str, bytes | None], ...]:
    """Returns the record's headers without those that the product adds."""
    return tuple((name, value) for name, value in record.headers if name != HEADER or decode(value) is None)


def original_of(
    record: ConsumerRecord,
    producers: Mapping[int, FlowProducer],
    flow: str,
    mirror: str,
    place: ClusterPartition,
) -> int | None:
    """Returns the offset at `place` from which a replayer of the flow copied the record; None for any other
    record.

    The producer id must be registered as the flow's replayer for this topic: any client can write a header.
    `mirror` is the flow's own topic at the destination, even where another topic was replayed into.
    """
    producer = producers.get(record.producer_id)
    if producer is None or (producer.flow, producer.only) != (flow, mirror):
        return None
    hops = origins(record.headers)
    return hops[-1].offset if hops and ClusterPartition(*hops[-1][:3]) == place else None


def copied_content(record: ConsumerRecord) -> RecordContent:
    """Returns every part of a record that a flow between clusters keeps."""
    return RecordContent.of(record.timestamp, record.key, record.value, own_headers(record))
