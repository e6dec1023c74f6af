"""A Spark application in the foreground: heard, failed with its last words, and never left behind."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import psutil
import pytest

from runtime.launch.command import run_once
from runtime.launch.launcher import LaunchError
from tests.fakes.spark import FakeSpark

_RUN = """
import pathlib, sys
from runtime.launch.command import run_once
run_once(pathlib.Path("my_main.py"), [], said=lambda line: print(line, flush=True), prefix="the driver ")
"""


def environ(spark: FakeSpark) -> dict[str, str]:
    return {**os.environ, "SPARK_HOME": str(spark.home)}


def test_what_it_says_for_people_is_passed_on(tmp_path: Path) -> None:
    spark, heard = FakeSpark(tmp_path), list[str]()
    spark.drivers("end 0 0")
    run_once(Path("my_main.py"), [], said=heard.append, prefix="the driver ", environ=environ(spark))
    assert heard == ["is told to end 0 0"]


def test_a_failure_comes_with_its_last_lines(tmp_path: Path) -> None:
    spark = FakeSpark(tmp_path)
    spark.drivers("end 3 0")
    with pytest.raises(LaunchError, match="ended with 3") as caught:
        run_once(
            Path("my_main.py"), [], said=lambda _: None, prefix="nothing begins so", environ=environ(spark)
        )
    assert caught.value.log == ("the driver is told to end 3 0",)


def test_without_java_nothing_is_started(tmp_path: Path) -> None:
    bare = {"SPARK_HOME": str(FakeSpark(tmp_path).home), "PATH": ""}
    with pytest.raises(LaunchError, match="Java"):
        run_once(Path("my_main.py"), [], said=lambda _: None, prefix="", environ=bare)


@pytest.mark.parametrize("deadly", ["terminate", "kill"])
def test_it_does_not_outlive_who_started_it(tmp_path: Path, deadly: str) -> None:
    spark = FakeSpark(tmp_path)
    with subprocess.Popen(
        [sys.executable, "-c", _RUN], env=environ(spark), stdout=subprocess.PIPE, text=True
    ) as command:
        assert command.stdout is not None
        assert command.stdout.readline() == "is told to run\n"
        children = psutil.Process(command.pid).children(recursive=True)
        assert len(children) == 2
        getattr(command, deadly)()
        _, alive = psutil.wait_procs(children, timeout=60)
        assert not alive
