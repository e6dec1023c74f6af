"""A real job on real brokers under its supervisor: whoever is killed, it comes back, and nothing is left at
the end.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

import psutil
import pytest

from runtime.contract.launching import LaunchState
from runtime.contract.records.job_status import JobStatus, SlotReport
from runtime.contract.spec.jobspec import JobSpec
from runtime.lab.lab import Lab
from runtime.launch.choose import launcher_for
from runtime.launch.command import MAIN
from runtime.launch.folder import JobFolder
from runtime.launch.supervision.supervisor import marked
from tests import checker
from tests.processes import lives, parent_of, words_of
from tests.records import create_topic, wait_for
from tests.spark.job import flow_of, spec_of, statuses

pytestmark = pytest.mark.spark

_MOST_MB = 800
_LOOK_S = 0.3  # each look reads the status topic, on cores that the job wants too


class Watched:
    """What is to be seen of a launched job: in the status topic, and in the table of processes."""

    def __init__(self, spec: JobSpec, home: Path) -> None:
        self.spec = spec
        self.folder = JobFolder(home, spec.job)
        self.seen: dict[tuple[int, float], psutil.Process] = {}

    def processes(self) -> list[psutil.Process]:
        state = self.folder.supervision()
        assert state is not None
        own = [one.pid for one in (state.supervisor, state.watchman) if one is not None]
        found = []
        for process in psutil.process_iter():
            try:
                environ = process.environ()
                mine = process.pid in own or marked(state.mark) in [f"{k}={v}" for k, v in environ.items()]
            except (psutil.NoSuchProcess, psutil.ZombieProcess, psutil.AccessDenied):
                continue
            if mine:
                found.append(process)
        self.seen.update({(process.pid, process.create_time()): process for process in found})
        return found

    def supervisor(self) -> psutil.Process:
        state = self.folder.supervision()
        assert state is not None
        assert state.supervisor is not None
        return psutil.Process(state.supervisor.pid)

    def jvm(self) -> psutil.Process:
        return next(
            one for one in self.processes() if words_of(one)[:1] and words_of(one)[0].endswith("java")
        )

    def driver(self) -> psutil.Process:
        jvm = self.jvm().pid
        return next(one for one in self.processes() if str(MAIN) in words_of(one) and parent_of(one) == jvm)

    def status(self) -> tuple[JobStatus | None, SlotReport | None]:
        status, slots = statuses(self.spec)
        return status, slots.get(0)

    def copying(self, not_by: tuple[str, int] = ("", 0)) -> tuple[str, int] | None:
        """(driver, process of the slot) that has copied something and is another than `not_by`."""
        status, report = self.status()
        if status is None or report is None or report.driver != status.driver:
            return None
        who = (report.driver, report.process)
        return who if who != not_by and any(one.records for one in report.partitions) else None

    def alive(self) -> list[psutil.Process]:
        return [one for one in self.seen.values() if lives(one)]


def memory_of(process: psutil.Process) -> int:
    try:
        return process.memory_info().rss
    except psutil.NoSuchProcess:
        return 0


@pytest.mark.long
def test_whoever_is_killed_the_job_comes_back(lab: Lab, fresh: Callable[[str], str], tmp_path: Path):
    source, there = (dict(lab.clusters[name].client) for name in ("dc1", "dc2"))
    topic, home = fresh("kept"), tmp_path / "jobs"
    create_topic(source, topic, 3, config=checker.TOPIC_CONFIG)
    spec = spec_of(lab, fresh("job"), [flow_of(fresh("flow"), [topic])])
    launcher, job = launcher_for(spec.launch, home), Watched(spec, home)
    took: dict[str, float] = {}

    def back(what: str, since: float, not_by: tuple[str, int] = ("", 0)) -> tuple[str, int]:
        found: list[tuple[str, int] | None] = [None]

        def copies() -> bool:
            found[0] = job.copying(not_by)
            return found[0] is not None

        wait_for(copies, 240, _LOOK_S, about=lambda: (what, job.status(), launcher.tail(spec.job)))
        took[what] = round(time.monotonic() - since, 1)
        assert found[0] is not None
        return found[0]

    with checker.writing(source, topic, checker.Spec(records=10**9, rate=200, large_every=0)) as writer:
        try:
            began = time.monotonic()
            handle = launcher.launch(spec)
            took["launch returns"] = round(time.monotonic() - began, 1)
            who = back("first record", began)
            resident = sum(memory_of(one) for one in job.processes()) >> 20
            assert resident <= _MOST_MB, f"{resident} MB"

            for what in ("worker", "jvm", "driver", "supervisor"):
                victim = psutil.Process(who[1]) if what == "worker" else getattr(job, what)()
                since = time.monotonic()
                victim.kill()
                who = back(f"after kill -9 of the {what}", since, who)
            assert launcher_for(spec.launch, home).find(spec.job).state is LaunchState.RUNNING
            assert handle.log == str(job.folder.log)

            job.processes()
            since = time.monotonic()
            launcher.stop(spec.job, 60)
            took["stop"] = round(time.monotonic() - since, 1)
            assert not job.alive()
            found = launcher.find(spec.job)
            assert (found.state, found.why) == (LaunchState.ENDED, "stopped")
            # It said goodbye: the driver was asked, not the JVM killed.
            wait_for(lambda: (status := job.status()[0]) is not None and status.state == "stopped")

            launcher.launch(spec)
            back("first record again", time.monotonic(), who)
            report = checker.compare(source, there, topic, written=writer.written, patience=120)
            assert report.clean, report
        finally:
            launcher.stop(spec.job, 0)
    assert not job.alive()
    print(took, f"{resident} MB")
