"""The zip for a cluster holds all that a driver and its tasks import, and nothing of the planner."""

import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from runtime.driver.package import package


@pytest.mark.parametrize(
    "module",
    [
        "runtime.driver.job",
        "runtime.driver.task",
        "runtime.sql.query",
        "runtime.sql.evaluator",
        "runtime.audit.verify.task",
        "runtime.replay.task",
    ],
)
def test_what_spark_runs_needs_the_zip_alone(module: str, tmp_path: Path):
    """An editable install would serve what the zip lacks: each module must come from the zip."""
    file = package(tmp_path / "runtime.zip")
    program = (
        "import importlib, sys; sys.path.insert(0, sys.argv[1]); importlib.import_module(sys.argv[2]); "
        "ours = [one for name, one in sys.modules.items() if name.split('.')[0] == 'runtime']; "
        "print(*(one.__file__ for one in ours), sep='\\n')"
    )
    done = subprocess.run(
        [sys.executable, "-P", "-c", program, str(file), module],
        capture_output=True,
        text=True,
        cwd=tmp_path,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert {one for one in done.stdout.split() if not one.startswith(str(file))} == set()


def test_the_same_sources_give_the_same_bytes(tmp_path: Path):
    one, two = package(tmp_path / "one.zip"), package(tmp_path / "two.zip")
    assert one.read_bytes() == two.read_bytes()
    assert not [name for name in zipfile.ZipFile(one).namelist() if not name.startswith("runtime/")]
