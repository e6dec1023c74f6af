"""One job for all of these: consumers that stop at dc1 go on at dc2, nothing read again and nothing skipped.

The tests build on each other's job and are meant to run in this order; each has a group and a topic of its
own.
"""

import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import KafkaError
from msgspec.structs import replace

from runtime.contract.records import control
from runtime.contract.spec.flow import AtOffsets, GroupsSpec
from runtime.contract.spec.rename import Template
from runtime.lab.lab import Lab
from tests.commands import repl
from tests.labs import run_tool
from tests.records import create_topic, passing, wait_for, write
from tests.runtime.driver.groups_world import consumer_of
from tests.runtime.slot.workload import LONG_AGO, mixed
from tests.runtime.slot.world import Row, Side
from tests.spark.job import Running, flow_of, spec_of, start_job

pytestmark = pytest.mark.spark

FLOW = "resuming"
COMPACTED = {
    "cleanup.policy": "compact",
    "segment.bytes": str(1 << 20),
    "segment.ms": "300",
    "min.cleanable.dirty.ratio": "0.001",
    "max.compaction.lag.ms": "300",
}
Kept = dict[int, list[Row]]


@pytest.fixture(scope="module")
def sides(lab: Lab) -> dict[str, Side]:
    return {name: Side(name, one.bootstrap, one.client) for name, one in lab.clusters.items()}


@pytest.fixture(scope="module")
def topology(lab: Lab, tmp_path_factory: pytest.TempPathFactory) -> Path:
    clusters = "".join(f"  {name}: {{bootstrap: '{one.bootstrap}'}}\n" for name, one in lab.clusters.items())
    path = tmp_path_factory.mktemp("topology") / "repl.yaml"
    path.write_text(
        f"apiVersion: repl/v1\nname: tests\nclusters:\n{clusters}flows:\n"
        f"  - {{name: {FLOW}, from: dc1, to: dc2, topics: {{include: ['resuming-.*']}}, "
        "rename: 'dc1.{topic}', groups: {mode: timestamp}}\n"
    )
    return path


@pytest.fixture(scope="module")
def job(sides: dict[str, Side], lab: Lab, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    """Every kind of source is there before it starts."""
    for name, config in (("plain", {}), ("mixed", {}), ("console", {}), ("compacted", COMPACTED)):
        create_topic(sides["dc1"].client, f"resuming-{name}", 2, config={"retention.ms": "-1", **config})
    migrated(sides)
    groups = GroupsSpec(include=("resuming-.*",), every_ms=500, mode="timestamp")
    start = AtOffsets(offsets={"resuming-older": {0: 20, 1: 20}})
    rename = Template(text="dc1.{topic}")
    flow = flow_of(FLOW, ["resuming-.*"], rename=rename, groups=groups, start=start)
    running = start_job(spec_of(lab, "resuming", [flow]), tmp_path_factory.mktemp("job"))
    try:
        running.wait_for(lambda status: [slot.state for slot in status.slots] == ["running"])
        yield running
    finally:
        running.kill()


def migrated(sides: dict[str, Side]) -> None:
    """Another tool copied the first 40 of these 60; the flow goes on behind them."""
    rows = [
        {"value": b"%d" % at, "partition": at % 2, "timestamp": LONG_AGO + at * 1_000} for at in range(60)
    ]
    for side, topic, count in (("dc1", "resuming-older", 60), ("dc2", "dc1.resuming-older", 40)):
        create_topic(sides[side].client, topic, 2, config={"retention.ms": "-1"})
        sides[side].write(topic, rows[:count])


def test_a_consumer_goes_on_where_it_stopped(job: Running, sides: dict[str, Side], topology: Path) -> None:
    """Where it never committed on a partition, it begins at the partition's beginning, at either side."""
    rows = [{"value": b"%d" % one, "partition": one % 2} for one in range(400)]
    sides["dc1"].write("resuming-plain", rows)
    resumes(sides, topology, "resuming-plain", "resuming-plain-app", read=150)


@pytest.mark.long
def test_over_aborted_transactions_with_the_new_protocol(
    job: Running, sides: dict[str, Side], topology: Path
) -> None:
    mixed(sides["dc1"], "resuming-mixed", 2, count=300)
    resumes(sides, topology, "resuming-mixed", "resuming-mixed-app", read=60, group_protocol="consumer")


def test_over_the_holes_of_a_compacted_topic(job: Running, sides: dict[str, Side], topology: Path) -> None:
    """The destination keeps what was copied; the group's place is right in both."""
    topic, group, written = "resuming-compacted", "resuming-compacted-app", 0
    deadline = time.monotonic() + 180
    while not written or sum(map(len, sides["dc1"].read(topic, 2))) == written:
        assert time.monotonic() < deadline, "the broker did not compact"
        rows = [{"key": b"%d" % (at % 20), "value": b"%d" % (written + at)} for at in range(100)]
        sides["dc1"].write(topic, [{**row, "partition": at % 2} for at, row in enumerate(rows)])
        written += len(rows)
        time.sleep(0.4)  # a segment ends by the time of its records
    newest = [{row.key: row.value for row in rows} for rows in sides["dc1"].read(topic, 2)]
    first, rest = moves(sides, topology, topic, group, read=50)
    for partition in range(2):
        seen = [{row.value for row in some[partition]} for some in (first, rest)]
        assert not seen[0] & seen[1]
        assert {row.key: row.value for row in (*first[partition], *rest[partition])} == newest[partition]


@pytest.mark.long
def test_over_data_that_another_tool_copied(job: Running, sides: dict[str, Side], topology: Path) -> None:
    """By record time: the same place, as no two records were written at the same time."""
    resumes(sides, topology, "resuming-older", "resuming-older-app", read=17)
    shown = offsets(topology, "resuming-older-app")["partitions"]
    assert {one["by"] for one in shown if one["source"] is not None} == {"time"}


@pytest.mark.long
def test_kafkas_own_console_consumer(job: Running, lab: Lab, sides: dict[str, Side], topology: Path) -> None:
    topic, group = "resuming-console", "resuming-console-app"
    values = [f"line {one}" for one in range(60)]
    write(sides["dc1"].client, topic, [value.encode() for value in values])
    first = console(lab, "dc1", topic, group, 25)
    synced(topology, group)
    rest = console(lab, "dc2", f"dc1.{topic}", group, 35)
    assert sorted(first + rest) == sorted(values)


def test_offsets_and_locate_for_people(job: Running, sides: dict[str, Side], topology: Path) -> None:
    shown = repl("offsets", FLOW, "resuming-plain-app", "--path", str(topology))
    assert shown.returncode == 0, shown.stderr
    assert "resuming-plain-app over resuming: dc1 → dc2" in shown.stdout
    (here,) = (row for row in sides["dc1"].read("resuming-plain", 2)[1] if row.value == b"301")
    (there,) = (row for row in sides["dc2"].read("dc1.resuming-plain", 2)[1] if row.value == b"301")
    forth = repl("locate", FLOW, f"resuming-plain:1:{here.offset}", "--path", str(topology))
    there_it_is = f"offset {there.offset} of dc1.resuming-plain-1 at dc2"
    assert forth.stdout == f"offset {here.offset} of resuming-plain-1 at dc1 is {there_it_is}.\n"
    back = repl("locate", FLOW, f"dc1.resuming-plain:1:{there.offset}", "--reverse", "--path", str(topology))
    assert f"is offset {here.offset} of resuming-plain-1 at dc1" in back.stdout
    late = located(topology, f"resuming-plain:1@{here.timestamp + 3_600_000}")
    assert late["found"] == "no_record"
    assert located(topology, "resuming-plain:1:100000")["found"] == "not_yet"
    none = repl("locate", FLOW, "resuming-other:0:1", "--path", str(topology))
    assert none.returncode == 1
    assert "resuming-other-0" in none.stderr


def test_a_paused_flow_goes_on_syncing(job: Running, sides: dict[str, Side], topology: Path) -> None:
    (flow,) = job.spec.flows
    job.tell(control.Reconfigure("pause", replace(job.spec, flows=[replace(flow, state="paused")])))
    resumes(sides, topology, "resuming-plain", "resuming-late-app", read=210)


def test_a_paused_flow_tells_what_would_be_lost(
    job: Running, sides: dict[str, Side], lab: Lab, topology: Path, tmp_path: Path
) -> None:
    """No slot reads the source any more; the driver goes on looking where it ends."""
    sides["dc1"].write("resuming-plain", [{"value": b"late", "partition": at % 2} for at in range(7)])
    unreachable = topology.read_text().replace(lab.clusters["dc1"].bootstrap, "127.0.0.1:1")
    (tmp_path / "repl.yaml").write_text(unreachable)

    def told() -> bool:
        rehearsed = repl("failover", "dc1", "--rehearse", "--path", str(tmp_path))
        assert rehearsed.returncode == 0, rehearsed.stderr
        return f"flow.{FLOW}  at least 7 records" in rehearsed.stdout

    wait_for(told, 240)


def resumes(
    sides: dict[str, Side], topology: Path, topic: str, group: str, *, read: int, **config: Any
) -> None:
    """All of it once, in order."""
    everything = sides["dc1"].read(topic, 2)
    first, rest = moves(sides, topology, topic, group, read=read, **config)
    for partition in range(2):
        got = [row.value for row in (*first[partition], *rest[partition])]
        assert got == [row.value for row in everything[partition]]


def moves(
    sides: dict[str, Side], topology: Path, topic: str, group: str, *, read: int, **config: Any
) -> tuple[Kept, Kept]:
    """A group reads so many at dc1, stops, and reads the rest at dc2."""
    first = consume(sides["dc1"], topic, group, read, **config)
    synced(topology, group)
    arrived(sides, topic)
    return first, consume(sides["dc2"], f"dc1.{topic}", group, None, **config)


def arrived(sides: dict[str, Side], topic: str) -> None:
    """When the last records are at dc2, for readers too."""
    last = [rows[-1] for rows in sides["dc1"].read(topic, 2)]
    wait_for(
        lambda: [rows[-1:] for rows in sides["dc2"].read(f"dc1.{topic}", 2)] == [[one] for one in last], 180
    )


def consume(side: Side, topic: str, group: str, records: int | None, **config: Any) -> Kept:
    """So many, or up to the end; commits what it read, and only then."""
    consumer = consumer_of(side, group, auto_offset_reset="earliest", **config)
    found: Kept = {0: [], 1: []}
    ends: set[int] = set()
    deadline = time.monotonic() + 180
    consumer.subscribe([topic])
    while len(ends) < 2 if records is None else sum(map(len, found.values())) < records:
        assert time.monotonic() < deadline, (found, ends)
        message = consumer.poll(0.5)
        if message is None:
            continue
        partition, offset, error = message.partition(), message.offset(), message.error()
        if error is not None and error.code() != KafkaError._PARTITION_EOF:
            assert passing(error), error
            continue
        assert partition is not None
        assert offset is not None
        if error is not None:
            ends.add(partition)
        else:
            found[partition].append(Row(offset, message.timestamp()[1], message.key(), message.value()))
    consumer.commit(asynchronous=False)
    consumer.close()
    return found


def synced(topology: Path, group: str) -> None:
    """When the command says that every partition is translated."""

    def done() -> bool:
        partitions = offsets(topology, group)["partitions"]
        return bool(partitions) and all(one["state"] == "translated" for one in partitions)

    wait_for(done, 240)


def offsets(topology: Path, group: str) -> dict[str, Any]:
    asked = repl("offsets", FLOW, group, "--path", str(topology), "--json")
    assert asked.returncode == 0, asked.stderr
    found: dict[str, Any] = json.loads(asked.stdout)
    return found


def located(topology: Path, place: str) -> dict[str, Any]:
    asked = repl("locate", FLOW, place, "--path", str(topology), "--json")
    assert asked.returncode == 0, asked.stderr
    found: dict[str, Any] = json.loads(asked.stdout)
    return found


def console(lab: Lab, cluster: str, topic: str, group: str, records: int) -> list[str]:
    output = run_tool(
        lab,
        cluster,
        "ConsoleConsumer",
        *("--command-config", "{client}", "--topic", topic, "--group", group),
        *("--command-property", "group.protocol=consumer", "--from-beginning"),
        *("--max-messages", str(records), "--timeout-ms", "120000"),
        timeout=240,
    )
    return output.splitlines()
