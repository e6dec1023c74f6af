"""What a person, and a file, get to know of what never arrived."""

from __future__ import annotations

import json
from typing import Any

import pytest

from planner.render.reports.comparison import line, salvage_json, salvage_screen
from runtime.contract.views.records_view import SalvagedPartition, SalvagedRecord, SalvageView


def record(**changes: Any) -> SalvagedRecord:
    facts: dict[str, Any] = {
        "cluster": "dc1",
        "cluster_id": "id-1",
        "topic": "orders",
        "partition": 0,
        "offset": 1_311,
        "timestamp_ms": 1_700_000_000_000,
        "key": b"k",
        "value": b"v",
        "headers": [],
        "came_from": [],
    }
    return SalvagedRecord(**{**facts, **changes})


def partition(*first: SalvagedRecord, **changes: Any) -> SalvagedPartition:
    facts: dict[str, Any] = {
        "topic": "orders",
        "partition": 0,
        "destination_topic": "orders",
        "stretches": [(1_311, 1_343, "not copied")],
        "records": len(first),
        "bytes": 2 * len(first),
        "kept_back": 0,
        "lost": 0,
        "begun": True,
        "first_offset": 1_311 if first else None,
        "last_offset": 1_311 if first else None,
        "first_timestamp_ms": None,
        "last_timestamp_ms": None,
        "first": list(first),
    }
    return SalvagedPartition(**{**facts, **changes})


def seen(*partitions: SalvagedPartition, state: str = "failed_over") -> SalvageView:
    return SalvageView(
        flow="one",
        state=state,
        source="dc1",
        source_id="id-1",
        destination="dc2",
        partitions=list(partitions),
    )


def text(found: SalvageView) -> str:
    return "\n".join(one.plain for one in salvage_screen(found, None))


def test_nothing_is_missing() -> None:
    assert "Nothing at dc1 is missing at dc2." in text(seen(partition()))
    assert "orders" not in text(seen(partition()))


def test_what_is_missing() -> None:
    shown = text(seen(partition(record(), records=31)))
    assert "31 records of dc1 never reached dc2." in shown
    assert "1 of them are shown, at most 1 of each partition; --export FILE writes all 31." in shown
    assert "orders-0:1311" in shown
    assert "written at dc1" in shown
    assert "active" not in shown


@pytest.mark.parametrize(
    ("flow", "came_from", "words"),
    [
        (None, [], "written at dc1"),
        (None, [("id-0", "far", 0, 7)], "written at dc1"),  # a client kept the header
        ("near", [], "by near"),
        ("near", [("id-0", "far", 0, 7)], "far-0:7 by near"),
    ],
)
def test_only_a_client_s_record_was_born_here(flow: str | None, came_from: list[Any], words: str) -> None:
    shown = text(seen(partition(record(flow=flow, came_from=came_from))))
    assert shown.splitlines()[-3].endswith(words)
    assert ("written at dc1" in shown) is (words == "written at dc1")


def test_what_is_shown_adds_up() -> None:
    parts = [
        partition(*[record()] * min(held, 10), partition=at, records=held)
        for at, held in enumerate((12, 10, 10, 8))
    ]
    shown = text(seen(*parts))
    assert shown.count("orders-0:1311") == 38
    assert "40 records of dc1 never reached dc2." in shown
    assert "38 of them are shown, at most 10 of each partition; --export FILE writes all 40." in shown


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"begun": False}, "the flow never copied it"),
        ({"lost": 4}, "retention deleted 4 offsets before they were copied"),
        ({"kept_back": 3}, "3 records filtered by provenance are not counted"),
        ({"unread": "it is gone"}, "not read to the end: it is gone"),
        ({"stretches": [(5, 9, "orphaned")]}, "given up: orphaned"),
    ],
)
def test_why(changes: dict[str, Any], words: str) -> None:
    assert words in text(seen(partition(record(), **changes)))


def test_an_active_flow_may_still_bring_them() -> None:
    assert "may only be on its way" in text(seen(partition(), state="active"))


def test_bytes_that_are_no_text_are_shown_as_such() -> None:
    shown = text(seen(partition(record(key=b"\xff\x00", value=None), record(key=b"", value=b"x" * 500))))
    assert "0xff00" in shown
    assert "null" in shown
    assert "x" * 59 + "…" in shown


def test_a_line_has_all_bytes() -> None:
    written = line(record(key=b"\xff", value=None, headers=[("h", "ď".encode()), ("n", None)]))
    assert written.endswith("\n")
    found = json.loads(written)
    assert found["key"] == {"base64": "/w=="}
    assert found["value"] is None
    assert found["headers"] == [
        {"name": "h", "value": {"base64": "xI8=", "text": "ď"}},
        {"name": "n", "value": None},
    ]


def test_json_counts() -> None:
    found = salvage_json(seen(partition(record()), partition(record(), record())))
    assert found["records"] == 3
    assert found["partitions"][0]["first"][0]["value"]["text"] == "v"
