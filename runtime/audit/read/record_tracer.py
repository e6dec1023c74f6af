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
    OpenLedger,
    as_audit_failure,
    ledger_of,
    open_cluster,
    producers_at,
)
from runtime.audit.partition_logs import fetch_places
from runtime.batch import BatchFailure
from runtime.contract.client.endpoint import ClusterEndpoint
from runtime.contract.records.consumer_record import ConsumerRecord
from runtime.contract.records.ledger import UnreadableRecord
from runtime.contract.records.offset_map import MappedOffset, OffsetMap
from runtime.contract.records.provenance import FlowProducer, origins
from runtime.contract.results.records import ProvenanceHop, TracedRecord
from runtime.kafka.cluster import KafkaCluster
from runtime.kafka.errors import BrokerError, ErrorCode, WireError
from runtime.kafka.protocol.offsets import TopicPartition


class MirrorPartitionOrigin(Struct, frozen=True):
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

    hop: ProvenanceHop
    topic_id: bytes | None


class RecordOrigin(NamedTuple):
    """Holds the facts that a cluster has about one of its records.

    `flow` wrote it there, from `previous`; both are None for a client's record. `headers` are the places that
    its headers name, the oldest first.
    """

    flow: str | None
    previous: Previous | None
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

    def _mapped(self, record: ConsumerRecord, flow: str) -> Previous | None:
        """Returns an exact place only: records between runs were written by other producers."""
        for one in self.written.get(record.partition, ()):
            answer = one.map.origin(record.offset)
            if one.flow == flow and isinstance(answer, MappedOffset) and answer.exact:
                hop = self._hop(one.source_cluster_id, one.topic, one.partition, answer.offset, None)
                return Previous(hop, one.source_topic_id)
        return None

    def _named(self, record: ConsumerRecord, producer: FlowProducer) -> Previous | None:
        """Returns the topic alone: the map was trimmed, or began anew, or never held the record."""
        home = producer.home(self.topic)
        if home is None:
            return None
        return Previous(self._hop(home.cluster, home.topic, record.partition, None, None), None)

    def _hop(
        self, cluster_id: str, topic: str, partition: int | None, offset: int | None, copied_at: int | None
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
    """Follows one record backwards: `look_at` is the place to read next, `looked` receives what is there."""

    def __init__(self, record: ConsumerRecord, at: ProvenanceHop, told: RecordOrigin) -> None:
        self.record = record
        self._told = told
        self._hops: list[ProvenanceHop] = []  # proven, the newest first
        self._believed: list[ProvenanceHop] = []  # by headers alone, the oldest first
        self._passed = {_place(at)}
        self.restored = False
        self.next_place: Previous | None = None
        self._follow(told)

    def add_place(self, record: ConsumerRecord | None, told: RecordOrigin | None) -> None:
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

    def view(self) -> TracedRecord:
        told = self._told
        hops = [*self._believed, *reversed(self._hops)]
        by_headers = bool(hops) and bool(told.headers)
        return TracedRecord(
            record=self.record,
            provenance="headers" if by_headers else "batch" if hops else "native",
            flow=told.flow,
            hops=hops,
            claimed=told.headers if told.flow is None and not hops else [],
        )


def _place(hop: ProvenanceHop) -> tuple[str, str, int | None, int | None]:
    return hop.cluster_id, hop.topic, hop.partition, hop.offset


def _content(record: ConsumerRecord) -> tuple[int, bytes | None, bytes | None]:
    """Returns the parts of a record that no flow changes."""
    return record.timestamp, record.key, record.value


def _same(one: ProvenanceHop, other: ProvenanceHop) -> bool:
    places = [(hop.cluster_id, hop.topic, hop.partition) for hop in (one, other)]
    return places[0] == places[1] and (other.offset is None or one.offset == other.offset)


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

    def __init__(self, cluster: KafkaCluster, known: KnownCluster, names: Mapping[str, str]) -> None:
        self.cluster = cluster
        self.name = known.reach.cluster
        self._by_flow: dict[str, str] = {}
        self._by_owner: dict[str, str] = {}
        given = {**names, cluster.cluster_id: self.name}
        self.names = ChainMap(given, self._by_flow, self._by_owner)
        self.readable = True
        self._known = known
        self._producers: Mapping[int, FlowProducer] = {}
        self._opened: OpenLedger | None = None

    async def open(self) -> None:
        """Opens the ledger. Raises WireError, UnreadableRecord."""
        self._producers = await producers_at(self.cluster)
        self._opened = await ledger_of(self.cluster)
        for owner in self._producers.values():
            self._by_owner[owner.source_cluster_id] = owner.source

    async def read(self, topic: str, found: Iterable[ConsumerRecord]) -> RecordOrigins:
        """Reads the facts about the records in `found`, after the records: the ledger then covers all
        committed ones.
        """
        if self._opened is None:
            return RecordOrigins(topic, {}, self._producers if self.readable else None, self.names)
        ids = {one.producer_id for one in found}
        mine = {owner.flow for one in ids if (owner := self._producers.get(one)) is not None}
        written: dict[int, list[MirrorPartitionOrigin]] = {}
        for flow in sorted({*self._known.flows, *mine}):
            await self._opened.refresh(flow)
            self._note(self._opened, flow, topic, written)
        return RecordOrigins(topic, written, self._producers, self.names)

    def _note(
        self, opened: OpenLedger, flow: str, topic: str, written: dict[int, list[MirrorPartitionOrigin]]
    ) -> None:
        generation = opened.ledger.generation(flow)
        if generation is None:
            return
        if flow in self._known.flows:
            self._by_flow[generation.source_cluster_id] = self._known.flows[flow]
        maps = opened.maps.all(flow)
        for key, one in opened.ledger.all_progress(flow).items():
            if one.destination_topic == topic:
                place = generation.source_cluster_id, key.topic, key.partition
                written.setdefault(key.partition, []).append(
                    MirrorPartitionOrigin(flow, *place, maps[key], one.source_topic_id)
                )


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

    async def views(self, topic: str, found: Sequence[ConsumerRecord]) -> list[TracedRecord]:
        origins = await self._origins(self._first, topic, found)
        at = self._first.cluster.cluster_id
        trails = [RecordTrail(one, self._hop(at, topic, one), origins.origin_of(one)) for one in found]
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
        self, ledgers: ClusterLedger, topic: str, found: Sequence[ConsumerRecord]
    ) -> RecordOrigins:
        try:
            await ledgers.open()
            return await ledgers.read(topic, found)
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
            if trail.next_place is not None and self._worth_it(trail, trail.next_place):
                hop, topic_id = trail.next_place
                places.setdefault((hop.cluster_id, hop.topic, hop.partition or 0, topic_id), []).append(trail)
        for (cluster_id, topic, partition, topic_id), waiting in places.items():
            ledgers = await self._at(cluster_id, waiting[0].next_place)
            if ledgers is None:
                for trail in waiting:
                    trail.add_place(None, None)
                continue
            await self._inspect(ledgers, TopicPartition(topic, partition), topic_id, waiting)
        return bool(places)

    def _worth_it(self, trail: RecordTrail, previous: Previous) -> bool:
        """Returns whether the place must be read: without flows into a cluster, only headers can name further
        places.
        """
        known = self._others.get(previous.hop.cluster or "")
        return known is not None and (bool(known.flows) or trail.relies_on_headers)

    async def _inspect(
        self,
        ledgers: ClusterLedger,
        at: TopicPartition,
        topic_id: bytes | None,
        trails: Sequence[RecordTrail],
    ) -> None:
        wanted = [trail.next_place.hop.offset or 0 for trail in trails if trail.next_place is not None]
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

    async def _at(self, cluster_id: str, previous: Previous | None) -> ClusterLedger | None:
        name = previous.hop.cluster if previous is not None else None
        if cluster_id == self._first.cluster.cluster_id:
            return self._first if self._first.readable else None
        if cluster_id not in self._ledgers:
            known = self._others.get(name or "")
            self._ledgers[cluster_id] = await self._opened(known, cluster_id) if known is not None else None
        return self._ledgers[cluster_id]

    async def _opened(self, known: KnownCluster, cluster_id: str) -> ClusterLedger | None:
        name = known.reach.cluster
        try:
            cluster = await self._stack.enter_async_context(open_cluster(known.reach, self._within_s))
            if cluster.cluster_id != cluster_id:
                raise AuditFailure(name, f"cluster {cluster.cluster_id} answers, not {cluster_id}", "")
            ledgers = ClusterLedger(cluster, known, self._first.names)
            with as_audit_failure(name):
                await ledgers.open()
        except (AuditFailure, UnreadableRecord) as error:
            self._note(name, error.why if isinstance(error, AuditFailure) else str(error))
            return None
        return ledgers

    def _note(self, name: str, why: str) -> None:
        note = f"{name} can't be asked where its records were before: {why}"
        if note not in self.notes:
            self.notes.append(note)

    def _hop(self, cluster_id: str, topic: str, record: ConsumerRecord) -> ProvenanceHop:
        return ProvenanceHop(
            cluster_id=cluster_id,
            cluster=self._first.name,
            topic=topic,
            partition=record.partition,
            offset=record.offset,
            copied_at_ms=None,
        )
