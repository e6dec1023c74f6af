"""Which lines of a piece are compared at all, and what is passed over by design."""

from __future__ import annotations

import asyncio
from typing import Any

import pyarrow as pa
import pytest
from msgspec.structs import replace

from runtime.audit.partition_logs import FetchedRecord
from runtime.audit.verify.pieces import VerificationPiece, VerifiedPiece, VerifyRequest
from runtime.audit.verify.provenance import ProvenanceFilter, ReplayedRecords
from runtime.audit.verify.task import PieceComparison, RunOffsetTranslator, SourceTransform
from runtime.contract.records.offset_map import Run, encode_runs
from runtime.contract.records.provenance import HEADER, ClusterTopic, FlowProducer, Origin, encode
from runtime.contract.spec import naming
from runtime.contract.spec.jobspec import ClusterSpec, FlowSpec, SelectionSpec, TableRule, TemplateRule
from runtime.contract.spec.transform import FormatSpec, TransformSpec

OWN, OTHER, REPLAYER, ASIDE, NOBODY = 1, 2, 3, 4, -1
PRODUCERS = {
    OWN: FlowProducer("one", "dc1", "id-1", TemplateRule(text="{topic}")),
    OTHER: FlowProducer("other", "dc3", "id-3", TemplateRule(text="{topic}")),
    REPLAYER: FlowProducer("one", "dc1", "id-1", TableRule(names={"t": "t"}), only="t"),
    ASIDE: FlowProducer("one", "dc1", "id-1", TableRule(names={"t": "aside"}), only="aside"),
}
RUNS = (Run(0, 0, 2), Run(5, 4, 2))  # nothing of the source offsets 2, 3, 4; others at 2 and 3


def pair(
    *, shared: bool = False, gaps: tuple[tuple[int, int, str], ...] = (), **more: Any
) -> PieceComparison:
    flow = FlowSpec(
        name="one", source="dc1", destination="dc2", topics=SelectionSpec(include=["t"]), shared=shared
    )
    asked = VerifyRequest(
        flow=flow, source=ClusterSpec(bootstrap="a:1"), destination=ClusterSpec(bootstrap="b:1")
    )
    piece = VerificationPiece(
        0, "t", 0, b"", "t", b"", 0, 7, 0, 8, 6, encode_runs(RUNS, 0, 0), gaps, False, **more
    )
    replayed = ReplayedRecords(piece, "one", "id-1", PRODUCERS)
    return PieceComparison(
        piece, ProvenanceFilter(flow, "t", ClusterTopic("id-2", "t"), {}), asked, PRODUCERS, replayed
    )


def found(offset: int, value: bytes, producer: int = OWN) -> FetchedRecord:
    return FetchedRecord(0, offset, 0, None, value, (), producer)


def compared(made: PieceComparison, here: list[FetchedRecord], there: list[FetchedRecord]) -> VerifiedPiece:
    made.add_source(here)
    made.add_destination(there)
    made.compare(made.replays(), {one.offset: one for one in here})
    made.comparer.end_source()
    made.comparer.end_destination()
    made.comparer.advance()
    return made.result("", passed=False)


COPIED = [found(at, b"%d" % at) for at in (0, 1, 5, 6)]
COPIES = [found(at, value) for at, value in ((0, b"0"), (1, b"1"), (4, b"5"), (5, b"6"))]


def with_(extra: FetchedRecord) -> list[FetchedRecord]:
    return sorted([*COPIES, extra], key=lambda one: one.offset)


def test_what_was_copied_is_equal() -> None:
    seen = compared(pair(), COPIED, COPIES)
    assert (seen.compared, seen.edits, seen.end) == (4, [], 7)


@pytest.mark.parametrize(
    ("changes", "extra", "differs"),
    [
        ({}, found(2, b"x", NOBODY), True),
        ({}, found(2, b"x", OWN), True),
        ({}, found(2, b"x", OTHER), False),
        ({"shared": True}, found(2, b"x", NOBODY), False),
        ({"shared": True}, found(2, b"x", OWN), True),
        ({}, found(7, b"x", NOBODY), True),
        ({}, found(7, b"x", OWN), False),  # newer than the map
        ({"gaps": ((2, 5, "orphaned"),)}, found(2, b"x", NOBODY), True),  # not home, though it was free to go
        ({"own": ((2, 3),)}, found(2, b"x", NOBODY), False),
        ({"own": ((2, 3),)}, found(3, b"x", NOBODY), True),
        ({"alone": False}, found(7, b"x", NOBODY), False),
        ({"alone": False}, found(3, b"x", NOBODY), True),
    ],
)
def test_what_others_wrote(changes: dict[str, Any], extra: FetchedRecord, differs: bool) -> None:
    seen = compared(pair(**changes), COPIED, with_(extra))
    wanted = (["extra"], 0) if differs else ([], 1)
    assert ([edit.what for edit in seen.edits], seen.others) == wanted


def test_a_record_in_a_gap_was_given_up_another_is_missing() -> None:
    left = [*COPIED[:2], found(3, b"3"), *COPIED[2:]]
    seen = compared(pair(gaps=((2, 5, "skipped"),)), left, COPIES)
    assert (seen.given_up, seen.edits) == (1, [])
    seen = compared(pair(), left, COPIES)
    assert [(edit.what, edit.source_offset, edit.expected) for edit in seen.edits] == [("missing", 3, None)]


class Answers:
    """Stands for Spark: offset 2 does not travel, and 3 can't be evaluated; the others get another value."""

    async def evaluate(self, rows: pa.RecordBatch) -> pa.Array:
        self.headers = rows.column("headers").to_pylist()
        known = {2: b"f", 3: None}
        return pa.array([known.get(at, b'k\n{"s":"X"}') for at in rows.column("offset").to_pylist()])


UPPER = TransformSpec(value=FormatSpec(format="text"), where="true", set={"value": "upper(value)"})


def test_a_transform_is_applied_to_the_source_before_it_is_compared() -> None:
    answers = Answers()
    headers = ((HEADER, b"1"), ("h", b"1"), ("h", None))
    left = [found(0, b"a")._replace(headers=headers), found(1, b"b")._replace(value=None), *ORPHANS]
    records, filtered = asyncio.run(SourceTransform(UPPER, answers).apply("t", left))
    assert [one.value for one in records] == [b"X", None, None, b"3", b"X"]
    assert filtered == {2}
    assert answers.headers[0] == [("h", None)]
    heartbeats = asyncio.run(SourceTransform(UPPER, answers).apply(naming.HEARTBEATS, left))
    assert heartbeats == (left, frozenset())


def test_a_filtered_record_is_expected_as_a_tombstone_where_the_transform_says_so() -> None:
    """One without a key is not at the destination, and a bad one that is quarantined neither."""
    transform = replace(UPPER, on_filtered="tombstone", on_bad_record="quarantine")
    hop = (HEADER, encode(Origin("dc0-id", "t", 0, 2, 1)))
    keyed = [one._replace(key=b"k", headers=(("name", b"Ann"), hop)) for one in ORPHANS]
    records, filtered = asyncio.run(SourceTransform(transform, Answers()).apply("t", keyed))
    assert (records[0].key, records[0].value, records[0].headers) == (b"k", None, (hop,))
    assert records[2].value == b"X"
    assert filtered == {3}
    assert asyncio.run(SourceTransform(transform, Answers()).apply("t", ORPHANS))[1] == {2, 3}


def test_a_record_that_the_transform_filters_is_not_at_the_destination() -> None:
    made = pair()
    made.add_source([*COPIED[:2], found(2, b"2"), *COPIED[2:]], {2})
    seen = compared(made, [], COPIES)
    assert (seen.compared, seen.edits, seen.filtered) == (4, [], 1)
    made = pair()
    made.add_source(COPIED, {5})
    seen = compared(made, [], COPIES)
    assert ([(edit.what, edit.destination_offset) for edit in seen.edits], seen.filtered) == (
        [("extra", 4)],
        0,
    )


def test_offsets_by_runs() -> None:
    way = RunOffsetTranslator([(0, 0, 2), (4, 5, 2)])
    assert [way.other(at) for at in (0, 1, 2, 3, 4, 5, 6)] == [0, 1, None, None, 5, 6, None]


# Source offsets 2, 3, 4 were orphaned; salvage replayed 2 and 3, and 4 stayed behind.
ORPHANED: dict[str, Any] = {"gaps": ((2, 5, "orphaned"),), "replayed": ((2, 4, 2),)}
ORPHANS = [found(2, b"2", NOBODY), found(3, b"3", NOBODY), found(4, b"4", NOBODY)]
LEFT = sorted([*COPIED, *ORPHANS], key=lambda one: one.offset)


def replay(
    offset: int, of: int, producer: int = REPLAYER, value: bytes = b"", cluster: str = "id-1"
) -> FetchedRecord:
    header = (HEADER, encode(Origin(cluster, "t", 0, of, 9)))
    return FetchedRecord(0, offset, 0, None, value or b"%d" % of, (header,), producer)


def test_replayed_records_are_compared_and_counted_on_their_own() -> None:
    seen = compared(pair(**ORPHANED), LEFT, [*COPIES, replay(6, 2), replay(7, 3)])
    assert (seen.compared, seen.replayed, seen.given_up, seen.others, seen.edits) == (4, {2: 2}, 1, 0, [])


def test_a_foreign_record_between_replayed_ones_is_found() -> None:
    foreign = found(3, b"x", NOBODY)
    there = sorted([*COPIES, replay(2, 2), foreign, replay(6, 3)], key=lambda one: one.offset)
    seen = compared(pair(**ORPHANED), LEFT, there)
    assert [(edit.what, edit.destination_offset) for edit in seen.edits] == [("extra", 3)]
    assert (seen.compared, seen.replayed) == (4, {2: 2})


@pytest.mark.parametrize(
    "forged",
    [
        replay(2, 2, NOBODY),  # the header alone: any client can write it
        replay(2, 2, OWN),  # an id of the flow that does not replay
        replay(2, 2, ASIDE),
        replay(2, 4),  # of a record that the ledger does not have as replayed
        replay(2, 2, cluster="id-9"),
        found(2, b"2", REPLAYER),
    ],
)
def test_what_only_looks_replayed_is_foreign(forged: FetchedRecord) -> None:
    seen = compared(pair(**ORPHANED), LEFT, with_(forged))
    assert [(edit.what, edit.destination_offset) for edit in seen.edits] == [("extra", 2)]
    assert seen.replayed == {}


def test_a_replayed_record_that_differs_or_is_there_twice_is_found() -> None:
    there = [*COPIES, replay(6, 2, value=b"other"), replay(7, 3), replay(8, 3)]
    seen = compared(pair(**ORPHANED), LEFT, there)
    found_ = [(edit.what, edit.source_offset, edit.destination_offset, edit.twin) for edit in seen.edits]
    assert found_ == [("changed", 2, 6, None), ("extra", None, 8, 3)]
    assert seen.replayed == {2: 2}


def test_a_replayed_record_whose_original_is_gone_is_counted() -> None:
    left = [one for one in LEFT if one.offset != 2]
    seen = compared(pair(**ORPHANED), left, [*COPIES, replay(6, 2), replay(7, 3)])
    assert (seen.replayed, seen.edits) == ({2: 2}, [])
