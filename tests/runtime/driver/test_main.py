"""How the driver's process ends without Spark, and that the zip for a cluster holds all that it imports."""

import os
import signal
import subprocess
import sys
import zipfile
from pathlib import Path
from typing import Any

import pytest

from runtime.contract.launching import EXECUTOR_POD
from runtime.contract.spec import jobspec
from runtime.contract.spec.cluster import ClusterSpec
from runtime.contract.spec.jobspec import JobExit, JobSpec
from runtime.contract.spec.launch import LaunchSpec
from runtime.driver.package import package
from runtime.launch.command import MAIN
from tests.records import wait_for

pytestmark = pytest.mark.slow


AWAY = ClusterSpec(bootstrap="127.0.0.1:9")


def spec_file(folder: Path, dc2: ClusterSpec = AWAY, **more: Any) -> Path:
    """Writes the spec of a job without flows, whose destination does not answer."""
    clusters = {"dc2": dc2}
    spec = JobSpec(
        job="shop", topology="tests", destination="dc2", clusters=clusters, flows=[], metrics=None, **more
    )
    file = folder / "spec.json"
    file.write_bytes(jobspec.encode(spec))
    return file


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
    file = spec_file(tmp_path)

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


def test_a_job_stops_while_spark_waits_for_resources(tmp_path: Path) -> None:
    (tmp_path / "bin").mkdir()
    submit = tmp_path / "bin" / "spark-submit"
    submit.write_text('#!/bin/sh\n: > "$SPARK_HOME/waits"; exec sleep 300')
    submit.chmod(0o755)
    file = spec_file(tmp_path)
    environ = {**os.environ, "SPARK_HOME": str(tmp_path)}
    with subprocess.Popen(
        [sys.executable, str(MAIN), "--spec", str(file)],
        env=environ,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    ) as driver:
        try:
            wait_for((tmp_path / "waits").exists)
            driver.terminate()
            assert driver.wait(60) == JobExit.STOPPED
        finally:
            os.killpg(driver.pid, signal.SIGKILL)


def on_kubernetes(folder: Path, **client: Any) -> subprocess.Popen[str]:
    """Starts a driver that finds no Spark, and whose destination is away."""
    (folder / "executor.json").write_text('{"metadata": {"labels": {"a": "b"}}}')
    launch = LaunchSpec(launcher="kubernetes", master="k8s://https://127.0.0.1:9")
    file = spec_file(folder, ClusterSpec(bootstrap="127.0.0.1:9", client=client), launch=launch)
    environ = {
        **os.environ,
        "SPARK_HOME": str(folder),
        "KUBERNETES_SERVICE_HOST": "127.0.0.1",
        "KUBERNETES_SERVICE_PORT": "9",
        EXECUTOR_POD: str(folder / "executor.json"),
    }
    command = [sys.executable, str(MAIN), "--spec", str(file), "--restarted"]
    return subprocess.Popen(command, stderr=subprocess.PIPE, text=True, env=environ)


def test_on_kubernetes_spark_starts_only_in_the_driver_that_leads(tmp_path: Path):
    """Its start deletes the executors of the driver before, which may be the one that runs the job."""
    with on_kubernetes(tmp_path) as driver:
        assert driver.stderr is not None
        waits = (line for line in driver.stderr if "waiting for dc2" in line)
        for _ in range(2):
            next(waits)
        driver.send_signal(signal.SIGTERM)
        rest = driver.stderr.read()
    assert "Spark did not start" not in rest
    assert "Traceback" not in rest
    assert driver.returncode == JobExit.STOPPED


@pytest.mark.parametrize(
    ("password", "ends"),
    [({"env": "NOT_SET"}, JobExit.BAD_SPEC), ({"file": "/absent/NOT_SET"}, JobExit.FAILED)],
)
def test_a_driver_that_lacks_a_secret_ends_and_is_started_again_where_a_file_may_come_back(
    tmp_path: Path, password: dict[str, str], ends: JobExit
):
    with on_kubernetes(tmp_path, **{"sasl.password": password}) as driver:
        _, said = driver.communicate(timeout=120)
    assert "NOT_SET" in said
    assert driver.returncode == ends


MODULES = (
    "runtime.driver.job",
    "runtime.driver.task",
    "runtime.driver.slots.worker",
    "runtime.sql.query",
    "runtime.sql.evaluator",
    "runtime.audit.on_spark",
    "runtime.audit.verify.verification",
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
