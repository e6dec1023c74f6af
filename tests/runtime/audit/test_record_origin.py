"""Where a record came from: by what its headers say, by the offset map, by the producer id, or nowhere."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from runtime.audit.partition_logs import FetchedRecord
from runtime.audit.read.record_tracer import MirrorPartitionOrigin, RecordOrigins, RecordTrail
from runtime.contract.records.offset_map import OffsetMap, Run, Span, encode_runs
from runtime.contract.records.provenance import HEADER, FlowProducer, Origin, encode
from runtime.contract.spec.jobspec import TemplateRule
from runtime.contract.views.records_view import ProvenanceHopView

# Source offsets 10…14 lie at 100…104 here, 20…24 at 110…114; a client wrote in between.
RUNS = (Run(10, 100, 5), Run(20, 110, 5))
MAP = OffsetMap([Span(10, 25, 100, 115, encode_runs(RUNS, 10, 100))])
AT = ProvenanceHopView(
    cluster_id="id-2", cluster="dc2", topic="dc1.orders", partition=0, offset=0, copied_at_ms=None
)
FLOW = FlowProducer("one", "dc1", "id-1", TemplateRule(text="dc1.{topic}"))
ORIGINS = RecordOrigins(
    topic="dc1.orders",
    written={0: [MirrorPartitionOrigin("one", "id-1", "orders", 0, MAP)]},
    producers={7: FLOW, 8: FlowProducer("other", "dc3", "id-3", TemplateRule(text="dc1.{topic}"))},
    names={"id-1": "dc1", "id-2": "dc2"},
)


def record(offset: int, producer_id: int = -1, *origins: Origin, partition: int = 0) -> FetchedRecord:
    headers = tuple((HEADER, encode(origin)) for origin in origins)
    return FetchedRecord(partition, offset, 1_000, b"k", b"v", headers, producer_id)


def hop(
    cluster: str | None, cluster_id: str, topic: str, offset: int | None, at: int | None = None
) -> ProvenanceHopView:
    return ProvenanceHopView(
        cluster_id=cluster_id, cluster=cluster, topic=topic, partition=0, offset=offset, copied_at_ms=at
    )


BORN = Origin("id-0", "orders", 0, 4, 900)
STAMPED = Origin("id-1", "orders", 0, 21, 950)
ROWS = [
    ("in the map", record(102, 7), "batch", "one", [hop("dc1", "id-1", "orders", 12)]),
    ("another flow's id", record(102, 8), "batch", "other", [hop(None, "id-3", "orders", None)]),
    ("between its runs", record(107), "native", None, []),
    ("beyond the map", record(200), "native", None, []),
    ("the map was trimmed", record(50, 7), "batch", "one", [hop("dc1", "id-1", "orders", None)]),
    ("another partition", record(102, partition=1), "native", None, []),
    ("stamped", record(111, 7, STAMPED), "headers", "one", [hop("dc1", "id-1", "orders", 21, 950)]),
    (
        "stamped on the way before",
        record(111, 7, BORN),
        "headers",
        "one",
        [hop(None, "id-0", "orders", 4, 900), hop("dc1", "id-1", "orders", 21)],
    ),
    ("stamped, trimmed", record(50, 7, STAMPED), "headers", "one", [hop("dc1", "id-1", "orders", 21, 950)]),
    ("a client kept the header", record(107, -1, BORN), "native", None, []),
    ("a client wrote what came home from here", record(102), "native", None, []),
]


@pytest.mark.parametrize(
    ("found", "provenance", "flow", "hops"), [row[1:] for row in ROWS], ids=[row[0] for row in ROWS]
)
def test_where_it_came_from(
    found: FetchedRecord, provenance: str, flow: str | None, hops: list[ProvenanceHopView]
):
    seen = RecordTrail(found, AT, ORIGINS.origin_of(found)).view()
    assert (seen.provenance, seen.flow, seen.hops) == (provenance, flow, hops)
    assert [one.offset for one in seen.claimed] == ([4] if flow is None and found.headers else [])


def test_without_the_ledger_headers_are_all_there_is():
    blind = replace(ORIGINS, producers=None)
    stamped = record(111, 7, BORN, STAMPED)
    seen = RecordTrail(stamped, AT, blind.origin_of(stamped)).view()
    assert (seen.provenance, [one.offset for one in seen.hops]) == ("headers", [4, 21])
    assert RecordTrail(record(107), AT, blind.origin_of(record(107))).view().provenance == "native"
