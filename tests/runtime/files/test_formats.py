"""Each format holds every record of a batch, and a batch that can't be read leaves nothing behind."""

import json
import resource
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from runtime.batch import BatchFailure, Codec, Record
from runtime.batch.layout import DELETE_HORIZON
from runtime.contract.records.manifest import DataFile
from runtime.contract.spec.files import folder_of
from runtime.contract.spec.naming import TopicPartition
from runtime.files.formats import ROW_GROUP_BYTES
from tests.runtime.batch.forge import batch_bytes, legacy_bytes, overflowing, summed
from tests.runtime.files.backups import partition_files, write_batch

WHERE = TopicPartition("orders", 3)
DAY_MS = 86_400_000
NOON = 1_700_049_600_000  # 2023-11-15T12:00:00Z
RECORDS = [
    Record(5, NOON, b"k", b"v", ()),
    Record(6, NOON + 1, None, b"\xff\xfe", (("h", b"1"), ("n", None))),
    Record(7, NOON + DAY_MS, b"", None, ()),
]


def written(
    tmp_path: Path, form: Any, *batches: bytes, begin: int = 0, layout: str = "{topic}/", **changes: Any
) -> list[DataFile]:
    files = partition_files(tmp_path, form, WHERE, layout=layout, **changes)
    for text in batches:
        write_batch(files, text, begin)
    return files.finish()


def test_json_lines(tmp_path: Path) -> None:
    (file,) = written(tmp_path, "json", batch_bytes(RECORDS))
    lines = [json.loads(text) for text in (tmp_path / "_repl/f" / file.staged).read_text().splitlines()]
    common = {"topic": "orders", "partition": 3, "timestamp_type": 0}
    assert lines == [
        {"key": "k", "value": "v", "headers": [], "offset": 5, "timestamp": NOON, **common},
        {
            "key": None,
            "value_base64": "//4=",
            "headers": [{"key": "h", "value": "1"}, {"key": "n", "value": None}],
            "offset": 6,
            "timestamp": NOON + 1,
            **common,
        },
        {"key": "", "value": None, "headers": [], "offset": 7, "timestamp": NOON + DAY_MS, **common},
    ]
    assert file.path == "orders/f-00003-00000000000000000005-abababab.jsonl"
    assert (file.first, file.end, file.records) == (5, 8, 3)
    assert (file.first_timestamp, file.last_timestamp) == (NOON, NOON + DAY_MS)


def test_parquet_has_the_columns_of_sparks_kafka_source(tmp_path: Path) -> None:
    (file,) = written(tmp_path, "parquet", batch_bytes(RECORDS, Codec.ZSTD, more=0x08, max_timestamp=NOON))
    table = pq.ParquetFile(tmp_path / "_repl/f" / file.staged).read()
    assert table.column_names == [
        "key", "value", "headers", "topic", "partition", "offset", "timestamp", "timestamp_type",
    ]  # fmt: skip
    assert table["key"].to_pylist() == [b"k", None, b""]
    assert table["value"].to_pylist() == [b"v", b"\xff\xfe", None]
    assert table["headers"].to_pylist()[1] == [{"key": "h", "value": b"1"}, {"key": "n", "value": None}]
    assert table["timestamp_type"].to_pylist() == [1, 1, 1]
    assert [round(one.timestamp() * 1000) for one in table["timestamp"].to_pylist()] == [NOON] * 3
    assert file.size == (tmp_path / "_repl/f" / file.staged).stat().st_size


def test_parquet_holds_every_time_that_a_record_has(tmp_path: Path) -> None:
    """Also one before 1970, or in nanoseconds: `repl verify` compares it with the source's."""
    times = [5, -5, 1_700_000_000_000_000_000, -1]
    (file,) = written(
        tmp_path, "parquet", batch_bytes([Record(at, time, b"k", b"v", ()) for at, time in enumerate(times)])
    )
    column = pq.read_table(tmp_path / "_repl/f" / file.staged)["timestamp"]
    assert column.cast(pa.int64()).to_pylist() == [*times[:3], None]


@pytest.mark.parametrize("codec", list(Codec))
def test_raw_is_the_batch_byte_for_byte(tmp_path: Path, codec: Codec) -> None:
    text = batch_bytes(RECORDS, codec, producer=(9, 1, 4), more=0x10)
    old = legacy_bytes(1, Codec.NONE, [(9, RECORDS[0])])
    (file,) = written(tmp_path, "raw", text, old)
    assert (tmp_path / "_repl/f" / file.staged).read_bytes() == text + old
    assert (file.first, file.end, file.records) == (5, 10, 4)


def test_records_before_the_position_are_left_out_or_not_counted(tmp_path: Path) -> None:
    (lines,) = written(tmp_path, "json", batch_bytes(RECORDS), begin=6)
    assert (lines.first, lines.records) == (6, 2)
    (raw,) = written(tmp_path, "raw", batch_bytes(RECORDS), begin=6)
    assert (raw.first, raw.end, raw.records) == (6, 8, 2)
    assert raw.first_timestamp == NOON + 1


@pytest.mark.parametrize("attributes", [DELETE_HORIZON, 0])
def test_the_delete_horizon_is_no_time_of_a_raw_files_records(tmp_path: Path, attributes: int) -> None:
    """The log cleaner sets the base timestamp and a bit; a copy of the batch has the base timestamp only.

    The batch is not unpacked for its first time: a raw file holds batches of any size as they are.
    """
    text = overflowing(5, NOON + DAY_MS, NOON, NOON - 60_000, attributes=attributes)
    with patch("runtime.files.formats.records", side_effect=AssertionError):
        (file,) = written(tmp_path, "raw", text)
    assert (file.first_timestamp, file.last_timestamp) == (NOON, NOON)
    assert (file.first, file.end, file.records) == (5, 7, 2)


def test_dates_and_hours_are_those_of_utc(tmp_path: Path) -> None:
    more = [Record(9, NOON + 3_600_000, b"k", b"v", ())]
    batches = [batch_bytes(RECORDS), batch_bytes(more)]
    files = written(tmp_path, "json", *batches, layout="{topic}/date={date}/hour={hour}")
    assert {file.path.removeprefix("orders/").rpartition("/")[0]: file.records for file in files} == {
        "date=2023-11-15/hour=12": 2,
        "date=2023-11-16/hour=12": 1,
        "date=2023-11-15/hour=13": 1,
    }


@pytest.mark.parametrize("timestamp", [-1, 10**17])
def test_a_record_without_a_time_that_can_be(timestamp: int) -> None:
    assert folder_of("{topic}/date={date}/{hour}", "t", 0, timestamp) == "t/date=unknown/unknown"


def test_a_file_is_closed_at_its_size(tmp_path: Path) -> None:
    batches = [batch_bytes([Record(at, NOON, None, bytes(40_000), ())]) for at in range(6)]
    files = written(tmp_path, "raw", *batches, size_bytes=1 << 16)
    assert [(file.first, file.end) for file in files] == [(0, 2), (2, 4), (4, 6)]


def test_a_batch_that_can_not_be_read_leaves_nothing(tmp_path: Path) -> None:
    good, bad = batch_bytes(RECORDS), bytearray(batch_bytes(RECORDS, base=10, last=17, codec=Codec.NONE))
    bad[62] ^= 0xFF
    files = partition_files(tmp_path, "json", WHERE)
    write_batch(files, good)
    with pytest.raises(BatchFailure):
        write_batch(files, summed(bad))
    (file,) = files.finish()
    assert (file.end, file.records) == (8, 3)
    assert len((tmp_path / "_repl/f" / file.staged).read_text().splitlines()) == 3


def test_headers_count_for_a_row_group(tmp_path: Path) -> None:
    """Records of little more than headers do not stay in memory until the file is closed (R8)."""
    large = (("trace", bytes(ROW_GROUP_BYTES // 4)),)
    batches = [batch_bytes([Record(at, NOON, None, b"v", large)], Codec.ZSTD) for at in range(8)]
    (file,) = written(tmp_path, "parquet", *batches)
    with pq.ParquetFile(tmp_path / "_repl/f" / file.staged) as rows:
        assert rows.num_row_groups == 2


def test_on_a_full_disk_every_file_is_discarded(tmp_path: Path) -> None:
    """A worker is reused: a handle that stays open is never closed."""
    files = partition_files(tmp_path, "json", layout="{topic}/date={date}/")
    days = batch_bytes([Record(at, NOON + at * DAY_MS, None, b"v" * 9_000, ()) for at in range(3)])
    handles = set(Path("/proc/self/fd").iterdir())
    write_batch(files, days)
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (4_096, before[1]))
    try:
        with pytest.raises(OSError, match="File too large"):
            files.finish()
        files.discard()
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    assert list((tmp_path / "_repl/f/staging/1").iterdir()) == []
    assert set(Path("/proc/self/fd").iterdir()) == handles
