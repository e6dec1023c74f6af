"""Comparisons of what a slot copied, and of mirrors that were forged by hand behind the ledger's back.

Spark compares only where `repl verify` is given a rate.
"""

from __future__ import annotations

import asyncio
import json
import os
import re
import signal
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from runtime.contract.records.advance import Advance, advance, first_progress
from runtime.contract.records.ledger import LedgerKey, LedgerValue, PartitionKey, ProgressKey
from runtime.contract.records.offset_map import Run
from runtime.contract.spec.jobspec import JobSpec
from runtime.lab.lab import Lab
from runtime.ledger.transaction_writer import TransactionWriter
from tests.commands import begin, repl
from tests.runtime.slot.workload import mixed
from tests.runtime.slot.world import Driver, Side, assigned, copy_through
from tests.spark.exported import verified
from tests.spark.job import flow_of, spec_of
from tests.topologies import declared, of_flows

pytestmark = pytest.mark.integration

Rows = list[dict[str, Any]]
COUNT = 20
AT = 1_700_000_000_000


def rows() -> Rows:
    return [
        {
            "key": b"k%d" % one,
            "value": b"v%d" % one,
            "headers": [("n", b"%d" % one)],
            "timestamp": AT + one,
            "partition": 0,
        }
        for one in range(COUNT)
    ]


def changed(at: int, **fields: Any) -> Callable[[Rows], Rows]:
    return lambda rows: [{**row, **fields} if one == at else row for one, row in enumerate(rows)]


def swapped(rows: Rows) -> Rows:
    rows[4], rows[9] = rows[9], rows[4]
    return rows


# By topic: what someone did to the copy, and what is found: kind, source offset, fields.
FORGED: dict[str, tuple[Callable[[Rows], Rows], list[tuple[str, int | None, list[str]]]]] = {
    "clean": (lambda rows: rows, []),
    "dropped": (lambda rows: rows[:5] + rows[6:], [("missing", 5, [])]),
    "doubled": (lambda rows: rows[:7] + rows[6:], [("doubled", 6, [])]),
    "rewritten": (changed(3, value=b"other"), [("changed", 3, ["value"])]),
    "emptied": (changed(3, value=b""), [("changed", 3, ["value"])]),
    "nulled": (changed(19, value=None), [("changed", 19, ["value"])]),
    "rekeyed": (changed(0, key=None), [("changed", 0, ["key"])]),
    "relabelled": (changed(8, headers=[("n", None)]), [("changed", 8, ["headers"])]),
    "redated": (changed(8, timestamp=AT), [("changed", 8, ["timestamp"])]),
    "compacted": (lambda rows: rows[:-1], []),
    "swapped": (swapped, [("swapped", 4, []), ("swapped", 9, [])]),
    "foreign": (
        lambda rows: [*rows[:5], {"value": b"not ours", "partition": 0, "timestamp": AT}, *rows[5:]],
        [("foreign", None, [])],
    ),
}


@dataclass
class World:
    """`spec` holds what `repl verify` reads of the topology, for comparisons in the process of the test."""

    sides: Mapping[str, Side]
    spec: JobSpec
    topology: Path

    @property
    def env(self) -> dict[str, str]:
        return {"REPL_HOME": str(self.topology.parent / "home")}

    def copy(self, flow: str, topic: str, partitions: int = 1) -> None:
        """Copies up to where the source ends now, in a slot of this process."""
        driver = Driver(self.sides, job=f"{flow}-job")
        copy_through(driver, self.spec.flow(flow), assigned(flow, topic, partitions))


@pytest.fixture(scope="module")
def world(lab: Lab, sides: Mapping[str, Side], tmp_path_factory: pytest.TempPathFactory) -> World:
    for side in sides.values():
        side.create("verify.orders", 2)
        side.create("verify.stamped", 1)
        side.create("verify.long", 3)
    flows = [
        flow_of("verify-plain", ["verify.orders"], provenance="batch"),
        flow_of("verify-stamped", ["verify.stamped"], provenance="headers"),
        flow_of("verify-long", ["verify.long"], provenance="batch"),
        flow_of("verify-forged", ["forged\\..*"], provenance="off"),
    ]
    written = [declared(flow.name, *flow.topics.include, provenance=flow.provenance) for flow in flows]
    file = of_flows(sides, tmp_path_factory.mktemp("verify"), *written)
    return World(sides, spec_of(lab, "verify-job", flows), file)


def test_what_was_copied_is_equal(world: World) -> None:
    """Aborted transactions, tombstones, every codec; and the source has more than was copied."""
    mixed(world.sides["dc1"], "verify.orders", 2, seed=5, count=1_500)
    world.copy("verify-plain", "verify.orders", 2)
    mixed(world.sides["dc1"], "verify.orders", 2, seed=6, count=300)
    report = verified(world.spec, "verify-plain")
    assert not report.different
    assert len(report.partitions) == 2
    for partition in report.partitions:
        assert partition.compared > 200
        assert (partition.low, partition.equal_up_to, partition.not_comparable) == (0, partition.end, [])


@pytest.mark.spark
def test_one_that_was_cut_goes_on_where_it_was(world: World) -> None:
    """Three stretches, two at a time and slowly, cut when the first was done."""
    mixed(world.sides["dc1"], "verify.long", 3, seed=8, count=9_000)
    world.copy("verify-long", "verify.long", 3)
    words = ("verify", "verify-long", "--path", str(world.topology))
    cut = begin(*words, "--rate", "150KB/s", env=world.env)
    assert cut.stderr is not None
    try:
        assert any("of 3 stretches" in line for line in cut.stderr)
        os.killpg(cut.pid, signal.SIGINT)
        _, rest = cut.communicate(timeout=180)
    finally:
        cut.kill()
    assert cut.returncode == 130
    assert "run the same command with --resume to continue there" in rest

    done = repl(*words, "--resume", "--json", env=world.env)
    assert done.returncode == 0, done.stderr
    assert re.search(r"goes on behind [12] of 3 stretches", done.stderr)
    partitions = json.loads(done.stdout)["partitions"]
    assert [one["compared"] for one in partitions] == [
        len(one) for one in world.sides["dc1"].read("verify.long", 3)
    ]

    # One of the two stretches that the last 1,200 offsets of each partition are.
    report = verified(world.spec, "verify-long", last=1_200, sample=40.0)
    assert (report.different, report.sample) == (False, 40.0)
    assert [one.end - one.low for one in report.partitions] == [1_200] * 3
    assert all(0 < one.compared <= 1_000 for one in report.partitions)


def test_what_the_flow_adds_is_no_difference_but_what_others_add_is(world: World) -> None:
    here, there = world.sides["dc1"], world.sides["dc2"]
    mixed(here, "verify.stamped", seed=7, count=400)
    world.copy("verify-stamped", "verify.stamped")
    (one,) = verified(world.spec, "verify-stamped", rate=50_000_000).partitions
    assert (one.compared, one.differences) == (len(here.read("verify.stamped")[0]), [])

    # Then others write into the mirror, and at last retention passes.
    (first, *_) = there.read("verify.stamped")[0]
    there.write("verify.stamped", [{"value": b"not ours", "partition": 0}])
    again = {"key": first.key, "value": first.value, "headers": list(first.headers), "partition": 0}
    there.write("verify.stamped", [{**again, "timestamp": first.timestamp}])
    (one,) = verified(world.spec, "verify-stamped").partitions
    assert [difference.kind for difference in one.differences] == ["foreign", "doubled"]
    assert one.equal_up_to == one.end
    here.forget("verify.stamped", 50)
    (one,) = verified(world.spec, "verify-stamped", high=100).partitions
    assert (one.low, one.differences) == (50, [])
    (gone,) = one.not_comparable
    assert (gone.low, gone.end, gone.why) == (0, 50, "retention passed at dc1")


@pytest.fixture(scope="module")
def forged(world: World) -> World:
    world.sides["dc2"].create("forged.compacted", cleanup_policy="compact")
    _forge(world, {topic: forge(rows()) for topic, (forge, _) in FORGED.items()})
    return world


def test_what_was_forged_is_found_and_named(forged: World) -> None:
    partitions = {
        one.topic.removeprefix("forged."): one for one in verified(forged.spec, "verify-forged").partitions
    }
    assert {
        topic: [(each.kind, each.source_offset, each.fields) for each in one.differences]
        for topic, one in partitions.items()
    } == {topic: wanted for topic, (_, wanted) in FORGED.items()}
    assert {topic: one.compacted for topic, one in partitions.items() if one.compacted} == {"compacted": 1}
    through = [partitions[topic].equal_up_to for topic in ("clean", "dropped", "rewritten")]
    assert through == [COUNT, 5, 3]


def _forge(world: World, copies: Mapping[str, Rows]) -> None:
    """Copies as nobody made them, and a ledger that says each record lies at its own offset."""
    for topic, copy in copies.items():
        for name, written in (("dc1", rows()), ("dc2", copy)):
            world.sides[name].create(f"forged.{topic}")
            world.sides[name].write(f"forged.{topic}", written, enable_idempotence=True)
    asyncio.run(_ledger(world, [f"forged.{topic}" for topic in copies]))


async def _ledger(world: World, topics: Sequence[str]) -> None:
    async with await world.sides["dc1"].open() as source, await world.sides["dc2"].open() as destination:
        here, there = await source.topics(topics, fresh=True), await destination.topics(topics, fresh=True)
        records: dict[LedgerKey, LedgerValue | None] = {}
        for topic in topics:
            begun = first_progress(
                generation=1,
                source_topic_id=here[topic].id,
                destination_topic=topic,
                destination_topic_id=there[topic].id,
                position=0,
                destination_end=0,
                now_ms=AT,
            )
            done, _ = advance(begun, Advance(COUNT, 0, (Run(0, 0, COUNT),)), 1, AT)
            records[ProgressKey(PartitionKey("verify-forged", topic, 0))] = done
        writer = await TransactionWriter.open(destination, "verify-forger")
        await writer.commit(records)
