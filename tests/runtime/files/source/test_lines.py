"""Which lines of a file are complete, and what became of files that were read before."""

import os
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from runtime.contract.records.job_status import PartitionState
from runtime.files.source.folder import list_files, open_file
from runtime.files.source.known_files import FileState, KnownFile, partition_for, reconcile
from runtime.files.source.lines import LineReader, ReadRecords, fingerprint
from runtime.files.source.open_file import LocalFile
from tests.runtime.files.source.rows import read_all, unpacked

LONGEST = 100


def opened(path: Path) -> LocalFile:
    return open_file(path.parent, path.name)


def read(
    path: Path, content: bytes, position: int = 0, form: str = "text", most: int = 1 << 20
) -> ReadRecords:
    path.write_bytes(content)
    with opened(path) as file:
        return LineReader(file, form, most).read(position, LONGEST)  # type: ignore[arg-type]


def lines_of(*args: Any, **named: Any) -> tuple[list[bytes | None], int]:
    """The values of the records, and the position behind them."""
    found = read(*args, **named)
    return [record.value for record in unpacked(found)], found.position


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "app.log"


def test_a_line_is_read_once_it_is_complete(path: Path) -> None:
    assert lines_of(path, b"one\ntwo\nthr") == ([b"one", b"two"], 8)
    assert lines_of(path, b"one\ntwo\nthree\r\n", 8) == ([b"three"], 15)
    assert lines_of(path, b"") == ([], 0)


def test_a_topic_that_takes_long_records_makes_no_transaction_longer(path: Path) -> None:
    """So much is read at a time, and only a line that is longer is read as a whole."""
    short, long = b"0123\n" * 10, b"x" * (LONGEST - 1) + b"\n"
    found = read(path, short + long + short, most=16)
    assert (len(found.records), found.position, found.more) == (3, 15, True)
    found = read(path, short + long + short, len(short), most=16)
    assert (len(found.records), found.position, found.more) == (1, len(short + long), True)


def test_empty_lines_are_records_of_text_and_not_of_json(path: Path) -> None:
    assert lines_of(path, b"\n\r\na\rb\n") == ([b"", b"", b"a\rb"], 7)
    assert lines_of(path, b'\n {"a":1}\n\r\n', form="json") == ([b' {"a":1}'], 12)


@pytest.mark.parametrize(
    ("form", "line", "state", "why"),
    [
        (
            "text",
            b"caf\xe9",
            PartitionState.RECORD_CORRUPT,
            "the line at byte 3 is not UTF-8: unexpected end of data at its byte 3",
        ),
        ("json", b"{oops}", PartitionState.RECORD_CORRUPT, "the line at byte 3 is not JSON"),
        ("json", b'{"a": NaN}', PartitionState.RECORD_CORRUPT, "the line at byte 3 is not JSON"),
        (
            "text",
            b"x" * 101,
            PartitionState.RECORD_TOO_LARGE,
            "the line at byte 3 has 101 bytes, and the topic takes records of 100",
        ),
    ],
)
def test_what_no_record_can_be_made_of_stops_the_file(
    path: Path, form: str, line: bytes, state: PartitionState, why: str
) -> None:
    found = read(path, b"1\r\n" + line + b"\n2\n", form=form)
    assert [record.value for record in unpacked(found)] == [b"1"]
    assert found.position == 3
    assert found.problem is not None
    assert found.problem.state is state
    assert found.problem.why.startswith(why)


def test_a_line_without_an_end_is_too_long_before_all_of_it_is_read(path: Path) -> None:
    found = read(path, b"x" * 5_000, most=100)
    assert found.problem is not None
    assert (found.problem.state, found.position, found.more) == (PartitionState.RECORD_TOO_LARGE, 0, True)


@given(st.lists(st.binary(max_size=30).map(lambda one: one.hex().encode()), max_size=30), st.integers(1, 200))
def test_however_much_is_read_at_a_time_the_lines_are_the_same(lines: list[bytes], most: int) -> None:
    content = b"".join(line + b"\n" for line in lines) + b"rest"
    descriptor = os.memfd_create("lines")
    os.write(descriptor, content)
    with LocalFile(descriptor) as file:
        found = read_all(LineReader(file, "text", most), longest=LONGEST)
    assert [record.value for record in unpacked(found)] == lines
    assert found.position == len(content) - len(b"rest")


def test_the_fingerprint_is_of_the_bytes_before_the_position(path: Path) -> None:
    content = os.urandom(5_000)
    path.write_bytes(content)
    with opened(path) as file:
        before = fingerprint(file, 4_000)
        assert before is not None
        assert fingerprint(file, 5_001) is None
        path.write_bytes(content + b"more")
        assert fingerprint(file, 4_000) == before
        path.write_bytes(content[:3_999] + bytes([content[3_999] ^ 1]) + content[4_000:])
        assert fingerprint(file, 4_000) != before


def test_hidden_and_compressed_files_folders_and_links_are_not_read(tmp_path: Path) -> None:
    for name in ("a.log", ".hidden", "_temporary", "a.log.2.gz"):
        (tmp_path / name).write_text("line\n")
    (tmp_path / "folder").mkdir()
    (tmp_path / "link").symlink_to("/etc/passwd")
    found = list_files(tmp_path)
    assert list(found.files) == ["a.log"]
    assert found.ignored == {"compressed files": 1, "folders and special files": 1, "symbolic links": 1}
    with pytest.raises(OSError, match="link"):
        open_file(tmp_path, "link")


def test_files_of_sub_folders_have_their_relative_paths_as_names(tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    inbox = tmp_path / "in"
    for name in ("a.log", "eu/a.log", "eu/west/2026.gz/b.log", "_spark/c.log", "eu/.git/d.log", "eu/c.gz"):
        (inbox / name).parent.mkdir(parents=True, exist_ok=True)
        (inbox / name).write_text("line\n")
    outside.mkdir()
    (outside / "secret.log").write_text("secret\n")
    (inbox / "linked").symlink_to(outside)
    (inbox / "eu" / "linked.log").symlink_to(outside / "secret.log")
    assert list(list_files(inbox).files) == ["a.log"]
    found = list_files(inbox, recursive=True)
    assert sorted(found.files) == ["a.log", "eu/a.log", "eu/west/2026.gz/b.log"]
    assert found.ignored == {"symbolic links": 2, "compressed files": 1}
    with open_file(inbox, "eu/west/2026.gz/b.log") as file:
        assert file.read(0, 99) == b"line\n"


@pytest.mark.parametrize(
    "name", ["linked/secret.log", "eu/linked.log", "../outside/secret.log", "eu/../../outside/secret.log"]
)
def test_no_name_leads_out_of_the_folder(tmp_path: Path, name: str) -> None:
    """A folder may be exchanged for a link between a look and the opening of its files."""
    (tmp_path / "in" / "eu").mkdir(parents=True)
    (tmp_path / "outside").mkdir()
    (tmp_path / "outside" / "secret.log").write_text("secret\n")
    (tmp_path / "in" / "linked").symlink_to(tmp_path / "outside")
    (tmp_path / "in" / "eu" / "linked.log").symlink_to(tmp_path / "outside" / "secret.log")
    with pytest.raises(OSError, match=r"\[Errno"):
        open_file(tmp_path / "in", name)


def test_folders_of_other_file_systems_are_counted_and_not_read() -> None:
    """Their files may have the inodes of files of the first one. /dev/shm is a file system of its own."""
    assert Path("/dev/shm").stat().st_dev != Path("/dev").stat().st_dev
    found = list_files(Path("/dev"), recursive=True)
    assert not any(name.startswith("shm/") for name in found.files)
    assert found.ignored["folders of other file systems"] >= 1


FIRST, SECOND = KnownFile("app.log", 10, b"first", 1), KnownFile("app.log.1", 20, b"second", 2)


@pytest.mark.parametrize(
    ("names", "moved", "replaced", "vanished", "new"),
    [
        ({"app.log": FIRST, "app.log.1": SECOND}, [], [], [], []),
        (
            {"app.log": None, "app.log.1": FIRST, "app.log.2": SECOND},
            [(FIRST, "app.log.1"), (SECOND, "app.log.2")],
            [],
            [],
            ["app.log"],
        ),
        ({"app.log": None, "app.log.1": SECOND}, [], [FIRST], [], []),
        ({"app.log.1": SECOND, "other": None}, [], [], [FIRST], ["other"]),
        ({"app.log": SECOND, "app.log.1": FIRST}, [(FIRST, "app.log.1"), (SECOND, "app.log")], [], [], []),
        ({"copy": FIRST._replace(identity=3), "app.log.1": SECOND}, [], [], [FIRST], ["copy"]),
        (
            {"app.log": None, "app.log.1": SECOND, "reused": KnownFile("", 0, b"", 1)},
            [],
            [FIRST],
            [],
            ["reused"],
        ),
    ],
    ids=["in place", "rotated", "truncated", "vanished", "swapped", "a copy", "the inode of another file"],
)
def test_files_are_recognised_by_what_was_read_of_them(
    names: dict[str, KnownFile | None],
    moved: list[tuple[KnownFile, str]],
    replaced: list[KnownFile],
    vanished: list[KnownFile],
    new: list[str],
) -> None:
    files = {name: FileState(100, one.identity if one is not None else 9) for name, one in names.items()}
    known = {one.name: one for one in (FIRST, SECOND)}
    found = reconcile(files, known, lambda name, one: _bytes(names[name]) == _bytes(one))
    assert (found.moved, found.replaced, found.vanished, found.new) == (moved, replaced, vanished, new)


def _bytes(one: KnownFile | None) -> bytes | None:
    return one.fingerprint if one is not None else None


def test_a_second_link_to_a_file_that_is_read_is_not_a_new_file() -> None:
    files = {"app.log": FileState(100, 1), "app.log.1": FileState(100, 1)}
    found = reconcile(files, {"app.log": FIRST}, lambda name, one: name == "app.log")
    assert found.new == []


def test_the_lines_of_a_file_stay_in_one_partition() -> None:
    found = {partition_for(f"file-{number}", 8) for number in range(200)}
    assert found == set(range(8))
    assert partition_for("app.log", 8) == partition_for("app.log", 8)
