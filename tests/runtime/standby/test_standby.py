"""Standbys at a real broker: each is a machine with a home of its own; Spark is one that starts at once."""

import asyncio
import os
import time
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from planner.kafka import ClusterEndpoint
from runtime.contract.client.settings import wire_settings
from runtime.contract.launching import LaunchState
from runtime.contract.records import job_status
from runtime.contract.records.job_status import JobKey, JobState, JobStatus, SpecKey
from runtime.contract.spec import naming
from runtime.contract.spec.cluster import ClusterSpec
from runtime.contract.spec.jobspec import JobSpec
from runtime.driver.slots.channel import post
from runtime.kafka.cluster import KafkaCluster
from runtime.kafka.records import InternalRecord
from runtime.lab.lab import Lab
from runtime.launch.supervision.supervised import SupervisedLauncher
from runtime.standby import Standby, StandbyJob, StandbyRefused
from tests.fakes.jobs import ensure_topics
from tests.fakes.spark import FakeSpark
from tests.runtime.launch.specs import spec_of

pytestmark = pytest.mark.integration
_WITHIN_S = 60.0


def fast() -> float:
    """A clock for silences: four seconds are one."""
    return 4 * time.monotonic()


@dataclass
class Machine:
    """A standby below a home of its own; `said` has its lines."""

    home: Path
    launcher: SupervisedLauncher
    standby: Standby
    said: list[str] = field(default_factory=list)

    def knows_the_job(self) -> bool:
        return any("runs as pid 1 on lost" in line for line in self.said)

    def runs(self, job: str) -> bool:
        return self.launcher.find(job).state is LaunchState.RUNNING


@dataclass
class Machines:
    lab: Lab
    folder: Path
    job: str
    made: list[Machine] = field(default_factory=list)

    @property
    def spec(self) -> JobSpec:
        return spec_of(self.job)

    def add(self, spec: Callable[[JobSpec], JobSpec] = lambda running: running) -> Machine:
        folder = self.folder / f"machine-{len(self.made)}"
        folder.mkdir()
        environ = {**os.environ, "SPARK_HOME": str(FakeSpark(folder).home)}
        launcher = SupervisedLauncher(folder / "home", environ)
        said: list[str] = []
        asked = StandbyJob(
            job=self.job,
            destination="dc2",
            cluster=ClusterSpec(bootstrap=self.lab.clusters["dc2"].bootstrap),
            home=launcher.home,
            spec=spec,
            say=said.append,
        )
        self.made.append(Machine(launcher.home, launcher, Standby(asked, launcher, fast), said))
        return self.made[-1]

    def run(self, story: Callable[[KafkaCluster], Awaitable[None]]) -> None:
        """Runs all standbys until the story ends."""

        async def all_of_it() -> None:
            stopping = asyncio.Event()
            settings = wire_settings(self.lab.clusters["dc2"].bootstrap, {})
            async with await KafkaCluster.open(settings) as cluster, asyncio.TaskGroup() as tasks:
                for machine in self.made:
                    tasks.create_task(machine.standby.run(stopping))
                try:
                    await story(cluster)
                finally:
                    stopping.set()

        asyncio.run(all_of_it())

    async def heartbeat(
        self, cluster: KafkaCluster, state: JobState = "running", *, stop_requested: bool = False
    ) -> None:
        status = JobStatus(
            job=self.job,
            topology="tests",
            driver="d",
            state=state,
            at_ms=7,  # a clock that stands still
            started_ms=0,
            host="lost",
            process=1,
            stop_requested=stop_requested,
        )
        records = [
            InternalRecord(job_status.encode_key(SpecKey(self.job)), job_status.encode(self.spec)),
            InternalRecord(job_status.encode_key(JobKey(self.job)), job_status.encode(status)),
        ]
        await post(cluster, naming.STATUS, records)


@pytest.fixture
def machines(lab: Lab, tmp_path: Path, fresh: Callable[[str], str]) -> Iterator[Machines]:
    ensure_topics(ClusterEndpoint("dc2", lab.clusters["dc2"].bootstrap, {}))
    made = Machines(lab, tmp_path, fresh("job"))
    yield made
    for machine in made.made:
        machine.launcher.stop(made.job, 0)


async def until(holds: Callable[[], bool]) -> None:
    deadline = time.monotonic() + _WITHIN_S
    while not holds():
        assert time.monotonic() < deadline
        await asyncio.sleep(0.05)


def test_of_two_standbys_one_takes_over(machines: Machines) -> None:
    one, two = machines.add(), machines.add()

    async def story(cluster: KafkaCluster) -> None:
        await machines.heartbeat(cluster)
        await until(lambda: one.knows_the_job() and two.knows_the_job())
        for _ in range(3):  # six seconds by the standbys' clocks each
            await asyncio.sleep(1.5)
            await machines.heartbeat(cluster)
            assert not one.runs(machines.job)
            assert not two.runs(machines.job)
        await until(lambda: one.runs(machines.job) or two.runs(machines.job))
        await machines.heartbeat(cluster)  # of the driver that was started
        await asyncio.sleep(2)
        assert one.runs(machines.job) != two.runs(machines.job)

    machines.run(story)


@pytest.mark.long
def test_a_standby_that_cannot_start_the_job_leaves_it_to_another(machines: Machines) -> None:
    def refuse(_: JobSpec) -> JobSpec:
        raise StandbyRefused("its topology is too old — bring it up to date")

    unable, able = machines.add(refuse), machines.add()

    async def story(cluster: KafkaCluster) -> None:
        await machines.heartbeat(cluster)
        await until(lambda: able.runs(machines.job))
        assert not unable.runs(machines.job)
        assert "this machine cannot take the job over: its topology is too old — bring it up to date" in (
            unable.said
        )

    machines.run(story)


def test_a_job_that_repl_stopped_is_not_started(machines: Machines) -> None:
    one = machines.add()

    async def story(cluster: KafkaCluster) -> None:
        await machines.heartbeat(cluster, "stopped", stop_requested=True)
        await until(lambda: any("was stopped by repl" in line for line in one.said))
        await asyncio.sleep(5)  # 20 s by its clock
        assert not one.runs(machines.job)

    machines.run(story)


@pytest.mark.long
def test_one_machine_has_one_standby_of_a_job(machines: Machines) -> None:
    one = machines.add()

    async def story(cluster: KafkaCluster) -> None:
        await until(lambda: bool(one.said))
        asked = StandbyJob(machines.job, "dc2", ClusterSpec(bootstrap=""), one.home, lambda spec: spec, print)
        with pytest.raises(StandbyRefused, match="runs here already"):
            await Standby(asked, one.launcher).run(asyncio.Event())

    machines.run(story)
