"""`repl verify` of a mirror: what is compared, what a difference is called, and what is remembered."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from runtime.audit.ledger import AuditFailure
from runtime.audit.verify.comparer import RecordComparer
from runtime.audit.verify.loaded import LoadedComparison
from runtime.audit.verify.pieces import (
    ComparedRecord,
    LoadedFile,
    MirrorRange,
    PlannedPartition,
    RecordContent,
    RecordDifference,
    VerifiedPiece,
    condensed,
)
from runtime.audit.verify.provenance import ProvenanceFilter, own_headers
from runtime.audit.verify.results import differences_of, results
from runtime.audit.verify.schemas import ComparableContents
from runtime.audit.verify.topics import MirrorComparison, MirrorPiece, SourceTransform
from runtime.audit.verify.verification import PIECES, SMALL, Verification, comparison_of, verify_small
from runtime.contract.records.consumer_record import ConsumerRecord
from runtime.contract.records.offset_map import Run, encode_runs
from runtime.contract.records.provenance import HEADER, ClusterTopic, FlowProducer, Origin, encode
from runtime.contract.results.records import Difference, UncomparableRange
from runtime.contract.spec import naming
from runtime.contract.spec.jobspec import ProvenanceMode
from runtime.contract.spec.rename import Table, Template
from runtime.contract.spec.transform import FormatSpec, TransformSpec
from runtime.files.source.known_files import KnownFile
from tests.fakes.verification import (
    FLOW,
    chunks,
    fetched,
    file_piece,
    piece,
    planned,
    reading_files,
    request,
    verified,
)

Told = list[tuple[str, int | None, int | None]]  # kind, source offset, destination offset


def told(differences: Iterable[Difference]) -> Told:
    return [(one.kind, one.source_offset, one.destination_offset) for one in differences]


@pytest.mark.parametrize(
    ("topics", "chosen"),
    [(None, ["eu.a", "eu.b", "us.a"]), ("eu.*", ["eu.a", "eu.b"]), ("us.a", ["us.a"])],
)
def test_the_topics_whose_whole_name_matches_are_compared(topics: str | None, chosen: list[str]) -> None:
    names = ["us.a", "eu.b", "eu.a"]
    assert sorted(request(topics=topics).chosen(names, "dc2", "copied", "topic")) == chosen


@pytest.mark.parametrize(
    ("topics", "names", "did", "what", "wanted"),
    [
        ("X", ["orders"], "copied", "topic", ("f copied no topic X", "it copied orders")),
        ("order", ["pay", "orders"], "wrote", "topic", ("f wrote no topic order", "it wrote orders, pay")),
        (
            "b",
            [f"a{at}" for at in range(20)],
            "read",
            "file",
            ("f read no file b", "it read a0, a1, a10, a11, a12, a13, a14, a15, a16, a17"),
        ),
    ],
)
def test_a_comparison_of_no_topic_names_those_that_there_are(
    topics: str, names: list[str], did: str, what: str, wanted: tuple[str, str]
) -> None:
    with pytest.raises(AuditFailure) as failure:
        request(topics=topics).chosen(names, "dc2", did, what)
    assert (failure.value.cluster, failure.value.why, failure.value.hint) == ("dc2", *wanted)


# What was done to a copy, and what the comparison calls it: one line of letters a side


def content(letter: str) -> RecordContent:
    """`a'` has the key of `a` and another value."""
    return RecordContent(0, letter[0].encode(), letter.encode(), ())


def compare(
    source: Sequence[str],
    destination: Iterable[tuple[int, str]],
    *,
    compacted: bool = False,
    at: Sequence[int | None] | None = None,
    foreign: Iterable[int] = (),
    limit: int = 100,
) -> tuple[VerifiedPiece, list[Difference]]:
    places = at if at is not None else range(len(source))
    here = [ComparedRecord(offset, places[offset], content(one)) for offset, one in enumerate(source)]
    there = [ComparedRecord(at, None if at in foreign else at, content(one)) for at, one in destination]
    result = VerifiedPiece.begin(piece())
    comparer = RecordComparer(
        result,
        in_order=not compacted,
        source_only=compacted,
        destination_only=compacted,
        limit=limit,
        window=8,
    )
    asyncio.run(comparer.run(chunks(here, 3), chunks(there, 2)))
    return result, differences_of(result.edits)


@pytest.mark.parametrize(
    ("destination", "expected"),
    [
        ("abcdefgh", []),
        ("abdefgh", [("missing", 2, None)]),
        ("abccdefgh", [("doubled", 2, 3)]),
        ("abcdefgha", [("doubled", 0, 8)]),
        ("abcXdefgh", [("foreign", None, 3)]),
        ("abXdefgh", [("changed", 2, 2)]),
        ("abdcefgh", [("swapped", 2, 3)]),
        ("agcdefbh", [("swapped", 1, 6), ("swapped", 6, 1)]),
        ("abbdefgh", [("missing", 2, None), ("doubled", 1, 2)]),
        ("abcdef", [("missing", 6, None), ("missing", 7, None)]),
        ("", [("missing", at, None) for at in range(8)]),
    ],
)
def test_differences_of_a_copy_in_order(destination: str, expected: Told) -> None:
    assert told(compare("abcdefgh", enumerate(destination))[1]) == expected


@pytest.mark.parametrize(
    ("source", "destination", "places", "expected"),
    [
        ("abcd", [(0, "a"), (1, "b"), (3, "d")], None, [("missing", 2, None)]),
        ("abc", [(0, "a"), (1, "c")], [0, None, 1], [("missing", 1, None)]),
        ("abc", [(0, "a"), (1, "b"), (2, "c")], [0, None, 2], [("moved", 1, 1)]),
        # A copy that lies elsewhere than the map says is told once.
        ("abcd", [(0, "a"), (5, "b"), (6, "c"), (7, "d")], None, [("moved", 1, 5)]),
    ],
)
def test_records_at_another_place_than_the_map_says(
    source: str, destination: list[tuple[int, str]], places: list[int | None] | None, expected: Told
) -> None:
    assert told(compare(source, destination, at=places)[1]) == expected


def test_a_comparison_is_equal_up_to_the_first_difference_and_stops_after_enough() -> None:
    seen, _ = compare("abcdefgh", enumerate("abdefgh"))
    assert ([edit.near for edit in seen.edits], seen.compared) == ([2], 7)
    seen, differences = compare("abcdefgh" * 20, [], limit=5)
    assert (seen.more, len(differences)) == (True, 5)


def test_of_a_compacted_topic_only_keys_that_both_hold_are_compared() -> None:
    seen, differences = compare("abcd", [(0, "a"), (2, "X"), (3, "d")], compacted=True)
    assert told(differences) == [("changed", 2, 2)]
    assert (seen.compared, seen.compacted) == (3, 1)
    _, differences = compare("abc", [*enumerate("abc"), (3, "Z")], compacted=True, foreign=[3])
    assert told(differences) == [("foreign", None, 3)]


def test_null_and_empty_differ() -> None:
    source = ComparedRecord(0, 0, RecordContent(1, None, b"", ()))
    destination = ComparedRecord(0, 0, RecordContent(2, b"", None, ()))
    (difference,) = differences_of([RecordDifference("changed", 0, source, destination)])
    assert difference.fields == ["key", "value", "timestamp"]
    assert difference.why == "key null → empty; value empty → null; timestamp 1 → 2"


@given(st.binary(max_size=80), st.binary(max_size=80))
def test_condensed_content_is_equal_only_where_the_content_is(one: bytes, other: bytes) -> None:
    assert (condensed(one) == condensed(other)) == (one == other)
    assert condensed(None) is None


@given(st.sets(st.integers(0, 99), max_size=40), st.data())
def test_whatever_is_taken_away_is_missing_and_nothing_else(numbers: set[int], data: st.DataObject) -> None:
    letters = [chr(1_000 + number) for number in numbers]
    gone = data.draw(st.sets(st.sampled_from(range(len(letters))), max_size=6)) if letters else set()
    left = [(at, letter) for at, letter in enumerate(letters) if at not in gone]
    assert told(compare(letters, left)[1]) == [("missing", at, None) for at in sorted(gone)]


# Which lines of a piece are compared at all, and what is passed over by design

OWN, OTHER, REPLAYER, ASIDE, CLIENT = 1, 2, 3, 4, -1
SAME_NAME = Template(text="{topic}")
PRODUCERS = {
    OWN: FlowProducer("f", "dc1", "id-1", SAME_NAME),
    OTHER: FlowProducer("other", "dc3", "id-3", SAME_NAME),
    REPLAYER: FlowProducer("f", "dc1", "id-1", Table(names={"t": "t"}), only="t"),
    ASIDE: FlowProducer("f", "dc1", "id-1", Table(names={"t": "aside"}), only="aside"),
}
# Nothing of the source offsets 2, 3, 4; others wrote at 2 and 3; from 6 on the map knows nothing.
PIECE = piece(0, 7, destination_high=8, owned_end=6, runs=encode_runs([Run(0, 0, 2), Run(5, 4, 2)], 0, 0))
COPIED = [fetched(at, b"%d" % at, OWN) for at in (0, 1, 5, 6)]
COPIES = [fetched(at, value, OWN) for at, value in ((0, b"0"), (1, b"1"), (4, b"5"), (5, b"6"))]


def compared(
    here: Sequence[ConsumerRecord],
    *there: ConsumerRecord,
    filtered: frozenset[int] = frozenset(),
    shared: bool = False,
    **changes: Any,
) -> VerifiedPiece:
    """Compares records of the source with the copies and `there`, at the destination."""
    flow, made = replace(FLOW, shared=shared), replace(PIECE, **changes)
    kept = ProvenanceFilter(flow, "t", ClusterTopic("id-2", "t"), {})
    work = MirrorPiece(made, kept, PRODUCERS, "id-1", ComparableContents())

    async def compare_all() -> None:
        copies, replays = work.copies(sorted([*COPIES, *there], key=lambda one: one.offset))
        await work.compare(replays, {one.offset: one for one in here})
        await work.run(chunks(await work.originals(here, filtered)), chunks(copies))

    asyncio.run(compare_all())
    return work.result


def offset_of(record: ComparedRecord | None) -> int | None:
    return record.offset if record is not None else None


def edits(seen: VerifiedPiece) -> Told:
    return [(edit.what, offset_of(edit.source), offset_of(edit.destination)) for edit in seen.edits]


@pytest.mark.parametrize(
    ("changes", "offset", "producer", "differs"),
    [
        ({}, 2, CLIENT, True),
        ({}, 2, OWN, True),
        ({}, 2, OTHER, False),
        ({"shared": True}, 2, CLIENT, False),
        ({"shared": True}, 2, OWN, True),
        ({}, 7, CLIENT, True),
        ({}, 7, OWN, False),  # newer than the map
        ({"gaps": ((2, 5, "orphaned"),)}, 2, CLIENT, True),  # not copied back, though nothing prevents it
        ({"own": ((2, 3),)}, 2, CLIENT, False),
        ({"own": ((2, 3),)}, 3, CLIENT, True),
        ({"alone": False}, 7, CLIENT, False),
        ({"alone": False}, 3, CLIENT, True),
    ],
)
def test_records_that_others_wrote(
    changes: dict[str, Any], offset: int, producer: int, differs: bool
) -> None:
    seen = compared(COPIED, fetched(offset, b"x", producer), **changes)
    assert (edits(seen), seen.others) == (([("extra", None, offset)], 0) if differs else ([], 1))
    assert (seen.compared, seen.end) == (4, 7)


def test_a_record_in_a_gap_was_given_up_another_is_missing() -> None:
    left = [*COPIED[:2], fetched(3, b"3", OWN), *COPIED[2:]]
    seen = compared(left, gaps=((2, 5, "skipped"),))
    assert (seen.given_up, seen.edits) == (1, [])
    (edit,) = compared(left).edits
    assert (edit.what, edit.source and edit.source[:2]) == ("missing", (3, None))


def test_a_record_that_the_transform_filters_is_not_at_the_destination() -> None:
    seen = compared([*COPIED[:2], fetched(2, b"2", OWN), *COPIED[2:]], filtered=frozenset({2}))
    assert (seen.compared, seen.edits, seen.filtered) == (4, [], 1)
    seen = compared(COPIED, filtered=frozenset({5}))
    assert (edits(seen), seen.filtered) == ([("extra", None, 4)], 0)


# Source offsets 2, 3, 4 were orphaned; salvage replayed 2 and 3, and 4 stayed behind.
REPLAYED: dict[str, Any] = {"gaps": ((2, 5, "orphaned"),), "replayed": ((2, 4, 2),)}
ORPHANS = [fetched(at, b"%d" % at) for at in (2, 3, 4)]
LEFT = [*COPIED[:2], *ORPHANS, *COPIED[2:]]


def replay(
    offset: int, of: int, producer: int = REPLAYER, value: bytes = b"", cluster: str = "id-1"
) -> ConsumerRecord:
    return fetched(offset, value or b"%d" % of, producer, origins=[Origin(cluster, "t", 0, of, 9)])


@pytest.mark.parametrize(
    ("source", "there", "expected", "replayed"),
    [
        (LEFT, [replay(6, 2), replay(7, 3)], [], {2: 2}),
        (LEFT, [replay(2, 2), fetched(3, b"x"), replay(6, 3)], [("extra", None, 3)], {2: 2}),
        (
            LEFT,
            [replay(6, 2, value=b"other"), replay(7, 3), replay(8, 3)],
            [("changed", 2, 6), ("extra", None, 8)],
            {2: 2},
        ),
        ([one for one in LEFT if one.offset != 2], [replay(6, 2), replay(7, 3)], [], {2: 2}),
        *(
            (LEFT, [forged], [("extra", None, 2)], {})
            for forged in (
                replay(2, 2, CLIENT),  # the header alone: any client can write it
                replay(2, 2, OWN),  # an id of the flow that does not replay
                replay(2, 2, ASIDE),
                replay(2, 4),  # of a record that the ledger does not have as replayed
                replay(2, 2, cluster="id-9"),
                fetched(2, b"2", REPLAYER),
            )
        ),
    ],
)
def test_replayed_records_are_compared_and_counted_on_their_own(
    source: list[ConsumerRecord], there: list[ConsumerRecord], expected: Told, replayed: dict[int, int]
) -> None:
    seen = compared(source, *there, **REPLAYED)
    assert (edits(seen), seen.replayed) == (expected, replayed)
    assert (seen.given_up, seen.others) == (1, 0)
    assert seen.compared == 4 or expected[:1] == [("changed", 2, 6)]
    assert {edit.twin for edit in seen.edits if offset_of(edit.destination) == 8} <= {3}


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
    left = [fetched(0, b"a", headers=headers), fetched(1), *ORPHANS]
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
    keyed = [replace(one, key=b"k", headers=(("name", b"Ann"), hop)) for one in ORPHANS]
    records, filtered = asyncio.run(SourceTransform(transform, Answers()).apply("t", keyed))
    assert (records[0].key, records[0].value, records[0].headers) == (b"k", None, (hop,))
    assert records[2].value == b"X"
    assert filtered == {3}
    assert asyncio.run(SourceTransform(transform, Answers()).apply("t", ORPHANS))[1] == {2, 3}


def came_from(cluster: str) -> tuple[tuple[str, bytes | None], ...]:
    return (("n", b"1"), (HEADER, encode(Origin(cluster, "t", 0, 5, 0))), (HEADER, b"another client's"))


@pytest.mark.parametrize(
    ("mode", "native_only", "record", "dropped"),
    [
        ("off", False, fetched(producer=7), False),
        ("batch", False, fetched(), False),
        ("batch", False, fetched(producer=7), True),
        ("batch", False, fetched(producer=8), False),
        ("batch", True, fetched(producer=8), True),
        ("headers", False, fetched(producer=7), False),
        ("headers", False, fetched(headers=came_from("id-2")), True),
        ("headers", False, fetched(headers=came_from("id-3")), False),
        ("headers", True, fetched(headers=came_from("id-3")), True),
    ],
)
def test_provenance_drops(
    mode: ProvenanceMode, native_only: bool, record: ConsumerRecord, dropped: bool
) -> None:
    producers = {7: FlowProducer("back", "dc2", "id-2", SAME_NAME), 8: PRODUCERS[OTHER]}
    flow = replace(FLOW, provenance=mode, native_only=native_only)
    assert ProvenanceFilter(flow, "t", ClusterTopic("id-2", "t"), producers).drops(record) == dropped


def test_only_our_own_header_is_left_out() -> None:
    record = fetched(headers=came_from("id-3"))
    assert own_headers(record) == (("n", b"1"), (HEADER, b"another client's"))


# How pieces come together

TWO = planned(piece(0, 100), piece(100, 200))
LOST = RecordDifference("missing", 150, ComparedRecord(150, 150, RecordContent(0, b"k", b"v", ())))
GONE_AT_120 = verified(100, 120, unread="gone")


@pytest.mark.parametrize(
    ("pieces", "equal_up_to", "unread", "differences", "not_comparable"),
    [
        ([verified(100, 200), verified(0, 100)], 200, "", [], []),
        ([verified(0, 100), verified(100, 200, edits=[LOST])], 150, "", ["missing"], []),
        ([verified(0, 100), GONE_AT_120], 120, "from offset 120 on: gone", [], []),
        ([verified(0, 100), replace(GONE_AT_120, passed=True)], 200, "", [], [(120, 200)]),  # retention
        ([verified(0, 0, unread="gone")], 0, "gone", [], []),
    ],
)
def test_pieces_come_together(
    pieces: list[VerifiedPiece], equal_up_to: int, unread: str, differences: list[str], not_comparable: Any
) -> None:
    (one,) = results([TWO], pieces)
    assert (one.low, one.end) == (0, 200)
    assert one.unread == unread
    assert one.equal_up_to == equal_up_to or not_comparable
    assert [difference.kind for difference in one.differences] == differences
    assert [(left.low, left.end) for left in one.not_comparable] == not_comparable
    assert one.compared == sum(part.compared for part in pieces)


@pytest.mark.parametrize(
    ("replayed", "more", "why"),
    [
        ({50: 3}, False, []),
        ({50: 2}, False, ["of 3 records that salvage replayed from source offsets 50 to 59, 2 are there"]),
        ({}, True, []),  # the comparison stopped before it saw all
    ],
)
def test_replayed_records_that_are_not_there_are_missing(
    replayed: dict[int, int], more: bool, why: list[str]
) -> None:
    pieces = [verified(0, 100), verified(100, 200, more=more, replayed=replayed)]
    (one,) = results([replace(TWO, replayed=[(50, 60, 3)])], pieces)
    assert (one.replayed, [difference.why for difference in one.differences]) == (sum(replayed.values()), why)


@pytest.mark.parametrize(
    ("file", "why"), [("", "not in the source's order"), ("a.log", "not in the file's order")]
)
def test_a_swapped_record_names_the_order_that_it_is_not_in(file: str, why: str) -> None:
    value = RecordContent(0, None, b"v", ())
    lost = RecordDifference("missing", 10, ComparedRecord(10, None, value), file=file)
    extra = RecordDifference("extra", 20, None, ComparedRecord(5, None, value), file="there")
    (one,) = differences_of([lost, extra])
    assert (one.kind, one.destination_offset, one.why, one.file) == ("swapped", 5, why, "there")


def test_small_stretches_share_a_task() -> None:
    pieces = [*(piece(at, at + 1_000) for at in range(150)), piece(0, 5_000)]
    assert [len(group) for group in MirrorComparison(request()).groups(pieces)] == [1, 100, 50]


# What a comparison that was cut remembers: the plan it had, and what was read to its end

READ = KnownFile("a.log", 9, b"", 0)
THREE = [piece(0), piece(10, 20), piece(20, 30)]
PLANNED = planned(*THREE, not_comparable=[UncomparableRange(low=0, end=5, why="")])


def read(low: int, why: str = "", *, passed: bool = False) -> VerifiedPiece:
    return verified(low, low + 10, edits=[LOST], unread=why, passed=passed)


class Planned(MirrorComparison):
    """A comparison with the plan of a test; without one, the clusters are asked."""

    partitions: tuple[PlannedPartition, ...] = ()

    async def plan(self) -> list[PlannedPartition]:
        return list(self.partitions) or await super().plan()


@pytest.fixture
def begun(tmp_path: Path) -> Callable[..., Verification]:
    """Begins or resumes a comparison in one file. The plan is that of a test."""

    comparison = Planned(request())

    def verification(*partitions: PlannedPartition, resume: bool = True) -> Verification:
        comparison.partitions = partitions or comparison.partitions
        resume = resume and not partitions
        return asyncio.run(
            Verification.begin(request(), tmp_path / "verify.jsonl", resume=resume, comparison=comparison)
        )

    return verification


Begun = Callable[..., Verification]


def test_pieces_that_were_read_are_not_read_again(begun: Begun) -> None:
    first = begun(PLANNED)
    first.add([read(0)])
    first.add([read(10, "dc1 does not answer"), read(20, "retention took it", passed=True)])
    resumed = begun()
    assert (resumed.at_ms, resumed.planned) == (first.at_ms, [PLANNED])
    assert resumed.results == [read(0), read(20, "retention took it", passed=True)]
    assert resumed.left == [[THREE[1]]]


def test_the_files_of_a_partition_are_read_again_together(tmp_path: Path) -> None:
    """Lines of a file that was not read may be taken for those of another one."""
    files = [file_piece(READ, 10, 10, number=number) for number in range(2)]
    asked, path = request(reading_files(tmp_path)), tmp_path / "verify.jsonl"

    class PlannedFiles(LoadedComparison):
        async def plan(self) -> list[PlannedPartition]:
            return [planned(*files)]

    def begun(*, resume: bool = True) -> Verification:
        assert asked.flow.lines is not None
        comparison = PlannedFiles(asked, asked.flow.lines)
        return asyncio.run(Verification.begin(asked, path, resume=resume, comparison=comparison))

    def done(number: int, why: str = "") -> VerifiedPiece:
        return verified(0, 10, number=number, unread=why)

    first = begun(resume=False)
    first.add([done(0), done(1, "the file was renamed meanwhile")])
    assert begun().left == [files]
    first.add([done(0), done(1)])
    assert begun().left == []


def test_a_line_that_was_cut_costs_nothing_but_its_own(begun: Begun, tmp_path: Path) -> None:
    first = begun(PLANNED)
    first.add([read(0)])
    path = tmp_path / "verify.jsonl"
    path.write_bytes(path.read_bytes()[:-5])
    for low in (10, 20):
        first.add([read(low)])
    assert begun().results == [read(20)]


def test_the_file_begins_anew_and_is_gone_at_the_end(begun: Begun, tmp_path: Path) -> None:
    begun(PLANNED).add([read(0)])
    again = begun(PLANNED)
    assert begun().results == []
    path = tmp_path / "verify.jsonl"
    assert path.stat().st_mode & 0o777 == 0o600
    again.close()
    assert not path.exists()
    path.write_text("[0,7,[]]\n")  # of another release
    assert begun().planned == [PLANNED]


# Which comparisons need no Spark


@pytest.mark.parametrize(
    ("pieces", "small"),
    [
        ([], True),
        ([piece(0, SMALL)], True),
        ([piece(0, SMALL), piece(0, 1)], False),
        ([piece(0, 1, destination_high=SMALL + 1)], False),  # a destination that others write to
        ([piece(0, SMALL, destination_high=0), piece(0, 0, destination_high=1)], False),
        ([piece(0, 1)] * PIECES, True),
        ([piece(0, 0)] * (PIECES + 1), False),
        ([file_piece(READ, 9, SMALL, records=SMALL // 2)] * 2, True),  # of one partition
        ([file_piece(READ, 9, SMALL, records=SMALL)] * 2, False),
        ([file_piece(READ, 9, SMALL, partition=at) for at in range(2)], False),
    ],
)
def test_a_comparison_is_small_by_the_records_of_both_sides(
    pieces: Sequence[MirrorRange | LoadedFile], small: bool
) -> None:
    of_files = any(isinstance(one, LoadedFile) for one in pieces)
    asked = request(reading_files(Path("/in"))) if of_files else request()
    plan = [planned(*pieces)] if pieces else []
    assert Verification(asked, None, comparison_of(asked), (0, plan, [])).is_small is small


def test_a_transform_and_a_rate_need_spark() -> None:
    plain = request()
    transformed = replace(FLOW, transform=TransformSpec(where="key IS NOT NULL"))
    assert not plain.needs_spark
    assert replace(plain, rate=1_000_000).needs_spark
    assert replace(plain, flow=transformed).needs_spark


def silent(line: str) -> None:
    pytest.fail(f"an unexpected line: {line}")


def test_spark_continues_from_the_plan_of_a_large_comparison(begun: Begun, tmp_path: Path) -> None:
    large = planned(piece(0, SMALL + 1))
    begun(large)
    assert asyncio.run(verify_small(request(), tmp_path / "verify.jsonl", silent, resume=True)) is None
    assert (begun().planned, begun().results) == ([large], [])


def test_only_what_is_left_counts_and_the_file_goes_at_the_end(begun: Begun, tmp_path: Path) -> None:
    large, empty = piece(0, SMALL + 1), piece(SMALL + 1, SMALL + 1)
    first = begun(planned(large, empty))
    first.add([verified(one.low, one.high) for one in (large, empty)])
    found = asyncio.run(verify_small(request(), tmp_path / "verify.jsonl", silent, resume=True))
    assert found is not None
    (partition,) = found.partitions
    assert (found.at_ms, partition.compared) == (first.at_ms, SMALL + 1)
    assert partition.equal_up_to == SMALL + 1
    assert not (tmp_path / "verify.jsonl").exists()


def test_a_resumed_comparison_says_where_it_continues(begun: Begun, tmp_path: Path) -> None:
    lines, (first, second) = list[str](), (piece(0, SMALL), piece(SMALL, 2 * SMALL))
    begun(planned(first, second)).add([verified(0, SMALL)])
    asyncio.run(verify_small(request(within_s=0.2), tmp_path / "verify.jsonl", lines.append, resume=True))
    assert lines == ["goes on behind 1 of 2 stretches"]


def test_clusters_that_do_not_answer_leave_the_file_as_it_is(begun: Begun, tmp_path: Path) -> None:
    file = tmp_path / "verify.jsonl"
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))  # bound, and it does not listen: connections are refused
        asked = request(port=closed.getsockname()[1], within_s=0.2)
        with pytest.raises(AuditFailure):
            asyncio.run(verify_small(asked, file, silent, resume=False))  # it is planned
        begun(planned(piece(0, 3)))
        found = asyncio.run(verify_small(asked, file, silent, resume=True))
    assert found is not None
    assert found.unread
    assert file.exists()
