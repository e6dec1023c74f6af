"""`repl status`, `read` and `clients` on real brokers: beside a job, and of what a slot copied."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer

from planner.workflows.samples import recorded, sample_of
from runtime.contract.spec.jobspec import ProvenanceMode
from tests.commands import repl
from tests.conftest import MakeLab
from tests.labs import spec
from tests.records import create_topic, open_transaction, write
from tests.runtime.slot.world import Side, copying
from tests.spark.job import flow_of, spec_of, start_job
from tests.topologies import declared, of_flows

Fresh = Callable[[str], str]


def asked(*words: str, path: Path) -> dict[str, Any]:
    done = repl(*words, "--path", str(path), "--json")
    assert done.returncode == 0, done.stderr
    answer: dict[str, Any] = json.loads(done.stdout)
    return answer


def partitions_of(flow: Mapping[str, Any]) -> list[dict[str, Any]]:
    return [one for topic in flow["topics"] for one in topic["partitions"]]


@pytest.mark.spark
def test_caught_up(own_lab: MakeLab, tmp_path: Path) -> None:
    """Then the job is killed: it is down and its lag grows. And the source is lost: its last end stands."""
    lab = own_lab(spec("dc1"), spec("dc2"))
    client = dict(lab.clusters["dc1"].client)
    create_topic(client, "orders", 3)
    write(client, "orders", [b"%d" % number for number in range(300)])
    path = of_flows(lab.clusters, tmp_path, declared("plain", "orders"))

    def until(
        holds: Callable[[dict[str, Any], dict[str, Any]], bool],
    ) -> tuple[dict[str, Any], dict[str, Any]]:
        """Waits for a status; a look is a command, on cores that the job wants too."""
        deadline = time.monotonic() + 240
        while True:
            status = asked("status", "--over", "0s", path=path)
            (flow,) = status["flows"]
            if holds(status, flow):
                return status, flow
            assert time.monotonic() < deadline, (flow, job.tail())
            time.sleep(0.3)

    flow_spec = flow_of("plain", ["orders"], provenance="batch", heartbeats_every_ms=500)
    job = start_job(spec_of(lab, "dc2", [flow_spec]), tmp_path)
    try:
        status, flow = until(
            lambda status, flow: (
                flow["state"] == "caught_up"
                and flow["link_age_ms"] is not None
                and sum(one["records"] for one in partitions_of(flow)) == 300
                and all(one["caught_up_since_ms"] for one in partitions_of(flow))
                and status["jobs"][0]["heartbeat_age_ms"] < 10_000
            )
        )
    finally:
        job.kill()
    (shown,) = status["jobs"]
    assert (shown["name"], shown["up"], shown["state"]) == ("dc2", True, "running")
    assert (flow["lag_records"], flow["lag_ms"]) == (0, 0)
    ids = {one["name"]: one["id"] for one in status["clusters"]}
    assert (flow["source_cluster_id"], flow["destination_cluster_id"]) == (ids["dc1"], ids["dc2"])
    for partition in partitions_of(flow):
        assert partition["position"] == partition["source_end"] == partition["source_high_watermark"]
        assert partition["caught_up_since_ms"] <= status["at_ms"]
        assert partition["destination_start"] == 0
        # The destination's log holds the records and the markers of their transactions.
        assert partition["destination_end"] >= partition["source_end"]
    (latency,) = [one["latency"] for one in flow["topics"] if one["topic"] == "orders"]
    assert latency["records"] == 300
    assert flow["time_to_loss_ms"] == 7 * 86_400_000  # Kafka's default retention: nothing waits
    assert flow["link_age_ms"] < 60_000

    write(client, "orders", [b"later"] * 10)
    status, flow = until(lambda _, flow: flow["state"] == "down")
    assert (status["jobs"][0]["up"], status["jobs"][0]["state"]) == (False, "down")
    assert flow["lag_records"] == 10
    assert flow["lag_ms"] > 0
    lab.kill("dc1")
    (flow,) = asked("status", "--timeout", "10s", path=path)["flows"]
    assert (flow["source_answers"], flow["source_cluster_id"]) == (False, ids["dc1"])
    assert all(one["source_end_seen_ms"] is not None for one in partitions_of(flow))
    assert "does not answer" in flow["why"]


@pytest.mark.integration
@pytest.mark.parametrize("mode", ["batch", "headers"])
def test_records_tell_where_they_are_from(
    sides: dict[str, Side], fresh: Fresh, tmp_path: Path, mode: ProvenanceMode
) -> None:
    """By the offset map, or by their header; `repl read` of a cluster says whose copies it holds."""
    orders = copying(sides, fresh, 3, provenance=mode)
    orders.source.write(
        orders.topic, [{"value": b"\xff%d" % number, "partition": number % 3} for number in range(30)]
    )
    orders.copy_through()
    orders.destination.write(orders.topic, [{"value": b"born here"}])
    path = of_flows(sides, tmp_path, declared(orders.flow.name, orders.topic))
    here, there = (
        asked("read", name, orders.topic, "--limit", "1000", "--from", "earliest", path=path)["records"]
        for name in ("dc1", "dc2")
    )
    native = [one for one in there if one["provenance"] == "native"]
    assert [one["value"]["text"] for one in native] == ["born here"]
    copied = [one for one in there if one["provenance"] == mode]
    values = {(one["partition"], one["offset"]): one["value"] for one in here}
    assert len(copied) == len(values) == 30
    for one in copied:
        (hop,) = one["hops"]
        assert (one["flow"], hop["cluster"], hop["topic"]) == (orders.flow.name, "dc1", orders.topic)
        assert hop["partition"] == one["partition"]
        assert values[hop["partition"], hop["offset"]] == one["value"] != {}
        assert (hop["copied_at_ms"] is not None) == (mode == "headers")
    held = asked("read", "dc2", path=path)
    assert {one["topic"]: one["flows"] for one in held["topics"]}[orders.topic] == [orders.flow.name]
    newest = [one["last_timestamp_ms"] for one in held["copied"] if one["flow"] == orders.flow.name]
    assert any(one is not None and time.time() * 1000 - one < 600_000 for one in newest)


@pytest.mark.integration
def test_records_are_exported_as_a_sample(sides: dict[str, Side], fresh: Fresh, tmp_path: Path) -> None:
    topic, file = fresh("sampled"), tmp_path / "sampled.jsonl"
    sides["dc1"].create(topic)
    sides["dc1"].write(topic, [{"value": b'{"id": 1}'}, {"value": b"\xff"}])
    path = of_flows(sides, tmp_path, declared("any", topic))
    words = ("read", "dc1", topic, "--export", str(file), "--path", str(path))
    done = repl(*words)
    assert (done.returncode, done.stdout) == (0, ""), done.stderr
    assert f"2 records of {topic} at dc1 written to {file}" in done.stderr
    assert file.stat().st_mode & 0o077 == 0
    lines = [json.loads(line) for line in file.read_text().splitlines()]
    assert [one["value"] for one in lines] == [{"text": '{"id": 1}'}, {"base64": "/w=="}]
    assert [one.value for one in recorded(file)] == [one.value for one in sample_of(file)]
    assert [one.value for one in recorded(file)] == [b'{"id": 1}', b"\xff"]
    again = repl(*words)
    assert again.returncode == 1
    assert "is there already" in again.stderr


@pytest.mark.integration
def test_live_producers_and_groups_with_their_members_are_found(
    sides: dict[str, Side], fresh: Fresh, tmp_path: Path
) -> None:
    """Groups of both protocols: the classic one, and that of KIP-848."""
    orders = copying(sides, fresh, 3)
    client, groups = orders.source.client, {fresh("billing"): "classic", fresh("shipping"): "consumer"}
    orders.source.write(
        orders.topic, [{"value": b"%d" % number, "partition": number % 3} for number in range(30)]
    )
    orders.copy_through()
    path = of_flows(sides, tmp_path, declared(orders.flow.name, orders.topic))
    consumers = []
    for name, protocol in groups.items():
        settings = {"group.id": name, "client.id": f"{name}-7", "group.protocol": protocol}
        consumer = Consumer({**client, **settings, "auto.offset.reset": "earliest"})
        consumers.append(consumer)
        consumer.subscribe([orders.topic])
        seen, deadline = 0, time.monotonic() + 120
        while seen < 30:
            assert time.monotonic() < deadline
            seen += len(consumer.consume(500, 1.0))
        consumer.commit(asynchronous=False)
    till = fresh("till")
    producer = open_transaction(client, orders.topic, till, 1)
    try:
        here, there = (
            next(one for one in asked("clients", name, path=path)["topics"] if one["topic"] == orders.topic)
            for name in ("dc1", "dc2")
        )
    finally:
        producer.abort_transaction(60)
        for consumer in consumers:
            consumer.close()
    for group in here["consumers"]:
        (member,) = group["members"]
        assert (group["state"], group["lag"]) == ("Stable", 0)
        assert (member["client_id"], member["partitions"]) == (f"{group['group']}-7", [0, 1, 2])
    assert {group["group"] for group in here["consumers"]} == groups.keys()
    (open_one,) = [one for one in here["producers"] if one["transactional_id"] == till]
    assert (open_one["partitions"], list(open_one["open_since"])) == ([1], ["1"])
    assert orders.flow.name in {one["flow"] for one in there["producers"]}
