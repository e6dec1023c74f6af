"""A job survives its machine: a standby on another one takes it over, and of two that come back one copies.

A machine is all that runs below one REPL_HOME: the job's supervisor, watchman, JVM, driver and slots, and its
standby. It is lost when all of them are killed at once.
"""

import subprocess
import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

import psutil
import pytest
from confluent_kafka import IsolationLevel, TopicPartition
from confluent_kafka.admin import OffsetSpec

from runtime.contract.spec import jobspec
from runtime.lab.lab import Lab
from tests import checker
from tests.bdd.running import SMALL, Town, eventually, fresh_names, one_way
from tests.commands import REPL, environment
from tests.processes import kill_together
from tests.records import PATIENCE_S, create_topic

pytestmark = pytest.mark.spark
PARTITIONS = 2
RATE_LIMIT = 50_000_000


@dataclass
class Machine:
    home: Path
    log: Path = field(init=False)
    standbys: list[subprocess.Popen[bytes]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.log = self.home.with_suffix(".log")

    def processes(self) -> list[psutil.Process]:
        found = []
        for one in psutil.process_iter():
            with suppress(psutil.Error):
                if one.environ().get("REPL_HOME") == str(self.home):
                    found.append(one)
        return found

    def stand_by(self, town: Town) -> None:
        words = ("standby", town.name("into-dc2"), str(town.topology.file))
        with self.log.open("a") as log:
            started = subprocess.Popen(
                [*REPL, *words],
                env=environment({"REPL_HOME": str(self.home), "PYTHONUNBUFFERED": "1"}),
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
        self.standbys.append(started)

    def said(self, text: str) -> bool:
        return text in self.log.read_text()

    def runs_the_job(self) -> bool:
        return any("runtime/driver/main.py" in " ".join(_words(one)) for one in self.processes())

    def rate_limit(self, job: str) -> int | None:
        """What the next start of the job here would go by."""
        spec = jobspec.decode((self.home / "jobs" / job / "spec.json").read_bytes())
        return spec.flows[0].rate_limit

    def die(self) -> None:
        kill_together(self.processes())
        for one in self.standbys:
            one.wait(PATIENCE_S)


def _words(process: psutil.Process) -> list[str]:
    try:
        return process.cmdline()
    except psutil.Error:
        return []


@pytest.fixture
def machines(tmp_path: Path) -> Iterator[tuple[Machine, Machine]]:
    made = Machine(tmp_path / "a"), Machine(tmp_path / "b")
    yield made
    for machine in made:
        machine.die()


def committed(town: Town) -> int:
    """How far consumers can read the mirror."""
    topic, admin = town.name("orders"), town.admin("dc2")
    asked = {TopicPartition(topic, number): OffsetSpec.latest() for number in range(PARTITIONS)}
    answers = admin.list_offsets(asked, isolation_level=IsolationLevel.READ_COMMITTED)
    return sum(one.result(timeout=PATIENCE_S).offset for one in answers.values())


def copies(town: Town) -> None:
    """Returns once much more is committed than what was on its way."""
    before = committed(town)
    eventually(lambda: committed(town) > before + 1000, about="records that are copied")


def test_a_lost_machine(lab: Lab, tmp_path: Path, machines: tuple[Machine, Machine]) -> None:
    a, b = machines
    town = one_way(lab, tmp_path, fresh_names(), "orders")
    town.home = a.home
    town.topology.topics = []
    job, topic = town.name("into-dc2"), town.name("orders")
    town.topology.more["jobs"] = {job: {**SMALL, "standby": 1}}
    source, there = town.client("dc1"), town.client("dc2")
    create_topic(source, topic, PARTITIONS, config={"retention.ms": "-1"})
    began = time.monotonic()
    town.apply()
    start_s = time.monotonic() - began
    b.stand_by(town)
    eventually(lambda: [one.state for one in town.status().jobs[0].standbys] == ["watching"])

    with checker.writing(source, topic, checker.Spec(10**9, rate=300, large_every=0)):
        copies(town)
        a.die()
        lost_at = time.monotonic()
        copies(town)
        took = time.monotonic() - lost_at
        print(f"\nlost, and copied again after {took:.1f} s; the first start took {start_s:.1f} s")
        assert b.runs_the_job()
        eventually(lambda: [one.state for one in town.status().jobs[0].standbys] == ["running"])
        shown = town.run("status", str(town.topology.file)).stdout
        assert f"job {job}: it runs as pid {town.status().jobs[0].process} on " in shown
        assert f"0 of 1 standby ready: run repl standby {job} on another machine" in shown

        # An apply on the machine a reaches the job on the machine b, and b's supervisor keeps what it said.
        town.topology.more["flows"][0]["rate_limit"] = "50MB/s"
        town.apply()
        eventually(lambda: b.rate_limit(job) == RATE_LIMIT, about="the flow's edit in the job's spec")

        b.die()
        a.stand_by(town)
        b.stand_by(town)
        copies(town)
        eventually(lambda: a.runs_the_job() != b.runs_the_job(), about="one driver")
        copies(town)
        assert a.runs_the_job() != b.runs_the_job()
        assert (a if a.runs_the_job() else b).rate_limit(job) == RATE_LIMIT
    report = checker.compare(source, there, topic, patience=120)
    assert report.records > 0
    assert report.clean, report

    done = town.run("destroy", str(town.topology.file), "--auto-approve")  # from the machine a
    assert done.returncode == 0, f"{done.stdout}\n{done.stderr}"
    eventually(lambda: a.said("was stopped by repl") and b.said("was stopped by repl"), about="the stop")
    eventually(lambda: not a.runs_the_job() and not b.runs_the_job(), about="the end of the job")
