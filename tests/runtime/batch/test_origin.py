"""Headers provenance over batches: added to every record, and cutting every way home (R5)."""

import pytest
from msgspec.structs import replace

from runtime.batch import Codec, DroppedRecords, Merge, Record, RewriteSpec, prepare
from runtime.contract.records.provenance import HEADER, ClusterPartition, ClusterTopic, Origin, encode
from tests.runtime.batch.forge import HERE, START, arrived, batch_bytes, record, sets

PLACE = ClusterPartition("dc1-id", "orders", 3)
NOW = START + 77
SPEC = RewriteSpec(HERE, max_batch=1_000_000, provenance=PLACE, home=ClusterTopic("dc2-id", "orders"))
FROM_DC2 = (HEADER, encode(Origin("dc2-id", "orders", 1, 5, NOW)))
FROM_DC3 = (HEADER, encode(Origin("dc3-id", "orders", 1, 5, NOW)))
FROM_DC2_RENAMED = (HEADER, encode(Origin("dc2-id", "invoices", 1, 5, NOW)))
FOREIGN = (HEADER, b"someone else's")


def stamped(one: Record) -> Record:
    return one._replace(headers=(*one.headers, (HEADER, encode(Origin(*PLACE, one.offset, NOW)))))


SHAPES = [
    record(0),
    record(1, None),
    record(2, b"", key=b""),
    record(3, b"x" * 40_000, key=None),
    record(4, b"v" * 100, headers=[("a", b"1"), ("b", None), ("", b"")]),
    record(5, headers=[(f"h{at}", b"x" * at) for at in range(200)]),
    record(6, b"x" * 8100),
    record(7, headers=[FROM_DC3, FOREIGN]),
]


@pytest.mark.parametrize("codec", Codec)
@pytest.mark.parametrize(
    "spec", [SPEC, replace(SPEC, max_batch=42_000), replace(SPEC, start=1), replace(SPEC, merge=Merge())]
)
def test_every_record_gets_one_header_more(spec: RewriteSpec, codec: Codec):
    fetched = sets(batch_bytes(SHAPES, codec), batch_bytes([record(9)]), batch_bytes([record(10)]))
    assert arrived(prepare(fetched, spec, NOW)) == [
        stamped(one) for one in (*SHAPES, record(9), record(10)) if one.offset >= spec.start
    ]


@pytest.mark.parametrize(
    ("headers", "goes_on"),
    [
        ([], True),
        ([FROM_DC2], False),
        ([("trace", b"1"), FROM_DC3, FROM_DC2], False),
        ([FROM_DC2_RENAMED], True),
        ([FROM_DC3], True),
        ([FOREIGN], True),
        ([("trace", FROM_DC2[1])], True),
        ([("trace", b"\x0c__repl" + FROM_DC2[1])], True),
    ],
)
def test_no_record_returns_to_where_it_was_born_under_its_own_name(headers, goes_on: bool):
    middle = record(1, headers=headers)
    prepared = prepare(sets(batch_bytes([record(0), middle, record(2)])), SPEC, NOW)
    expected = [record(0), middle, record(2)] if goes_on else [record(0), record(2)]
    assert arrived(prepared) == [stamped(one) for one in expected]
    assert (prepared.dropped, prepared.position) == ([] if goes_on else [DroppedRecords(2, 1)], 3)


def test_native_only_takes_nothing_that_was_copied_before():
    mixed = [record(0), record(1, headers=[FROM_DC3]), record(2, headers=[FOREIGN])]
    prepared = prepare(sets(batch_bytes(mixed)), RewriteSpec(HERE, 1_000_000, native_only=True), NOW)
    assert arrived(prepared) == [mixed[0], mixed[2]]


def test_a_batch_that_goes_home_as_a_whole_leaves_nothing_to_send():
    prepared = prepare(
        sets(batch_bytes([record(0, headers=[FROM_DC2]), record(1, headers=[FROM_DC2])])), SPEC, NOW
    )
    assert prepared == ([], 2, [DroppedRecords(1, 1), DroppedRecords(2, 1)], None)


def test_a_value_that_holds_a_header_is_only_a_value():
    tricky = record(0, b"\x02\x0c__repl" + bytes([len(FROM_DC2[1]) * 2]) + FROM_DC2[1])
    assert arrived(prepare(sets(batch_bytes([tricky])), SPEC, NOW)) == [stamped(tricky)]
