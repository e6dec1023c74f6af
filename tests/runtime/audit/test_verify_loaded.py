"""`repl verify` of a flow from files: the lines of its files, and which transactions hold them."""

from __future__ import annotations

import asyncio
import dataclasses
import random
import time
from collections.abc import Sequence
from itertools import accumulate, pairwise
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from runtime.audit.ledger import AuditFailure
from runtime.audit.partition_logs import LogBounds, PartitionLogs
from runtime.audit.verify.file_lines import (
    NO_TIME,
    FileRecords,
    UnreadableFile,
    body_of,
    content_of_body,
    digest_of,
    records_up_to,
)
from runtime.audit.verify.interleaving import (
    Interleaving,
    TransactionRange,
    match,
    numbers,
    owners_of_unknown,
    places_of,
)
from runtime.audit.verify.loaded import (
    ComparedFile,
    LoadedComparison,
    LoadedPartition,
    WrittenRecords,
    compare_lines,
    expired,
    other_times,
)
from runtime.audit.verify.pieces import (
    ComparedRecord,
    PlannedPartition,
    RecordContent,
    VerifiedPiece,
)
from runtime.audit.verify.results import differences_of
from runtime.audit.verify.verification import grouped
from runtime.batch import Record
from runtime.batch.layout import TRANSACTIONAL
from runtime.contract.records.ledger import PartitionKey
from runtime.contract.spec.files import LinesSpec, SourceFormat
from runtime.files.source.folder import open_file
from runtime.files.source.known_files import KnownFile, Reconciliation
from runtime.files.source.lines import fingerprint
from runtime.files.source.parquet_rows import RowReader
from runtime.kafka.protocol.offsets import ListOffsetsRequest, TopicPartition
from runtime.slot.budget import TokenBucket
from tests.fakes.one_broker import AT
from tests.fakes.one_broker import ID as AT_ID
from tests.fakes.partition_logs import PartitionLog
from tests.fakes.partition_logs import PartitionLogs as Brokers
from tests.fakes.progress import progress
from tests.fakes.verification import piece, reading_files, request
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


def value(text: bytes) -> int:
    return digest_of(body_of(Record(0, 0, None, text, ())))


@pytest.mark.parametrize(
    ("form", "wanted"),
    [
        ("text", [(b"one", 0), (b"", 4), (b"two", 5), (b" ", 10)]),
        ("json", [(b"one", 0), (b"two", 5)]),
    ],
)
def test_lines_up_to_the_position_are_those_that_the_flow_read(
    tmp_path: Path, form: SourceFormat, wanted: list[tuple[bytes, int]]
) -> None:
    (tmp_path / "a.log").write_bytes(b"one\n\ntwo\r\n \nnot read yet\n")
    found = records_up_to(lines_in(tmp_path, form), read_file(tmp_path, "a.log", 12), timed=True)
    assert list(zip(found.digests, found.positions, strict=True)) == [(value(one), at) for one, at in wanted]
    assert found.content(len(wanted) - 1).value == wanted[-1][0]
    assert found.position(len(wanted)) == 12


@pytest.mark.parametrize("text", [b"one\ntw", b"One\ntwo\n", b"one\ntwo two\n"])
def test_a_file_with_other_bytes_before_the_position_is_not_read(tmp_path: Path, text: bytes) -> None:
    (tmp_path / "a.log").write_bytes(b"one\ntwo\n")
    read = read_file(tmp_path, "a.log", 8)
    (tmp_path / "a.log").write_bytes(text)
    with pytest.raises(UnreadableFile, match="truncated or overwritten"):
        records_up_to(lines_in(tmp_path), read, timed=False)
    (tmp_path / "a.log").unlink()
    with pytest.raises(UnreadableFile, match="renamed meanwhile"):
        records_up_to(lines_in(tmp_path), read, timed=False)


@pytest.mark.parametrize("timed", [True, False])
def test_rows_with_the_columns_of_records_are_compared_with_their_timestamps(
    tmp_path: Path, *, timed: bool
) -> None:
    records = [Record(at, NOON + at, b"k", b"v%d" % at, (("h", None), ("i", b"1"))) for at in range(5)]
    header = pa.struct([("key", pa.string()), ("value", pa.binary())])
    headers = [[{"key": name, "value": text} for name, text in one.headers] for one in records]
    table = pa.table(
        {
            "key": pa.array([one.key for one in records], pa.binary()),
            "value": pa.array([one.value for one in records], pa.binary()),
            "headers": pa.array(headers, pa.list_(header)),
            "timestamp": pa.array([one.timestamp for one in records], pa.timestamp("ms", "UTC")),
        }
    )
    pq.write_table(table, tmp_path / "a.parquet", row_group_size=2)
    read = read_file(tmp_path, "a.parquet", 4, "parquet")
    found = records_up_to(lines_in(tmp_path, "parquet"), read, timed=timed)
    assert list(found.positions) == [0, 1, 2, 3]
    times = [one.timestamp if timed else NO_TIME for one in records[:4]]
    assert list(found.digests) == [digest_of(body_of(one)) for one in records[:4]]
    assert list(found.times) == (times if timed else [])
    assert found.content(3) == content_of_body(times[3], body_of(records[3]))
    assert found.content(3) == RecordContent(times[3], b"k", b"v3", (("h", None), ("i", b"1")))


def test_rows_without_timestamps_have_the_time_of_reading(tmp_path: Path) -> None:
    pq.write_table(pa.table({"id": [1, 2]}), tmp_path / "a.parquet")
    read = read_file(tmp_path, "a.parquet", 2, "parquet")
    found = records_up_to(lines_in(tmp_path, "parquet"), read, timed=True)
    assert list(found.digests) == [value(b'{"id":1}'), value(b'{"id":2}')]
    assert not found.times


def file_of(*digests: int) -> FileRecords:
    found = FileRecords(lines_in(Path("/in")), KnownFile("a.log", 90, b"", 0), timed=False)
    found.digests.extend(digests)
    found.positions.extend(range(0, 10 * len(digests), 10))
    return found


@pytest.mark.parametrize(
    ("there", "wanted"),
    [
        ([1, 2, 3, 4], []),
        ([1, 2, 4], [("missing", 2, None)]),
        ([1, 2, 9, 3, 4], [("extra", None, 2)]),
        ([1, 9, 3, 4], [("changed", 1, 1)]),
        ([], [("missing", at, None) for at in range(4)]),
    ],
)
def test_lines_that_are_in_no_transaction_as_they_are(
    there: Sequence[int], wanted: list[tuple[str, int | None, int | None]]
) -> None:
    seen = lines_compared(file_of(1, 2, 3, 4), there)
    assert [
        (edit.what, edit.source and edit.source.offset, edit.destination and edit.destination.offset)
        for edit in seen.edits
    ] == wanted


def lines_compared(file: FileRecords, there: Sequence[int]) -> VerifiedPiece:
    """Compares the lines of a file that no transaction holds with the records of some transactions."""
    result = VerifiedPiece.begin(piece())
    asyncio.run(compare_lines(result, file, 0, len(file.digests), there))
    return result


def test_a_record_with_another_timestamp_is_found_in_its_transaction() -> None:
    file, written = file_of(1, 2, 3), WrittenRecords()
    file.times.extend([10, 20, 30])
    written.add([(5, 10, 1), (6, 21, 2)])
    written.add([(9, 0, 7)])
    written.add([(11, 30, 3)])
    taken = [TransactionRange(3, 4), TransactionRange(0, 2)]
    (edit,) = other_times(file, written, taken)
    assert (edit.what, edit.source, edit.destination) == ("changed", ComparedRecord(1), ComparedRecord(1))
    file.times[1] = 21
    assert other_times(file, written, taken) == []


def test_many_lines_are_compared_some_at_a_time() -> None:
    lines = list(range(5_000))
    seen = lines_compared(file_of(*lines), [*lines[:2_000], *lines[2_001:]])
    assert [(edit.what, edit.source and edit.source.offset) for edit in seen.edits] == [("missing", 2_000)]
    assert seen.compared == 4_999


@pytest.mark.parametrize(
    ("there", "skipped"), [([3, 4], 2), ([1, 2], 0), ([], 4), ([9], 0), ([9, 3], 1), ([9, 8, 2], 0)]
)
def test_lines_whose_records_retention_deleted_stand_before_the_first_record(
    there: list[int], skipped: int
) -> None:
    found = numbers()
    found.extend(there)
    assert expired(file_of(1, 2, 3, 4), 4, found) == skipped


ID = b"\x01" * 16
LEFT = Reconciliation(
    moved=[(KnownFile("old.log", 90, b"", 1), "new.log")],
    replaced=[KnownFile("cut.log", 90, b"", 2)],
    vanished=[KnownFile("gone.log", 90, b"", 3)],
)


def planned(name: str, *, known: bytes = ID, there: bool = True, compacted: bool = False) -> PlannedPartition:
    at, ids = TopicPartition("inbox", 1), {"inbox": ID} if there else {}
    read = progress(90, 50, destination_topic="inbox", destination_topic_id=known)
    logs = PartitionLogs(ids, {at: LogBounds(5, 70)}, frozenset(["inbox"] if compacted else []))
    asked = request(reading_files(Path("/in")))
    return ComparedFile("dc1", 0, PartitionKey("f", name, 1), read, LEFT, logs, 60).planned(asked)


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
    assert found.pieces == []
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
    assert renamed.read is not None
    assert (renamed.topic, renamed.read.name, renamed.high) == ("old.log", "new.log", 90)
    assert (renamed.destination_low, renamed.destination_high) == (5, 60)
    assert [len(group) for group in grouped([planned("a.log"), planned("b.log")])] == [2]


OWN, OTHER = 7, 8  # producer ids
Transaction = tuple[int, list[str]]


def log_of(*transactions: Transaction, begin: int = 0) -> PartitionLog:
    """A log that begins at an offset: each transaction is a batch of lines and a marker."""
    batches, high, sequence = list[bytes](), begin, 0
    for producer, lines in transactions:
        some = [Record(high + at, NOON, None, line.encode(), ()) for at, line in enumerate(lines)]
        batches.append(batch_bytes(some, producer=(producer, 0, sequence), more=TRANSACTIONAL))
        high, sequence = high + len(lines), sequence + len(lines)
        batches.append(control_batch(high, producer, 1))
        high += 1
    return PartitionLog(batches, start=begin, end=high)


def topic_of(*transactions: Transaction, begin: int = 0) -> Brokers:
    return Brokers({AT: log_of(*transactions, begin=begin)}, {AT.topic: AT_ID})


def loaded(
    folder: Path,
    files: dict[str, list[str]],
    topic: Brokers,
    *,
    low: int | None = None,
    alone: bool = True,
    removed: str = "",
) -> dict[str, VerifiedPiece]:
    """Compares files with a topic that was planned to begin at `low`. `removed` is gone meanwhile."""
    pieces = []
    for number, (name, lines) in enumerate(files.items()):
        text = "".join(f"{one}\n" for one in lines)
        (folder / name).write_text(text)
        read = read_file(folder, name, len(text))
        log = topic.logs[AT]
        begin = log.start if low is None else low
        made = piece(0, len(text), destination_low=begin, destination_high=log.next_offset)
        of = {"number": number, "topic": name, "alone": alone, "read": read, "records": len(lines)}
        pieces.append(replace(made, destination_topic=AT.topic, destination_id=AT_ID, **of))
    if removed:
        (folder / removed).unlink()
    asked, bucket = request(reading_files(folder)), TokenBucket(None, time.monotonic)
    assert asked.flow.lines is not None
    work = LoadedPartition(asked, asked.flow.lines, pieces, topic, bucket)  # type: ignore[arg-type]
    found = asyncio.run(work.compare())
    return dict(zip(files, found, strict=True))


def kinds(one: VerifiedPiece) -> list[tuple[str, int | None]]:
    return [(edit.what, edit.destination.offset if edit.destination else None) for edit in one.edits]


@pytest.mark.parametrize(
    ("transactions", "doubled", "others"),
    [
        ([(OWN, ["one"]), (OWN, ["two"]), (OWN, ["three"])], [], 0),
        ([(OWN, ["one"]), (OWN, ["two"]), (OWN, ["two"]), (OWN, ["three"])], [("extra", 2)], 0),
        ([(OWN, ["one"]), (OTHER, ["two"]), (OWN, ["two", "three"])], [], 1),  # another producer's
        ([(OWN, ["two"]), (OWN, ["one", "two"]), (OWN, ["three"])], [], 1),  # of a file that is forgotten
        ([(OWN, ["one", "two"]), (OWN, ["three"]), (OWN, ["two"])], [], 1),
        ([(OWN, ["one"]), (OWN, ["three"]), (OWN, ["two", "three"])], [], 1),  # before the line before it
    ],
)
def test_only_lines_that_were_repeated_between_those_of_a_file_are_doubled(
    tmp_path: Path, transactions: list[Transaction], doubled: list[tuple[str, int]], others: int
) -> None:
    one = loaded(tmp_path, {"a.log": ["one", "two", "three"]}, topic_of(*transactions))["a.log"]
    assert (one.compared, one.unread, kinds(one), one.others) == (3, "", doubled, others)
    assert one.end == len("one\ntwo\nthree\n")


@pytest.mark.parametrize(
    ("ranges", "wanted"),
    [
        ([(0, 700), (1_400, 2_000)], [("missing", f"{at:04}\n", None) for at in range(700, 800)]),
        (
            [(0, 700), (700, 1_400), (1_400, 1_450), (700, 1_400), (1_450, 2_000)],
            [("doubled", f"{at:04}\n", 1_453 + at - 700) for at in range(700, 800)],
        ),
    ],
)
def test_a_transaction_of_any_size_is_missing_or_doubled_as_a_whole(
    tmp_path: Path, ranges: list[tuple[int, int]], wanted: list[tuple[str, str, int | None]]
) -> None:
    lines = [f"{number:04}" for number in range(2_000)]
    topic = topic_of(*((OWN, lines[begin:end]) for begin, end in ranges))
    one = loaded(tmp_path, {"a.log": lines}, topic)["a.log"]
    text = "".join(f"{line}\n" for line in lines)
    told = [
        (difference.kind, text[difference.source_offset or 0 :][:5], difference.destination_offset)
        for difference in differences_of(one.edits)
    ]
    assert (told, one.more, one.unread) == (wanted, True, "")


def test_a_long_list_of_files_that_are_alike_is_cut(tmp_path: Path) -> None:
    files = {f"{number:02}.log": ["same"] for number in range(30)}
    found = loaded(tmp_path, files, topic_of(*[(OWN, ["same"])] * 20))
    unread = [one.unread for one in found.values() if one.unread]
    assert unread
    assert all(why.count(".log") == 10 and why.endswith(".log, others") for why in unread)


def test_a_later_place_is_found_where_the_first_one_does_not_fit(tmp_path: Path) -> None:
    """The file begins with a line that is repeated, and its second occurrence was written twice."""
    lines = ["same", "one", "same", "two"]
    topic = topic_of(*((OWN, [one]) for one in ("same", "one", "same", "same", "two")))
    one = loaded(tmp_path, {"a.log": lines}, topic)["a.log"]
    assert [(edit.what, edit.twin) for edit in one.edits] == [("extra", len("same\none\n"))]


def test_without_all_files_of_the_partition_nothing_is_doubled(tmp_path: Path) -> None:
    files = {"a.log": ["one", "two", "three"], "b.log": ["two"]}
    topic = topic_of((OWN, ["one"]), (OWN, ["two"]), (OWN, ["two", "three"]))
    found = loaded(tmp_path, files, topic, removed="b.log")
    assert (kinds(found["a.log"]), found["a.log"].others) == ([], 1)
    assert "run it again" in found["b.log"].unread


@pytest.mark.parametrize(
    ("producer", "alone", "wanted"),
    [(OTHER, True, []), (OWN, False, []), (OWN, True, [("missing", None)])],
)
def test_an_equal_line_of_others_makes_no_line_missing_behind_retention(
    tmp_path: Path, producer: int, *, alone: bool, wanted: list[tuple[str, int | None]]
) -> None:
    topic = topic_of((producer, ["OK"]), (OWN, ["four"]), begin=40)
    one = loaded(tmp_path, {"a.log": ["one", "OK", "three", "four"]}, topic, alone=alone)["a.log"]
    assert (kinds(one), one.unread) == (wanted, "")
    (gone,) = one.not_comparable
    assert (gone.low, gone.end) == (0, len("one\n") if wanted else len("one\nOK\nthree\n"))
    assert ("can't be told" in gone.why) == (not wanted)


def test_records_that_retention_deletes_meanwhile_are_not_comparable(tmp_path: Path) -> None:
    topic = topic_of((OWN, ["two"]), (OWN, ["three"]), begin=2)
    one = loaded(tmp_path, {"a.log": ["one", "two", "three"]}, topic, low=0)["a.log"]
    assert (one.compared, one.edits, one.unread) == (2, [], "")
    assert [(gone.low, gone.end) for gone in one.not_comparable] == [(0, 4)]


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
    topic = Expiring((OWN, ["one"]), (OWN, ["two"]), before=1)
    one = loaded(tmp_path, {"a.log": ["one", "two"]}, topic, low=0)["a.log"]
    assert "retention took the offsets below" in one.unread
    assert one.unread.endswith(": run it again")
    topic = Expiring((OWN, ["one"]), (OWN, ["TWO", "three"]), (OWN, ["four"]), after=100)
    one = loaded(tmp_path, {"a.log": ["one", "two", "three", "four"]}, topic, low=0)["a.log"]
    assert (kinds(one), one.unread) == ([], "")


# Which transactions of a partition hold the lines of which file


def found(files: dict[str, list[int]], *transactions: Sequence[int]) -> Interleaving:
    ends = [0, *accumulate(len(one) for one in transactions)]
    ranges = [TransactionRange(begin, end) for begin, end in pairwise(ends)]
    return match(files, [one for some in transactions for one in some], ranges)


def interleaved(files: dict[str, list[int]], order: random.Random) -> list[list[int]]:
    """The lines of all files in transactions of one to three, in any order of the files."""
    rest, transactions = {name: list(lines) for name, lines in files.items()}, []
    while names := [name for name, lines in rest.items() if lines]:
        name = order.choice(names)
        size = order.randint(1, 3)
        transactions.append(rest[name][:size])
        rest[name] = rest[name][size:]
    return transactions


H, END = 100, 200


@pytest.mark.parametrize(
    ("files", "transactions", "left", "unknown"),
    [
        ({"a": [1, 2, 3]}, [[1, 2], [3]], {}, 0),
        ({"a": [1, 2], "b": [3, 4]}, [[3], [1], [4], [2]], {}, 0),
        ({"a": [1, 2], "b": [1, 2]}, [[1, 2], [1], [2]], {}, 0),  # a copy
        ({"a": [H, 1], "b": [H, 2]}, [[H], [H], [1], [2]], {}, 0),  # the same first line
        ({"a": [1, END], "b": [2, END]}, [[1], [END], [2], [END]], {}, 0),  # the same last line
        ({"a": [1, END], "b": [2, END]}, [[2], [END], [1], [END]], {}, 0),
        ({"a": [1, 2, 3]}, [[9], [1, 2, 3], [9, 9]], {}, 2),  # another producer's
        ({"a": [1, 2, 3]}, [[2, 3]], {"a": 1}, 0),  # retention took the first
        ({"a": [1, 2, 3]}, [[7, 2], [1, 2, 3]], {}, 1),  # read anew
        ({"a": [1, 2, 3]}, [[1], [2, 9], [3]], {"a": 2}, 2),  # a line was changed
        ({"a": [1, 2], "b": [2]}, [[1, 2], [2]], {}, 0),  # the chosen file takes the next one, too
        ({"a": [2], "b": [1, 2]}, [[1, 2], [2]], {}, 0),
        ({"a": [1, 2], "b": [3]}, [[1, 3], [2]], {"a": 1, "b": 1}, 1),
        ({"a": []}, [[]], {}, 0),
        # The last one is chosen for "a" first, and is of "b", whose earlier lines were found already.
        ({"a": [0, 2], "b": [2, 2, 2]}, [[0, 2], [2, 2], [2]], {}, 0),
    ],
)
def test_each_transaction_is_of_one_file(
    files: dict[str, list[int]], transactions: list[list[int]], left: dict[str, int], unknown: int
) -> None:
    seen = found(files, *transactions)
    assert {name: count for name, count in seen.left.items() if count} == left
    assert len(seen.unknown) == unknown
    assert all(some == sorted(some, reverse=True) for some in seen.taken.values())


def test_files_that_are_alike_are_named_where_one_of_them_is_incomplete() -> None:
    assert found({"a": [1], "b": [1]}, [1], [1]).alike == set()
    assert found({"a": [1], "b": [1]}, [1]).alike == {"a", "b"}


@pytest.mark.parametrize(
    ("files", "transactions", "owned"),
    [
        (
            {"a": [1, 2, 3], "b": [4, 5], "c": [6]},
            [[1, 9, 3], [4], [8], [6]],
            {"a": [TransactionRange(0, 3)], "b": [TransactionRange(3, 4)]},
        ),
        ({"a": [1, 2, 3]}, [[1, 9], [3]], {"a": [TransactionRange(0, 2)]}),  # a line was changed
        ({"a": [1, 2, 3]}, [[1, 8, 9], [3]], {}),  # of another file, with the same first line
        ({"a": [1, 2, 3]}, [[3], [1, 2, 9]], {}),  # behind those of the file
    ],
)
def test_an_unknown_transaction_is_of_the_incomplete_file_with_most_of_its_lines(
    files: dict[str, list[int]], transactions: list[list[int]], owned: dict[str, list[TransactionRange]]
) -> None:
    records = [line for lines in transactions for line in lines]
    assert owners_of_unknown(found(files, *transactions), files, records) == owned


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
    assert list(places_of([1, 2, 1, 2, 3], lines, begin, end)) == at


@given(st.lists(st.lists(st.integers(0, 3), max_size=8), min_size=1, max_size=3), st.booleans(), st.randoms())
def test_files_are_always_found_whole_and_in_order(
    given_files: list[list[int]], distinct: bool, order: random.Random
) -> None:
    """With lines of their own, or with equal lines."""
    files = {str(at): [100 * at * distinct + one for one in lines] for at, lines in enumerate(given_files)}
    seen = found(files, *interleaved(files, order))
    assert set(seen.left.values()) <= {0}
    assert seen.unknown == []
    for name, some in seen.taken.items():
        assert sum(one.end - one.begin for one in some) == len(files[name])
        assert some == sorted(some, reverse=True)


def test_many_files_with_equal_lines_take_little_time() -> None:
    files = {str(at): [1] for at in range(5_000)}
    seen = found(files, *([1] for _ in files))
    assert set(seen.left.values()) == {0}
    seen = found(files, *([1] for _ in range(4_999)), [9])  # of others
    assert sum(seen.left.values()) == len(seen.unknown) == 1
    files = {str(at): [at, -1] for at in range(5_000)}
    seen = found(files, *files.values())
    assert set(seen.left.values()) == {0}


@pytest.mark.parametrize("seed", [101, 333])
def test_files_that_wrong_choices_leave_incomplete_are_alike(seed: int) -> None:
    """There are too many ways to give these transactions to files; no line of them is missing."""
    order = random.Random(seed)
    files = {str(at): [order.randint(0, order.choice([1, 6])) for _ in range(30)] for at in range(10)}
    seen = found(files, *interleaved(files, order))
    left = {name for name, count in seen.left.items() if count}
    assert left
    assert left <= seen.alike
