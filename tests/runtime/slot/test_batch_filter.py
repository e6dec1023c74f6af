"""What of a response goes out, and which leader epoch lies before each position (R4, R5)."""

import pytest

from runtime.batch import DroppedRecords, Record, RewriteSpec, TooLarge, walk
from runtime.batch.spec import MAX_UNPACKED
from runtime.contract.records.control import AssignedPartition
from runtime.contract.records.provenance import ClusterPartition, ClusterTopic
from runtime.contract.spec.jobspec import FlowSpec
from runtime.contract.spec.selection import SelectionSpec
from runtime.slot.partition import Cursor
from runtime.slot.read.batch_filter import (
    FilteredBatches,
    filter_batches,
    rewrite_spec,
    without_provenance_filter,
)
from tests.runtime.batch.forge import HERE, batch_bytes, control_batch, record

EPOCH = 7  # of every forged batch
COMMIT = 1


def filtered(
    *parts: bytes, start: int = 0, home: frozenset[int] = frozenset(), limit: int = 1 << 20
) -> FilteredBatches:
    spec = RewriteSpec(HERE, limit)
    return filter_batches(walk(b"".join(parts), HERE), spec, Cursor(start, 3), (), home, 1)


LARGE = record(1, b"x" * 9_000)
TWO = [record(0), record(1)]


@pytest.mark.parametrize(
    ("batches", "start", "positions", "cursor", "stops"),
    [
        ([], 5, [], Cursor(5, 3), False),  # no news: the epoch stays, too
        ([TWO, [record(2)]], 1, [2, 3], Cursor(3, EPOCH), False),
        ([[record(0)], [LARGE]], 0, [1], Cursor(1, EPOCH), True),
        ([[record(0), LARGE, record(2)]], 0, [1], Cursor(1, EPOCH), True),  # in the middle of a batch
        ([[LARGE._replace(offset=5)]], 0, [], Cursor(5, EPOCH), True),  # behind a hole
        ([[LARGE._replace(offset=5)]], 5, [], Cursor(5, 3), True),
    ],
)
def test_a_response_goes_out_from_the_cursor_to_a_record_that_is_too_large(
    batches: list[list[Record]], start: int, positions: list[int], cursor: Cursor, stops: bool
) -> None:
    found = filtered(*map(batch_bytes, batches), start=start, limit=1_000)
    assert [(out.position, out.epoch) for out in found.outgoing] == [(at, EPOCH) for at in positions]
    assert (found.cursor, isinstance(found.failure, TooLarge)) == (cursor, stops)


def test_the_cursor_passes_what_is_not_copied() -> None:
    found = filtered(
        batch_bytes([record(0)], producer=(9, 0, 0)), control_batch(1, 9, COMMIT), home=frozenset({9})
    )
    assert (found.outgoing, found.cursor, found.dropped) == ([], Cursor(2, EPOCH), [DroppedRecords(1, 1)])


def test_records_that_the_origin_lost_are_copied_back_up_to_the_restored_offset() -> None:
    batches = [batch_bytes([record(0), record(1)], producer=(9, 0, 0)), batch_bytes([record(2)])]
    spec = RewriteSpec(HERE, 1 << 20, home=ClusterTopic("id-2", "orders"), native_only=True)
    found = filter_batches(
        walk(b"".join(batches), HERE), without_provenance_filter(spec, 2), Cursor(0, 3), (), (), 1
    )
    assert ([out.position for out in found.outgoing], found.cursor) == ([2], Cursor(2, EPOCH))


def test_a_batch_that_is_split_has_one_epoch() -> None:
    parts = [record(at, bytes(range(256)) * 2) for at in range(4)]
    found = filtered(batch_bytes(parts), limit=1_200)
    assert len(found.outgoing) > 1
    assert {out.epoch for out in found.outgoing} == {EPOCH}


def test_corrupt_bytes_stop_behind_the_last_good_batch() -> None:
    good, bad = batch_bytes([record(0)]), bytearray(batch_bytes([record(1)]))
    bad[-1] ^= 1
    found = filtered(good, bytes(bad))
    assert [out.position for out in found.outgoing] == [1]
    assert found.failure is not None
    assert "offset 1" in str(found.failure)


ASSIGNED = AssignedPartition("flow", "orders", 3, "orders.r", max_message_bytes=500)


@pytest.mark.parametrize("mode", ["off", "batch", "headers"])
def test_only_headers_provenance_touches_records(mode: str) -> None:
    flow = FlowSpec(
        name="flow",
        source="dc1",
        destination="dc2",
        topics=SelectionSpec(include=("orders",)),
        provenance=mode,  # type: ignore[arg-type]
        native_only=True,
    )
    spec = rewrite_spec(ASSIGNED, flow, "id-1", "id-2", MAX_UNPACKED)
    assert (spec.max_batch, spec.where) == (500, ("orders", 3))
    headers = mode == "headers"
    assert spec.provenance == (ClusterPartition("id-1", "orders", 3) if headers else None)
    assert spec.home == (ClusterTopic("id-2", "orders.r") if headers else None)
    assert spec.native_only is headers
