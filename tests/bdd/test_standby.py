"""Steps of features/failing_over/standby.feature: machine-a and machine-b, and the engineer's laptop."""

import time
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass, field
from dataclasses import replace as changed
from pathlib import Path

import pytest
from confluent_kafka import IsolationLevel, TopicPartition
from confluent_kafka.admin import OffsetSpec
from pytest_bdd import given, scenarios, then, when

from tests import checker
from tests.bdd.machines import Machine, Machines, two_machines
from tests.bdd.running import SMALL, Town, eventually, fresh_names, one_way
from tests.labs import running_lab, spec
from tests.records import PATIENCE_S, create_topic

pytestmark = [pytest.mark.integration, pytest.mark.spark, pytest.mark.long]

scenarios("failing_over/standby.feature")

PARTITIONS = 2
RATE_LIMIT = 50_000_000
RECORDS = checker.Spec(10**9, rate=300, large_every=0)


@dataclass
class Scene:
    """`town` is the laptop, from which all but the first apply comes."""

    town: Town
    machines: Machines
    writing: ExitStack = field(default_factory=ExitStack)
    lost_at: float = 0.0

    @property
    def job(self) -> str:
        return self.town.name("into-dc2")

    def committed(self) -> int:
        """How far consumers can read the mirror."""
        topic, admin = self.town.name("orders"), self.town.admin("dc2")
        asked = {TopicPartition(topic, number): OffsetSpec.latest() for number in range(PARTITIONS)}
        answers = admin.list_offsets(asked, isolation_level=IsolationLevel.READ_COMMITTED)
        return sum(one.result(timeout=PATIENCE_S).offset for one in answers.values())

    def copies(self) -> None:
        """Returns once much more is committed than what was on its way."""
        before = self.committed()
        eventually(lambda: self.committed() > before + 1000, about="records that are copied")

    def standbys(self, *states: str) -> None:
        eventually(lambda: [one.state for one in self.town.status().jobs[0].standbys] == list(states))


@pytest.fixture
def scene(tmp_path: Path) -> Iterator[Scene]:
    with ExitStack() as running:
        machines = running.enter_context(two_machines(tmp_path))
        clusters = (changed(spec(name), host=machines.host) for name in ("dc1", "dc2"))
        lab = running.enter_context(running_lab(tmp_path / "lab", *clusters))
        try:
            town = one_way(lab, tmp_path, fresh_names(), "orders")
            town.home = tmp_path / "laptop"
            town.topology.topics = []
            made = Scene(town, machines)
            town.topology.more["jobs"] = {made.job: {**SMALL, "standby": 1}}
            with made.writing:
                yield made
        finally:
            for machine in machines:
                machine.die()


@pytest.fixture
def town(scene: Scene) -> Town:
    return scene.town


@pytest.fixture
def a(scene: Scene) -> Machine:
    return scene.machines.a


@pytest.fixture
def b(scene: Scene) -> Machine:
    return scene.machines.b


@given("machine-a runs the job into dc2")
def _(scene: Scene, town: Town, a: Machine) -> None:
    create_topic(town.client("dc1"), town.name("orders"), PARTITIONS, config={"retention.ms": "-1"})
    laptop, town.home, town.through = town.home, a.home, a.through
    town.apply()
    town.home, town.through = laptop, ()
    assert a.runs_the_job()


@given("machine-b stands by for it")
def _(scene: Scene, town: Town, b: Machine) -> None:
    b.stand_by(scene.job, town.topology.file)
    scene.standbys("watching")


@given("records are written to orders at dc1 all the time")
def _(scene: Scene, town: Town) -> None:
    scene.writing.enter_context(checker.writing(town.client("dc1"), town.name("orders"), RECORDS))


@given("orders are copied to dc2")
def _(scene: Scene) -> None:
    scene.copies()


@when("machine-a stands still until machine-b starts the job")
def _(a: Machine, b: Machine) -> None:
    with a.standing_still():
        eventually(lambda: b.said("it is started here"), about="a takeover")


@then("machine-a still runs the job, and machine-b watches it again")
def _(scene: Scene, a: Machine, b: Machine) -> None:
    eventually(lambda: b.log.read_text().count(" runs as ") == 2, about="the job at machine-a")
    scene.standbys("watching")
    scene.copies()
    assert a.runs_the_job()
    assert not b.runs_the_job()


@when("machine-a dies")
def _(scene: Scene, a: Machine) -> None:
    a.die()
    scene.lost_at = time.monotonic()


@then("machine-b copies orders to dc2")
def _(scene: Scene, b: Machine) -> None:
    scene.copies()
    print(f"\nmachine-a was lost, and {time.monotonic() - scene.lost_at:.1f} s later orders are copied again")
    assert b.runs_the_job()


@then("repl status says that the job runs elsewhere, and that no standby is ready")
def _(scene: Scene, town: Town) -> None:
    scene.standbys("running")
    shown = town.run("status", str(town.topology.file)).stdout
    assert f"job {scene.job}: it runs as pid {town.status().jobs[0].process} on " in shown
    assert f"0 of 1 standby ready: run repl standby {scene.job} on another machine" in shown


@when("the engineer limits dc1-to-dc2 to 50MB/s from her laptop")
def _(town: Town) -> None:
    town.flow("dc1-to-dc2")["rate_limit"] = "50MB/s"
    town.apply()


@then("machine-b starts the job by that limit from now on")
def _(scene: Scene, b: Machine) -> None:
    eventually(lambda: b.rate_limit(scene.job) == RATE_LIMIT, about="the flow's edit in the job's spec")


@when("machine-b dies too")
def _(b: Machine) -> None:
    b.die()


@when("both machines come back at once and stand by")
def _(scene: Scene, town: Town) -> None:
    for machine in scene.machines:
        machine.come_back()
    for machine in scene.machines:
        machine.stand_by(scene.job, town.topology.file)


@then("one of them copies orders to dc2, by that limit")
def _(scene: Scene, a: Machine, b: Machine) -> None:
    scene.copies()
    eventually(lambda: a.runs_the_job() != b.runs_the_job(), about="one driver")
    assert (a if a.runs_the_job() else b).rate_limit(scene.job) == RATE_LIMIT


@then("the other one does not run the job")
def _(scene: Scene, a: Machine, b: Machine) -> None:
    scene.copies()
    assert a.runs_the_job() != b.runs_the_job()


@then("orders at dc2 holds every record of dc1 once and in order")
def _(scene: Scene, town: Town) -> None:
    scene.writing.close()
    report = checker.compare(town.client("dc1"), town.client("dc2"), town.name("orders"), patience=120)
    assert report.records > 0
    assert report.clean, report


@when("the engineer destroys the topology from her laptop")
def _(town: Town) -> None:
    town.succeeds("destroy", str(town.topology.file), "--auto-approve")


@then("both standbys say that repl stopped the job")
def _(a: Machine, b: Machine) -> None:
    eventually(lambda: all(one.said("was stopped by repl") for one in (a, b)), about="the stop")


@then("no machine runs the job")
def _(a: Machine, b: Machine) -> None:
    eventually(lambda: not a.runs_the_job() and not b.runs_the_job(), about="the end of the job")
