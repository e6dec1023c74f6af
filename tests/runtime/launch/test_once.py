"""A Spark application in the foreground: heard, failed with its last words, and never left behind."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psutil
import pytest

from runtime.contract.launching import LaunchError
from runtime.launch.command import deadline_of, run_once
from tests.fakes.spark import FakeSpark

pytestmark = pytest.mark.slow

_RUN = """
import asyncio, pathlib
from runtime.launch.command import run_once
said = lambda line: print(line, flush=True)
asyncio.run(run_once(pathlib.Path("my_main.py"), [], said=said, prefix="the driver "))
"""


def once(said: Callable[[str], None] = lambda _: None, prefix: str = "", **options: Any) -> None:
    asyncio.run(run_once(Path("my_main.py"), [], said=said, prefix=prefix, **options))


def environ(spark: FakeSpark) -> dict[str, str]:
    return {**os.environ, "SPARK_HOME": str(spark.home)}


def test_what_it_says_for_people_is_passed_on(tmp_path: Path) -> None:
    spark, heard = FakeSpark(tmp_path), list[str]()
    spark.drivers("end 0 0")
    once(heard.append, prefix="the driver ", environ=environ(spark))
    assert heard == ["is told to end 0 0"]


def test_a_failure_comes_with_its_last_lines(tmp_path: Path) -> None:
    spark = FakeSpark(tmp_path)
    spark.drivers("end 3 0")
    with pytest.raises(LaunchError, match="ended with 3") as caught:
        once(prefix="nothing begins so", environ=environ(spark))
    assert caught.value.log == ("the driver is told to end 3 0",)


def test_it_sees_the_variables_that_it_is_given_alone(tmp_path: Path) -> None:
    spark, heard = FakeSpark(tmp_path), list[str]()
    spark.drivers("tell")
    once(
        heard.append,
        prefix="the driver has the variables ",
        environ={**environ(spark), "REPL_PASSWORD": "hunter2", "REGISTRY": "x", "REPL_PLAN_KEY": "k"},
        variables={"REGISTRY"},
    )
    names, _, folder = heard[0].partition(" in ")
    given = {"JAVA_HOME", "LANG", "LD_LIBRARY_PATH", "PATH", "REGISTRY", "LC_CTYPE"}
    assert {"PATH", "REGISTRY"} <= {*names.split()}
    assert {one for one in names.split() if not one.startswith(("SPARK_", "PY"))} <= given
    assert not Path(folder).exists()  # a temporary one


def test_after_its_deadline_all_its_processes_are_killed(tmp_path: Path) -> None:
    spark, before = FakeSpark(tmp_path), {*psutil.Process().children(recursive=True)}
    spark.drivers("deaf")
    with pytest.raises(LaunchError, match="had not ended after 1 s, and was killed"):
        once(environ=environ(spark), deadline_s=1)
    assert {*psutil.Process().children(recursive=True)} <= before


def test_after_its_deadline_a_process_that_outlived_it_is_killed(tmp_path: Path) -> None:
    spark, seen = FakeSpark(tmp_path), list[psutil.Process]()
    spark.drivers("orphan")

    def keep(pid: str) -> None:
        seen.append(psutil.Process(int(pid)))

    with pytest.raises(LaunchError, match="had not ended after 3 s, and was killed"):
        once(keep, prefix="the driver is process ", environ=environ(spark), deadline_s=3)
    (driver,) = seen
    _, alive = psutil.wait_procs([driver], timeout=10)
    assert not alive


def test_a_line_without_end_ends_it(tmp_path: Path) -> None:
    spark = FakeSpark(tmp_path)
    spark.drivers(f"long {40 << 20}")
    with pytest.raises(LaunchError, match="printed a line of more than 16 MiB, and was ended"):
        once(prefix="nothing begins so", environ=environ(spark))


def test_a_terminal_that_takes_no_output_does_not_stop_the_loop(tmp_path: Path) -> None:
    spark, turns = FakeSpark(tmp_path), 0
    spark.drivers("end 0 0")

    async def renew() -> None:
        nonlocal turns
        while True:
            await asyncio.sleep(0.01)
            turns += 1

    async def both() -> int:
        blocked = list[int]()

        def block(_line: str) -> None:
            before = turns
            time.sleep(0.5)
            blocked.append(turns - before)

        renewals = asyncio.create_task(renew())
        await run_once(Path("my_main.py"), [], said=block, prefix="", environ=environ(spark))
        renewals.cancel()
        return min(blocked)

    assert asyncio.run(both()) > 5


@pytest.mark.parametrize("given", ["soon", "0", "-1", "1.5"])
def test_a_deadline_that_is_no_number_is_named(given: str) -> None:
    assert deadline_of({}) == 60
    assert deadline_of({"REPL_SPARK_DEADLINE": "90"}) == 90
    with pytest.raises(LaunchError, match="REPL_SPARK_DEADLINE is"):
        deadline_of({"REPL_SPARK_DEADLINE": given})


def test_without_grace_a_cancelled_one_is_killed_at_once(tmp_path: Path) -> None:
    """One that archives its classes would write them before it ends."""
    spark = FakeSpark(tmp_path)
    spark.drivers("deaf")

    async def cancelled() -> None:
        up, loop = asyncio.Event(), asyncio.get_running_loop()

        def started(_line: str) -> None:
            loop.call_soon_threadsafe(up.set)

        running = asyncio.create_task(
            run_once(
                Path("my_main.py"),
                [],
                said=started,
                prefix="the driver ",
                environ=environ(spark),
                deadline_s=None,
                grace_s=0,
            )
        )
        await up.wait()
        running.cancel()
        done, _ = await asyncio.wait([running], timeout=8)  # less than the usual grace
        assert done == {running}

    before = {*psutil.Process().children(recursive=True)}
    asyncio.run(cancelled())
    assert {*psutil.Process().children(recursive=True)} <= before


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
