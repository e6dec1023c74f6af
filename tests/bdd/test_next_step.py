"""Steps of failing_over/next_step.feature: what the commands say, compared with what is so."""

import datetime
import json
import re
import shutil
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer
from pytest_bdd import given, parsers, scenarios, then, when

from runtime.lab.lab import Lab
from tests.bdd.consuming import consumer_of, eat, place
from tests.bdd.running import SMALL, Town, eventually
from tests.labs import spec
from tests.processes import kill_together
from tests.records import PATIENCE_S, coordinators_ready, read
from tests.topologies import at

pytestmark = [pytest.mark.integration, pytest.mark.spark, pytest.mark.long]

scenarios("failing_over/next_step.feature")

FLOW = "dc1-to-dc2"
NEXT = "repl resume dc1-to-dc2 --accept-loss"
ACKNOWLEDGED_S = 10.0  # a fetch is answered twice a second, and a slot reports once a second


@dataclass
class Night:
    town: Town
    lost_at: float = 0.0

    def repl(self, *words: str) -> str:
        """Runs a command over the topology, and returns what it printed to stdout."""
        return self.town.run(*words, str(self.town.topology.file)).stdout

    def write(self, topic: str, partition: int, count: int) -> None:
        producer = Producer({**self.town.client("dc1"), "enable.idempotence": True})
        for _ in range(count):
            producer.produce(topic, f"{next(self.town.numbers)}".encode(), partition=partition)
        assert producer.flush(PATIENCE_S) == 0

    def held(self, topic: str, cluster: str) -> list[bytes | None]:
        return [one.value for one in read(self.town.client(cluster), topic)]

    def partitions(self) -> dict[tuple[str, int], dict[str, Any]]:
        (flow,) = json.loads(self.repl("status", "--json", "--over", "0s"))["flows"]
        found = [one for topic in flow["topics"] for one in topic["partitions"]]
        return {(one["topic"], one["partition"]): one for one in found}


@pytest.fixture
def night(tmp_path: Path) -> Iterator[Night]:
    lab = Lab(tmp_path / "lab")
    town = None
    try:
        lab.up([spec("dc1"), spec("dc2")])
        for cluster in lab.clusters.values():
            coordinators_ready(cluster.client)
        topology = at(lab, "night", tmp_path, ("dc1", "dc2"))
        flow = {"name": FLOW, "from": "dc1", "to": "dc2", "topics": {"include": ["orders", "refunds"]}}
        quick = {"follow": {"every": "500ms"}, "groups": {"every": "300ms"}}
        topology.more["flows"] = [{**flow, "rename": "{source}.{topic}", **quick}]
        topology.more["jobs"] = {"dc2": SMALL}
        topology.topic("orders", partitions=2)
        topology.topic("refunds", partitions=1)
        town = Town(lab, topology, tmp_path / "home", lambda word: word.removeprefix("into-"))
        yield Night(town)
    finally:
        if town is not None:
            kill_together(town.processes("dc2").values())
        lab.down(purge=True)
        shutil.rmtree(tmp_path, ignore_errors=True)


@pytest.fixture
def town(night: Night) -> Town:
    """For the steps that all stories share."""
    return night.town


# Given


@given("the flow dc1-to-dc2 copies orders and refunds from dc1 to dc2 as dc1.orders and dc1.refunds")
def _(night: Night) -> None:
    night.town.apply()
    night.write("orders", 0, 30)
    night.write("refunds", 0, 20)
    eventually(lambda: len(night.held("dc1.orders", "dc2")) == 30, about="orders at dc2")
    eventually(lambda: len(night.held("dc1.refunds", "dc2")) == 20, about="refunds at dc2")


@given("the group billing has read orders at dc1, and one partition of orders is idle")
def _(night: Night) -> None:
    consumer = consumer_of(night.town, "billing", "dc1")
    eat(consumer, 10)
    consumer.close()
    eventually(lambda: len(place(night.town, "billing", "dc2", "dc1.orders")) > 0, about="billing at dc2")


# When


@when(parsers.parse('the engineer runs "repl {command}"'))
def _(night: Night, command: str) -> None:
    words = command.split()
    night.repl(*words, *(() if words[0] in ("plan", "status") else ("--auto-approve",)))


@when("dc1.refunds is deleted at dc2 by hand")
def _(night: Night) -> None:
    night.town.delete("dc1.refunds", "dc2")
    eventually(lambda: night.town.partitions("dc1.refunds", "dc2") == 0, about="dc1.refunds is gone")


@when("dc1 is lost")
def _(night: Night) -> None:
    night.town.lab.kill("dc1")
    night.lost_at = time.time()


# Then


@then(parsers.parse('the command names "{command}" and does not say "{text}"'))
def _(night: Night, command: str, text: str) -> None:
    said = night.town.last().stdout
    assert command in said, said
    assert text not in said, said


@then("the JSON output names the same next step")
def _(night: Night) -> None:
    steps = {key: one["next"] for key, one in night.partitions().items() if one["next"]}
    assert steps == {("refunds", 0): NEXT}


@then("records that are written to refunds from now on arrive at dc2")
def _(night: Night) -> None:
    done = night.town.last()
    assert done.returncode == 0, f"{done.stdout}\n{done.stderr}"
    night.write("refunds", 0, 5)
    eventually(lambda: len(night.held("dc1.refunds", "dc2")) >= 5, about="refunds at dc2")
    assert night.held("dc1.refunds", "dc2") == night.held("refunds", "dc1")[-5:]


@then("apply, plan and status say that nothing is left, and verify finds no difference")
def _(night: Night) -> None:
    applied = night.repl("apply", "--auto-approve")
    assert (night.town.last().returncode, "Apply complete!" in applied) == (0, True), applied
    assert "No changes." in night.repl("plan")
    status = night.repl("status")
    assert "nothing behind" in status
    assert "Next for" not in status
    night.repl("verify", FLOW)
    done = night.town.last()
    assert done.returncode == 0, f"{done.stdout}\n{done.stderr}"


@then("the command says that dc1 was last seen seconds before it was lost")
def _(night: Night) -> None:
    done = night.town.last()
    assert done.returncode == 0, f"{done.stdout}\n{done.stderr}"
    told = re.search(r"as of (\S+ \S+)Z", done.stdout)
    assert told is not None, done.stdout
    heard = datetime.datetime.fromisoformat(f"{told[1]}+00:00").timestamp()
    assert night.lost_at - heard < ACKNOWLEDGED_S


@then("status says that every partition was seen seconds before, idle ones too")
def _(night: Night) -> None:
    seen = {key: one["source_end_seen_ms"] for key, one in night.partitions().items()}
    late = {key: ms for key, ms in seen.items() if ms is None or night.lost_at - ms / 1000 > ACKNOWLEDGED_S}
    assert not late


@then("the command tells billing to subscribe to dc1.orders at dc2")
def _(night: Night) -> None:
    (line,) = [one for one in night.town.last().stdout.splitlines() if "billing" in one]
    assert line.split() == ["billing", "at", "dc2:", "dc1.orders"]
