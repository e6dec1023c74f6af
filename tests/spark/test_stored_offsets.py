"""Stored offsets move with a flow: a query of Spark goes on at the other side, nothing read again or skipped.

The topics hold aborted transactions, and the holes of a compaction that is over. The query fails in the
middle of a batch, so that it runs that batch again at the other side.
"""

import base64
import json
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from runtime.contract.spec.rename import Template
from runtime.lab.lab import Lab
from tests.commands import repl
from tests.labs import spark_kafka
from tests.records import alter_topic, create_topic, wait_for
from tests.runtime.slot.workload import mixed
from tests.runtime.slot.world import Side
from tests.spark.job import Running, flow_of, spec_of, start_job
from tests.topologies import declared, of_flows

pytestmark = [pytest.mark.spark, pytest.mark.long]

FLOW = "stored"
MIXED, COMPACTED = "stored-mixed", "stored-compacted"
TOPICS = (MIXED, COMPACTED)
PARTITIONS = 2
COMPACTING = {
    "cleanup.policy": "compact",
    "segment.bytes": str(1 << 20),
    "segment.ms": "300",
    "min.cleanable.dirty.ratio": "0.001",
    "max.compaction.lag.ms": "300",
    "retention.ms": "-1",
}
Records = Counter[tuple[str, int, str | None]]


@pytest.fixture(scope="module")
def sides(lab: Lab) -> dict[str, Side]:
    return {name: Side(name, one.bootstrap, one.client) for name, one in lab.clusters.items()}


@pytest.fixture(scope="module")
def topology(lab: Lab, tmp_path_factory: pytest.TempPathFactory) -> Path:
    flow = declared(FLOW, "stored-.*", rename="dc1.{topic}")
    return of_flows(lab.clusters, tmp_path_factory.mktemp("topology"), flow)


@pytest.fixture(scope="module")
def job(sides: dict[str, Side], lab: Lab, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    source = sides["dc1"]
    create_topic(source.client, MIXED, PARTITIONS, config={"retention.ms": "-1"})
    create_topic(source.client, COMPACTED, PARTITIONS, config=COMPACTING)
    compact(source)
    mixed(source, MIXED, PARTITIONS, count=240)
    flow = flow_of(FLOW, ["stored-.*"], rename=Template(text="dc1.{topic}"))
    with start_job(spec_of(lab, FLOW, [flow]), tmp_path_factory.mktemp("job")) as running:
        running.wait_for(lambda status: [slot.state for slot in status.slots] == ["running"])
        yield running


def compact(side: Side) -> None:
    """Leaves holes in the topic; then it is compacted no more."""
    written, deadline = 0, time.monotonic() + 180
    while not written or sum(map(len, side.read(COMPACTED, PARTITIONS))) == written:
        assert time.monotonic() < deadline, "the broker did not compact"
        rows = [
            {"key": b"%d" % (at % 30), "value": b"%d" % (written + at), "partition": at % PARTITIONS}
            for at in range(100)
        ]
        side.write(COMPACTED, rows)
        written += len(rows)
        time.sleep(0.4)  # a segment ends by the time of its records
    alter_topic(side.client, COMPACTED, {"cleanup.policy": "delete"})


def at_side(side: Side, prefix: str = "") -> Records:
    """Every committed record, by the topic's name at the source."""
    return Counter(
        (topic, partition, base64.b64encode(row.value).decode() if row.value else None)
        for topic in TOPICS
        for partition, rows in enumerate(side.read(f"{prefix}{topic}", PARTITIONS))
        for row in rows
    )


def taken(batches: dict[int, list[dict[str, Any]]]) -> Records:
    return Counter(
        (row["topic"].removeprefix("dc1."), row["partition"], row["value"])
        for rows in batches.values()
        for row in rows
    )


def copied(sides: dict[str, Side], topology: Path) -> None:
    """When every committed record is at dc2, and the flow is at the end of each partition."""
    wait_for(lambda: at_side(sides["dc2"], "dc1.") == at_side(sides["dc1"]), 180)

    def at_the_end() -> bool:
        shown = repl("status", str(topology), "--json", "--over", "0s")
        (flow,) = json.loads(shown.stdout)["flows"]
        partitions = [partition for topic in flow["topics"] for partition in topic["partitions"]]
        return len(partitions) == len(TOPICS) * PARTITIONS and all(
            partition["position"] == partition["source_end"] for partition in partitions
        )

    wait_for(at_the_end, 180)


def translate(topology: Path, checkpoint: Path, into: Path, *options: str) -> None:
    done = repl(
        *("offsets", "translate", FLOW, str(checkpoint), "-o", str(into)),
        *(*options, "--path", str(topology)),
    )
    assert done.returncode == 0, done.stderr


def test_a_query_of_spark_moves_with_its_checkpoint_and_returns(
    job: Running, sides: dict[str, Side], topology: Path, tmp_path: Path
) -> None:
    here, there = ",".join(TOPICS), ",".join(f"dc1.{topic}" for topic in TOPICS)
    checkpoint, moved, home = (tmp_path / name for name in ("checkpoint", "moved", "home"))

    failed = spark_kafka.run(sides["dc1"].bootstrap, here, checkpoint, tmp_path / "first", failing_batch=2)
    assert "the query fails in this batch" in failed.stderr
    first = spark_kafka.records(tmp_path / "first")
    assert sorted(first) == [0, 1, 2]
    mixed(sides["dc1"], MIXED, PARTITIONS, seed=2, count=120)
    copied(sides, topology)

    translate(topology, checkpoint, moved)
    ended = spark_kafka.run(sides["dc2"].bootstrap, there, moved, tmp_path / "second")
    assert ended.returncode == 0, ended.stderr
    second = spark_kafka.records(tmp_path / "second")
    # Batch 2 was not done, and is run again with exactly the same records.
    assert taken({2: second[2]}) == taken({2: first.pop(2)})
    assert min(second) == 2
    assert taken(first) + taken(second) == at_side(sides["dc1"])

    mixed(sides["dc1"], MIXED, PARTITIONS, seed=3, count=60)
    copied(sides, topology)
    translate(topology, moved, home, "--reverse")
    ended = spark_kafka.run(sides["dc1"].bootstrap, here, home, tmp_path / "third")
    assert ended.returncode == 0, ended.stderr
    third = spark_kafka.records(tmp_path / "third")
    assert taken(first) + taken(second) + taken(third) == at_side(sides["dc1"])
