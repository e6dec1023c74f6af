"""`repl restore` where it is refused, before any cluster is asked."""

from collections.abc import Callable
from pathlib import Path

import pytest

from planner.model.diagnostic import ExitCode
from tests.planner.cli.shop import refused, shop
from tests.runtime.files.backups import ONE, WrittenBackup, text_of

NOON = 1_769_860_800_000  # 2026-01-31T12:00:00Z


def declared(tmp_path: Path, form: str = "raw") -> Path:
    flow = "  - {name: f, from: dc1, to: archive, topics: {include: orders}}\n"
    endpoint = f"endpoints:\n  archive: {{file: {tmp_path}/archive, format: {form}}}\n"
    return shop(tmp_path, flow + endpoint)


@pytest.fixture
def backup(tmp_path: Path) -> WrittenBackup:
    folder = tmp_path / "archive"
    folder.mkdir()
    made = WrittenBackup(folder)
    made.commit(NOON, ONE, 2, text_of(0, [NOON, NOON + 1000]))
    made.commit(NOON + 5000, ONE, 3, text_of(2, [NOON + 2000]))
    return made


def edited(backup: WrittenBackup) -> None:
    first = min((backup.folder / "_repl/f/log").iterdir())
    first.write_bytes(first.read_bytes().replace(b'"records":2', b'"records":3'))


def removed(backup: WrittenBackup) -> None:
    min((backup.folder / "_repl/f/log").iterdir()).unlink()


def cut_off(backup: WrittenBackup) -> None:
    last = max((backup.folder / "_repl/f/log").iterdir())
    last.write_bytes(last.read_bytes()[:-20])


def unmounted(backup: WrittenBackup) -> None:
    backup.folder.rename(backup.folder.with_name("elsewhere"))


def second_flow(backup: WrittenBackup) -> None:
    WrittenBackup(backup.folder, flow="g").commit(NOON, ONE, 0)


def other_format(backup: WrittenBackup) -> None:
    WrittenBackup(backup.folder, "json", "j").commit(NOON, ONE, 0)


def untouched(_backup: WrittenBackup) -> None:
    return


@pytest.mark.parametrize(
    ("change", "options", "code", "said"),
    [
        (edited, (), ExitCode.REFUSED, "it was cut off or edited"),
        (cut_off, (), ExitCode.REFUSED, "it was cut off or edited"),
        (removed, (), ExitCode.REFUSED, "the commit 1 is missing"),
        (unmounted, (), ExitCode.ERROR, "is not there — mount the folder on this machine"),
        (second_flow, (), ExitCode.ERROR, "holds the backups of several flows: f, g"),
        (other_format, ("--flow", "j"), ExitCode.REFUSED, "flow j has written json files"),
        (untouched, ("--flow", "x"), ExitCode.ERROR, "holds no backup of a flow x — its flows: f"),
        (untouched, ("--topics", "o"), ExitCode.ERROR, "holds no topic that matches o — its topics: orders"),
        (
            untouched,
            ("--until", "2026-01-31T11:59:59Z"),
            ExitCode.ERROR,
            "holds no record up to 2026-01-31T11:59:59Z — its first record is of 2026-01-31T12:00:00Z",
        ),
        (untouched, ("--until", "noon"), ExitCode.ERROR, "noon"),
        (untouched, ("--prefix", "a", "--rename", "{topic}b"), ExitCode.ERROR, "give one of them"),
        (untouched, ("--rename", "b"), ExitCode.ERROR, "--rename holds {topic} once"),
        (untouched, (), ExitCode.ERROR, "dc2 can't be read"),
    ],
)
def test_refused(
    backup: WrittenBackup,
    tmp_path: Path,
    change: Callable[[WrittenBackup], None],
    options: tuple[str, ...],
    code: ExitCode,
    said: str,
    capsys: pytest.CaptureFixture[str],
) -> None:
    change(backup)
    arguments = ("restore", "archive", "--to", "dc2", *options, "--timeout", "1s")
    refused(declared(tmp_path), code, said, capsys, *arguments)


@pytest.mark.parametrize(
    ("arguments", "code", "said"),
    [
        (("nowhere", "--to", "dc2"), ExitCode.ERROR, "there is no endpoint nowhere in this topology"),
        (("archive", "--to", "dc3"), ExitCode.ERROR, "there is no cluster dc3 in this topology"),
        (("archive",), ExitCode.ERROR, "--to"),
    ],
)
def test_names_that_the_topology_does_not_declare(
    tmp_path: Path, arguments: tuple[str, ...], code: ExitCode, said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    refused(declared(tmp_path), code, said, capsys, "restore", *arguments)


def test_files_of_another_format_are_no_backup(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    said = "the endpoint archive holds parquet files, and only raw files are a backup"
    file = declared(tmp_path, "parquet")
    refused(file, ExitCode.REFUSED, said, capsys, "restore", "archive", "--to", "dc2")
