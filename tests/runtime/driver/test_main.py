"""How the driver's process ends, as far as no Spark is needed for it."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from runtime.contract.spec import jobspec
from runtime.contract.spec.jobspec import ClusterSpec, JobExit, JobSpec
from runtime.launch.command import MAIN


def test_a_final_end_can_count_as_a_success(tmp_path: Path):
    """For who knows success and failure only, and starts anew after every failure."""
    file = tmp_path / "spec.json"
    file.write_text("{}")
    command = [sys.executable, str(MAIN), "--spec", str(file)]
    first = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
    assert first.returncode == JobExit.BAD_SPEC
    assert "not a job spec" in first.stderr
    second = subprocess.run([*command, "--final-is-success"], capture_output=True, check=False, timeout=60)
    assert second.returncode == JobExit.STOPPED


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
        job="shop", topology="tests", destination="dc2", clusters={"dc2": away}, flows=[], metrics_port=None
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
