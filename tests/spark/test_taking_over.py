"""MirrorMaker 2 copies, ends, and repl goes on behind its last record: nothing is lost, nothing doubled."""

import signal
import subprocess
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import pytest
from confluent_kafka import Consumer, ConsumerGroupTopicPartitions, TopicPartition
from confluent_kafka.admin import AdminClient

from planner.config import load
from runtime.contract.spec.flow import AtOffsets
from runtime.lab.lab import Lab
from tests.commands import repl
from tests.labs import WITH_PARENT
from tests.labs.mirror_maker import ONE_COPY, command
from tests.records import create_topic, read, wait_for, write

pytestmark = [pytest.mark.spark, pytest.mark.long]

MirrorMaker = Callable[[Mapping[str, str]], subprocess.Popen[bytes]]
SETTINGS = {
    **ONE_COPY,
    "tasks.max": "1",
    "emit.heartbeats.enabled": "false",
    "emit.checkpoints.interval.seconds": "1",
    "sync.group.offsets.interval.seconds": "1",
    "sync.topic.acls.enabled": "false",
}


@pytest.fixture
def mirror_maker(tmp_path: Path) -> Iterator[MirrorMaker]:
    """mirror_maker(keys) writes mm2.properties and starts MirrorMaker 2 by it."""
    started: list[subprocess.Popen[bytes]] = []

    def start(keys: Mapping[str, str]) -> subprocess.Popen[bytes]:
        words = command(tmp_path / "mm2.properties", {**SETTINGS, **keys})
        with (tmp_path / "mm2.log").open("ab") as log:
            started.append(subprocess.Popen([*WITH_PARENT, *words], stdout=log, stderr=log))
        return started[-1]

    yield start
    for one in started:
        one.kill()
        one.wait(60)


def pair(lab: Lab, first: str, second: str) -> dict[str, str]:
    """dc1 and dc2 under these aliases. Fresh ones make everything of MirrorMaker's fresh."""
    return {
        "clusters": f"{first}, {second}",
        f"{first}.bootstrap.servers": lab.clusters["dc1"].bootstrap,
        f"{second}.bootstrap.servers": lab.clusters["dc2"].bootstrap,
    }


def values(lab: Lab, cluster: str, topic: str) -> dict[int, list[bytes | None]]:
    """What a topic holds, by partition and in order."""
    found: dict[int, list[bytes | None]] = {}
    for record in read(lab.clusters[cluster].client, topic):
        found.setdefault(record.partition, []).append(record.value)
    return found


def numbered(begin: int, end: int) -> list[bytes]:
    return [b"%d" % at for at in range(begin, end)]


def committed(lab: Lab, cluster: str, group: str) -> dict[tuple[str, int], int]:
    admin = AdminClient(dict(lab.clusters[cluster].client))
    asked = admin.list_consumer_group_offsets([ConsumerGroupTopicPartitions(group)])
    places = asked[group].result(60).topic_partitions
    return {(one.topic, one.partition): one.offset for one in places}


def commit(lab: Lab, cluster: str, group: str, topic: str, offset: int) -> None:
    consumer = Consumer({**lab.clusters[cluster].client, "group.id": group})
    consumer.commit(offsets=[TopicPartition(topic, 0, offset)], asynchronous=False)
    consumer.close()


def test_it_goes_on_behind_a_mirror_maker_that_was_stopped(
    lab: Lab, fresh: Callable[[str], str], mirror_maker: MirrorMaker, tmp_path: Path
) -> None:
    """By prefix from dc1 to dc2, and under the same names from dc2 to dc1."""
    a, b, orders, invoices, group = map(fresh, ("a", "b", "orders", "invoices", "billing"))
    copies = {"dc1": (orders, "dc2", f"{a}.{orders}"), "dc2": (invoices, "dc1", invoices)}
    for cluster, (topic, _, _) in copies.items():
        create_topic(lab.clusters[cluster].client, topic, 2, config={"retention.ms": "-1"})
        write(lab.clusters[cluster].client, topic, numbered(0, 400))
    commit(lab, "dc1", group, orders, 100)
    running = mirror_maker(
        {
            **pair(lab, a, b),
            f"{a}->{b}.enabled": "true",
            f"{a}->{b}.topics": orders,
            f"{a}->{b}.groups": group,
            f"{a}->{b}.sync.group.offsets.enabled": "true",
            f"{b}->{a}.enabled": "true",
            f"{b}->{a}.topics": invoices,
            f"{b}->{a}.replication.policy.class": "org.apache.kafka.connect.mirror.IdentityReplicationPolicy",
        }
    )

    def same() -> bool:
        return all(
            other_topic in AdminClient(dict(lab.clusters[other].client)).list_topics(timeout=60).topics
            and values(lab, other, other_topic) == values(lab, cluster, topic)
            for cluster, (topic, other, other_topic) in copies.items()
        )

    wait_for(same, 240)
    wait_for(lambda: (f"{a}.{orders}", 0) in committed(lab, "dc2", group), 240)
    file = tmp_path / "repl.yaml"
    taking = ("import", "--mm2", str(tmp_path / "mm2.properties"), "--take-over", "-o", str(file))
    refused = repl(*taking)
    assert refused.returncode == 3, refused.stderr
    assert f"MirrorMaker 2 still runs: group {a}-mm2 at {b} has members" in refused.stderr
    forced = repl(*taking[:-1], str(tmp_path / "forced.yaml"), "--force")
    assert forced.returncode == 0, forced.stderr
    assert "what it copies from now on arrives twice" in forced.stderr
    running.send_signal(signal.SIGTERM)
    running.wait(60)
    translated = committed(lab, "dc2", group)
    for cluster, (topic, _, _) in copies.items():
        write(lab.clusters[cluster].client, topic, numbered(400, 600))

    done = repl(*taking)
    assert done.returncode == 0, done.stderr
    assert "were not found" not in done.stderr
    assert all(isinstance(flow.start, AtOffsets) for flow in load(file).flows.values())
    applied = repl("apply", str(file), "--auto-approve")
    try:
        assert applied.returncode == 0, applied.stderr
        wait_for(same, 240)
        kept = committed(lab, "dc2", group)
        assert all(kept[at] >= offset for at, offset in translated.items())
    finally:
        repl("destroy", str(file), "--auto-approve")
