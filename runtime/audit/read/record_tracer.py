"""Follows records back to the place where a client produced them, over the ledgers of all clusters.

The producer id in a record's batch identifies the writer: a flow registers its ids before it writes (R5), all
others are clients. The offset map alone is not enough, because after a failback it holds the records of both
directions. So the id names the flow, and the flow's own map the exact place.

At that place the same is done again, until a client wrote the record. Headers name places too, but any client
can write a header: they are believed only where the place itself can't be read.
"""

from __future__ import annotations

from collections import ChainMap
from collections.abc import Iterable, Mapping, Sequence
from contextlib import AsyncExitStack
from typing import NamedTuple

from msgspec import Struct, field

from runtime.audit.ledger import (
    AuditFailure,
    as_audit_failure,
    open_cluster,
    producers_at,
)
from runtime.audit.partition_logs import fetch_places
from runtime.batch import BatchFailure
from runtime.contract.client.endpoint import ClusterEndpoint
from runtime.contract.records.consumer_record import ConsumerRecord
from runtime.contract.records.ledger import PartitionKey, UnreadableRecord
from runtime.contract.records.offset_map import MappedOffset, OffsetMap
from runtime.contract.records.provenance import FlowProducer, origins
from runtime.contract.results.records import ProvenanceHop, TracedRecord
from runtime.contract.spec.naming import TopicPartition
from runtime.contract.spec.transform import QUARANTINE_SUFFIX, quarantined_from
from runtime.kafka.cluster import KafkaCluster
from runtime.kafka.errors import BrokerError, ErrorCode, WireError
from runtime.ledger.offset_maps import OffsetMaps, offset_maps_at


class MirrorPartitionOrigin(Struct, frozen=True):
    """Describes the records of a flow in one partition of this cluster, and the partition at the flow's
    source.
    """

    key: PartitionKey
    source_cluster_id: str
    map: OffsetMap
    source_topic_id: bytes | None = None


class RecordOrigin(NamedTuple):
    """Holds the facts that a cluster has about one of its records.

    `flow` wrote it there, from `place`; both are None for a client's record. `topic_id` is None where only a
    header names the place. `headers` are the places that its headers name, the oldest first.
    """

    flow: str | None
    place: ProvenanceHop | None
    topic_id: bytes | None
    headers: list[ProvenanceHop]


class RecordOrigins(Struct, frozen=True):
    """Holds the facts of a cluster's ledger about one of its topics.

    `written` is by partition; `producers`: the registered producer ids of flows, None where they can't be
    read.
    """

    topic: str
    written: Mapping[int, Sequence[MirrorPartitionOrigin]]
    producers: Mapping[int, FlowProducer] | None
    names: Mapping[str, str]

    def origin_of(self, record: ConsumerRecord) -> RecordOrigin:
        headers = [self.hop(*origin) for origin in origins(record.headers)]
        if self.producers is None:
            return RecordOrigin(None, headers[-1] if headers else None, None, headers)
        producer = self.producers.get(record.producer_id)
        if producer is None:
            return RecordOrigin(None, None, None, headers)
        # A mirror of a quarantine topic has the headers, too; what a flow quarantined is in no map of it.
        own = self.topic.endswith(QUARANTINE_SUFFIX) and not self._mirrored(record.partition, producer.flow)
        if own and (bad := quarantined_from(record.headers)) is not None:
            bad_record = self.hop(producer.source_cluster_id, *bad)
            return RecordOrigin(producer.flow, bad_record, None, [*headers, bad_record])
        place, topic_id = self._mapped(record, producer.flow)
        home = producer.home(self.topic)
        if place is None and home is not None:  # the map was trimmed, or began anew, or never held the record
            place = self.hop(home.cluster, home.topic, record.partition, None)
        if headers and (place is None or _same(headers[-1], place)):
            place = headers[-1]
        return RecordOrigin(producer.flow, place, topic_id, headers)

    def _mirrored(self, partition: int, flow: str) -> bool:
        return any(mirror.key.flow == flow for mirror in self.written.get(partition, ()))

    def _mapped(self, record: ConsumerRecord, flow: str) -> tuple[ProvenanceHop | None, bytes | None]:
        """Returns an exact place only: records between runs were written by other producers."""
        for mirror in self.written.get(record.partition, ()):
            answer = mirror.map.origin(record.offset)
            if mirror.key.flow == flow and isinstance(answer, MappedOffset) and answer.exact:
                place = mirror.source_cluster_id, *mirror.key.at
                return self.hop(*place, answer.offset), mirror.source_topic_id
        return None, None

    def hop(
        self,
        cluster_id: str,
        topic: str,
        partition: int | None,
        offset: int | None,
        copied_at: int | None = None,
    ) -> ProvenanceHop:
        return ProvenanceHop(
            cluster_id=cluster_id,
            cluster=self.names.get(cluster_id),
            topic=topic,
            partition=partition,
            offset=offset,
            copied_at_ms=copied_at,
        )


class RecordTrail:
    """Follows one record backwards: `next_place` is to be read next, `add_place` takes what is there."""

    def __init__(self, record: ConsumerRecord, at: ProvenanceHop, origin: RecordOrigin) -> None:
        self.record = record
        self._origin = origin
        self._hops: list[ProvenanceHop] = []  # proven, the newest first
        self._believed: list[ProvenanceHop] = []  # by headers alone, the oldest first
        self._passed = {_place(at)}
        self.restored = False
        self.next_place: RecordOrigin | None = None
        self._follow(origin)

    def add_place(self, record: ConsumerRecord | None, origin: RecordOrigin | None) -> None:
        """Receives the record at the place. None, or a record with other content, ends the search."""
        self.next_place = None
        if record is None or origin is None or _content(record) != _content(self.record):
            return
        self._believed = []
        self._follow(origin)

    def _follow(self, origin: RecordOrigin) -> None:
        hop = origin.place
        if hop is None:
            return
        if hop.offset is None or hop.partition is None:
            self._hops.append(hop)
            self._believed = origin.headers
        elif _place(hop) in self._passed:
            # A flow copied back records that its destination had lost: the two places name each other.
            self.restored = True
        else:
            self._passed.add(_place(hop))
            self._hops.append(hop)
            last = bool(origin.headers) and origin.headers[-1] == hop
            self._believed = origin.headers[:-1] if last else origin.headers
            self.next_place = origin

    @property
    def relies_on_headers(self) -> bool:
        """Returns whether headers name places that nothing else proves."""
        return bool(self._believed)

    def view(self) -> TracedRecord:
        origin = self._origin
        hops = [*self._believed, *reversed(self._hops)]
        by_headers = bool(hops) and bool(origin.headers)
        return TracedRecord(
            record=self.record,
            provenance="headers" if by_headers else "batch" if hops else "native",
            flow=origin.flow,
            hops=hops,
            claimed=origin.headers if origin.flow is None and not hops else [],
        )


def _place(hop: ProvenanceHop) -> tuple[str, str, int | None, int | None]:
    return hop.cluster_id, hop.topic, hop.partition, hop.offset


def _content(record: ConsumerRecord) -> tuple[int, bytes | None, bytes | None]:
    """Returns the parts of a record that no flow changes."""
    return record.timestamp, record.key, record.value


def _same(hop: ProvenanceHop, other_hop: ProvenanceHop) -> bool:
    places = [(place_hop.cluster_id, place_hop.topic, place_hop.partition) for place_hop in (hop, other_hop)]
    return places[0] == places[1] and (other_hop.offset is None or hop.offset == other_hop.offset)


OTHERS_WITHIN_S = 3.0  # the timeout of other clusters: they only add to the answer
_FURTHEST = 32  # places on the path of one record
_GONE = (
    ErrorCode.UNKNOWN_TOPIC_ID,
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    ErrorCode.INCONSISTENT_TOPIC_ID,
)


class KnownCluster(Struct, frozen=True):
    """Describes a cluster of the topology: how to reach it, and the flows into it with their sources'
    names.
    """

    reach: ClusterEndpoint
    flows: Mapping[str, str] = field(default_factory=dict)


class ClusterLedger:
    """Reads from one open cluster's ledger the facts about records there. `names`: of cluster ids, as far as
    known.
    """

    def __init__(self, cluster: KafkaCluster, known_cluster: KnownCluster, names: Mapping[str, str]) -> None:
        self.cluster = cluster
        self.name = known_cluster.reach.cluster
        self._by_flow: dict[str, str] = {}
        self._by_owner: dict[str, str] = {}
        given = {**names, cluster.cluster_id: self.name}
        self.names = ChainMap(given, self._by_flow, self._by_owner)
        self.readable = True
        self._known = known_cluster
        self._producers: Mapping[int, FlowProducer] = {}
        self._opened: OffsetMaps | None = None

    async def open(self) -> None:
        """Opens the ledger. Raises WireError, UnreadableRecord."""
        self._producers = await producers_at(self.cluster)
        self._opened = await offset_maps_at(self.cluster, fresh=True)
        for owner in self._producers.values():
            self._by_owner[owner.source_cluster_id] = owner.source

    async def read(self, topic: str, records: Iterable[ConsumerRecord]) -> RecordOrigins:
        """Reads the facts about records, after the records: the ledger then covers all committed ones."""
        if self._opened is None:
            return RecordOrigins(topic, {}, self._producers if self.readable else None, self.names)
        ids = {record.producer_id for record in records}
        mine = {self._producers[producer_id].flow for producer_id in ids & self._producers.keys()}
        written: dict[int, list[MirrorPartitionOrigin]] = {}
        for flow in sorted({*self._known.flows, *mine}):
            await self._opened.refresh(flow)  # a map that is being written adds no place
            generation = self._opened.ledger.generation(flow)
            if generation is None:
                continue
            if flow in self._known.flows:
                self._by_flow[generation.source_cluster_id] = self._known.flows[flow]
            for key, offsets in self._opened.all(flow).items():
                made = self._opened.progress(flow)[key]
                if made.destination_topic == topic and not made.map_name:  # a file has no offsets
                    origin = MirrorPartitionOrigin(
                        key, generation.source_cluster_id, offsets, made.source_topic_id
                    )
                    written.setdefault(key.partition, []).append(origin)
        return RecordOrigins(topic, written, self._producers, self.names)


class RecordTracer:
    """Follows records of one cluster back over the others, as far as they answer; `notes` report the
    failures.
    """

    def __init__(self, first: ClusterLedger, others: Mapping[str, KnownCluster], within_s: float) -> None:
        self.notes: list[str] = []
        self._first = first
        self._others = others
        self._within_s = min(within_s, OTHERS_WITHIN_S)
        self._ledgers: dict[str, ClusterLedger | None] = {}  # by cluster id; None: it does not answer
        self._stack = AsyncExitStack()

    async def views(self, topic: str, records: Sequence[ConsumerRecord]) -> list[TracedRecord]:
        origins = await self._origins(self._first, topic, records)
        at = self._first.cluster.cluster_id
        trails = [
            RecordTrail(
                record, origins.hop(at, topic, record.partition, record.offset), origins.origin_of(record)
            )
            for record in records
        ]
        async with self._stack:
            for _ in range(_FURTHEST):
                if not await self._further(trails):
                    break
        if restored := sum(trail.restored for trail in trails):
            self.notes.append(
                f"{restored} of these records were brought back to a cluster that had lost them: "
                "where they were before that is not known any more"
            )
        return [trail.view() for trail in trails]

    async def _origins(
        self, ledgers: ClusterLedger, topic: str, records: Sequence[ConsumerRecord]
    ) -> RecordOrigins:
        try:
            await ledgers.open()
            return await ledgers.read(topic, records)
        except (WireError, UnreadableRecord) as error:
            ledgers.readable = False
            self.notes.append(
                f"the ledger can't be read, so only headers tell where a record is from: {error}"
            )
            return RecordOrigins(topic, {}, None, ledgers.names)

    async def _further(self, trails: Sequence[RecordTrail]) -> bool:
        """Goes one place further back for the records whose origin is still open."""
        places: dict[tuple[str, str, int, bytes | None], list[RecordTrail]] = {}
        for trail in trails:
            if trail.next_place is not None and (hop := trail.next_place.place) is not None:
                known_cluster = self._others.get(hop.cluster or "")
                # Without flows into a cluster, only headers can name further places.
                if known_cluster is not None and (known_cluster.flows or trail.relies_on_headers):
                    place = hop.cluster_id, hop.topic, hop.partition or 0, trail.next_place.topic_id
                    places.setdefault(place, []).append(trail)
        for (cluster_id, topic, partition, topic_id), waiting in places.items():
            ledgers = await self._at(cluster_id, waiting[0].next_place)
            if ledgers is None:
                for trail in waiting:
                    trail.add_place(None, None)
                continue
            await self._inspect(ledgers, TopicPartition(topic, partition), topic_id, waiting)
        return bool(places)

    async def _inspect(
        self,
        ledgers: ClusterLedger,
        at: TopicPartition,
        topic_id: bytes | None,
        trails: Sequence[RecordTrail],
    ) -> None:
        places = [trail.next_place.place for trail in trails if trail.next_place is not None]
        wanted = [place.offset or 0 for place in places if place is not None]
        fetched: dict[int, ConsumerRecord] = {}
        origins = None
        try:
            fetched = await fetch_places(ledgers.cluster, at, topic_id, wanted)
            origins = await ledgers.read(at.topic, fetched.values())
        except BrokerError as error:
            if error.code not in _GONE:  # the topic was recreated or deleted: the record no longer exists
                self._note(ledgers.name, str(error))
        except (WireError, BatchFailure, UnreadableRecord) as error:
            self._note(ledgers.name, str(error))
        for trail, offset in zip(trails, wanted, strict=True):
            record = fetched.get(offset)
            trail.add_place(
                record, origins.origin_of(record) if origins is not None and record is not None else None
            )

    async def _at(self, cluster_id: str, origin: RecordOrigin | None) -> ClusterLedger | None:
        name = origin.place.cluster if origin is not None and origin.place is not None else None
        if cluster_id == self._first.cluster.cluster_id:
            return self._first if self._first.readable else None
        if cluster_id not in self._ledgers:
            known_cluster = self._others.get(name or "")
            self._ledgers[cluster_id] = (
                await self._opened(known_cluster, cluster_id) if known_cluster is not None else None
            )
        return self._ledgers[cluster_id]

    async def _opened(self, known_cluster: KnownCluster, cluster_id: str) -> ClusterLedger | None:
        name = known_cluster.reach.cluster
        try:
            cluster = await self._stack.enter_async_context(open_cluster(known_cluster.reach, self._within_s))
            if cluster.cluster_id != cluster_id:
                raise AuditFailure(name, f"cluster {cluster.cluster_id} answers, not {cluster_id}", "")
            ledgers = ClusterLedger(cluster, known_cluster, self._first.names)
            with as_audit_failure(name):
                await ledgers.open()
        except AuditFailure as error:
            self._note(name, error.why)
            return None
        return ledgers

    def _note(self, name: str, why: str) -> None:
        note = f"{name} can't be asked where its records were before: {why}"
        if note not in self.notes:
            self.notes.append(note)
