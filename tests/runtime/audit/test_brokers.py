"""`repl status`, `read` and `clients` beside one real job: while it copies, dies, and loses its source.

The tests build on each other's job and are meant to run in this order; the last ones break the lab.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, Producer

from planner.workflows.samples import recorded, sample_of
from runtime.contract.spec.flow import ConfigsSpec
from runtime.lab.lab import Lab
from tests.commands import repl
from tests.labs import spec
from tests.records import create_topic, wait_for, write
from tests.spark.job import Running, flow_of, spec_of, start_job
from tests.topologies import declared, of_flows

pytestmark = pytest.mark.spark

FLOWS = [declared("plain", "orders"), declared("stamped", "stamped"), declared("large", "large")]


@dataclass
class World:
    lab: Lab
    job: Running
    topology: Path

    def client(self, cluster: str) -> dict[str, Any]:
        return dict(self.lab.clusters[cluster].client)

    def status(self, *options: str, expect: int = 0) -> dict[str, Any]:
        done = repl("status", str(self.topology), "--json", *options)
        assert done.returncode == expect, done.stderr
        found: dict[str, Any] = json.loads(done.stdout)
        return found

    def flow(self, name: str, *options: str) -> dict[str, Any]:
        return next(one for one in self.status(*options)["flows"] if one["name"] == name)

    def until(self, name: str, holds: Callable[[dict[str, Any]], bool]) -> dict[str, Any]:
        deadline = time.monotonic() + 240
        while not holds(flow := self.flow(name, "--over", "0s")):
            assert time.monotonic() < deadline, (flow, self.job.tail())
            time.sleep(0.3)  # each look is a command, on cores that the job wants too
        return flow

    def asked(self, command: str, *words: str) -> dict[str, Any]:
        done = repl(command, *words, "--path", str(self.topology), "--json")
        assert done.returncode == 0, done.stderr
        found: dict[str, Any] = json.loads(done.stdout)
        return found


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    folder = tmp_path_factory.mktemp("audit")
    lab = Lab(folder / "lab")
    lab.up([spec("dc1"), spec("dc2")])
    running: list[Running] = []
    try:
        here, there = (dict(lab.clusters[name].client) for name in ("dc1", "dc2"))
        create_topic(here, "orders", 3)
        create_topic(here, "stamped")
        create_topic(here, "large")
        create_topic(there, "large", config={"max.message.bytes": "10000"})
        flows = [
            flow_of("plain", ["orders"], provenance="batch", heartbeats_every_ms=500),
            flow_of("stamped", ["stamped"], provenance="headers"),
            flow_of("large", ["large"], configs=ConfigsSpec(sync="off")),
        ]
        running.append(start_job(spec_of(lab, "dc2", flows), folder))
        yield World(lab, running[0], of_flows(lab.clusters, folder, *FLOWS))
    finally:
        for job in running:
            job.kill()
        lab.down(purge=True)


def test_before_the_job_has_spoken_nothing_is_said_to_run(world: World):
    status = world.status("--over", "0s")
    assert {flow["state"] for flow in status["flows"]} <= {"down", "starting", "caught_up"}


def test_caught_up(world: World):
    write(world.client("dc1"), "orders", [b"%d" % number for number in range(300)])
    world.job.wait_for(lambda status: [slot.state for slot in status.slots] == ["running"])
    world.until("plain", lambda one: one["state"] == "caught_up" and _records(one) == 300)
    flow = world.until("plain", lambda one: all(each["caught_up_since_ms"] for each in _partitions(one)))
    wait_for(lambda: world.status("--over", "0s")["jobs"][0]["heartbeat_age_ms"] < 10_000)
    status = world.status()
    (job,) = status["jobs"]
    assert (job["name"], job["up"], job["state"]) == ("dc2", True, "running")
    assert (flow["lag_records"], flow["lag_ms"]) == (0, 0)
    ids = {one["name"]: one["id"] for one in status["clusters"]}
    assert (flow["source_cluster_id"], flow["destination_cluster_id"]) == (ids["dc1"], ids["dc2"])
    for partition in _partitions(flow):
        assert partition["position"] == partition["source_end"]
        assert partition["caught_up_since_ms"] <= status["at_ms"]
        assert partition["source_high_watermark"] == partition["source_end"]
        assert partition["destination_start"] == 0
        # The destination's log holds the records and the markers of their transactions.
        assert partition["destination_end"] >= partition["source_end"]
    assert flow["latency_p50_ms"] <= flow["latency_p99_ms"]
    latency = next(one["latency"] for one in flow["topics"] if one["topic"] == "orders")
    assert latency["records"] == 300
    assert 0 <= latency["min_ms"] <= latency["p50_ms"] <= latency["p99_ms"] <= latency["max_ms"]
    assert latency["min_ms"] <= latency["avg_ms"] <= latency["max_ms"]
    assert flow["time_to_loss_ms"] == 7 * 86_400_000  # Kafka's default retention: nothing waits
    assert world.until("plain", lambda one: one["link_age_ms"] is not None)["link_age_ms"] < 60_000


def test_records_tell_where_they_are_from_by_the_offset_map(world: World):
    write(world.client("dc2"), "orders", [b"born here"])
    read = world.asked("read", "dc2", "orders", "--limit", "1000", "--from", "earliest")
    native = [one for one in read["records"] if one["provenance"] == "native"]
    copied = [one for one in read["records"] if one["provenance"] == "batch"]
    assert [one["value"]["text"] for one in native] == ["born here"]
    assert len(copied) == 300
    for one in copied:
        (hop,) = one["hops"]
        assert (one["flow"], hop["cluster"], hop["topic"]) == ("plain", "dc1", "orders")
        assert hop["partition"] == one["partition"]
    there = world.asked("read", "dc1", "orders", "--limit", "1000", "--from", "earliest")["records"]
    values = {(one["partition"], one["offset"]): one["value"] for one in there}
    for one in copied:
        (hop,) = one["hops"]
        assert values[hop["partition"], hop["offset"]] == one["value"]


def test_records_are_exported_as_a_sample(world: World, tmp_path: Path):
    create_topic(world.client("dc1"), "sampled")
    write(world.client("dc1"), "sampled", [b'{"id": 1}', b"\xff"])
    file = tmp_path / "sampled.jsonl"
    words = ("read", "dc1", "sampled", "--export", str(file), "--path", str(world.topology))
    done = repl(*words)
    assert (done.returncode, done.stdout) == (0, ""), done.stderr
    assert f"2 records of sampled at dc1 written to {file}" in done.stderr
    assert file.stat().st_mode & 0o077 == 0
    lines = [json.loads(line) for line in file.read_text().splitlines()]
    assert sorted(str(one["value"]) for one in lines) == ["{'base64': '/w=='}", "{'text': '{\"id\": 1}'}"]
    assert sorted(one.value or b"" for one in recorded(file)) == [b'{"id": 1}', b"\xff"]
    assert sorted(one.value or b"" for one in sample_of(file)) == [b'{"id": 1}', b"\xff"]
    again = repl(*words)
    assert again.returncode == 1
    assert "is there already" in again.stderr


def test_records_tell_where_they_are_from_by_their_header(world: World):
    producer = Producer(world.client("dc1"))
    for number in range(3):
        producer.produce("stamped", value=b"\x00\xff%d" % number, headers=[("trace", b"t")])
    assert producer.flush(60) == 0
    world.until("stamped", lambda one: one["state"] == "caught_up" and _records(one) == 3)
    (record,) = world.asked("read", "dc2", "stamped", "--limit", "1")["records"]
    (hop,) = record["hops"]
    assert (record["provenance"], record["flow"]) == ("headers", "stamped")
    assert (hop["cluster"], hop["topic"], hop["partition"], hop["offset"]) == ("dc1", "stamped", 0, 2)
    assert hop["copied_at_ms"] > 0
    assert record["value"] == {"base64": "AP8y"}
    assert "trace" in [header["name"] for header in record["headers"]]


def test_a_cluster_tells_what_it_holds_and_how_far_flows_have_come(world: World):
    held = world.asked("read", "dc2")
    assert {one["topic"]: one["flows"] for one in held["topics"]} == {
        "orders": ["plain"],
        "stamped": ["stamped"],
        "large": ["large"],
    }
    newest = [one["last_timestamp_ms"] for one in held["copied"] if one["flow"] == "plain"]
    assert any(one is not None and time.time() * 1000 - one < 600_000 for one in newest)


def test_a_live_producer_and_groups_with_their_members_are_found(world: World):
    """Groups of both protocols: the classic one, and that of KIP-848."""
    client = world.client("dc1")
    consumers = []
    for name, protocol in (("billing", "classic"), ("shipping", "consumer")):
        settings = {"group.id": name, "client.id": f"{name}-7", "group.protocol": protocol}
        consumer = Consumer({**client, **settings, "auto.offset.reset": "earliest"})
        consumers.append(consumer)
        consumer.subscribe(["orders"])
        seen = 0
        deadline = time.monotonic() + 120
        while seen < 300:
            assert time.monotonic() < deadline
            seen += len(consumer.consume(500, 1.0))
        consumer.commit(asynchronous=False)
    producer = Producer({**client, "transactional.id": "till-1"})
    producer.init_transactions(60)
    producer.begin_transaction()
    producer.produce("orders", value=b"pending", partition=1)
    producer.flush(60)
    try:
        found = world.asked("clients", "dc1")
    finally:
        producer.abort_transaction(60)
        for consumer in consumers:
            consumer.close()
    orders = next(one for one in found["topics"] if one["topic"] == "orders")
    for group, name in zip(orders["consumers"], ("billing", "shipping"), strict=True):
        (member,) = group["members"]
        assert (group["group"], group["state"], group["lag"]) == (name, "Stable", 0)
        assert (member["client_id"], member["partitions"]) == (f"{name}-7", [0, 1, 2])
    (till,) = [one for one in orders["producers"] if one["transactional_id"] == "till-1"]
    assert (till["partitions"], list(till["open_since"])) == ([1], ["1"])
    there = next(one for one in world.asked("clients", "dc2")["topics"] if one["topic"] == "orders")
    assert "plain" in {one["flow"] for one in there["producers"]}


def test_a_job_that_was_killed_is_down_and_its_lag_grows(world: World):
    """What it reported of a partition last stays true: a record that the mirror does not take."""
    write(world.client("dc1"), "large", [b"x" * 50_000])
    world.until("large", lambda one: one["state"] == "record_too_large")
    world.job.kill()
    write(world.client("dc1"), "orders", [b"later"] * 10)
    flow = world.until("plain", lambda one: one["state"] == "down")
    assert flow["lag_records"] >= 10
    assert flow["lag_ms"] > 0
    write(world.client("dc1"), "orders", [b"still later"] * 10)
    status = world.status()
    after = next(one for one in status["flows"] if one["name"] == "plain")
    assert after["lag_records"] >= flow["lag_records"] + 10
    assert (status["jobs"][0]["up"], status["jobs"][0]["state"]) == (False, "down")
    assert "record_too_large" in _partitions(world.flow("large"))[0]["why"]


def test_with_the_source_gone_the_end_that_the_job_saw_last_stands(world: World):
    world.lab.kill("dc1")
    flow = world.flow("plain", "--timeout", "10s")
    assert not flow["source_answers"]
    assert flow["source_cluster_id"] is not None
    assert all(one["source_end_seen_ms"] is not None for one in _partitions(flow))
    assert "does not answer" in flow["why"]


def _partitions(flow: dict[str, Any]) -> list[dict[str, Any]]:
    return [one for topic in flow["topics"] for one in topic["partitions"]]


def _records(flow: dict[str, Any]) -> int:
    return sum(one["records"] for one in _partitions(flow))
