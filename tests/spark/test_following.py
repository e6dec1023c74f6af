"""What a running job does beside copying. One job for all of these, and flows of its own for each edit."""

import time
from collections.abc import Callable, Iterator
from typing import Any

import psutil
import pytest
from confluent_kafka import Consumer, TopicPartition
from confluent_kafka.admin import AdminClient
from msgspec.structs import replace

from runtime.contract.records import control, heartbeat
from runtime.contract.spec.cluster import ClusterSpec
from runtime.contract.spec.flow import OriginCommitsSpec
from runtime.contract.spec.jobspec import FlowSpec
from runtime.lab.lab import Lab
from tests.processes import below, lives, share_of
from tests.records import Record, create_topic, read, wait_for, write
from tests.spark.job import Running, flow_of, generations, remembered, spec_of, start_job

pytestmark = pytest.mark.spark

TOPIC, PARTITIONS = "following", 4
_FOLLOWS_S = 180


@pytest.fixture(scope="module")
def dc1(lab: Lab) -> dict[str, Any]:
    return dict(lab.clusters["dc1"].client)


@pytest.fixture(scope="module")
def dc2(lab: Lab) -> dict[str, Any]:
    return dict(lab.clusters["dc2"].client)


@pytest.fixture(scope="module")
def job(lab: Lab, dc1: dict[str, Any], tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    """Two slots and the flow `main`. It ends gracefully, and leaves neither an active flow nor a process."""
    create_topic(dc1, TOPIC, PARTITIONS)
    for partition in range(PARTITIONS):
        write(dc1, TOPIC, [b"x"] * 10, partition=partition)
    commits = OriginCommitsSpec(group="repl.main", every_ms=500)
    flow = flow_of("main", [TOPIC], heartbeats_every_ms=200, origin_commits=commits)
    spec = spec_of(lab, "following", [flow], slots=2)
    silent = ClusterSpec(bootstrap="127.0.0.1:9", client={"socket.connection.setup.timeout.ms": "1000"})
    spec = replace(spec, clusters={**spec.clusters, "dc3": silent})  # no flow comes from there yet
    with start_job(spec, tmp_path_factory.mktemp("job")) as running:
        running.wait_for(lambda status: [slot.state for slot in status.slots] == ["running"] * 2)
        yield running
        assert running.stop() == 0, running.tail()
        wait_for(lambda: (status := running.status()) is not None and status.state == "stopped")
        wait_for(lambda: generations(running.spec)["main"].state == "stopped")
        wait_for(lambda: not any(map(lives, running.started())))


def reconfigure(job: Running, *flows: FlowSpec, **changes: Any) -> None:
    """Adds these flows to the spec of the job, and changes others of its fields."""
    spec = replace(job.spec, flows=[*job.spec.flows, *flows], **changes)
    job.tell(control.Reconfigure(f"{time.time()}", spec))


def slots(job: Running) -> dict[int, tuple[int, int]]:
    """The attempt and the process of each slot."""
    return {slot: (report.attempt, report.process) for slot, report in job.reports().items()}


def copied(client: dict[str, Any], topic: str) -> list[Record]:
    """Committed records, none while there is no such topic."""
    known = AdminClient(client).list_topics(timeout=60).topics
    return read(client, topic) if topic in known else []


def new_flow(dc1: dict[str, Any], name: str) -> FlowSpec:
    """A flow of one topic, which holds ten records."""
    create_topic(dc1, name)
    write(dc1, name, [b"record"] * 10)
    flow: FlowSpec = flow_of(name, [name])
    return flow


def test_only_the_python_workers_copy(job: Running, lab: Lab):
    ports = {int(cluster.bootstrap.rpartition(":")[2]) for cluster in lab.clusters.values()}

    def brokers_of(process: psutil.Process) -> set[int]:
        remote = (connection.raddr for connection in process.net_connections(kind="tcp"))
        return {address.port for address in remote if address and address.port in ports}

    workers = {worker.pid: worker for worker in job.workers}
    processes = {process for _, process in slots(job).values()}
    assert len(processes) == 2
    assert processes <= workers.keys()
    assert all(brokers_of(workers[pid]) == ports for pid in processes)
    assert not brokers_of(psutil.Process(job.pid))


def test_heartbeats_cross(job: Running, dc2: dict[str, Any]):
    def fresh_beat() -> bool:
        beats = [
            heartbeat.decode(record.value or b"") for record in copied(dc2, heartbeat.topic_there("main"))
        ]
        assert {beat.flow for beat in beats} <= {"main"}
        return bool(beats) and time.time() * 1000 - beats[-1].at_ms < 30_000

    wait_for(fresh_beat)


def test_what_was_copied_is_committed_at_the_origin(job: Running, dc1: dict[str, Any]):
    """R9: Kafka's own tools show the flow's lag there."""
    consumer = Consumer({**dc1, "group.id": "repl.main", "enable.auto.commit": False})
    copied_partitions = [TopicPartition(TOPIC, number) for number in range(PARTITIONS)]

    def caught_up() -> bool:
        return {place.offset for place in consumer.committed(copied_partitions, 60)} == {10}

    wait_for(caught_up)
    consumer.close()


def test_a_flow_joins_without_disturbing_the_other_and_is_removed(
    job: Running, dc1: dict[str, Any], dc2: dict[str, Any], fresh: Callable[[str], str]
):
    before, generation, without = slots(job), generations(job.spec)["main"], job.spec
    added = new_flow(dc1, fresh("added"))
    reconfigure(job, added)
    wait_for(lambda: len(copied(dc2, added.name)) == 10, _FOLLOWS_S)
    assert generations(job.spec)["main"] == generation
    assert slots(job) == before
    with_flow = job.spec
    job.tell(control.Reconfigure(fresh("without"), without))
    assert generations(with_flow)[added.name].state == "stopped"
    wait_for(lambda: not any(key.flow == added.name for key in job.partitions()))


def test_an_edit_of_a_cluster_or_of_an_address_is_refused_and_disturbs_nothing(
    job: Running, dc1: dict[str, Any], dc2: dict[str, Any], fresh: Callable[[str], str]
):
    """The spec that the job was started with says which clusters are reached; a control record does not."""
    before, generation, spec = slots(job), generations(job.spec)["main"], job.spec
    there = spec.clusters["dc1"]
    asking = replace(there, client={**there.client, "sasl.password": {"file": "/etc/passwd"}})
    for edited in (
        {**spec.clusters, "dc4": there},
        {**spec.clusters, "dc1": replace(there, bootstrap="127.0.0.1:9")},
        {**spec.clusters, "dc1": asking},
        {**spec.clusters, "dc2": replace(spec.clusters["dc2"], bootstrap="127.0.0.1:9")},
    ):
        reconfigure(job, clusters=edited)
        job.spec = spec
        job.wait_for(lambda status: "an edit was refused: clusters.dc" in status.trouble)
        assert "an edit was refused" in job.log.read_text()
    after = new_flow(dc1, fresh("after"))
    reconfigure(job, after)
    wait_for(lambda: len(copied(dc2, after.name)) == 10, _FOLLOWS_S)
    assert remembered(job.spec).clusters == spec.clusters
    assert generations(job.spec)["main"] == generation
    assert slots(job) == before


def test_a_source_that_does_not_answer_is_its_flows_matter_alone(
    job: Running, dc1: dict[str, Any], dc2: dict[str, Any], fresh: Callable[[str], str]
):
    lost, beside = fresh("lost"), new_flow(dc1, fresh("beside"))
    reconfigure(job, flow_of(lost, ["x"], source="dc3"), beside)
    status = job.wait_for(lambda status: any(view.flow == lost and view.why for view in status.flows))
    assert not next(view for view in status.flows if view.flow == lost).source_answers
    wait_for(lambda: len(copied(dc2, beside.name)) == 10, _FOLLOWS_S)


def test_small_enough(job: Running):
    """Driver and two slots; the limit is for one."""
    assert sum(map(share_of, below(job.pid))) < 800 << 20
