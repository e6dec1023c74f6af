"""What provenance keeps back, and how pieces come together."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from runtime.audit.partition_logs import FetchedRecord
from runtime.audit.verify.pieces import (
    PlannedPartition,
    RecordContent,
    RecordDifference,
    VerificationPiece,
    VerifiedPiece,
)
from runtime.audit.verify.plan import grouped
from runtime.audit.verify.provenance import ProvenanceFilter, own_headers
from runtime.audit.verify.results import differences_of, results
from runtime.contract.records.ledger import PartitionKey
from runtime.contract.records.provenance import HEADER, ClusterTopic, FlowProducer, Origin, encode
from runtime.contract.spec.jobspec import FlowSpec, ProvenanceMode, SelectionSpec, TemplateRule

BACK = FlowProducer("back", "dc2", "id-2", TemplateRule(text="{topic}"))
FAR = FlowProducer("far", "dc3", "id-3", TemplateRule(text="{topic}"))


def found(producer: int = -1, headers: tuple[tuple[str, bytes | None], ...] = ()) -> FetchedRecord:
    return FetchedRecord(0, 0, 0, None, None, headers, producer)


def came_from(cluster: str) -> tuple[tuple[str, bytes | None], ...]:
    return (("n", b"1"), (HEADER, encode(Origin(cluster, "orders", 0, 5, 0))), (HEADER, b"someone else's"))


@pytest.mark.parametrize(
    ("mode", "native_only", "record", "kept_back"),
    [
        ("off", False, found(7), False),
        ("batch", False, found(), False),
        ("batch", False, found(7), True),
        ("batch", False, found(8), False),
        ("batch", True, found(8), True),
        ("headers", False, found(7), False),
        ("headers", False, found(headers=came_from("id-2")), True),
        ("headers", False, found(headers=came_from("id-3")), False),
        ("headers", True, found(headers=came_from("id-3")), True),
    ],
)
def test_kept_back(mode: ProvenanceMode, native_only: bool, record: FetchedRecord, kept_back: bool) -> None:
    flow = FlowSpec(
        name="there",
        source="dc1",
        destination="dc2",
        topics=SelectionSpec(include=["orders"]),
        provenance=mode,
        native_only=native_only,
    )
    assert (
        ProvenanceFilter(flow, "orders", ClusterTopic("id-2", "orders"), {7: BACK, 8: FAR}).drops(record)
        == kept_back
    )


def test_only_our_own_header_is_left_out() -> None:
    assert own_headers(found(headers=came_from("id-3"))) == (("n", b"1"), (HEADER, b"someone else's"))


def piece(low: int, high: int) -> VerificationPiece:
    return VerificationPiece(0, "t", 0, b"", "t", b"", low, high, low, high, high, b"", (), False)


def verified(low: int, end: int, **changes: Any) -> VerifiedPiece:
    facts: dict[str, Any] = {"edits": [], "more": False, **changes}
    return VerifiedPiece(0, low, end, end - low, 0, 0, 0, 0, **facts)


def planned() -> PlannedPartition:
    pieces = [piece(0, 100), piece(100, 200)]
    return PlannedPartition(PartitionKey("one", "t", 0), "t", 0, 200, pieces)


def test_pieces_come_together() -> None:
    (one,) = results([planned()], [verified(100, 200), verified(0, 100)])
    assert (one.low, one.end, one.equal_up_to, one.compared, one.unread) == (0, 200, 200, 200, "")


def test_equal_up_to_the_first_difference_of_any_piece() -> None:
    lost = RecordDifference("missing", 150, 150, 150, None, RecordContent(0, b"k", b"v", ()), None)
    (one,) = results([planned()], [verified(0, 100), verified(100, 200, edits=[lost])])
    assert (one.equal_up_to, [each.kind for each in one.differences]) == (150, ["missing"])


def test_what_was_not_read_is_said_and_what_retention_took_is_not_comparable() -> None:
    (one,) = results([planned()], [verified(0, 100), verified(100, 120, unread="gone")])
    assert (one.equal_up_to, one.unread) == (120, "from offset 120 on: gone")
    (one,) = results([planned()], [verified(0, 100), verified(100, 120, unread="gone", passed=True)])
    assert (one.unread, [(each.low, each.end) for each in one.not_comparable]) == ("", [(120, 200)])
    (one,) = results([planned()], [verified(0, 0, unread="gone")])
    assert one.unread == "gone"


@pytest.mark.parametrize(
    ("file", "why"), [("", "not in the source's order"), ("a.log", "not in the file's order")]
)
def test_what_is_swapped_names_the_order_that_it_is_not_in(file: str, why: str) -> None:
    content = RecordContent(0, None, b"v", ())
    lost = RecordDifference("missing", 10, 10, None, None, content, None, file=file)
    found = RecordDifference("extra", 20, None, None, 5, None, content, file="there")
    (one,) = differences_of([lost, found])
    assert (one.kind, one.destination_offset, one.why, one.file) == ("swapped", 5, why, "there")


def test_small_stretches_share_a_task() -> None:
    many = PlannedPartition(
        PartitionKey("one", "t", 0), "t", 0, 9, [piece(at, at + 1_000) for at in range(150)]
    )
    large = PlannedPartition(PartitionKey("one", "t", 1), "t", 0, 9, [piece(0, 5_000)])
    assert [len(group) for group in grouped([many, large])] == [1, 100, 50]


@pytest.mark.parametrize(
    ("found", "more", "why"),
    [
        ({50: 3}, False, []),
        ({50: 2}, False, ["of 3 records that salvage replayed from source offsets 50 to 59, 2 are there"]),
        ({}, True, []),  # the comparison stopped before it saw all
    ],
)
def test_replayed_records_that_are_not_there_are_missing(
    found: dict[int, int], more: bool, why: list[str]
) -> None:
    pieces = [
        VerifiedPiece(0, 0, 100, 90, 0, 0, 0, 0, [], False),
        VerifiedPiece(0, 100, 200, 90, 0, 0, 0, 0, [], more, replayed=found),
    ]
    made = replace(planned(), replayed=[(50, 60, 3)])
    (one,) = results([made], pieces)
    assert (one.replayed, [each.why for each in one.differences]) == (sum(found.values()), why)
