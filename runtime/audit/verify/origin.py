"""Decides which source records the provenance filter drops, by the slot's own rules (R5). It is pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from runtime.audit.read.records_fetch import FetchedRecord
from runtime.contract.records.producers import FlowProducer
from runtime.contract.records.provenance import HEADER, ClusterTopic, decode, origins
from runtime.contract.spec.jobspec import FlowSpec


@dataclass(frozen=True, slots=True)
class ProvenanceFilter:
    """Applies a flow's provenance filter.

    `producers`: the flow of each producer id that writes into the source.
    """

    flow: FlowSpec
    topic: str
    home: ClusterTopic
    producers: Mapping[int, FlowProducer]

    def drops(self, record: FetchedRecord) -> bool:
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

    def originated_at_destination(self, record: FetchedRecord) -> bool:
        """Returns whether the record originated at the flow's destination, so that it is there already.

        The flow's provenance mode does not matter.
        """
        producer = self.producers.get(record.producer_id)
        by_batch = producer is not None and producer.home(self.topic) == self.home
        return by_batch or any(hop.home == self.home for hop in origins(record.headers))


def own_headers(record: FetchedRecord) -> tuple[tuple[str, bytes | None], ...]:
    """Returns the record's headers without those that the product adds."""
    return tuple((name, value) for name, value in record.headers if name != HEADER or decode(value) is None)
