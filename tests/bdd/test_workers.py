"""Steps of features/replicating/workers.feature: Workers of Spark on machines of their own."""

from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from pytest_bdd import given, parsers, scenarios, then, when

from runtime.contract.records.ledger import PartitionKey
from tests import checker
from tests.bdd.running import eventually
from tests.labs import spec
from tests.records import create_topic
from tests.spark.arrivals import Arrivals
from tests.spark.cluster_job import WITHIN_S, ClusterJob, Site, site
from tests.spark.standalone import Worker

pytestmark = [pytest.mark.integration, pytest.mark.spark, pytest.mark.long]

scenarios("replicating/workers.feature")

ORDERS, PARTITIONS = "orders", 4
RECORDS = checker.Spec(10**9, rate=200, large_every=0)
# Shorter than a job's own times, so that the story is short.
NOTICED = {
    "spark.executor.heartbeatInterval": "2s",
    "spark.storage.blockManagerHeartbeatTimeoutMs": "10s",
    "spark.network.timeoutInterval": "2s",
}
CLUSTER = {"spark.worker.timeout": "10"}


@dataclass
class Scene:
    """`hit` are the partitions of the slots on the machine that was lost, `dead` the processes of those."""

    opened: ExitStack
    folder: Path
    writing: ExitStack = field(default_factory=ExitStack)
    place: Site | None = None
    job: ClusterJob | None = None
    lost: Worker | None = None
    hit: set[PartitionKey] = field(default_factory=set)
    dead: set[int] = field(default_factory=set)

    @property
    def site(self) -> Site:
        assert self.place is not None
        return self.place

    @property
    def running(self) -> ClusterJob:
        assert self.job is not None
        return self.job


@pytest.fixture
def scene(tmp_path: Path) -> Iterator[Scene]:
    with ExitStack() as opened:
        made = Scene(opened, tmp_path)
        with made.writing:
            yield made


@given(parsers.parse("a standalone cluster of Spark with {workers:d} Workers"))
def _(scene: Scene, workers: int) -> None:
    brokers = [spec("dc1"), spec("dc2")]
    scene.place = scene.opened.enter_context(site(scene.folder, brokers, workers, CLUSTER))


@given(parsers.parse("the topology is applied, and its job has {slots:d} slots on the cluster"))
def _(scene: Scene, slots: int) -> None:
    create_topic(scene.site.client("dc1"), ORDERS, PARTITIONS, config=checker.TOPIC_CONFIG)
    scene.job = ClusterJob(scene.site, [ORDERS], slots, NOTICED)
    scene.opened.callback(scene.job.kill)
    scene.job.start()


@given("records are written to orders at dc1 all the time")
def _(scene: Scene) -> None:
    scene.writing.enter_context(checker.writing(scene.site.client("dc1"), ORDERS, RECORDS))


@given("every partition of orders is copied to dc2")
@then("every partition of orders is copied to dc2")
def _(scene: Scene) -> None:
    with Arrivals(scene.site.client("dc2"), ORDERS) as arrivals:
        arrivals.wait_for_all(WITHIN_S)


@when("the machine of a Worker with a slot is lost")
def _(scene: Scene) -> None:
    job = scene.running
    scene.lost = next(one for one in scene.site.spark.workers if job.processes_on(one))
    slots = job.processes_on(scene.lost)
    scene.hit = {key for key, slot in job.placement().items() if slot in slots}
    scene.dead = set(slots.values())
    scene.lost.lose()


@then("another slot or another Worker copies the partitions of that slot")
def _(scene: Scene) -> None:
    eventually(
        lambda: scene.hit <= set(scene.running.placement(without=scene.dead)),
        WITHIN_S,
        about="the partitions of the lost slot",
    )
    with Arrivals(scene.site.client("dc2"), ORDERS) as arrivals:
        arrivals.wait_for_all(WITHIN_S)


@when("the machine comes back")
def _(scene: Scene) -> None:
    assert scene.lost is not None
    scene.lost.come_back()
    scene.site.spark.master.wait_for_workers(len(scene.site.spark.workers))


@when("the Workers are restarted one after another")
def _(scene: Scene) -> None:
    for worker in scene.site.spark.workers:
        stopped = set(scene.running.processes_on(worker).values())
        worker.restart()
        scene.running.wait_for_slots(stopped)


@then("both slots run")
def _(scene: Scene) -> None:
    scene.running.wait_for_slots()


@then("orders at dc2 holds every record of dc1 once and in order")
def _(scene: Scene) -> None:
    scene.writing.close()
    source, destination = (scene.site.client(name) for name in ("dc1", "dc2"))
    report = checker.compare(source, destination, ORDERS, patience=WITHIN_S)
    assert report.records > 0
    assert report.clean, report
    scene.running.stop()
