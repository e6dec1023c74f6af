"""One job for all of these: what a running job copies, follows, is told, and how it says goodbye.

The tests build on each other's job and are meant to run in this order; each uses topics and flows of its own.
"""

import time
from collections.abc import Callable, Iterator
from typing import Any

import psutil
import pytest
from confluent_kafka import Consumer, TopicPartition
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewPartitions,
    ResourceType,
)
from msgspec.structs import replace

from runtime.contract.records import control, heartbeat
from runtime.contract.records.job_status import PartitionState
from runtime.contract.records.ledger import PartitionKey
from runtime.contract.spec.cluster import ClusterSpec
from runtime.contract.spec.flow import AtOffsets, OriginCommitsSpec
from runtime.contract.spec.jobspec import FlowSpec
from runtime.lab.lab import Lab
from tests import checker
from tests.processes import below, lives, share_of
from tests.records import Record, create_topic, read, wait_for, write
from tests.spark.job import Running, flow_of, generations, remembered, spec_of, start_job

pytestmark = pytest.mark.spark

PREFIX = "following"
_FOLLOWS_S = 180


@pytest.fixture(scope="module")
def dc1(lab: Lab) -> dict[str, Any]:
    return dict(lab.clusters["dc1"].client)


@pytest.fixture(scope="module")
def dc2(lab: Lab) -> dict[str, Any]:
    return dict(lab.clusters["dc2"].client)


@pytest.fixture(scope="module")
def job(lab: Lab, dc1: dict[str, Any], tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    """Two slots, one flow of everything that begins with the prefix."""
    create_topic(dc1, f"{PREFIX}-first", 4, config=checker.TOPIC_CONFIG)
    commits = OriginCommitsSpec(group="repl.main", every_ms=500)
    flow = flow_of("main", [f"{PREFIX}-.*"], heartbeats_every_ms=200, origin_commits=commits)
    spec = spec_of(lab, "following", [flow], slots=2)
    nowhere = ClusterSpec(bootstrap="127.0.0.1:9", client={"socket.connection.setup.timeout.ms": "1000"})
    spec = replace(spec, clusters={**spec.clusters, "dc3": nowhere})  # no flow comes from there yet
    running = start_job(spec, tmp_path_factory.mktemp("job"))
    try:
        running.wait_for(lambda status: [slot.state for slot in status.slots] == ["running"] * 2)
        yield running
    finally:
        running.kill()


def flow_in(job: Running, name: str) -> FlowSpec:
    return job.spec.flow(name)


def told(job: Running, *flows: FlowSpec, **changes: Any) -> None:
    """The job's flows by name, with these added or in place of their older selves."""
    after = {**{flow.name: flow for flow in job.spec.flows}, **{flow.name: flow for flow in flows}}
    spec = replace(job.spec, flows=list(after.values()), **changes)
    job.tell(control.Reconfigure(f"{time.time()}", spec))


def values(client: dict[str, Any], topic: str) -> list[bytes | None]:
    known = topic in AdminClient(client).list_topics(timeout=60).topics
    return [record.value for record in read(client, topic)] if known else []


def test_records_arrive_once_in_order_unchanged(job: Running, dc1: dict[str, Any], dc2: dict[str, Any]):
    written = checker.write(dc1, f"{PREFIX}-first", checker.Spec(records=800))
    report = checker.compare(dc1, dc2, f"{PREFIX}-first", written=written, patience=120)
    assert report.clean, report


def test_only_the_python_workers_copy(job: Running, lab: Lab):
    ports = {int(cluster.bootstrap.rpartition(":")[2]) for cluster in lab.clusters.values()}

    def talking(process: psutil.Process) -> set[int]:
        found = process.net_connections(kind="tcp")
        return {one.raddr.port for one in found if one.raddr and one.raddr.port in ports}

    workers = {worker.pid: worker for worker in job.workers}
    slots = {report.status.process for report in job.reports().values()}
    assert len(slots) == 2
    assert slots <= workers.keys()
    assert all(talking(workers[pid]) == ports for pid in slots)
    assert not talking(psutil.Process(job.pid))


def test_the_mirror_is_made_like_its_source(job: Running, dc1: dict[str, Any], dc2: dict[str, Any]):
    config = settings_of(dc2, f"{PREFIX}-first")
    assert config["message.timestamp.type"] == "CreateTime"
    assert config["message.timestamp.after.max.ms"] == str(2**63 - 1)
    assert config["retention.ms"] == "-1"
    assert config["max.message.bytes"] == checker.TOPIC_CONFIG["max.message.bytes"]


def test_a_new_topic_and_grown_partitions_follow(job: Running, dc1: dict[str, Any], dc2: dict[str, Any]):
    topic = f"{PREFIX}-new"
    create_topic(dc1, topic, 1, config={"retention.ms": "-1"})
    write(dc1, topic, [b"%d" % n for n in range(50)])
    wait_for(lambda: arrived(dc2, topic) == 50, _FOLLOWS_S)
    admin = AdminClient(dc1)
    admin.create_partitions([NewPartitions(topic, 4)])[topic].result(60)
    wait_for(lambda: len(admin.list_topics(topic, _FOLLOWS_S).topics[topic].partitions) == 4)
    written = checker.write(dc1, topic, checker.Spec(records=300, large_every=0))
    wait_for(lambda: arrived(dc2, topic) == 50 + written.records, _FOLLOWS_S)
    assert {record.partition for record in read(dc2, topic)} == {0, 1, 2, 3}


def test_a_changed_setting_follows(job: Running, dc1: dict[str, Any], dc2: dict[str, Any]):
    topic = f"{PREFIX}-first"
    alter(dc1, topic, {"retention.ms": "123456789", "segment.ms": "7200000"})
    wait_for(lambda: settings_of(dc2, topic).get("segment.ms") == "7200000")
    assert settings_of(dc2, topic)["retention.ms"] == "123456789"
    alter(dc1, topic, {"segment.ms": None, "retention.ms": "-1"})
    wait_for(lambda: settings_of(dc2, topic)["retention.ms"] == "-1")
    assert settings_of(dc2, topic).get("segment.ms") != "7200000"


def test_heartbeats_cross(job: Running, dc2: dict[str, Any]):
    def fresh_beat() -> bool:
        beats = [heartbeat.decode(one.value or b"") for one in copied(dc2, heartbeat.topic_there("main"))]
        assert {beat.flow for beat in beats} <= {"main"}
        return bool(beats) and time.time() * 1000 - beats[-1].at_ms < 30_000

    wait_for(fresh_beat)


def test_what_was_copied_is_committed_at_the_origin(job: Running, dc1: dict[str, Any]):
    """R9: Kafka's own tools show the flow's lag there."""
    consumer = Consumer({**dc1, "group.id": "repl.main", "enable.auto.commit": False})
    asked = [TopicPartition(f"{PREFIX}-first", number) for number in range(4)]

    def caught_up() -> bool:
        committed = {one.partition: one.offset for one in consumer.committed(asked, 60)}
        ends = {one.partition: consumer.get_watermark_offsets(one, 60)[1] for one in asked}
        return committed == ends

    wait_for(caught_up)
    consumer.close()


def test_a_flow_joins_without_disturbing_the_other(
    job: Running, dc1: dict[str, Any], dc2: dict[str, Any], fresh: Callable[[str], str]
):
    workers = {slot: report.status.process for slot, report in job.reports().items()}
    before = generations(job.spec)["main"]
    topic = fresh("added")
    create_topic(dc1, topic, 2)
    write(dc1, topic, [b"old"] * 10)
    told(job, flow_of("added", [topic]))
    wait_for(lambda: arrived(dc2, topic) == 10, _FOLLOWS_S)
    assert generations(job.spec)["main"] == before
    assert {slot: report.status.process for slot, report in job.reports().items()} == workers


def test_an_edit_of_a_cluster_or_of_an_address_is_refused_and_disturbs_nothing(
    job: Running, dc1: dict[str, Any], dc2: dict[str, Any], fresh: Callable[[str], str]
):
    """The spec that the job was started with says which clusters are reached; a control record does not."""

    def slots() -> dict[int, tuple[int, int]]:
        return {slot: (report.attempt, report.status.process) for slot, report in job.reports().items()}

    workers, before, spec = slots(), generations(job.spec)["main"], job.spec
    there = spec.clusters["dc1"]
    asking = replace(there, client={**there.client, "sasl.password": {"file": "/etc/passwd"}})
    for edited in (
        {**spec.clusters, "dc4": there},
        {**spec.clusters, "dc1": replace(there, bootstrap="127.0.0.1:9")},
        {**spec.clusters, "dc1": asking},
        {**spec.clusters, "dc2": replace(spec.clusters["dc2"], bootstrap="127.0.0.1:9")},
    ):
        told(job, clusters=edited)
        job.spec = spec
        job.wait_for(lambda status: "an edit was refused: clusters.dc" in status.trouble)
        assert "an edit was refused" in job.log.read_text()
    topic = fresh("after")
    create_topic(dc1, topic)
    write(dc1, topic, [b"later"] * 5)
    told(job, flow_of("after", [topic]))
    wait_for(lambda: arrived(dc2, topic) == 5, _FOLLOWS_S)
    assert remembered(job.spec).clusters == spec.clusters
    assert generations(job.spec)["main"] == before
    assert slots() == workers


def test_an_edited_flow_begins_what_is_new_to_it_at_its_start(
    job: Running, dc1: dict[str, Any], dc2: dict[str, Any], fresh: Callable[[str], str]
):
    flow = flow_in(job, "added")
    topic = fresh("edited")
    create_topic(dc1, topic)
    write(dc1, topic, [b"kept"] * 5)
    told(job, replace(flow, topics=replace(flow.topics, include=(*flow.topics.include, topic))))
    wait_for(lambda: arrived(dc2, topic) == 5, _FOLLOWS_S)


def test_a_flow_pauses_and_goes_on_where_it_was(job: Running, dc1: dict[str, Any], dc2: dict[str, Any]):
    flow = flow_in(job, "added")
    topic = flow.topics.include[0]
    told(job, replace(flow, state="paused"))
    wait_for(lambda: generations(job.spec)["added"].state == "paused")
    write(dc1, topic, [b"later"] * 7)
    job.wait_for(lambda status: not any(view.partitions for view in status.flows if view.flow == "added"))
    assert arrived(dc2, topic) == 10
    told(job, replace(flow, state="active"))
    wait_for(lambda: arrived(dc2, topic) == 17, _FOLLOWS_S)


def test_a_flow_starts_over_once_where_it_is_told_to(
    job: Running, dc1: dict[str, Any], dc2: dict[str, Any], fresh: Callable[[str], str]
):
    topic = fresh("again")
    create_topic(dc1, topic, 1)
    flow = flow_of("again", [topic])
    told(job, flow)
    write(dc1, topic, [b"1", b"2", b"3"])
    wait_for(lambda: values(dc2, topic) == [b"1", b"2", b"3"], _FOLLOWS_S)
    from_two = replace(flow, restart_from=AtOffsets(offsets={topic: {0: 1}}))
    told(job, from_two)
    wait_for(lambda: values(dc2, topic) == [b"1", b"2", b"3", b"2", b"3"], _FOLLOWS_S)
    told(job, replace(from_two, state="paused"))
    told(job, from_two)  # it was carried out: from here on it resumes
    write(dc1, topic, [b"4"])
    wait_for(lambda: values(dc2, topic) == [b"1", b"2", b"3", b"2", b"3", b"4"], _FOLLOWS_S)


def test_a_source_that_does_not_answer_is_its_flows_matter_alone(
    job: Running, dc1: dict[str, Any], dc2: dict[str, Any]
):
    lost = flow_of("lost", ["x"], source="dc3")
    told(job, lost)
    status = job.wait_for(lambda status: any(view.flow == "lost" and view.why for view in status.flows))
    assert not next(view for view in status.flows if view.flow == "lost").source_answers
    write(dc1, f"{PREFIX}-new", [b"still"])
    count = arrived(dc1, f"{PREFIX}-new")
    wait_for(lambda: arrived(dc2, f"{PREFIX}-new") == count)


def test_a_flow_is_removed_and_nobody_may_copy_it(job: Running):
    flows_before = job.spec
    spec = replace(job.spec, flows=[flow for flow in job.spec.flows if flow.name != "added"])
    job.tell(control.Reconfigure("without", spec))
    assert generations(flows_before)["added"].state == "stopped"
    wait_for(lambda: not any(key.flow == "added" for key in job.partitions()))


def test_a_deleted_source_topic_is_said_and_its_mirror_stays(
    job: Running, dc1: dict[str, Any], dc2: dict[str, Any]
):
    topic = f"{PREFIX}-new"
    count = arrived(dc2, topic)
    admin = AdminClient(dc1)  # its futures need it alive
    admin.delete_topics([topic])[topic].result(60)
    key = PartitionKey("main", topic, 0)
    wait_for(lambda: state_of(job, key) is PartitionState.SOURCE_DELETED)
    assert arrived(dc2, topic) == count


def test_small_enough(job: Running):
    """Driver and two slots; the limit is for one."""
    assert sum(map(share_of, below(job.pid))) < 800 << 20


def test_a_graceful_stop_says_goodbye(job: Running):
    assert job.stop() == 0, job.tail()
    wait_for(lambda: (status := job.status()) is not None and status.state == "stopped")
    wait_for(lambda: generations(job.spec)["main"].state == "stopped")
    wait_for(lambda: not any(map(lives, job.started())))


def state_of(job: Running, key: PartitionKey) -> PartitionState | None:
    """None while no slot holds it."""
    found = job.partitions().get(key)
    return found.state if found is not None else None


def settings_of(client: dict[str, Any], topic: str) -> dict[str, str | None]:
    resource = ConfigResource(ResourceType.TOPIC, topic)
    admin = AdminClient(client)
    found = admin.describe_configs([resource])[resource].result(60)
    return {key: entry.value for key, entry in found.items()}


def alter(client: dict[str, Any], topic: str, settings: dict[str, str | None]) -> None:
    changes = [
        ConfigEntry(
            key,
            value,
            incremental_operation=AlterConfigOpType.DELETE if value is None else AlterConfigOpType.SET,
        )
        for key, value in settings.items()
    ]
    resource = ConfigResource(ResourceType.TOPIC, topic, incremental_configs=changes)
    admin = AdminClient(client)
    admin.incremental_alter_configs([resource])[resource].result(60)


def copied(client: dict[str, Any], topic: str) -> list[Record]:
    """Committed records, none while there is no such topic."""
    known = AdminClient(client).list_topics(timeout=60).topics
    return read(client, topic) if topic in known else []


def arrived(client: dict[str, Any], topic: str) -> int:
    return len(copied(client, topic))
