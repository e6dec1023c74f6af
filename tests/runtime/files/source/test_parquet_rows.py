"""Which Parquet files are complete, which records their rows are, and that reading resumes at any row."""

import os
import time
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from runtime.batch import Record
from runtime.contract.records.job_status import PartitionState
from runtime.contract.spec.files import LinesSpec
from runtime.files.source.folder import FolderSource
from runtime.files.source.known_files import KnownFile
from runtime.files.source.sources import source_of
from tests.runtime.batch.forge import batch_bytes
from tests.runtime.files.backups import partition_files, write_batch
from tests.runtime.files.source.rows import LONGEST, read_all, reader_of, unpacked, values_of

NOON = 1_700_049_600_000


@pytest.fixture
def path(tmp_path: Path) -> Path:
    folder = tmp_path / "in"
    folder.mkdir()
    return folder / "a.parquet"


def write(path: Path, columns: dict[str, Any], rows: int | None = None, **options: Any) -> None:
    pq.write_table(pa.table(columns), path, row_group_size=rows, **options)


def test_a_file_that_repl_wrote_gives_the_records_that_went_into_it(path: Path) -> None:
    wanted = [
        Record(0, NOON, b"k", b"v", ()),
        Record(1, NOON + 1, None, b"\xff\xfe", (("h", b"1"), ("n", None), ("h", b""))),
        Record(2, NOON - 5, b"", None, ()),
        Record(3, -1, b"k", b"", ()),
    ]
    files = partition_files(path.parent, "parquet")
    write_batch(files, batch_bytes(wanted))
    (file,) = files.finish()
    with reader_of(path.parent / "_repl/f" / file.staged) as reader:
        assert unpacked(read_all(reader)) == wanted


TIMES = pa.array([1_500_000, None], pa.timestamp("us", "UTC"))
HEADERS = pa.array(
    [[{"key": "h", "value": "1"}], None], pa.list_(pa.struct([("key", pa.string()), ("value", pa.string())]))
)


@pytest.mark.parametrize(
    ("columns", "expected"),
    [
        ({"value": ["a", None]}, [(None, b"a"), (None, None)]),
        ({"key": ["k", None], "value": [b"a", b"b"]}, [(b"k", b"a"), (None, b"b")]),
        ({"value": ["a", "b"], "partition": [1, 2], "headers": HEADERS}, [(None, b"a"), (None, b"b")]),
        ({"value": ["a", "b"], "timestamp": TIMES}, [(None, b"a"), (None, b"b")]),
        ({"value": pa.array(["a", "a"]).dictionary_encode()}, [(None, b"a"), (None, b"a")]),
        ({"value": [1, 2]}, [(None, b'{"value":1}'), (None, b'{"value":2}')]),
        ({"value": ["a"], "id": [1]}, [(None, b'{"value":"a","id":1}')]),
        ({"key": ["a", "b"]}, [(None, b'{"key":"a"}'), (None, b'{"key":"b"}')]),
        (
            {"value": ["a", "b"], "timestamp": [1, 2]},
            [(None, b'{"value":"a","timestamp":1}'), (None, b'{"value":"b","timestamp":2}')],
        ),
    ],
)  # fmt: skip
def test_rows_are_records_where_all_columns_are_those_of_records(
    path: Path, columns: dict[str, Any], expected: list[Any]
) -> None:
    write(path, columns)
    with reader_of(path) as reader:
        found = unpacked(read_all(reader))
    assert [(one.key, one.value) for one in found] == expected
    if columns.get("headers") is HEADERS:
        assert [one.headers for one in found] == [(("h", b"1"),), ()]
    if columns.get("timestamp") is TIMES:
        assert [one.timestamp for one in found] == [1_500, -1]


def test_a_file_without_a_footer_is_not_complete(path: Path) -> None:
    """Such as every part of a file before its end."""
    write(path, {"a": list(range(10))})
    content = path.read_bytes()
    parts = [content[:end] for end in range(0, len(content), 7)]
    for part in (*parts, b"PAR1", b"PAR1" + b"x" * 100, b"one\ntwo\n"):
        path.write_bytes(part)
        with reader_of(path) as reader:
            problem = reader.problem()
            assert (reader.size(), problem and problem.state) == (0, PartitionState.CAUGHT_UP)
    path.write_bytes(content)
    with reader_of(path) as reader:
        assert (reader.size(), reader.problem()) == (10, None)


@pytest.mark.parametrize(
    ("end", "why"),
    [
        (b"\xff\xff\xff\x7fPAR1", "smaller than the size reported by footer"),
        (b"\x10\0\0\0PAR1", "Couldn't deserialize thrift"),
        (b"\x10\0\0\0PARE", "encrypted"),
    ],
)
def test_a_damaged_footer_is_named(path: Path, end: bytes, why: str) -> None:
    path.write_bytes(b"PAR1" + b"x" * 100 + end)
    with reader_of(path) as reader:
        problem = reader.problem()
    assert problem is not None
    assert problem.state is PartitionState.RECORD_CORRUPT
    assert problem.why.startswith("its footer can't be read: ")
    assert why in problem.why


def test_very_many_columns_take_no_time(path: Path) -> None:
    """The driver reads the footer of each file that appears."""
    write(path, {f"column{number}": [1] for number in range(12_000)})
    began = time.process_time()
    with reader_of(path) as reader:
        assert (reader.size(), reader.problem()) == (1, None)
    assert time.process_time() - began < 2


def test_a_damaged_row_group_is_named_and_those_before_it_are_read(path: Path) -> None:
    columns = {"a": [f"{number:09}" for number in range(30)]}
    write(path, columns, rows=10, compression="none", use_dictionary=False, write_page_checksum=True)
    content = path.read_bytes()
    path.write_bytes(content.replace(b"000000025", b"0000000?5", 1))
    with reader_of(path) as reader:
        found = read_all(reader)
    assert (len(found.records), found.position, found.more) == (20, 20, True)
    assert found.problem is not None
    assert found.problem.state is PartitionState.RECORD_CORRUPT
    assert found.problem.why.startswith("row group 2 can't be read from row 20 on: ")


def test_text_that_is_not_utf8_stops_its_row_group(path: Path) -> None:
    bad = pa.Array.from_buffers(pa.string(), 1, [None, *pa.array([b"\xff"]).buffers()[1:]])
    write(path, {"a": bad, "b": [1]})
    with reader_of(path) as reader:
        found = reader.read(0, LONGEST)
    assert found.problem is not None
    assert (found.problem.state, found.position) == (PartitionState.RECORD_CORRUPT, 0)
    assert "row group 0 can't be read from row 0 on" in found.problem.why


def test_a_row_that_no_record_can_hold_is_named(path: Path) -> None:
    write(path, {"value": ["a", "b", "x" * 200, "c"]})
    with reader_of(path) as reader:
        found = read_all(reader, longest=100)
    assert (len(found.records), found.position) == (2, 2)
    why = "the row 2 has 204 bytes, and the topic takes records of 100 bytes"
    assert found.problem == (PartitionState.RECORD_TOO_LARGE, why)
    assert values_of(path, 3) == [b"c"]


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    sizes=st.lists(st.integers(0, 400), max_size=80),
    rows=st.integers(1, 100),
    position=st.integers(0, 80),
    data=st.data(),
)
def test_reading_resumes_at_any_row(
    path: Path, sizes: list[int], rows: int, position: int, data: st.DataObject
) -> None:
    wanted = [f"{number}:{'x' * size}".encode() for number, size in enumerate(sizes)]
    write(path, {"value": pa.array(wanted, pa.binary())}, rows=rows)
    position = min(position, len(wanted))
    again = data.draw(st.integers(position, len(wanted)))
    with reader_of(path) as reader:
        found = [one.value for one in unpacked(read_all(reader, position))]
        assert (reader.size(), reader.midway) == (len(wanted), False)
        later = [one.value for one in unpacked(read_all(reader, again))]
    assert found == wanted[position:]
    assert later == wanted[again:]


def test_a_large_row_group_is_read_in_parts_and_resumed_inside(path: Path) -> None:
    """Twenty parts of a transaction each; what Arrow holds in between stays far below the row group (R8)."""
    block = os.urandom(100_000)
    values = [block + number.to_bytes(4) for number in range(800)]
    write(path, {"value": values}, use_dictionary=False, write_batch_size=10)  # a page is about 1 MiB
    most, position = 0, 0
    with reader_of(path) as reader:
        while (part := reader.read(position, LONGEST)).position > position:
            most = max(most, pa.total_allocated_bytes())
            numbers = [int.from_bytes(one.value[-4:]) for one in unpacked(part) if one.value]
            assert numbers == list(range(position, part.position))
            position = part.position
            assert reader.midway == (position < 800)
    assert position == 800
    assert most < 24 << 20
    assert values_of(path, 799) == [block + (799).to_bytes(4)]


def test_values_that_a_dictionary_repeats_do_not_come_all_at_once(path: Path) -> None:
    write(path, {"value": ["x" * 500_000] * 100})
    with reader_of(path) as reader:
        part = reader.read(0, LONGEST)
    assert len(part.records) < 20
    assert values_of(path, 95) == [b"x" * 500_000] * 5


def test_small_row_groups_are_read_at_once(path: Path) -> None:
    write(path, {"value": ["a"] * 1_000}, rows=7)
    with reader_of(path) as reader:
        found = reader.read(3, LONGEST)
    assert (len(found.records), found.position, found.more, found.size) == (997, 1_000, False, 997 * 4)


def test_a_file_that_was_written_again_is_another_file(path: Path) -> None:
    write(path, {"value": ["a", "b"]})
    with reader_of(path) as reader:
        first = reader.fingerprint(1)
        assert (reader.fingerprint(0), reader.fingerprint(2)) == (b"", first)
        os.utime(path, (1, 1))
        assert reader.fingerprint(1) == first
        write(path, {"value": ["a", "c"]})
        assert reader.fingerprint(1) is None
    with reader_of(path) as reader:
        assert reader.fingerprint(1) not in (None, first)


def test_a_look_shows_rows_as_sizes_and_files_that_are_not_read(path: Path) -> None:
    folder = path.parent
    write(path, {"a": [1, 2, 3]})
    for name in ("_SUCCESS", ".part.crc", "_temporary"):
        (folder / name).write_text("")
    (folder / "part").write_bytes(b"PAR1")
    (folder / "bad").write_bytes(b"x" * 100 + b"\x10\0\0\0PAR1")
    (folder / "secret").write_bytes(b"")
    (folder / "secret").chmod(0)
    source = FolderSource(folder, in_rows=True)
    for _ in range(2):
        found = source.look()
        assert {name: state.size for name, state in found.files.items()} == {
            "a.parquet": 3, "part": 0, "bad": 0, "secret": 0,
        }  # fmt: skip
        states = {name: one.state for name, one in found.problems.items()}
        incomplete, corrupt = PartitionState.CAUGHT_UP, PartitionState.RECORD_CORRUPT
        hidden = incomplete if os.access(folder / "secret", os.R_OK) else PartitionState.RETRYING
        assert states == {"part": incomplete, "bad": corrupt, "secret": hidden}
    write(folder / "part", {"a": [1, 2]})
    found = source.look()
    assert (found.files["part"].size, "part" in found.problems) == (2, False)


def test_the_driver_recognises_a_file_by_its_footer(path: Path) -> None:
    lines = LinesSpec(endpoint="e", folder=str(path.parent), format="parquet", topic="t")
    source = source_of(lines)
    write(path, {"at": [datetime(2026, 1, 31, tzinfo=UTC)] * 5})
    with reader_of(path) as reader:
        mark = reader.fingerprint(3)
    assert mark is not None
    known = KnownFile("a.parquet", 3, mark, path.stat().st_ino)
    path.rename(path.parent / "b.parquet")
    files = source.look().files
    assert source.holds(files, "b.parquet", known)
    write(path.parent / "b.parquet", {"at": [datetime(2026, 2, 1, tzinfo=UTC)] * 5})
    assert not source.holds(source.look().files, "b.parquet", known)
    assert source.holds(files, "b.parquet", known._replace(position=0, fingerprint=b""))
