"""`repl verify` of a flow from files: the lines of its files, and the records that its offset maps name."""

from __future__ import annotations

import asyncio
import dataclasses
import time
from array import array
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from msgspec.structs import replace

from runtime.audit.ledger import AuditFailure
from runtime.audit.partition_logs import LogBounds, PartitionLogs
from runtime.audit.verify.file_lines import NO_TIME, FileLines, UnreadableFile, body_of
from runtime.audit.verify.loaded import LoadedComparison, LoadedPartition, loaded_file, places_of
from runtime.audit.verify.pieces import LoadedFile, PlannedPartition, VerifiedPiece
from runtime.audit.verify.results import differences_of
from runtime.audit.verify.verification import comparison_of
from runtime.batch import Record
from runtime.batch.layout import LOG_APPEND_TIME, TRANSACTIONAL
from runtime.contract.records.consumer_record import ConsumerRecord
from runtime.contract.records.ledger import PartitionKey, Progress
from runtime.contract.records.offset_map import OffsetMap, Run, encode_runs
from runtime.contract.spec.files import LinesSpec, SourceFormat
from runtime.contract.spec.naming import TopicPartition
from runtime.files.source.folder import open_file
from runtime.files.source.known_files import KnownFile, Reconciliation
from runtime.files.source.lines import fingerprint
from runtime.files.source.parquet_rows import RowReader
from runtime.kafka.protocol.offsets import ListOffsetsRequest
from runtime.slot.budget import TokenBucket
from tests.fakes.one_broker import AT
from tests.fakes.one_broker import ID as AT_ID
from tests.fakes.partition_logs import PartitionLog
from tests.fakes.partition_logs import PartitionLogs as Brokers
from tests.fakes.progress import progress
from tests.fakes.verification import file_piece, reading_files, request
from tests.runtime.batch.forge import batch_bytes, control_batch

NOON = 1_700_049_600_000


def lines_in(folder: Path, form: SourceFormat = "text") -> LinesSpec:
    lines = reading_files(folder, form).lines
    assert lines is not None
    return lines


def read_file(folder: Path, name: str, position: int, form: SourceFormat = "text") -> KnownFile:
    with open_file(folder, name) as file:
        mark = RowReader(file).fingerprint(position) if form == "parquet" else fingerprint(file, position)
    assert mark is not None
    return KnownFile(name, position, mark, 0)


def body(value: bytes | None, **parts: Any) -> bytes:
    record = ConsumerRecord("inbox", 0, 0, 0, None, value, ())
    return body_of(replace(record, **parts))


@pytest.mark.parametrize(
    ("form", "begin", "wanted"),
    [
        ("text", 0, [(b"one", 0), (b"", 4), (b"two", 5), (b" ", 10)]),
        ("text", 5, [(b"two", 5), (b" ", 10)]),
        ("json", 0, [(b"one", 0), (b"two", 5)]),
    ],
)
def test_lines_up_to_the_position_are_those_that_the_flow_read(
    tmp_path: Path, form: SourceFormat, begin: int, wanted: list[tuple[bytes, int]]
) -> None:
    (tmp_path / "a.log").write_bytes(b"one\n\ntwo\r\n \nnot read yet\n")
    lines = FileLines(lines_in(tmp_path, form), read_file(tmp_path, "a.log", 12), begin)
    taken = []
    while some := lines.take(12, 1):
        taken += some
        lines.close()  # it goes on where it was closed
    assert [(line.body, line.position) for line in taken] == [(body(value), at) for value, at in wanted]
    assert (lines.position, lines.take(12, 9)) == (12, [])
    lines.close()


@pytest.mark.parametrize("text", [b"one\ntw", b"One\ntwo\n", b"one\ntwo two\n"])
def test_a_file_with_other_bytes_before_the_position_is_not_read(tmp_path: Path, text: bytes) -> None:
    (tmp_path / "a.log").write_bytes(b"one\ntwo\n")
    read = read_file(tmp_path, "a.log", 8)
    (tmp_path / "a.log").write_bytes(text)
    with pytest.raises(UnreadableFile, match="truncated or overwritten"):
        FileLines(lines_in(tmp_path), read, 0).take(8, 1)
    (tmp_path / "a.log").unlink()
    with pytest.raises(UnreadableFile, match="renamed meanwhile"):
        FileLines(lines_in(tmp_path), read, 0).take(8, 1)


RECORDS = [Record(at, NOON + at, b"k", b"v%d" % at, (("h", None), ("i", b"1"))) for at in range(5)]


def write_rows(path: Path) -> None:
    """Rows with the columns of records, in row groups of two."""
    header = pa.struct([("key", pa.string()), ("value", pa.binary())])
    headers = [[{"key": name, "value": text} for name, text in one.headers] for one in RECORDS]
    table = pa.table(
        {
            "key": pa.array([one.key for one in RECORDS], pa.binary()),
            "value": pa.array([one.value for one in RECORDS], pa.binary()),
            "headers": pa.array(headers, pa.list_(header)),
            "timestamp": pa.array([one.timestamp for one in RECORDS], pa.timestamp("ms", "UTC")),
        }
    )
    pq.write_table(table, path, row_group_size=2)


@pytest.mark.parametrize("begin", [0, 1, 2])
def test_rows_with_the_columns_of_records_have_their_timestamps(tmp_path: Path, begin: int) -> None:
    write_rows(tmp_path / "a.parquet")
    read = read_file(tmp_path, "a.parquet", 4, "parquet")
    lines = FileLines(lines_in(tmp_path, "parquet"), read, begin)
    assert lines.take(4, 9) == [
        (at, NOON + at, body(b"v%d" % at, key=b"k", headers=RECORDS[at].headers)) for at in range(begin, 4)
    ]
    lines.close()


def test_rows_without_timestamps_have_the_time_of_reading(tmp_path: Path) -> None:
    pq.write_table(pa.table({"id": [1, 2]}), tmp_path / "a.parquet")
    read = read_file(tmp_path, "a.parquet", 2, "parquet")
    lines = FileLines(lines_in(tmp_path, "parquet"), read, 0)
    assert lines.take(2, 9) == [(0, NO_TIME, body(b'{"id":1}')), (1, NO_TIME, body(b'{"id":2}'))]
    lines.close()


ID = b"\x01" * 16
THREE = Run(0, 5, 3), Run(3, 9, 2), Run(60, 20, 2)  # two runs of one chunk, for a record of others, and one
LEFT = Reconciliation(
    moved=[(KnownFile("old.log", 90, b"", 1), "new.log")],
    replaced=[KnownFile("cut.log", 90, b"", 2)],
    vanished=[KnownFile("gone.log", 90, b"", 3)],
)


def planned(
    name: str,
    read: Progress | None = None,
    *,
    known: bytes = ID,
    there: bool = True,
    compacted: bool = False,
    start: int = 5,
    end: int = 70,
    form: SourceFormat = "text",
) -> PlannedPartition:
    at, ids = TopicPartition("inbox", 1), {"inbox": ID} if there else {}
    made = read or progress(0, 0, *THREE, end=90)
    made = replace(made, destination_topic="inbox", destination_topic_id=known)
    logs = PartitionLogs(ids, {at: LogBounds(start, end)}, frozenset(["inbox"] if compacted else []))
    offsets, asked = OffsetMap([made.open_span()]), request(reading_files(Path("/in"), form))
    return loaded_file(asked, 0, PartitionKey("f", name, 1), made, offsets, LEFT, logs, 60)


@pytest.mark.parametrize(
    ("given", "unread", "left_out"),
    [
        ({"name": "cut.log"}, "truncated or overwritten", ""),
        ({"name": "gone.log"}, "", "not there any more"),
        ({"name": "a.log", "there": False}, "there is no topic inbox at dc1", ""),
        ({"name": "a.log", "known": b"\x02" * 16}, "it was recreated", ""),
        ({"name": "a.log", "compacted": True}, "", "is compacted"),
    ],
)
def test_why_a_file_can_not_be_compared(given: dict[str, Any], unread: str, left_out: str) -> None:
    found = planned(**given)
    assert not found.pieces
    assert unread in found.unread
    assert bool(found.unread) == bool(unread)
    assert [left_out in one.why for one in found.not_comparable] == ([True] if left_out else [])


@pytest.mark.parametrize("chosen", [{"sample": 50.0}, {"low": 1}, {"high": 9}, {"last": 5}])
def test_files_are_compared_whole(tmp_path: Path, chosen: dict[str, Any]) -> None:
    """It is refused before any cluster is opened: offsets are those of a topic."""
    asked = request(reading_files(tmp_path), **chosen)
    with pytest.raises(AuditFailure, match="--range and --sample choose offsets of a topic") as failure:
        asyncio.run(LoadedComparison(asked, lines_in(tmp_path)).plan())
    assert failure.value.cluster == "inbox"


def test_a_file_that_was_renamed_is_read_under_its_new_name_by_the_task_of_its_partition() -> None:
    (renamed,) = planned("old.log").pieces
    assert isinstance(renamed, LoadedFile)
    assert (renamed.topic, renamed.read.name, renamed.high) == ("old.log", "new.log", 90)
    assert (renamed.destination_low, renamed.destination_high) == (5, 60)
    both = [*planned("a.log").pieces, *planned("b.log").pieces]
    comparison = comparison_of(request(reading_files(Path("/in"))))
    assert [len(group) for group in comparison.groups(both)] == [2]


def test_records_behind_an_open_transaction_of_others_are_awaited() -> None:
    """The last stable offset is no end of the log: lines behind it are not missing."""
    (made,) = planned("a.log", end=12).pieces
    assert isinstance(made, LoadedFile)
    assert made.destination_high == 60


@pytest.mark.parametrize(
    ("start", "low", "why", "form"),
    [
        (5, 0, "", "text"),
        (7, 0, "", "text"),  # inside the first run: its task notes how many lines are gone
        (10, 3, "retention passed at dc1", "parquet"),
        (10, 0, "", "text"),  # the first chunk is read from its beginning, where a line begins
        (11, 60, "retention passed at dc1", "text"),
        (22, 90, "retention passed at dc1", "text"),
    ],
)
def test_lines_whose_records_retention_deleted_are_not_read(
    start: int, low: int, why: str, form: SourceFormat
) -> None:
    found = planned("a.log", start=start, form=form)
    assert [(one.low, one.high) for one in found.pieces] == ([(low, 90)] if low < 90 else [])
    assert [(gone.low, gone.end, gone.why) for gone in found.not_comparable] == (
        [(0, low, why)] if why else []
    )


def test_lines_from_before_the_map_are_not_compared() -> None:
    """The topic was made again, and the file was read on."""
    (gone,) = planned("a.log", progress(40, 0, Run(40, 5, 3), end=90)).not_comparable
    assert (gone.low, gone.end, gone.why) == (0, 40, "below the offset map, which begins at 40")


OWN, OTHER, GONE = 7, 8, 9  # producer ids; of the last one the log has no batches
Transaction = tuple[int, str, list[str]]  # the producer, the file that the map has, if any, and the lines


def log_of(*transactions: Transaction, begin: int = 0, more: int = 0) -> PartitionLog:
    """A log that begins at an offset: each transaction is a batch of lines and a marker."""
    batches, high, sequence = list[bytes](), begin, 0
    for producer, _, lines in transactions:
        some = [Record(high + at, NOON, None, line.encode(), ()) for at, line in enumerate(lines)]
        marked = batch_bytes(some, producer=(producer, 0, sequence), more=TRANSACTIONAL | more)
        high, sequence = high + len(lines), sequence + len(lines)
        if producer != GONE:
            batches += marked, control_batch(high, producer, 1)
        high += 1
    return PartitionLog(batches, start=begin, end=high)


def runs_of(name: str, lines: Sequence[str], begin: int, transactions: Sequence[Transaction]) -> list[Run]:
    """The map of a file, by what its transactions were meant to hold."""
    runs, number, offset = list[Run](), 0, begin
    for _, of, held in transactions:
        if of == name:
            position = sum(len(line) + 1 for line in lines[:number])
            runs.append(Run(position, offset, len(held)))
            number += len(held)
        offset += len(held) + 1
    return runs


def topic_of(*transactions: Transaction, begin: int = 0) -> Brokers:
    return Brokers({AT: log_of(*transactions, begin=begin)}, {AT.topic: AT_ID})


def loaded(
    folder: Path,
    files: dict[str, list[str]],
    *transactions: Transaction,
    topic: Brokers | None = None,
    begin: int = 0,
    low: int | None = None,
    alone: bool = True,
    removed: str = "",
    written: Sequence[Transaction] = (),
) -> dict[str, VerifiedPiece]:
    """Compares files with a topic that was planned to begin at `low`. `removed` is gone meanwhile.

    The ledger has the map of `transactions`. The topic holds them, or `written` in their place.
    """
    topic = topic or topic_of(*(written or transactions), begin=begin)
    pieces = []
    for number, (name, lines) in enumerate(files.items()):
        text = "".join(f"{one}\n" for one in lines)
        (folder / name).write_text(text)
        read = read_file(folder, name, len(text))
        log = topic.logs[AT]
        start = log.start if low is None else low
        runs = encode_runs(runs_of(name, lines, begin, transactions), 0, 0)
        of = {"number": number, "alone": alone, "records": len(lines), "destination_low": start}
        pieces.append(file_piece(read, len(text), log.next_offset, runs=runs, **of))
    if removed:
        (folder / removed).unlink()
    return dict(zip(files, compared(folder, pieces, topic), strict=True))


def compared(
    folder: Path, pieces: Sequence[LoadedFile], topic: Brokers, form: SourceFormat = "text"
) -> list[VerifiedPiece]:
    asked, bucket = request(reading_files(folder, form)), TokenBucket(None, time.monotonic)
    assert asked.flow.lines is not None
    work = LoadedPartition(asked, asked.flow.lines, pieces, topic, bucket)  # type: ignore[arg-type]
    return asyncio.run(work.compare())


def kinds(one: VerifiedPiece) -> list[tuple[str, int | None]]:
    return [(edit.what, edit.destination.offset if edit.destination else None) for edit in one.edits]


def own(name: str, *lines: str) -> Transaction:
    return OWN, name, list(lines)


@pytest.mark.parametrize(
    ("transactions", "doubled", "others"),
    [
        ([own("a", "one"), own("a", "two"), own("a", "three")], [], 0),
        ([own("a", "one"), own("a", "two"), own("", "two"), own("a", "three")], [("extra", 4)], 0),
        ([own("a", "one"), own("", "two"), own("a", "two"), own("a", "three")], [("extra", 2)], 0),
        # another producer's
        ([own("a", "one"), (OTHER, "", ["two"]), own("a", "two", "three")], [], 1),
        # of a file that is forgotten: before, behind, or before the line before its own
        ([own("", "two"), own("a", "one", "two"), own("a", "three")], [], 1),
        ([own("a", "one", "two"), own("a", "three"), own("", "two")], [], 1),
        ([own("a", "one"), own("", "three"), own("a", "two"), own("a", "three")], [], 1),
    ],
)
def test_only_lines_that_were_repeated_between_those_of_a_file_are_doubled(
    tmp_path: Path, transactions: list[Transaction], doubled: list[tuple[str, int]], others: int
) -> None:
    one = loaded(tmp_path, {"a": ["one", "two", "three"]}, *transactions)["a"]
    assert (one.compared, one.unread, kinds(one), one.others) == (3, "", doubled, others)
    assert one.end == len("one\ntwo\nthree\n")


def test_a_later_place_is_found_where_the_first_one_does_not_fit(tmp_path: Path) -> None:
    """The file begins with a line that is repeated, and its second occurrence was written twice."""
    lines = ["same", "one", "same", "two"]
    transactions = [own("a", "same"), own("a", "one"), own("a", "same"), own("", "same"), own("a", "two")]
    one = loaded(tmp_path, {"a": lines}, *transactions)["a"]
    assert [(edit.what, edit.twin) for edit in one.edits] == [("extra", len("same\none\n"))]


def test_without_all_files_of_the_partition_nothing_is_doubled(tmp_path: Path) -> None:
    files = {"a": ["one", "two", "three"], "b": ["two"]}
    transactions = [own("a", "one"), own("", "two"), own("b", "two"), own("a", "two", "three")]
    found = loaded(tmp_path, files, *transactions, removed="b")
    assert (kinds(found["a"]), found["a"].others) == ([], 1)
    assert "run it again" in found["b"].unread
    assert kinds(loaded(tmp_path, files, *transactions, alone=False)["a"]) == []


def test_lines_of_several_files_are_compared_with_their_own_records(tmp_path: Path) -> None:
    """Also those that begin or end alike, or are copies."""
    files = {"a": ["head", "1", "end"], "b": ["head", "2", "end"], "c": ["head", "1", "end"]}
    transactions = [
        *(own(name, "head") for name in "abc"),
        own("c", "1"),
        own("b", "2", "end"),
        own("a", "1", "end"),
        own("c", "end"),
    ]
    found = loaded(tmp_path, files, *transactions)
    assert {name: (one.compared, one.unread, one.edits) for name, one in found.items()} == dict.fromkeys(
        files, (3, "", [])
    )
    assert sum(one.others for one in found.values()) == 0


ONE_TO_FOUR = {"a": ["one", "two", "three", "four"]}
MEANT = own("a", "one"), own("a", "two", "three"), own("a", "four")


@pytest.mark.parametrize(
    ("written", "wanted", "near"),
    [
        ([own("a", "one"), own("a", "two", "THREE"), own("a", "four")], [("changed", 8, 3)], 8),
        ([own("a", "one"), own("a", "three", "two"), own("a", "four")], [("swapped", 4, 3)], 4),
        ([own("a", "one"), own("a", "two", "three")], [("missing", 14, None)], 14),
        (
            [own("a", "one"), (GONE, "a", ["two", "three"]), own("a", "four")],
            [("missing", 4, None), ("missing", 8, None)],
            4,
        ),
    ],
)
def test_lines_that_are_not_in_their_records_as_they_are(
    tmp_path: Path, written: list[Transaction], wanted: list[tuple[str, int, int | None]], near: int
) -> None:
    one = loaded(tmp_path, ONE_TO_FOUR, *MEANT, written=written)["a"]
    told = [(made.kind, made.source_offset, made.destination_offset) for made in differences_of(one.edits)]
    assert sorted(told, key=lambda made: made[1] or 0) == wanted
    assert min(edit.near for edit in one.edits) <= near
    assert (one.unread, one.end, {edit.file for edit in one.edits}) == ("", 19, {"a"})


def test_a_line_that_the_map_leaves_out_is_missing(tmp_path: Path) -> None:
    """The destination lost its record, so it left the map; the records of others are where it was."""
    (tmp_path / "a").write_text("one\ntwo\nthree\n")
    read = read_file(tmp_path, "a", 14)
    topic = topic_of(own("a", "one"), (OTHER, "", ["two"]), own("a", "three"))
    runs = encode_runs([Run(0, 0, 1), Run(8, 4, 1)], 0, 0)
    (one,) = compared(tmp_path, [file_piece(read, 14, 6, records=3, runs=runs)], topic)
    (missing,) = differences_of(one.edits)
    assert (missing.kind, missing.source_offset, one.compared, one.others) == ("missing", 4, 2, 1)


RANGES = (0, 700), (700, 1_400), (1_400, 1_450), (700, 1_400), (1_450, 2_000)


@pytest.mark.parametrize(
    ("producers", "wanted"),
    [
        ([OWN, GONE, OWN, 0, OWN], [("missing", f"{at:04}\n", None) for at in range(700, 800)]),
        (
            [OWN, OWN, OWN, 0, OWN],
            [("doubled", f"{at:04}\n", 1_453 + at - 700) for at in range(700, 800)],
        ),
    ],
)
def test_a_transaction_of_any_size_is_missing_or_doubled_as_a_whole(
    tmp_path: Path, producers: list[int], wanted: list[tuple[str, str, int | None]]
) -> None:
    """The fourth transaction is in no map."""
    lines = [f"{number:04}" for number in range(2_000)]
    transactions = [
        (producer or OWN, "a" if producer else "", lines[begin:end])
        for producer, (begin, end) in zip(producers, RANGES, strict=True)
    ]
    one = loaded(tmp_path, {"a": lines}, *transactions)["a"]
    text = "".join(f"{line}\n" for line in lines)
    told = [
        (difference.kind, text[difference.source_offset or 0 :][:5], difference.destination_offset)
        for difference in differences_of(one.edits)
    ]
    assert (told, one.more, one.unread) == (wanted, True, "")


@pytest.mark.parametrize("appended", [False, True])
def test_rows_are_compared_with_their_timestamps_unless_the_broker_replaced_them(
    tmp_path: Path, *, appended: bool
) -> None:
    write_rows(tmp_path / "a.parquet")
    read = read_file(tmp_path, "a.parquet", 5, "parquet")
    times = [one.timestamp + (one.offset == 3) for one in RECORDS]
    some = [one._replace(timestamp=time) for one, time in zip(RECORDS, times, strict=True)]
    more = TRANSACTIONAL | (LOG_APPEND_TIME if appended else 0)
    batches = [batch_bytes(some, producer=(OWN, 0, 0), more=more), control_batch(5, OWN, 1)]
    topic = Brokers({AT: PartitionLog(batches)}, {AT.topic: AT_ID})
    made = file_piece(read, 5, 6, records=5, runs=encode_runs([Run(0, 0, 5)], 0, 0))
    (one,) = compared(tmp_path, [made], topic, "parquet")
    assert (one.compared, one.unread) == (5, "")
    told = [(made.kind, made.source_offset, made.fields) for made in differences_of(one.edits)]
    assert told == ([] if appended else [("changed", 3, ["timestamp"])])


@pytest.mark.parametrize("low", [None, 0])
def test_lines_whose_records_retention_deletes_are_not_comparable(tmp_path: Path, low: int | None) -> None:
    """In the middle of a transaction; also where that happens after the comparison was planned."""
    topic = Brokers({AT: dataclasses.replace(log_of(*MEANT), start=3)}, {AT.topic: AT_ID})
    one = loaded(tmp_path, ONE_TO_FOUR, *MEANT, topic=topic, low=low)["a"]
    assert (one.compared, one.edits, one.unread) == (2, [], "")
    assert [(gone.low, gone.end) for gone in one.not_comparable] == [(0, len("one\ntwo\n"))]


class Expiring(Brokers):
    """Retention deletes so many records before or after each fetch."""

    def __init__(self, *transactions: Transaction, before: int = 0, after: int = 0) -> None:
        super().__init__({AT: log_of(*transactions)}, {AT.topic: AT_ID})
        self.before, self.after = before, after

    async def call(self, node: int, request: Any, purpose: str, within: float | None) -> Any:
        self._delete(0 if isinstance(request, ListOffsetsRequest) else self.before)
        found = await super().call(node, request, purpose, within)
        self._delete(self.after)
        return found

    def _delete(self, records: int) -> None:
        log = self.logs[AT]
        start = min(log.start + records, log.next_offset)
        self.logs = {AT: dataclasses.replace(log, start=start)}


def test_records_that_are_gone_while_they_are_read_make_no_difference(tmp_path: Path) -> None:
    transactions = own("a", "one"), own("a", "two")
    topic = Expiring(*transactions, before=1)
    one = loaded(tmp_path, {"a": ["one", "two"]}, *transactions, topic=topic, low=0)["a"]
    assert "retention took the offsets below" in one.unread
    assert one.unread.endswith(": run it again")
    doubled = own("a", "one"), own("a", "two"), own("", "two"), own("a", "three")
    topic = Expiring(*doubled, after=100)
    one = loaded(tmp_path, {"a": ["one", "two", "three"]}, *doubled, topic=topic, low=0)["a"]
    assert (kinds(one), one.unread) == ([], "")


@pytest.mark.parametrize(
    ("lines", "begin", "end", "at"),
    [
        ([1, 2], 0, 9, [0, 2]),
        ([1, 2], 1, 9, [2]),
        ([1, 2], 1, 1, []),
        ([1, 2], 0, 2, [0, 2]),
        ([2, 2], 0, 9, []),
        ([3], 0, 9, [4]),
        ([3, 4], 0, 9, []),
        ([9], 0, 9, []),
    ],
)
def test_where_a_file_has_these_lines(lines: list[int], begin: int, end: int, at: list[int]) -> None:
    assert list(places_of(array("q", [1, 2, 1, 2, 3]), array("q", lines), begin, end)) == at
