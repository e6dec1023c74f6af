"""Decides which records are not compared: those that provenance drops (R5), and those that salvage replayed.

A record counts as replayed where three things agree: the producer id that wrote it is registered as the
flow's replayer for this topic, its last `__repl` header names a place of this partition at the source, and
the ledger has that source offset in a replayed range. A header alone proves nothing: any client can write it.
This module is pure.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Mapping
from operator import itemgetter

from msgspec import Struct

from runtime.audit.verify.pieces import (
    ComparedRecord,
    RecordContent,
    RecordDifference,
    VerificationPiece,
    VerifiedPiece,
)
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


class ReplayedRecords:
    """Recognizes and compares the replays of a piece.

    Call `original_of` for each record that the map does not have, then `compare` for each replay.
    """

    def __init__(
        self, piece: VerificationPiece, flow: str, source_id: str, producers: Mapping[int, FlowProducer]
    ) -> None:
        self._place = ClusterPartition(source_id, piece.topic, piece.partition)
        self._flow, self._mirror = flow, piece.destination_topic
        self._ranges = sorted(piece.replayed)
        self._producers = producers
        self._passed: dict[int, int] = {}  # the last original of each range: a replay keeps their order

    def range_of(self, source_offset: int) -> int | None:
        """Returns where the replayed range of the ledger begins that has this source offset."""
        at = bisect_right(self._ranges, source_offset, key=itemgetter(0)) - 1
        if at < 0 or source_offset >= self._ranges[at][1]:
            return None
        return self._ranges[at][0]

    def original_of(self, record: ConsumerRecord) -> int | None:
        """Returns the source offset of a replayed record's original; None for any other record."""
        original = original_of(record, self._producers, self._flow, self._mirror, self._place)
        return original if original is not None and self.range_of(original) is not None else None

    def compare(self, replay: ComparedRecord, original: RecordContent | None, result: VerifiedPiece) -> None:
        """Counts a replay, whose original is `at`, and notes it where it differs.

        The source may have lost its original.
        """
        assert replay.at is not None, "a replay has an original"
        at, low = replay.at, self.range_of(replay.at)
        assert low is not None, "it is in a replayed range"
        copy = replay._replace(at=None)  # the map does not have it
        if at <= self._passed.get(low, -1):
            result.edits.append(RecordDifference("extra", at, None, copy, at))
            return
        self._passed[low] = at
        result.replayed[low] = result.replayed.get(low, 0) + 1
        if original is not None and original != replay.content:
            result.compared += 1
            result.edits.append(RecordDifference("changed", at, ComparedRecord(at, None, original), copy))


def original_of(
    record: ConsumerRecord,
    producers: Mapping[int, FlowProducer],
    flow: str,
    mirror: str,
    place: ClusterPartition,
) -> int | None:
    """Returns the offset at `place` from which a replayer of the flow copied the record; None for any other
    record.

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
