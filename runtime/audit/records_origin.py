"""Where a record came from: by its headers, by the map of the flow that wrote it, or born here. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from runtime.audit.records_fetch import Found
from runtime.contract.offsetmap import Mapped, OffsetMap
from runtime.contract.producers import Producer
from runtime.contract.provenance import origins
from runtime.contract.seen_records import HopSeen, RecordSeen


@dataclass(frozen=True, slots=True)
class Written:
    """What a flow wrote into one partition here, and the partition at its source."""

    flow: str
    source_cluster_id: str
    topic: str
    partition: int
    map: OffsetMap


@dataclass(frozen=True, slots=True)
class Origins:
    """`written` by partition here; `producers`: whose the ids are that flows write with."""

    topic: str
    written: Mapping[int, Sequence[Written]]
    producers: Mapping[int, Producer]
    names: Mapping[str, str]

    def seen(self, record: Found) -> RecordSeen:
        hops = [
            self._hop(one.cluster, one.topic, one.partition, one.offset, one.copied_at)
            for one in origins(record.headers)
        ]
        by_headers = bool(hops)
        flow, last = self._mapped(record)
        if last is not None and not (hops and _same(hops[-1], last)):
            hops.append(last)
        return RecordSeen(
            partition=record.partition,
            offset=record.offset,
            timestamp_ms=record.timestamp if record.timestamp >= 0 else None,
            key=record.key,
            value=record.value,
            headers=list(record.headers),
            provenance="headers" if by_headers else "batch" if hops else "native",
            flow=flow,
            hops=hops,
        )

    def _mapped(self, record: Found) -> tuple[str | None, HopSeen | None]:
        """Only an exact answer: what lies between runs was written by others."""
        for one in self.written.get(record.partition, ()):
            answer = one.map.origin(record.offset)
            if isinstance(answer, Mapped) and answer.exact:
                hop = self._hop(one.source_cluster_id, one.topic, one.partition, answer.offset, None)
                return one.flow, hop
        producer = self.producers.get(record.producer_id)
        if producer is None:
            return None, None
        home = producer.home(self.topic)  # the map was trimmed, or began anew: the offset is not known
        if home is None:
            return producer.flow, None
        return producer.flow, self._hop(home.cluster, home.topic, record.partition, None, None)

    def _hop(
        self, cluster_id: str, topic: str, partition: int | None, offset: int | None, copied_at: int | None
    ) -> HopSeen:
        return HopSeen(
            cluster_id=cluster_id,
            cluster=self.names.get(cluster_id),
            topic=topic,
            partition=partition,
            offset=offset,
            copied_at_ms=copied_at,
        )


def _same(one: HopSeen, other: HopSeen) -> bool:
    places = [(hop.cluster_id, hop.topic, hop.partition) for hop in (one, other)]
    return places[0] == places[1] and (other.offset is None or one.offset == other.offset)
