"""How the driver's process ends without Spark, and that the zip for a cluster holds all that it imports."""

import os
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from runtime.contract.spec import jobspec
from runtime.contract.spec.cluster import ClusterSpec
from runtime.contract.spec.jobspec import JobExit, JobSpec
from runtime.driver.package import package
from runtime.launch.command import MAIN

pytestmark = pytest.mark.slow


@pytest.mark.parametrize(
    ("submit", "why"),
    [(None, "No such file or directory"), ("#!/bin/sh\necho no java; exit 1", "JAVA_GATEWAY_EXITED")],
)
def test_a_spark_that_does_not_start_is_one_error_even_while_the_destination_is_away(
    tmp_path: Path, submit: str | None, why: str
):
    (tmp_path / "bin").mkdir()
    if submit is not None:
        (tmp_path / "bin" / "spark-submit").write_text(submit)
        (tmp_path / "bin" / "spark-submit").chmod(0o755)
    away = ClusterSpec(bootstrap="127.0.0.1:9")
    file = tmp_path / "spec.json"
    spec = JobSpec(
        job="shop", topology="tests", destination="dc2", clusters={"dc2": away}, flows=[], metrics=None
    )
    file.write_bytes(jobspec.encode(spec))

    ended = subprocess.run(
        [sys.executable, str(MAIN), "--spec", str(file)],
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
        env={**os.environ, "SPARK_HOME": str(tmp_path)},
    )

    assert ended.returncode == JobExit.FAILED  # a supervisor starts it again
    *_, last = ended.stderr.splitlines()
    assert "Spark did not start for the job shop" in last
    assert why in last
    assert "job.log" in last
    assert "Traceback" not in ended.stderr


MODULES = (
    "runtime.driver.job",
    "runtime.driver.task",
    "runtime.sql.query",
    "runtime.sql.evaluator",
    "runtime.audit.on_spark",
    "runtime.audit.verify.task",
    "runtime.replay.task",
)
IMPORTS = """
import importlib, sys
sys.path.insert(0, sys.argv[1])
for name in sys.argv[2:]:
    importlib.import_module(name)
print(*(one.__file__ for name, one in sys.modules.items() if name.split(".")[0] == "runtime"), sep="\\n")
"""


def test_modules_that_spark_runs_need_the_zip_alone(tmp_path: Path):
    """An editable install would serve what the zip lacks: each module must come from the zip."""
    file, again = package(tmp_path / "runtime.zip"), package(tmp_path / "again.zip")
    command = [sys.executable, "-P", "-c", IMPORTS, str(file), *MODULES]
    done = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path, check=False)
    assert done.returncode == 0, done.stderr
    assert {one for one in done.stdout.split() if not one.startswith(str(file))} == set()
    assert file.read_bytes() == again.read_bytes()
    assert not [name for name in zipfile.ZipFile(file).namelist() if not name.startswith("runtime/")]
