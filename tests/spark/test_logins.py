"""Plan, apply, copy, lose and fail back with logins that end every few seconds: Kerberos and IAM."""

import json
import os
import signal
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest
from confluent_kafka import Consumer, ConsumerGroupTopicPartitions, TopicPartition

from tests.commands import repl
from tests.logins import LIFETIME_S, Logins, login_lab
from tests.records import admin_of, create_topic, read, wait_for, write

pytestmark = [pytest.mark.integration, pytest.mark.spark, pytest.mark.long]

GROUP = "billing"


@pytest.fixture(scope="module")
def logins(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Logins]:
    with login_lab(tmp_path_factory.mktemp("logins"), "dc1", "dc2") as site:
        yield site


class Engineer:
    """Runs repl with a topology in which both clusters are reached by one mechanism."""

    def __init__(self, logins: Logins, mechanism: str, folder: Path) -> None:
        self.logins = logins
        self.topic, self.flow = f"orders-{mechanism}", f"go-{mechanism}"
        self.file = folder / "topology.yaml"
        self.environment = {**logins.environment, "REPL_HOME": str(folder / "state")}
        client = getattr(logins, mechanism)
        clusters = {
            name: {"bootstrap": cluster.bootstrap, "client": client}
            for name, cluster in logins.lab.clusters.items()
        }
        flow = {"name": self.flow, "from": "dc1", "to": "dc2", "topics": {"include": self.topic}}
        groups = {"include": [GROUP], "sync": True, "every": "1s"}
        body = {"apiVersion": "repl/v1", "name": mechanism, "clusters": clusters}
        self.file.write_text(json.dumps(body | {"flows": [flow | {"groups": groups}]}))

    def run(self, command: str, *words: str, code: int = 0) -> str:
        done = repl(command, *words, env=self.environment)
        assert done.returncode == code, done.stdout + done.stderr
        return done.stdout + done.stderr

    def holds(self, cluster: str, count: int) -> None:
        client = self.logins.lab.clusters[cluster].client
        wait_for(lambda: len(read(client, self.topic)) >= count, 120)
        values = [record.value for record in read(client, self.topic)]
        assert len(values) == len(set(values)) == count


def processes_with(variable: str) -> list[int]:
    """The processes that have this in their environment: every one of a job."""
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            if variable.encode() in (folder / "environ").read_bytes().split(b"\0"):
                found.append(int(folder.name))
    return found


def committed(logins: Logins, cluster: str, topic: str) -> int:
    asked = ConsumerGroupTopicPartitions(GROUP, [TopicPartition(topic, 0)])
    admin = admin_of(logins.lab.clusters[cluster].client)
    (partition,) = admin.list_consumer_group_offsets([asked])[GROUP].result(60).topic_partitions
    return int(partition.offset)


@pytest.mark.parametrize("mechanism", ["kerberos", "iam"])
def test_a_flow_is_copied_lost_and_failed_back(logins: Logins, mechanism: str, tmp_path: Path) -> None:
    engineer, lab = Engineer(logins, mechanism, tmp_path), logins.lab
    dc1, dc2 = (lab.clusters[name].client for name in ("dc1", "dc2"))
    create_topic(dc1, engineer.topic)
    write(dc1, engineer.topic, [b"first %d" % number for number in range(200)])
    consumer = Consumer({**dc1, "group.id": GROUP, "enable.auto.commit": False})
    consumer.commit(offsets=[TopicPartition(engineer.topic, 0, 90)], asynchronous=False)
    consumer.close()

    assert "Plan: " in engineer.run("plan", str(engineer.file))
    engineer.run("apply", str(engineer.file), "--auto-approve")
    count = 200
    until = time.monotonic() + 3 * LIFETIME_S
    while time.monotonic() < until:  # longer than a ticket, a token and a session live
        write(dc1, engineer.topic, [b"second %d" % (count + number) for number in range(10)])
        count += 10
        engineer.holds("dc2", count)

    for process in processes_with(f"REPL_HOME={tmp_path / 'state'}"):
        os.kill(process, signal.SIGKILL)
    write(dc1, engineer.topic, [b"third %d" % number for number in range(50)])
    wait_for(lambda: "job.dc2" in engineer.run("plan", str(engineer.file)), 60)  # it is not heard of any more
    engineer.run("apply", str(engineer.file), "--auto-approve")
    engineer.holds("dc2", count + 50)
    wait_for(lambda: committed(logins, "dc2", engineer.topic) == 90, 60)
    lab.kill("dc1")
    engineer.run("failover", "dc1", str(engineer.file), "--auto-approve")
    assert committed(logins, "dc2", engineer.topic) == 90
    write(dc2, engineer.topic, [b"survivor %d" % number for number in range(30)])
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("JDK_JAVA_OPTIONS", logins.java_options)
        lab.start("dc1")
    engineer.run("failback", "dc1", str(engineer.file), "--auto-approve")
    engineer.run("failback", "dc1", str(engineer.file), "--switch", "--auto-approve")
    engineer.holds("dc1", count + 80)
    engineer.holds("dc2", count + 80)
    engineer.run("destroy", str(engineer.file), "--auto-approve")
