"""The zip for a cluster holds all that the driver imports, and nothing of the planner."""

import subprocess
import sys
import zipfile
from pathlib import Path

from runtime.driver.package import package


def test_the_driver_runs_from_the_zip_alone(tmp_path: Path):
    file = package(tmp_path / "runtime.zip")
    program = (
        "import sys; sys.path.insert(0, sys.argv[1]); import runtime.driver.job, runtime.driver.task; "
        "print(runtime.driver.job.__file__)"
    )
    done = subprocess.run(
        [sys.executable, "-P", "-c", program, str(file)],
        capture_output=True,
        text=True,
        cwd=tmp_path,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert str(file) in done.stdout


def test_the_same_sources_give_the_same_bytes(tmp_path: Path):
    one, two = package(tmp_path / "one.zip"), package(tmp_path / "two.zip")
    assert one.read_bytes() == two.read_bytes()
    assert not [name for name in zipfile.ZipFile(one).namelist() if not name.startswith("runtime/")]
