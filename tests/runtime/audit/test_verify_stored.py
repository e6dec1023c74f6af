"""What `repl verify` finds in the files of a flow: each record once, and files as the manifest says."""

from __future__ import annotations

import asyncio
import shutil
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Any

import pyarrow as pa
import pytest
from msgspec.structs import replace

from runtime.audit.ledger import AuditFailure
from runtime.audit.offsets.locate_file import _search
from runtime.audit.partition_logs import LogBounds, PartitionLogs
from runtime.audit.verify.comparer import RecordComparer
from runtime.audit.verify.file_records import StoredRecords, record_in_files
from runtime.audit.verify.pieces import (
    ComparedRecord,
    PlannedPartition,
    RecordDifference,
    StoredRange,
    VerifiedPiece,
)
from runtime.audit.verify.results import differences_of, report
from runtime.audit.verify.stored import StoredPiece, groups_of, stored_partition
from runtime.audit.verify.verification import compare_pieces
from runtime.batch import Record
from runtime.contract.records.ledger import PartitionKey, Progress
from runtime.contract.records.manifest import DataFile, FilePosition, OffsetGap
from runtime.contract.spec.files import FilesSpec, Format
from runtime.contract.spec.jobspec import FlowSpec
from runtime.contract.spec.naming import TopicPartition
from runtime.files.backup import TopicLineage
from runtime.files.formats import PartitionFiles, Row
from runtime.files.manifest import ManifestFolder
from runtime.kafka.errors import ErrorCode
from runtime.slot.budget import TokenBucket
from tests.fakes import verification
from tests.fakes.one_broker import ID as TOPIC_ID
from tests.fakes.partition_logs import PartitionLogs as Brokers
from tests.fakes.progress import progress
from tests.fakes.verification import chunks, request
from tests.runtime.audit.test_verify_loaded import topic_of
from tests.runtime.batch.forge import batch_bytes
from tests.runtime.files.backups import WrittenBackup, partition_files, text_of, write_batch

ID = "ab" * 16
NOON = 1_700_049_600_000
RECORDS = [
    Record(5, NOON, b"k", b"v", ()),
    Record(6, NOON + 86_400_000, None, b"\xff\xfe", (("h", b"1"), ("n", None), ("b", b"\xff"))),
    Record(7, NOON + 1, b'"', None, ()),
    Record(9, -1, b"", b'{"a": "\n"}', ()),
]


def written(folder: Path, form: Format, layout: str = "{topic}/", begin: int = 0) -> list[DataFile]:
    """The records in files, where readers find them."""
    folder.mkdir(exist_ok=True)
    files = partition_files(folder, form, topic_id=ID, layout=layout)
    write_batch(files, batch_bytes(RECORDS), begin)
    return published(folder, files)


def published(folder: Path, files: PartitionFiles) -> list[DataFile]:
    done = files.finish()
    ManifestFolder(str(folder), "f").publish(done)
    return done


def stored(folder: Path, form: Format, files: Sequence[DataFile], *, decoded: bool = False) -> StoredRecords:
    return StoredRecords(ManifestFolder(str(folder), "f"), files, form, decoded=decoded)


FORMATS: list[Format] = ["raw", "json", "parquet"]


@pytest.mark.parametrize("form", FORMATS)
def test_records_are_read_as_they_were_written_in_the_order_of_offsets(tmp_path: Path, form: Format) -> None:
    files = written(tmp_path / "one", form)
    found = stored(tmp_path / "one", form, files)
    wanted = [record_in_files(record, record.value, 0, file=files[0].path) for record in RECORDS]
    assert list(found) == wanted
    assert (found.damage, found.bytes) == ([], 2 * files[0].size)
    if form == "raw":  # a batch that begins before its file counts from there
        found = stored(tmp_path / "cut", form, written(tmp_path / "cut", form, begin=6))
        assert ([one.offset for one in found], found.damage) == ([6, 7, 9], [])
    else:  # in the folders of days
        days = written(tmp_path / "days", form, "{topic}/date={date}/")
        assert len(days) == 3
        assert [one.offset for one in stored(tmp_path / "days", form, days)] == [5, 6, 7, 9]


def gone(path: Path) -> None:
    path.unlink()


def cut(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-3])


def changed(path: Path) -> None:
    text = bytearray(path.read_bytes())
    text[40] ^= 1
    path.write_bytes(text)


@pytest.mark.parametrize("form", FORMATS)
@pytest.mark.parametrize(
    ("harm", "why"),
    [(gone, "can't be read: No such file"), (cut, "bytes in place of"), (changed, "another checksum")],
)
def test_a_file_that_is_not_as_the_manifest_says_is_named(
    tmp_path: Path, form: Format, harm: Callable[[Path], None], why: str
) -> None:
    (file,) = written(tmp_path, form)
    harm(tmp_path / file.path)
    found = stored(tmp_path, form, [file])
    assert list(found) == []
    ((damaged, said),) = found.damage
    assert damaged == file
    assert why in said
    assert file.path not in said  # the difference names it


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({"records": 5}, "holds 4 records in place of 5"),
        ({"end": 9}, "holds the offset 9: the offsets 5 to 8 are expected"),
        ({"partition": 3}, "holds the offset 5 of orders-0, which is not of orders-3"),
    ],
)
@pytest.mark.parametrize("form", ["json", "parquet"])
def test_a_file_with_other_records_than_the_manifest_says_is_named(
    tmp_path: Path, form: Format, changes: dict[str, Any], why: str
) -> None:
    (file,) = written(tmp_path, form)
    found = stored(tmp_path, form, [replace(file, **changes)])
    list(found)
    assert why in found.damage[0][1]


@pytest.mark.parametrize(
    ("form", "values", "wanted"),
    [
        ("json", pa.array(['{"id":1}', None]), [b'{"id":1}', None]),
        ("parquet", pa.array([{"id": 1}, None]), [b"{'id': 1}", None]),
    ],
)
def test_values_that_spark_decoded_are_compared_as_they_are(
    tmp_path: Path, form: Format, values: pa.Array, wanted: list[bytes | None]
) -> None:
    files = partition_files(tmp_path, form, topic_id=ID)
    rows: list[Row] = [(RECORDS[0], 0), (RECORDS[2], 1)]
    files.write_rows(rows, values)
    found = list(stored(tmp_path, form, published(tmp_path, files), decoded=True))
    assert [(one.content.value, one.content.timestamp_type) for one in found] == list(
        zip(wanted, [0, 1], strict=True)
    )


def line(offset: int, value: bytes = b"v", kind: int = 0, *, travels: bool = True) -> ComparedRecord:
    return record_in_files(Record(offset, 1, b"k", value, ()), value, kind, travels=travels)


def row(offset: int, value: bytes = b"v", kind: int = 0) -> ComparedRecord:
    return line(offset, value, kind)._replace(file="a.log")


def compared(
    source: Sequence[ComparedRecord],
    files: Sequence[ComparedRecord],
    *damage: tuple[DataFile, str],
    compacted: bool = False,
) -> VerifiedPiece:
    result = VerifiedPiece.begin(verification.piece())
    comparer = RecordComparer(result, in_order=False, destination_only=compacted)
    for file, why in damage:
        comparer.damaged(file.first, file.end, file.path, why)
    asyncio.run(comparer.run(chunks(source, 1), chunks(files, 1)))
    return result


LINES = [line(at) for at in (0, 1, 4)]
ROWS = [row(at) for at in (0, 1, 4)]


def named(edits: Sequence[RecordDifference]) -> list[tuple[Any, ...]]:
    return [
        (one.kind, one.source_offset, one.destination_offset, one.fields) for one in differences_of(edits)
    ]


@pytest.mark.parametrize(
    ("source", "files", "wanted", "matched", "through"),
    [
        (LINES, ROWS, [], 3, 5),
        (LINES, ROWS[1:], [("missing", 0, None, [])], 2, 5),
        (LINES, ROWS[:2], [("missing", 4, None, [])], 2, 2),
        (LINES, [*ROWS[:2], row(1), ROWS[2]], [("doubled", 1, 1, [])], 3, 5),
        (LINES, [*ROWS[:2], row(3), ROWS[2]], [("foreign", None, 3, [])], 3, 5),
        (LINES, [ROWS[0], row(1, b"w"), ROWS[2]], [("changed", 1, 1, ["value"])], 3, 5),
        (LINES, [ROWS[0], row(1, kind=1), ROWS[2]], [("changed", 1, 1, ["timestamp_type"])], 3, 5),
        (LINES, [*ROWS[:2], row(4, b"w")], [("changed", 4, 4, ["value"])], 3, 5),
        ([LINES[0], line(1, travels=False)], ROWS[:2], [("foreign", None, 1, [])], 1, 1),
        (
            [LINES[0], line(1, travels=False)],
            [*ROWS[:2], row(1)],
            [("foreign", None, 1, []), ("doubled", 1, 1, [])],
            1,
            1,
        ),
    ],
)
def test_each_offset_is_there_once(
    source: list[ComparedRecord], files: list[ComparedRecord], wanted: list[Any], matched: int, through: int
) -> None:
    seen = compared(source, files)
    assert (named(seen.edits), seen.compared, seen.end) == (wanted, matched, through)


def test_what_the_transform_filters_and_what_compaction_removed_is_no_difference() -> None:
    filtered = compared([*LINES, line(5, travels=False)], ROWS)
    assert (filtered.edits, filtered.filtered) == ([], 1)
    compacted = compared(LINES[1:], ROWS, compacted=True)
    assert (compacted.edits, compacted.compacted, compacted.compared) == ([], 1, 2)
    assert named(compared(LINES, ROWS[1:], compacted=True).edits) == [("missing", 0, None, [])]


def test_records_of_a_damaged_file_are_not_missing_one_by_one() -> None:
    damage = (file_of(1, 4), "x is cut")
    seen = compared([line(0), line(1), line(2), line(4)], [row(0), row(4)], damage)
    assert named(seen.edits) == [("damaged", 1, None, [])]
    (found,) = differences_of(seen.edits)
    assert (found.file, found.why) == ("orders/1", "source offsets 1 to 3: x is cut")
    assert seen.compared == 2


def file_of(first: int, end: int) -> DataFile:
    return DataFile(
        path=f"orders/{first}", staged="staging/1/x.part", topic="orders",
        topic_id=ID, partition=0, first=first, end=end,
        records=end - first, size=1, crc32c=0,
    )  # fmt: skip


@pytest.mark.parametrize(
    ("files", "low", "high", "wanted"),
    [
        ([], 0, 9, [(0, 9, 0)]),
        ([(0, 5), (5, 9)], 0, 9, [(0, 5, 1), (5, 9, 1)]),
        ([(0, 5), (5, 9)], 5, 9, [(5, 9, 1)]),
        ([(0, 5), (5, 9)], 2, 7, [(2, 7, 2)]),
        ([(0, 9), (2, 5), (5, 8), (9, 12)], 0, 12, [(0, 9, 3), (9, 12, 1)]),  # two days overlap
        ([(0, 1), (1, 2), (2, 9)], 0, 9, [(0, 9, 3)]),
    ],
)
def test_a_range_ends_where_no_file_lies_on_both_sides(
    files: list[tuple[int, int]], low: int, high: int, wanted: list[tuple[int, int, int]]
) -> None:
    found = groups_of([file_of(*one) for one in files], low, high, 4)
    assert [(begin, end, len(some)) for begin, end, some in found] == wanted


def into_files(folder: Path | str) -> FlowSpec:
    files = FilesSpec(endpoint="lake", folder=str(folder), format="raw")
    return replace(verification.FLOW, destination="dc1", files=files)


def planned(
    start: int | None,
    topic_id: str = ID,
    committed: Mapping[PartitionKey, Progress] | None = None,
    refused: Mapping[str, ErrorCode] = MappingProxyType({}),
    **asked: Any,
) -> PlannedPartition:
    """The plan of a partition whose files hold the offsets 10 to 99; the source begins at `start`."""
    gap = OffsetGap(low=40, end=50, why="data_loss", at_ms=1)
    lineage = TopicLineage(
        "orders",
        [ID],
        0,
        {0: 10},
        {0: FilePosition(topic="orders", topic_id=ID, partition=0, position=100, gaps=[gap])},
        {0: [file_of(10, 40), file_of(50, 100)]},
    )
    at = TopicPartition("orders", 0)
    ids = {} if start is None else {"orders": bytes.fromhex(topic_id)}
    logs = PartitionLogs(ids, {at: LogBounds(start or 0, 120)}, frozenset(), refused)
    made = request(into_files("/lake"), **asked)
    return stored_partition(made, 0, lineage, 0, logs, committed or {}, newest=True)


@pytest.mark.parametrize(
    ("given", "low", "left_out"),
    [
        ({"start": 0}, 10, [(40, 50)]),
        ({"start": 60}, 60, [(10, 60), (40, 50)]),
        ({"start": None}, 100, [(10, 100), (40, 50)]),
        ({"start": 0, "topic_id": "cd" * 16}, 100, [(10, 100), (40, 50)]),
        ({"start": 0, "low": 0, "high": 110}, 10, [(0, 10), (100, 110), (40, 50)]),
        ({"start": 0, "last": 20}, 80, []),
    ],
)
def test_what_is_not_comparable_is_said(
    given: dict[str, Any], low: int, left_out: list[tuple[int, int]]
) -> None:
    found = planned(**given)
    assert (found.low, found.end, found.destination_topic) == (low, 100, "orders")
    assert [(one.low, one.end) for one in found.not_comparable] == left_out
    (piece,) = found.pieces
    assert isinstance(piece, StoredRange)
    assert piece.kept_from == low  # files below are checked, and not compared
    assert len(piece.files) == (1 if given.get("last") else 2)


def test_a_topic_that_may_not_be_described_is_not_taken_for_deleted() -> None:
    found = planned(None, refused={"orders": ErrorCode.TOPIC_AUTHORIZATION_FAILED})
    assert found.unread == "the metadata of orders at dc1 can't be read: TOPIC_AUTHORIZATION_FAILED"
    assert not found.not_comparable


@pytest.mark.parametrize(
    ("position", "topic_id", "cut"), [(100, ID, False), (101, ID, True), (101, "cd" * 16, False)]
)
def test_a_manifest_that_lost_its_last_commits_is_not_compared(
    position: int, topic_id: str, *, cut: bool
) -> None:
    known = progress(position, source_topic_id=bytes.fromhex(topic_id))
    found = planned(0, committed={PartitionKey("f", "orders", 0): known})
    assert ("the manifest ends at 100, and 101 was committed" in found.unread) == cut
    assert bool(found.pieces) != cut


def test_a_sample_is_of_whole_files_and_a_report_says_that_the_records_are_in_files() -> None:
    assert len(planned(0, sample=1.0).pieces) == 1
    assert report(request(into_files("/lake")), 0, 0.0, [planned(0)], []).in_files


def piece_of(files: Sequence[DataFile], high: int) -> StoredRange:
    return StoredRange(0, "orders", 0, 0, high, TOPIC_ID, tuple(files))


def merged(backup: WrittenBackup, files: list[DataFile]) -> None:
    backup.merge(*files)


def removed(backup: WrittenBackup, files: list[DataFile]) -> None:
    (backup.folder / files[0].path).unlink()


def unmounted(backup: WrittenBackup, files: list[DataFile]) -> None:
    shutil.rmtree(backup.folder)
    backup.folder.mkdir()


def edited(backup: WrittenBackup, files: list[DataFile]) -> None:
    removed(backup, files)
    (commit, *_) = sorted((backup.folder / backup.manifest.own / "log").iterdir())
    commit.write_bytes(commit.read_bytes().replace(b"orders", b"ORDERS"))


@pytest.mark.parametrize("start", [0, 2])  # of the source: retention deletes records while they are read
@pytest.mark.parametrize(
    ("harm", "damaged", "why"),
    [
        (removed, 1, ""),
        (merged, 0, "orders/f-0-abababab.log was merged with others meanwhile: run it again"),
        (unmounted, 0, "the manifest of f is gone: is {folder} mounted?"),
        (edited, 0, "it was cut off or edited; restore the folder"),
    ],
)
def test_only_files_that_the_manifest_still_has_are_damaged(
    tmp_path: Path,
    harm: Callable[[WrittenBackup, list[DataFile]], None],
    damaged: int,
    why: str,
    start: int,
) -> None:
    backup = WrittenBackup(tmp_path)
    found = [backup.commit(1, ID, 2, text_of(0, [NOON] * 2)), backup.commit(2, ID, 4, text_of(2, [NOON] * 2))]
    files = [one for one in found if one is not None]
    harm(backup, files)
    piece = compare_stored(tmp_path, files, topic_of((1, "", ["a", "b", "c"]), begin=start))
    assert [one.what for one in piece.edits if one.what == "damaged"] == ["damaged"] * damaged
    if why:
        assert why.format(folder=tmp_path) in piece.unread
        assert (piece.end, piece.passed) == (0, False)
    else:
        assert piece.passed == (start > 0)


def compare_stored(folder: Path, files: Sequence[DataFile], source: Brokers) -> VerifiedPiece:
    asked, bucket = request(into_files(folder)), TokenBucket(None, time.monotonic)
    piece = piece_of(files, 4)
    manifest = ManifestFolder(str(folder), "f")
    assert asked.flow.files is not None
    work = StoredPiece(asked, asked.flow.files, piece, source, manifest, bucket)  # type: ignore[arg-type]
    return asyncio.run(work.compare())


def test_a_machine_without_the_folder_says_so_in_place_of_damage(tmp_path: Path) -> None:
    asked = request(into_files(tmp_path / "lake"))
    (one,) = asyncio.run(compare_pieces(asked, 1, [piece_of([file_of(0, 4)], 4)]))
    assert (one.edits, one.end) == ([], 0)
    assert "the folder is not there: create it, or mount it" in one.unread
    assert one.unread.startswith("lake: on ")


# In which file a record of the source is, and which number it has there


def search(folder: Path, form: Format, files: list[DataFile], offset: int) -> tuple[int, str, int] | None:
    spec = FilesSpec(endpoint="lake", folder=str(folder), format=form)
    return _search("f", spec, files, offset)


@pytest.mark.parametrize("form", FORMATS)
def test_each_record_has_its_number_in_its_file(tmp_path: Path, form: Format) -> None:
    files = written(tmp_path, form)
    for number, one in enumerate(RECORDS, 1):
        assert search(tmp_path, form, files, one.offset) == (one.offset, files[0].path, number)
    assert search(tmp_path, form, files, 8) == (9, files[0].path, 4)  # no record: the next one
    assert search(tmp_path, form, [replace(files[0], end=20)], 10) is None


def test_the_next_record_may_be_in_the_folder_of_another_day(tmp_path: Path) -> None:
    files = written(tmp_path, "json", "{topic}/date={date}/")
    assert [search(tmp_path, "json", files, offset) for offset in (5, 6, 7)] == [
        (offset, next(one.path for one in files if one.first <= offset < one.end and day in one.path), number)
        for offset, day, number in ((5, "2023-11-15", 1), (6, "2023-11-16", 1), (7, "2023-11-15", 2))
    ]


def test_a_damaged_file_is_named(tmp_path: Path) -> None:
    files = written(tmp_path, "json")
    (tmp_path / files[0].path).unlink()
    with pytest.raises(AuditFailure, match=files[0].path) as raised:
        search(tmp_path, "json", files, 5)
    assert (
        raised.value.hint == "run it again if the job merges files; repl verify f names all that are damaged"
    )
