"""What `repl verify` reads of the files of a flow from files, and what it says of lines that differ."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from runtime.audit.partition_logs import PartitionLogs
from runtime.audit.verify.file_lines import (
    NO_TIME,
    FileRecords,
    UnreadableFile,
    body_of,
    content_of_body,
    digest_of,
    records_up_to,
)
from runtime.audit.verify.interleaving import TransactionRange, numbers
from runtime.audit.verify.loaded import _compared, _expired, _once_more, _other_times, _Written
from runtime.audit.verify.loaded_plan import _planned
from runtime.audit.verify.pieces import PlannedPartition, ReadFile, RecordContent, VerifyRequest
from runtime.audit.verify.plan import grouped
from runtime.batch import Record
from runtime.contract.records.advance import first_progress
from runtime.contract.records.ledger import PartitionKey
from runtime.contract.spec.files import LinesSpec, SourceFormat
from runtime.contract.spec.jobspec import ClusterSpec, FlowSpec, SelectionSpec
from runtime.files.lines import KnownFile, Reconciliation, fingerprint, open_file
from runtime.files.parquet_rows import parquet_fingerprint
from runtime.kafka.protocol.offsets import TopicPartition

NOON = 1_700_049_600_000


def lines_in(folder: Path, form: SourceFormat = "text") -> LinesSpec:
    return LinesSpec(endpoint="inbox", folder=str(folder), format=form, topic="inbox")


def read_file(folder: Path, name: str, position: int, form: SourceFormat = "text") -> ReadFile:
    file = open_file(folder, name)
    try:
        mark = parquet_fingerprint(file, position) if form == "parquet" else fingerprint(file, position)
    finally:
        os.close(file)
    assert mark is not None
    return ReadFile(name, position, mark, 0)


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
    found = FileRecords(lines_in(Path("/in")), ReadFile("a.log", 90, b"", 0), timed=False)
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
    edits = _compared(file_of(1, 2, 3, 4), 4, 0, there).edits
    assert [(one.what, one.source_offset, one.destination_offset) for one in edits] == wanted


def test_a_record_with_another_timestamp_is_found_in_its_transaction() -> None:
    file, written = file_of(1, 2, 3), _Written()
    file.times.extend([10, 20, 30])
    written.add([(5, 10, 1), (6, 21, 2)])
    written.add([(9, 0, 7)])
    written.add([(11, 30, 3)])
    (edit,) = _other_times(file, written, [TransactionRange(3, 4), TransactionRange(0, 2)])
    assert (edit.what, edit.source_offset, edit.destination_offset) == ("changed", 1, 1)
    file.times[1] = 21
    assert _other_times(file, written, [TransactionRange(3, 4), TransactionRange(0, 2)]) == []


def test_a_record_that_is_there_once_more_names_its_line() -> None:
    edits = list(_once_more({TransactionRange(4, 6): 1}))
    assert [(one.what, one.destination_offset, one.twin) for one in edits] == [
        ("extra", 4, 1),
        ("extra", 5, 2),
    ]


def test_many_lines_are_compared_some_at_a_time() -> None:
    lines = list(range(5_000))
    comparer = _compared(file_of(*lines), 5_000, 0, [*lines[:2_000], *lines[2_001:]])
    assert [(one.what, one.source_offset) for one in comparer.edits] == [("missing", 2_000)]
    assert comparer.matched == 4_999


@pytest.mark.parametrize(("there", "skipped"), [([3, 4], 2), ([1, 2], 0), ([], 4), ([9], 0)])
def test_lines_whose_records_retention_deleted_stand_before_the_first_record(
    there: list[int], skipped: int
) -> None:
    found = numbers()
    found.extend(there)
    assert _expired(file_of(1, 2, 3, 4), 4, found) == skipped


ID = b"\x01" * 16
LEFT = Reconciliation(
    moved=[(KnownFile("old.log", 90, b"", 1), "new.log")],
    replaced=[KnownFile("cut.log", 90, b"", 2)],
    vanished=[KnownFile("gone.log", 90, b"", 3)],
)


def planned(name: str, *, known: bytes = ID, there: bool = True, compacted: bool = False) -> PlannedPartition:
    at = TopicPartition("inbox", 1)
    flow = FlowSpec(
        name="f",
        source="dc1",
        destination="dc1",
        topics=SelectionSpec(include=[]),
        lines=lines_in(Path("/in")),
    )
    spec = ClusterSpec(bootstrap="a:1")
    progress = first_progress(
        generation=1,
        source_topic_id=b"",
        destination_topic="inbox",
        destination_topic_id=known,
        position=90,
        destination_end=50,
        now_ms=1,
    )
    ids = {"inbox": ID} if there else {}
    logs = PartitionLogs(ids, {at: 5}, {at: 70}, frozenset(["inbox"]) if compacted else frozenset())
    asked = VerifyRequest(flow=flow, source=spec, destination=spec)
    return _planned(asked, 0, PartitionKey("f", name, 1), progress, LEFT, logs, 60)


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


def test_a_file_that_was_renamed_is_read_under_its_new_name() -> None:
    (piece,) = planned("old.log").pieces
    assert piece.read is not None
    assert (piece.topic, piece.read.name, piece.high) == ("old.log", "new.log", 90)
    assert (piece.destination_low, piece.destination_high) == (5, 60)


def test_the_files_of_a_partition_are_compared_by_one_task() -> None:
    assert [len(group) for group in grouped([planned("a.log"), planned("b.log")])] == [2]
