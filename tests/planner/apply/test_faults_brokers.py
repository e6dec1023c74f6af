"""Brokers that go away in the middle, and a person who does not wait for them."""

import os
import re
import signal

import pytest
from confluent_kafka.admin import AdminClient

from tests.commands import begin, repl
from tests.labs import run_tool, spec
from tests.planner.apply.cut import (
    LEASE_MS,
    await_stopped,
    events,
    history,
    plan_now,
    registry,
    start,
    topic_ids,
)
from tests.topologies import at

pytestmark = pytest.mark.integration

MANY = 400


def test_interrupted_once_it_notes_where_it_is_and_the_next_does_the_rest(lab, fresh, tmp_path):
    topology = at(lab, fresh("shop"), tmp_path)
    for which in "ab":
        topology.topic(f"{topology.name}-{which}", partitions=1)
    process = start(topology.write(), LEASE_MS, "SIGINT")
    out, errors = process.communicate(timeout=120)
    assert process.returncode == 130, errors
    assert "Interrupted" in errors
    told = events(out)[-1]
    assert told["interrupted"]
    assert told["steps"] == {"done": 2, "not_started": 2}
    assert [one.result for one in history(lab, topology)] == ["interrupted"]
    before = topic_ids(lab, topology.name)
    done = repl("apply", str(topology.file), "--auto-approve")
    assert done.returncode == 0, done.stderr
    assert topic_ids(lab, topology.name) == before
    assert registry(lab, topology).keys() == before.keys()


@pytest.mark.long
def test_interrupted_twice_it_stops_at_once_though_the_broker_is_silent(own_lab, tmp_path):
    lab = own_lab(spec("dc1"))
    topology = at(lab, "shop", tmp_path)
    topology.topic("orders", partitions=1)
    process = start(topology.write(), LEASE_MS // 3, "SIGSTOP")  # the last apply here waits for its end
    await_stopped(process)
    lab.pause("dc1")
    os.kill(process.pid, signal.SIGCONT)
    os.kill(process.pid, signal.SIGINT)
    assert process.stderr is not None
    said = iter(process.stderr.readline, "")
    assert any("Once more stops at once" in line for line in said)
    assert process.poll() is None, "the silent broker is still waited for"
    os.kill(process.pid, signal.SIGINT)
    assert process.wait(timeout=120) == 130
    assert any("Stopped at once" in line for line in said)
    process.communicate()
    lab.unpause("dc1")
    done = repl("apply", str(topology.file), "--auto-approve")
    assert done.returncode == 0, done.stderr
    assert registry(lab, topology).keys() == {"orders"}


def test_a_broker_killed_and_restarted_in_the_middle(own_lab, tmp_path):
    """The leader of the lease goes, and comes back: requests, journal and registry go on with the others."""
    lab = own_lab(spec("dc1", brokers=3))
    topology = at(lab, "shop", tmp_path)
    for number in range(MANY):
        topology.topic(f"t-{number:03}", partitions=1, replication=3, config={"min.insync.replicas": 2})
    process = begin("apply", str(topology.write()), "--auto-approve", "--json")
    assert process.stdout is not None
    told = iter(process.stdout.readline, "")
    first = next(told)
    leader = leader_of(lab, "__repl.lease")
    lab.kill(f"dc1:{leader}")
    lab.start(f"dc1:{leader}")
    out = first + "".join(told)  # what a line read ahead holds is not seen by communicate()
    _, errors = process.communicate(timeout=200)
    assert process.returncode == 0, errors + out[-2000:]
    assert events(out)[-1]["steps"] == {"done": 2 * MANY}
    ids = topic_ids(lab, "t-")
    assert len(ids) == MANY
    entries = registry(lab, topology)
    assert {name: entry.spec["id"] for name, entry in entries.items()} == ids
    assert plan_now(topology.file).steps == ()
    topics = run_tool(lab, "dc1", "TopicCommand", "--describe", "--topic", "t-.*")
    created = r"PartitionCount: 1\s+ReplicationFactor: 3\s+Configs: min.insync.replicas=2"
    assert len(re.findall(created, topics)) == MANY


def leader_of(lab, topic: str) -> int:
    admin = AdminClient(lab.clusters["dc1"].client)
    return int(admin.list_topics(topic, timeout=60).topics[topic].partitions[0].leader)
