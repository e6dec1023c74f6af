"""Records and clusters as they are shown: bytes never harm a terminal, and JSON loses none of them."""

from typing import Any

import pytest

from planner.render.reports.records import cluster_screen, records_json, records_screen, shown
from runtime.contract.views.records_view import (
    ClusterContentView,
    CopiedPartitionView,
    ProvenanceHopView,
    RecordsView,
    RecordView,
    TopicContentView,
)

SHOWN = [
    (None, "null"),
    (b"", '""'),
    (b"plain", "plain"),
    ("grüße".encode(), "grüße"),
    (b"two\nlines\t", "two\\nlines\\t"),
    (b"back\\slash", "back\\\\slash"),
    (b"\x1b[31mred", "0x1b5b33316d726564"),
    (b"\x00\x01", "0x0001"),
    (b"\xff\xfe", "0xfffe"),
    (b"\xff" * 100, "0x" + "ff" * 64 + "… (100 bytes)"),
    (b"x" * 600, "x" * 500 + "… (600 bytes)"),
]


@pytest.mark.parametrize(("value", "text"), SHOWN)
def test_bytes_are_shown_safely(value: bytes | None, text: str):
    assert shown(value) == text


def test_in_full_nothing_is_cut():
    assert shown(b"x" * 600, None) == "x" * 600
    assert shown(b"\xff" * 100, None) == "0x" + "ff" * 100


def hop(cluster: str | None, topic: str, offset: int | None) -> ProvenanceHopView:
    return ProvenanceHopView(
        cluster_id="id-9", cluster=cluster, topic=topic, partition=0, offset=offset, copied_at_ms=None
    )


def seen(**changes: Any) -> RecordsView:
    facts: dict[str, Any] = {
        "partition": 0,
        "offset": 42,
        "timestamp_ms": 1_800_000_000_123,
        "key": b"k",
        "value": None,
        "headers": [("trace", b"t"), ("__repl", b"\x01")],
        "provenance": "native",
        "flow": None,
        "hops": [],
        **changes,
    }
    return RecordsView(
        cluster="dc2",
        cluster_id="id-2",
        topic="orders",
        partitions=1,
        records=[RecordView(**facts)],
        notes=["the ledger can't be read"],
    )


WAYS: list[tuple[dict[str, Any], str]] = [
    ({}, "written at dc2"),
    (
        {"claimed": [hop("dc1", "orders", 4)]},
        "written at dc2 (its header __repl names dc1 orders-0 @ 4, but no flow wrote it)",
    ),
    (
        {"provenance": "batch", "flow": "one", "hops": [hop("dc1", "orders", 40)]},
        "from dc1 orders-0 @ 40 by one (batch)",
    ),
    (
        {"provenance": "batch", "flow": "one", "hops": [hop("dc1", "orders", None)]},
        "from dc1 orders-0 by one (batch)",
    ),
    (
        {"provenance": "headers", "flow": "two", "hops": [hop(None, "a", 1), hop("dc1", "b", 2)]},
        "from id-9 a-0 @ 1 → dc1 b-0 @ 2 by two (headers)",
    ),
]


@pytest.mark.parametrize(("changes", "way"), WAYS)
def test_a_record_says_where_it_came_from(changes: dict[str, Any], way: str):
    lines = [line.plain for line in records_screen(seen(**changes))]
    assert lines == [
        f"orders-0 @ 42  2027-01-15 08:00:00.123Z  {way}",
        "  key    k",
        "  value  null",
        "  header trace: t",
        "1 record of orders at dc2 (cluster id id-2)",
        "note: the ledger can't be read",
    ]


def test_json_keeps_every_byte():
    (record,) = records_json(seen(key=b"\xff", value=b"text"))["records"]
    assert record["key"] == {"base64": "/w=="}
    assert record["value"] == {"text": "text"}
    assert record["headers"] == [
        {"name": "trace", "value": {"text": "t"}},
        {"name": "__repl", "value": {"text": "\x01"}},
    ]


def test_a_cluster_with_what_it_holds():
    held = ClusterContentView(
        cluster="dc2",
        cluster_id="id-2",
        brokers=3,
        topics=[
            TopicContentView(topic="own", partitions=1, offsets=None, flows=[]),
            TopicContentView(topic="orders", partitions=12, offsets=12_345, flows=["one"]),
        ],
        hidden=9,
        copied=[
            CopiedPartitionView(
                flow="one",
                source="dc1",
                topic="orders",
                partition=0,
                destination_topic="orders",
                position=7,
                records=7,
                last_timestamp_ms=1_800_000_000_123,
                last_commit_ms=None,
            )
        ],
        notes=[],
    )
    assert [line.plain.rstrip() for line in cluster_screen(held, 120)] == [
        "dc2: cluster id id-2, 3 brokers",
        "",
        "TOPIC   PARTITIONS  OFFSETS  WRITTEN BY",
        "own              1        –  clients of dc2",
        "orders          12   12,345  one",
        "(9 internal topics not shown)",
        "",
        "PARTITION  FLOW  FROM        RECORDS  LAST COPIED               COMMITTED",
        "orders-0   one   dc1 orders        7  2027-01-15 08:00:00.123Z  –",
    ]
