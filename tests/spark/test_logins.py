"""Plan, apply, copy, lose and fail back with each login; tickets, tokens and certificates end meanwhile."""

import json
import os
import signal
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from pathlib import Path

import pytest
from confluent_kafka import Consumer, ConsumerGroupTopicPartitions, TopicPartition

from runtime.lab.lab import Lab
from runtime.lab.spark import LabSpark, SparkCluster
from tests.commands import repl
from tests.logins import LIFETIME_S, Certified, Logins, certificate_lab, login_lab
from tests.records import admin_of, create_topic, read, wait_for, write

pytestmark = [pytest.mark.integration, pytest.mark.spark, pytest.mark.long]

GROUP = "billing"


@pytest.fixture(scope="module")
def logins(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Logins]:
    with login_lab(tmp_path_factory.mktemp("logins"), "dc1", "dc2") as site:
        yield site


@pytest.fixture(scope="module")
def certified(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Certified]:
    with certificate_lab(tmp_path_factory.mktemp("certificates"), "dc1", "dc2") as site:
        yield site


class Engineer:
    """Runs repl with a topology in which both clusters are reached by one login."""

    def __init__(
        self, site: Logins | Certified, login: str, folder: Path, job: Mapping[str, object] | None = None
    ) -> None:
        self.lab = site.lab
        launcher = "" if job is None else f"-{job['launcher']}"
        self.topic, self.flow = f"orders-{login}{launcher}", f"go-{login}{launcher}"
        self.file = folder / "topology.yaml"
        self.environment = {**site.environment, "REPL_HOME": str(folder / "state")}
        flow = {"name": self.flow, "from": "dc1", "to": "dc2", "topics": {"include": self.topic}}
        groups = {"include": [GROUP], "sync": True, "every": "1s"}
        body = {"apiVersion": "repl/v1", "name": login, "clusters": site.clusters(login)}
        jobs = {} if job is None else {"jobs": {"dc2": job}}
        self.file.write_text(json.dumps(body | jobs | {"flows": [flow | {"groups": groups}]}))

    def run(self, command: str, *words: str, code: int = 0) -> str:
        done = repl(command, *words, env=self.environment)
        assert done.returncode == code, done.stdout + done.stderr
        return done.stdout + done.stderr

    def holds(self, cluster: str, count: int) -> None:
        client = self.lab.clusters[cluster].client
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


def committed(lab: Lab, cluster: str, topic: str) -> int:
    asked = ConsumerGroupTopicPartitions(GROUP, [TopicPartition(topic, 0)])
    admin = admin_of(lab.clusters[cluster].client)
    (partition,) = admin.list_consumer_group_offsets([asked])[GROUP].result(60).topic_partitions
    return int(partition.offset)


@pytest.mark.parametrize("login", ["kerberos", "iam", "tokens", "scram"])
def test_a_flow_is_copied_lost_and_failed_back(logins: Logins, login: str, tmp_path: Path) -> None:
    story(logins, login, tmp_path, lambda engineer: outlive(engineer, 3 * LIFETIME_S))


def test_slots_of_a_standalone_cluster_log_in_with_the_keytab_of_their_machine(
    logins: Logins, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in logins.environment.items():
        monkeypatch.setenv(name, value)
    cluster = LabSpark(tmp_path / "spark", SparkCluster.STANDALONE)
    try:
        cluster.up(workers=1, memory_mb=2048, cores=4)
        conf = {"spark.authenticate": "true", "spark.driver.host": "127.0.0.1"}
        job = {"launcher": "standalone", "master": cluster.master, "conf": conf}
        engineer = Engineer(logins, "kerberos", tmp_path, job)
        engineer.environment |= cluster.environment
        create_topic(logins.lab.clusters["dc1"].client, engineer.topic)
        engineer.run("apply", str(engineer.file), "--auto-approve")
        outlive(engineer, 3 * LIFETIME_S, 0)
        engineer.run("destroy", str(engineer.file), "--auto-approve")
    finally:
        cluster.down()


def test_a_key_store_is_renewed_meanwhile(certified: Certified, tmp_path: Path) -> None:
    def outlived(engineer: Engineer) -> int:
        lab = certified.lab
        count = outlive(engineer, certified.renewals.lifetime_s)
        # The certificates that the job began with have ended: it connects again with newer ones.
        lab.kill("dc2")
        lab.start("dc2")
        return outlive(engineer, 1, count)

    story(certified, "keystore", tmp_path, outlived)


def outlive(engineer: Engineer, seconds: float, count: int = 200) -> int:
    """Writes and copies for so long, and returns the number of records."""
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        client = engineer.lab.clusters["dc1"].client
        write(client, engineer.topic, [b"second %d" % (count + number) for number in range(10)])
        count += 10
        engineer.holds("dc2", count)
    return count


def story(site: Logins | Certified, login: str, folder: Path, outlived: Callable[[Engineer], int]) -> None:
    """`outlived` copies for longer than a login lives."""
    engineer, lab = Engineer(site, login, folder), site.lab
    dc1, dc2 = (lab.clusters[name].client for name in ("dc1", "dc2"))
    create_topic(dc1, engineer.topic)
    write(dc1, engineer.topic, [b"first %d" % number for number in range(200)])
    consumer = Consumer({**dc1, "group.id": GROUP, "enable.auto.commit": False})
    consumer.commit(offsets=[TopicPartition(engineer.topic, 0, 90)], asynchronous=False)
    consumer.close()

    assert "Plan: " in engineer.run("plan", str(engineer.file))
    engineer.run("apply", str(engineer.file), "--auto-approve")
    count = outlived(engineer)
    for process in processes_with(f"REPL_HOME={folder / 'state'}"):
        os.kill(process, signal.SIGKILL)
    write(dc1, engineer.topic, [b"third %d" % number for number in range(50)])
    wait_for(lambda: "job.dc2" in engineer.run("plan", str(engineer.file)), 60)  # it is not heard of any more
    engineer.run("apply", str(engineer.file), "--auto-approve")
    engineer.holds("dc2", count + 50)
    wait_for(lambda: committed(lab, "dc2", engineer.topic) == 90, 60)
    lab.kill("dc1")
    engineer.run("failover", "dc1", str(engineer.file), "--auto-approve")
    assert committed(lab, "dc2", engineer.topic) == 90
    write(dc2, engineer.topic, [b"survivor %d" % number for number in range(30)])
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("JDK_JAVA_OPTIONS", site.java_options)
        lab.start("dc1")
    engineer.run("failback", "dc1", str(engineer.file), "--auto-approve")
    engineer.run("failback", "dc1", str(engineer.file), "--switch", "--auto-approve")
    engineer.holds("dc1", count + 80)
    engineer.holds("dc2", count + 80)
    engineer.run("destroy", str(engineer.file), "--auto-approve")
