"""This module finds where a record came from, place by place, up to the client that produced it. It is pure.

The producer id in a record's batch identifies the writer: a flow registers its ids before it writes (R5), all
others are clients. The offset map alone is not enough, because after a failback it holds the records of both
directions. So the id names the flow, and the flow's own map the exact place.

At that place the same is done again, until a client wrote the record. Headers name places too, but any client
can write a header: they are believed only where the place itself can't be read.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from runtime.audit.read.records_fetch import FetchedRecord
from runtime.contract.records.offset_map import MappedOffset, OffsetMap
from runtime.contract.records.producers import FlowProducer
from runtime.contract.records.provenance import origins
from runtime.contract.views.records_view import ProvenanceHopView, RecordView


@dataclass(frozen=True, slots=True)
class MirrorPartitionOrigin:
    """Describes the records of a flow in one partition of this cluster, and the partition at the flow's
    source.
    """

    flow: str
    source_cluster_id: str
    topic: str
    partition: int
    map: OffsetMap
    source_topic_id: bytes | None = None


class Previous(NamedTuple):
    """Names the place that a flow copied a record from. `topic_id` is None where only a header names the
    place.
    """

    hop: ProvenanceHopView
    topic_id: bytes | None


class RecordOrigin(NamedTuple):
    """Holds the facts that a cluster has about one of its records.

    `flow` wrote it there, from `previous`; both are None for a client's record. `headers` are the places that
    its headers name, the oldest first.
    """

    flow: str | None
    previous: Previous | None
    headers: list[ProvenanceHopView]


@dataclass(frozen=True, slots=True)
class RecordOrigins:
    """Holds the facts of a cluster's ledger about one of its topics.

    `written` is by partition; `producers`: the registered producer ids of flows, None where they can't be
    read.
    """

    topic: str
    written: Mapping[int, Sequence[MirrorPartitionOrigin]]
    producers: Mapping[int, FlowProducer] | None
    names: Mapping[str, str]

    def origin_of(self, record: FetchedRecord) -> RecordOrigin:
        headers = [
            self._hop(one.cluster, one.topic, one.partition, one.offset, one.copied_at)
            for one in origins(record.headers)
        ]
        if self.producers is None:
            return RecordOrigin(None, Previous(headers[-1], None) if headers else None, headers)
        producer = self.producers.get(record.producer_id)
        if producer is None:
            return RecordOrigin(None, None, headers)
        previous = self._mapped(record, producer.flow) or self._named(record, producer)
        if headers and (previous is None or _same(headers[-1], previous.hop)):
            previous = Previous(headers[-1], previous.topic_id if previous is not None else None)
        return RecordOrigin(producer.flow, previous, headers)

    def _mapped(self, record: FetchedRecord, flow: str) -> Previous | None:
        """Returns an exact place only: records between runs were written by other producers."""
        for one in self.written.get(record.partition, ()):
            answer = one.map.origin(record.offset)
            if one.flow == flow and isinstance(answer, MappedOffset) and answer.exact:
                hop = self._hop(one.source_cluster_id, one.topic, one.partition, answer.offset, None)
                return Previous(hop, one.source_topic_id)
        return None

    def _named(self, record: FetchedRecord, producer: FlowProducer) -> Previous | None:
        """Returns the topic alone: the map was trimmed, or began anew, or never held the record."""
        home = producer.home(self.topic)
        if home is None:
            return None
        return Previous(self._hop(home.cluster, home.topic, record.partition, None, None), None)

    def _hop(
        self, cluster_id: str, topic: str, partition: int | None, offset: int | None, copied_at: int | None
    ) -> ProvenanceHopView:
        return ProvenanceHopView(
            cluster_id=cluster_id,
            cluster=self.names.get(cluster_id),
            topic=topic,
            partition=partition,
            offset=offset,
            copied_at_ms=copied_at,
        )


class RecordTrail:
    """Follows one record backwards: `look_at` is the place to read next, `looked` receives what is there."""

    def __init__(self, record: FetchedRecord, at: ProvenanceHopView, told: RecordOrigin) -> None:
        self.record = record
        self._told = told
        self._hops: list[ProvenanceHopView] = []  # proven, the newest first
        self._believed: list[ProvenanceHopView] = []  # by headers alone, the oldest first
        self._passed = {_place(at)}
        self.restored = False
        self.next_place: Previous | None = None
        self._follow(told)

    def add_place(self, record: FetchedRecord | None, told: RecordOrigin | None) -> None:
        """Receives the record at the place. None, or a record with other content, ends the search."""
        self.next_place = None
        if record is None or told is None or _content(record) != _content(self.record):
            return
        self._believed = []
        self._follow(told)

    def _follow(self, told: RecordOrigin) -> None:
        if told.previous is None:
            return
        hop, _ = told.previous
        if hop.offset is None or hop.partition is None:
            self._hops.append(hop)
            self._believed = told.headers
        elif _place(hop) in self._passed:
            # A flow copied back records that its destination had lost: the two places name each other.
            self.restored = True
        else:
            self._passed.add(_place(hop))
            self._hops.append(hop)
            last = bool(told.headers) and told.headers[-1] == hop
            self._believed = told.headers[:-1] if last else told.headers
            self.next_place = told.previous

    @property
    def relies_on_headers(self) -> bool:
        """Returns whether headers name places that nothing else proves."""
        return bool(self._believed)

    def view(self) -> RecordView:
        record, told = self.record, self._told
        hops = [*self._believed, *reversed(self._hops)]
        by_headers = bool(hops) and bool(told.headers)
        return RecordView(
            partition=record.partition,
            offset=record.offset,
            timestamp_ms=record.timestamp if record.timestamp >= 0 else None,
            key=record.key,
            value=record.value,
            headers=list(record.headers),
            provenance="headers" if by_headers else "batch" if hops else "native",
            flow=told.flow,
            hops=hops,
            claimed=told.headers if told.flow is None and not hops else [],
        )


def _place(hop: ProvenanceHopView) -> tuple[str, str, int | None, int | None]:
    return hop.cluster_id, hop.topic, hop.partition, hop.offset


def _content(record: FetchedRecord) -> tuple[int, bytes | None, bytes | None]:
    """Returns the parts of a record that no flow changes."""
    return record.timestamp, record.key, record.value


def _same(one: ProvenanceHopView, other: ProvenanceHopView) -> bool:
    places = [(hop.cluster_id, hop.topic, hop.partition) for hop in (one, other)]
    return places[0] == places[1] and (other.offset is None or one.offset == other.offset)
