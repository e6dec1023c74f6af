"""`make dist`: the wheel is complete, passes twine's checks, and is the same in every checkout."""

import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from tests.dist.conftest import ROOT, build, sources

pytestmark = pytest.mark.slow


def test_the_wheel_holds_every_file_of_both_packages(built: tuple[Path, Path], tmp_path: Path) -> None:
    held = set(zipfile.ZipFile(built[0]).namelist())
    copy = sources(tmp_path)
    wanted = {
        str(path.relative_to(copy))
        for package in ("planner", "runtime")
        for path in (copy / package).rglob("*")
        if path.is_file()
    }
    assert {"planner/py.typed", "runtime/metrics/dashboards/flow.json"} <= wanted
    assert not wanted - held
    assert not {name.partition("/")[0] for name in held - wanted} - {f"{built[0].name[:16]}.dist-info"}


def test_two_builds_are_equal_byte_by_byte(built: tuple[Path, Path], tmp_path: Path) -> None:
    again = build(sources(tmp_path / "elsewhere"), tmp_path / "dist")
    assert [one.name for one in again] == [one.name for one in built]
    assert [one.read_bytes() == other.read_bytes() for one, other in zip(again, built, strict=True)] == [
        True,
        True,
    ]


def test_an_index_takes_them(built: tuple[Path, Path]) -> None:
    command = [sys.executable, "-m", "twine", "check", "--strict", *map(str, built)]
    done = subprocess.run(command, capture_output=True, text=True, cwd=ROOT, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
