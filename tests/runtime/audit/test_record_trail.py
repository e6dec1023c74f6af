"""Every record's birth is told, after any number of failovers, replays, failbacks and switches.

At one cluster a record's origin is what its headers, the offset map and the producer id say. A model of two
clusters with one partition each has logs, producer ids and ledgers, which are moved by the functions that
drivers and slots use. Each record's value is unique, and its birth is written down when it is written.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from runtime.audit.read.record_tracer import MirrorPartitionOrigin, RecordOrigins, RecordTrail
from runtime.contract.records.advance import Advance, advance
from runtime.contract.records.consumer_record import ConsumerRecord
from runtime.contract.records.failback import failback_start
from runtime.contract.records.ledger import ORPHANED, PartitionKey, Progress, orphan
from runtime.contract.records.offset_map import OffsetMap, Run, Span, append
from runtime.contract.records.provenance import HEADER, ClusterTopic, FlowProducer, Origin, encode, origins
from runtime.contract.results.records import ProvenanceHop, TracedRecord
from runtime.contract.spec.rename import Table, Template
from runtime.contract.spec.transform import quarantine_headers
from tests.fakes.progress import map_of, progress
from tests.fakes.verification import fetched

pytestmark = pytest.mark.slow

THERE, BACK = "dc1-to-dc2", "dc1-to-dc2-back"
RENAME = Template(text="dc1.{topic}")
NAMES = {"id-1": "dc1", "id-2": "dc2"}
CLIENT = -1


class Birth(NamedTuple):
    cluster: str
    topic: str
    offset: int


@dataclass
class Cluster:
    """`log` holds a record or, for the marker of a transaction, nothing at each offset."""

    id: str
    topic: str
    topic_id: bytes
    log: list[ConsumerRecord | None] = field(default_factory=list)
    producers: dict[int, FlowProducer] = field(default_factory=dict)

    def append(self, value: bytes, producer: int, headers: tuple[tuple[str, bytes | None], ...] = ()) -> int:
        offset = len(self.log)
        self.log.append(fetched(offset, value, producer, headers=headers))
        return offset

    def records(self, low: int, end: int) -> list[ConsumerRecord]:
        return [one for one in self.log[low:end] if one is not None]


@dataclass
class Flow:
    name: str
    source: Cluster
    destination: Cluster
    progress: Progress | None = None
    segments: list[Span] = field(default_factory=list)

    @property
    def map(self) -> OffsetMap:
        assert self.progress is not None
        return map_of(*self.segments, self.progress)


class Model:
    def __init__(self, provenance: str) -> None:
        self.provenance = provenance
        self.dc1, self.dc2 = Cluster("id-1", "orders", b"1" * 16), Cluster("id-2", "dc1.orders", b"2" * 16)
        self.there, self.back = Flow(THERE, self.dc1, self.dc2), Flow(BACK, self.dc2, self.dc1)
        self.births: dict[bytes, Birth] = {}
        self.replayed = 0  # source offsets of dc1 below this were replayed, or copied
        self._ids = 0
        self.there.progress = progress(
            source_topic_id=self.dc1.topic_id,
            destination_topic=self.dc2.topic,
            destination_topic_id=self.dc2.topic_id,
        )

    def write(self, at: Cluster, count: int, header: Origin | None = None) -> None:
        """A client writes, and may keep a header of ours in what it writes."""
        for _ in range(count):
            value = b"%d" % len(self.births)
            headers = ((HEADER, encode(header)),) if header is not None else ()
            self.births[value] = Birth(at.id, at.topic, at.append(value, CLIENT, headers))

    def copy(self, flow: Flow, most: int = 1_000_000) -> None:
        """One transaction of the flow: as a slot would, with a marker behind its records."""
        assert flow.progress is not None
        end = min(flow.progress.position + most, len(flow.source.log))
        producer = self._register(flow)
        home = ClusterTopic(flow.destination.id, flow.destination.topic)
        runs: list[Run] = []
        for one in flow.source.records(flow.progress.position, end):
            owner = flow.source.producers.get(one.producer_id)
            looks = flow is self.back or self.provenance == "batch"
            if looks and owner is not None and owner.home(flow.source.topic) == home:
                continue  # it came from there, or is there already
            if self.provenance == "headers" and any(hop.home == home for hop in origins(one.headers)):
                continue
            at = flow.destination.append(one.value or b"", producer, self._stamped(flow.source, one))
            append(runs, Run(one.offset, at, 1))
        if runs:
            flow.destination.log.append(None)
        flow.progress, sealed = advance(flow.progress, Advance(end, 0, tuple(runs)), 1, 0)
        flow.segments += sealed

    def replay(self) -> None:
        """Salvage: what dc1 holds and never sent, by the ledger."""
        low = self._orphan(self.there)
        producer = self._register(self.there, Table(names={"orders": "dc1.orders"}), only="dc1.orders")
        for one in self.dc1.records(max(low, self.replayed), len(self.dc1.log)):
            if one.producer_id == CLIENT:
                self.dc2.append(one.value or b"", producer, _with(one, self.dc1))
        self.replayed = len(self.dc1.log)

    def turn(self, ended: Flow, flow: Flow) -> None:
        """The flow begins where its opposite ended."""
        self._orphan(ended)
        assert ended.progress is not None
        first = progress(
            0,
            len(flow.destination.log),
            source_topic_id=flow.source.topic_id,
            destination_topic=flow.destination.topic,
            destination_topic_id=flow.destination.topic_id,
        )
        begun = failback_start(flow.progress, ended.progress, ended.map, first)
        flow.progress, flow.segments = begun.progress, list(begun.segments)

    def read(self, cluster: Cluster, record: ConsumerRecord) -> TracedRecord:
        """`repl read`, followed over both clusters."""
        trail = RecordTrail(record, _hop(cluster, record.offset), self._origins(cluster).origin_of(record))
        while trail.next_place is not None:
            hop = trail.next_place.place
            assert hop is not None
            at = self.dc1 if hop.cluster_id == "id-1" else self.dc2
            there = at.log[hop.offset or 0]
            trail.add_place(there, self._origins(at).origin_of(there) if there is not None else None)
        return trail.view()

    def _orphan(self, flow: Flow) -> int:
        assert flow.progress is not None
        low = flow.progress.position
        key = PartitionKey(flow.name, flow.source.topic, 0)
        marked = orphan(key, flow.progress, len(flow.source.log), ORPHANED, generation=1, now_ms=0)
        flow.progress = next((one for one in marked.values() if isinstance(one, Progress)), flow.progress)
        return low

    def _stamped(self, source: Cluster, one: ConsumerRecord) -> tuple[tuple[str, bytes | None], ...]:
        return _with(one, source) if self.provenance == "headers" else one.headers

    def _register(self, flow: Flow, rename: Template | Table = RENAME, only: str | None = None) -> int:
        source = NAMES[flow.source.id]
        undoes = "dc1" if flow is self.back else None
        self._ids += 1
        flow.destination.producers[self._ids] = FlowProducer(
            flow.name, source, flow.source.id, rename, undoes=undoes, only=only
        )
        return self._ids

    def _origins(self, at: Cluster) -> RecordOrigins:
        into = (one for one in (self.there, self.back) if one.destination is at and one.progress is not None)
        written = [
            MirrorPartitionOrigin(
                PartitionKey(one.name, one.source.topic, 0), one.source.id, one.map, one.source.topic_id
            )
            for one in into
        ]
        return RecordOrigins(at.topic, {0: written}, at.producers, NAMES)


def _with(one: ConsumerRecord, source: Cluster) -> tuple[tuple[str, bytes | None], ...]:
    return (*one.headers, (HEADER, encode(Origin(source.id, source.topic, 0, one.offset, 9))))


def hop(
    cluster: str | None, cluster_id: str, topic: str, offset: int | None, at_ms: int | None = None
) -> ProvenanceHop:
    return ProvenanceHop(
        cluster_id=cluster_id, cluster=cluster, topic=topic, partition=0, offset=offset, copied_at_ms=at_ms
    )


def _hop(at: Cluster, offset: int) -> ProvenanceHop:
    return hop(NAMES[at.id], at.id, at.topic, offset)


counts = st.integers(0, 4)
STEPS = ("copied", "behind", "at dc2", "forgotten", "replay", "after", "home")
rounds = st.lists(st.fixed_dictionaries(dict.fromkeys(STEPS, counts)), min_size=1, max_size=4)
forged = st.sampled_from(
    [None, Origin("id-1", "orders", 0, 1, 7), Origin("id-9", "far", 3, 5, 7), Origin("id-2", "x", 0, 0, 7)]
)


def lived(model: Model, told: list[dict[str, int]], header: Origin | None) -> None:
    for one in told:
        model.write(model.dc1, one["copied"], header)
        model.copy(model.there)
        model.write(model.dc1, one["behind"])  # then dc1 is lost, and the flow fails over
        model.write(model.dc2, one["at dc2"], header)
        model.write(model.dc1, one["forgotten"])
        if one["replay"] % 2:
            model.replay()
        model.write(model.dc2, one["after"])
        model.turn(model.there, model.back)
        model.copy(model.back, 3)
        model.write(model.dc2, one["home"])
        model.copy(model.back)
        check(model)
        model.turn(model.back, model.there)
        model.replayed = len(model.dc1.log)
        check(model)


def check(model: Model) -> None:
    for cluster in (model.dc1, model.dc2):
        for record in cluster.records(0, len(cluster.log)):
            seen, birth = model.read(cluster, record), model.births[record.value or b""]
            if (birth.cluster, birth.offset) == (cluster.id, record.offset):
                assert (seen.provenance, seen.flow, seen.hops) == ("native", None, []), (birth, seen)
            else:
                first = seen.hops[0]
                assert (first.cluster_id, first.topic, first.offset) == birth, seen
                assert seen.flow == (THERE if cluster is model.dc2 else BACK)


@pytest.mark.parametrize("provenance", ["batch", "headers", "off"])
@given(rounds, forged)
def test_every_birth_is_told(provenance: str, told: list[dict[str, int]], header: Origin | None) -> None:
    model = Model(provenance)
    lived(model, told, header)
    model.write(model.dc1, 3)
    model.copy(model.there)
    check(model)


def test_a_record_from_further_away_is_followed_over_the_cluster_between() -> None:
    """dc0 → dc1 → dc2 by batch: the map at dc2 names dc1, and the one at dc1 names dc0."""
    far = FlowProducer("dc0-to-dc1", "dc0", "id-0", Template(text="{topic}"))
    model = Model("batch")
    model.dc1.producers[500] = far
    model.dc1.append(b"far", 500)
    model.copy(model.there)
    (copied,) = model.dc2.records(0, 9)
    offsets = map_of(progress(70, 0, Run(70, 0, 1), end=71))
    written = {0: [MirrorPartitionOrigin(PartitionKey("dc0-to-dc1", "orders", 0), "id-0", offsets)]}
    at_dc1 = RecordOrigins("orders", written, model.dc1.producers, NAMES)
    trail = RecordTrail(copied, _hop(model.dc2, copied.offset), model._origins(model.dc2).origin_of(copied))
    (there,) = model.dc1.records(0, 1)
    trail.add_place(there, at_dc1.origin_of(there))
    trail.add_place(None, None)  # dc0 holds it no more
    assert [(one.cluster_id, one.offset) for one in trail.view().hops] == [("id-0", 70), ("id-1", 0)]


def test_other_content_at_the_place_proves_nothing() -> None:
    model = Model("headers")
    model.write(model.dc1, 1)
    model.copy(model.there)
    (copied,) = model.dc2.records(0, 9)
    trail = RecordTrail(copied, _hop(model.dc2, copied.offset), model._origins(model.dc2).origin_of(copied))
    other = fetched(0, b"other")
    trail.add_place(other, RecordOrigins("orders", {}, {}, NAMES).origin_of(other))
    assert [one.offset for one in trail.view().hops] == [0]


# Where a record came from: by its headers, by the offset map, by the producer id, or nowhere

# Source offsets 10…14 lie at 100…104 here, 20…24 at 110…114; a client wrote in between.
AT = hop("dc2", "id-2", "dc1.orders", 0)
MAP = map_of(progress(10, 100, Run(10, 100, 5), Run(20, 110, 5), end=25))
ORIGINS = RecordOrigins(
    topic="dc1.orders",
    written={0: [MirrorPartitionOrigin(PartitionKey("one", "orders", 0), "id-1", MAP)]},
    producers={
        7: FlowProducer("one", "dc1", "id-1", RENAME),
        8: FlowProducer("other", "dc3", "id-3", RENAME),
    },
    names=NAMES,
)
BORN, STAMPED = Origin("id-0", "orders", 0, 4, 900), Origin("id-1", "orders", 0, 21, 950)
EXACT, UNKNOWN = hop("dc1", "id-1", "orders", 12), hop("dc1", "id-1", "orders", None)
BY_HEADER, FROM_DC0 = hop("dc1", "id-1", "orders", 21, 950), hop(None, "id-0", "orders", 4, 900)


@pytest.mark.parametrize(
    ("record", "provenance", "flow", "hops"),
    [
        (fetched(102, producer=7), "batch", "one", [EXACT]),
        (fetched(102, producer=8), "batch", "other", [hop(None, "id-3", "orders", None)]),
        (fetched(107), "native", None, []),
        (fetched(200), "native", None, []),
        (fetched(50, producer=7), "batch", "one", [UNKNOWN]),
        (fetched(102, partition=1), "native", None, []),
        (fetched(111, producer=7, origins=[STAMPED]), "headers", "one", [BY_HEADER]),
        (
            fetched(111, producer=7, origins=[BORN]),
            "headers",
            "one",
            [FROM_DC0, hop("dc1", "id-1", "orders", 21)],
        ),
        (fetched(50, producer=7, origins=[STAMPED]), "headers", "one", [BY_HEADER]),
        (fetched(107, origins=[BORN]), "native", None, []),
        (fetched(102), "native", None, []),
    ],
    ids=[
        "in the map",
        "another flow's id",
        "between its runs",
        "beyond the map",
        "the map was trimmed",
        "another partition",
        "stamped",
        "stamped on the way before",
        "stamped, trimmed",
        "a client kept the header",
        "a client wrote what came home from here",
    ],
)
def test_the_origin_of_a_record(
    record: ConsumerRecord, provenance: str, flow: str | None, hops: list[ProvenanceHop]
) -> None:
    seen = RecordTrail(record, AT, ORIGINS.origin_of(record)).view()
    assert (seen.provenance, seen.flow, seen.hops) == (provenance, flow, hops)
    assert [one.offset for one in seen.claimed] == ([4] if flow is None and record.headers else [])


def test_without_the_ledger_headers_are_all_there_is() -> None:
    blind = replace(ORIGINS, producers=None)
    for record, provenance, offsets in (
        (fetched(111, producer=7, origins=[BORN, STAMPED]), "headers", [4, 21]),
        (fetched(107), "native", []),
    ):
        seen = RecordTrail(record, AT, blind.origin_of(record)).view()
        assert (seen.provenance, [one.offset for one in seen.hops]) == (provenance, offsets)


def quarantined(*of: Any) -> list[tuple[str, bytes]]:
    return [(name.decode(), value) for name, value in quarantine_headers(*of)]


OWN = quarantined("it is no JSON", "one", "orders", 2, 41, 9)


def test_a_quarantined_record_names_the_bad_record_at_the_source() -> None:
    """The source's record may have headers of these names: those that the flow wrote are the last."""
    forged = quarantined("", "x", "payments", 0, 1, 1)
    quarantine = replace(ORIGINS, topic="dc1.orders.quarantine", written={})
    at = hop("dc2", "id-2", quarantine.topic, 0)

    written_by_the_flow = fetched(3, producer=7, headers=[*forged, *OWN])
    seen = RecordTrail(written_by_the_flow, at, quarantine.origin_of(written_by_the_flow)).view()
    place = ProvenanceHop(
        cluster_id="id-1", cluster="dc1", topic="orders", partition=2, offset=41, copied_at_ms=None
    )
    assert (seen.provenance, seen.flow, seen.hops) == ("headers", "one", [place])

    written_by_a_client = fetched(4, headers=OWN)
    seen = RecordTrail(written_by_a_client, at, quarantine.origin_of(written_by_a_client)).view()
    assert (seen.provenance, seen.flow, seen.hops) == ("native", None, [])


def test_a_mirror_of_a_quarantine_topic_is_traced_as_any_mirror() -> None:
    """It keeps the headers, which tell of another cluster than the mirror's source."""
    mirrored = replace(ORIGINS, topic="dc1.orders.quarantine")
    seen = mirrored.origin_of(fetched(3, producer=7, headers=OWN))
    assert (seen.place, seen.headers) == (hop("dc1", "id-1", "orders.quarantine", None), [])
