"""`repl verify` beside one real job, and on mirrors that were forged by hand behind the ledger's back."""

from __future__ import annotations

import asyncio
import json
import os
import re
import signal
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from runtime.contract.records.advance import Advance, advance, first_progress
from runtime.contract.records.ledger import LedgerKey, LedgerValue, PartitionKey, ProgressKey
from runtime.contract.records.offset_map import Run
from runtime.lab.lab import Lab
from runtime.ledger.transaction_writer import TransactionWriter
from tests.commands import begin, repl
from tests.runtime.slot.workload import mixed
from tests.runtime.slot.world import Side
from tests.spark.job import Running, flow_of, spec_of, start_job

pytestmark = pytest.mark.spark

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
    sides: Mapping[str, Side]
    job: Running
    topology: Path

    @property
    def env(self) -> dict[str, str]:
        return {"REPL_HOME": str(self.topology.parent / "home")}

    def verify(self, flow: str, *options: str, expect: int) -> dict[str, Any]:
        done = repl("verify", flow, "--path", str(self.topology), "--json", *options, env=self.env)
        assert done.returncode == expect, done.stderr + done.stdout
        found: dict[str, Any] = json.loads(done.stdout)
        return found

    def copied(self, topic: str, partitions: int = 1) -> None:
        """Up to where the source ends now."""
        ends = [end for _, end in self.sides["dc1"].ends(topic, partitions)]
        deadline = time.monotonic() + 240
        while True:
            found = {
                key.partition: one.position
                for key, one in self.job.partitions().items()
                if key.topic == topic
            }
            if all(found.get(number, -1) >= end for number, end in enumerate(ends)):
                return
            assert time.monotonic() < deadline, (found, ends, self.job.tail())
            time.sleep(0.1)


@pytest.fixture(scope="module")
def world(lab: Lab, tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    folder = tmp_path_factory.mktemp("verify")
    sides = {name: Side(name, one.bootstrap, one.client) for name, one in lab.clusters.items()}
    for side in sides.values():
        side.create_internal()
    sides["dc1"].create("verify.orders", 2)
    sides["dc1"].create("verify.stamped", 1)
    sides["dc1"].create("verify.long", 3)
    flows = [
        flow_of("verify-plain", ["verify.orders"], provenance="batch"),
        flow_of("verify-stamped", ["verify.stamped"], provenance="headers"),
        flow_of("verify-long", ["verify.long"], provenance="batch"),
    ]
    job = start_job(spec_of(lab, "verify-job", flows), folder)
    try:
        yield World(sides, job, _topology(lab, folder))
    finally:
        job.kill()


def _topology(lab: Lab, folder: Path) -> Path:
    def flow(name: str, topic: str, provenance: str) -> dict[str, Any]:
        selected = {"include": [topic]}
        return {"name": name, "from": "dc1", "to": "dc2", "topics": selected, "provenance": provenance}

    body = {
        "apiVersion": "repl/v1",
        "name": "verified",
        "clusters": {name: {"bootstrap": one.bootstrap} for name, one in lab.clusters.items()},
        "flows": [
            flow("verify-plain", "verify.orders", "batch"),
            flow("verify-stamped", "verify.stamped", "headers"),
            flow("verify-long", "verify.long", "batch"),
            flow("verify-forged", "forged\\..*", "off"),
        ],
    }
    file = folder / "verified.yaml"
    file.write_text(json.dumps(body))
    return file


def test_what_a_running_job_copied_is_equal(world: World) -> None:
    """Aborted transactions, tombstones, every codec, headers added on the way."""
    mixed(world.sides["dc1"], "verify.orders", 2, seed=5, count=1_500)
    world.copied("verify.orders", 2)
    mixed(world.sides["dc1"], "verify.orders", 2, seed=6, count=300)  # some of it is copied meanwhile
    seen = world.verify("verify-plain", expect=0)
    assert seen["equal"]
    assert len(seen["partitions"]) == 2
    for one in seen["partitions"]:
        assert one["compared"] > 300
        assert (one["low"], one["equal_up_to"], one["not_comparable"]) == (0, one["end"], [])


def test_one_that_was_cut_goes_on_where_it_was(world: World) -> None:
    """Three stretches, two at a time and slowly, cut when the first was done."""
    mixed(world.sides["dc1"], "verify.long", 3, seed=8, count=9_000)
    world.copied("verify.long", 3)
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

    # Another question: one of the two stretches that the last 1,200 offsets of each partition are.
    other = repl(*words, "--resume", "--range", "last:1200", "--sample", "40%", "--json", env=world.env)
    assert "no earlier comparison was cut" in other.stderr
    seen = json.loads(other.stdout)
    assert (other.returncode, seen["equal"], seen["sample"]) == (0, True, 40.0)
    assert [one["end"] - one["low"] for one in seen["partitions"]] == [1_200] * 3
    assert all(0 < one["compared"] <= 1_000 for one in seen["partitions"])


def test_what_the_flow_adds_is_no_difference_but_what_others_add_is(world: World) -> None:
    mixed(world.sides["dc1"], "verify.stamped", seed=7, count=400)
    world.copied("verify.stamped")
    (one,) = world.verify("verify-stamped", "--rate", "50MB/s", expect=0)["partitions"]
    assert one["compared"] == len(world.sides["dc1"].read("verify.stamped")[0])

    # Then others write into the mirror, and at last retention passes.
    here, there = world.sides["dc1"], world.sides["dc2"]
    (first, *_) = there.read("verify.stamped")[0]
    there.write("verify.stamped", [{"value": b"not ours", "partition": 0}])
    again = {"key": first.key, "value": first.value, "headers": list(first.headers), "partition": 0}
    there.write("verify.stamped", [{**again, "timestamp": first.timestamp}])
    (one,) = world.verify("verify-stamped", expect=2)["partitions"]
    assert [each["kind"] for each in one["differences"]] == ["foreign", "doubled"]
    assert one["equal_up_to"] == one["end"]
    here.forget("verify.stamped", 50)
    (one,) = world.verify("verify-stamped", "--range", ":100", expect=0)["partitions"]
    assert (one["low"], one["differences"]) == (50, [])
    (gone,) = one["not_comparable"]
    assert (gone["low"], gone["end"], gone["why"]) == (0, 50, "retention passed at dc1")


@pytest.fixture(scope="module")
def forged(world: World) -> World:
    world.sides["dc2"].create("forged.compacted", cleanup_policy="compact")
    _forge(world, {topic: forge(rows()) for topic, (forge, _) in FORGED.items()})
    return world


def test_what_was_forged_is_found_and_named(forged: World) -> None:
    seen = forged.verify("verify-forged", expect=2)
    found = {
        one["topic"].removeprefix("forged."): [
            (each["kind"], each["source_offset"], each["fields"]) for each in one["differences"]
        ]
        for one in seen["partitions"]
    }
    assert found == {topic: wanted for topic, (_, wanted) in FORGED.items()}
    one_sided = {one["topic"]: one["compacted"] for one in seen["partitions"] if one["compacted"]}
    assert one_sided == {"forged.compacted": 1}
    through = {one["topic"].removeprefix("forged."): one["equal_up_to"] for one in seen["partitions"]}
    assert (through["clean"], through["dropped"], through["rewritten"]) == (COUNT, 5, 3)


def test_a_person_is_told_in_sentences(forged: World) -> None:
    words = (
        "verify",
        "verify-forged",
        "--topics",
        "forged.(dropped|emptied)",
        "--path",
        str(forged.topology),
    )
    done = repl(*words, "--range", "2:", env=forged.env)
    assert done.returncode == 2
    assert "missing: source offset 5 (key 'k5') is not at offset 5 of dc2" in done.stdout
    assert "changed: value of source offset 3" in done.stdout
    assert "value 'v3' → empty" in done.stdout
    assert "Different: 2 differences" in done.stdout


def test_what_cannot_be_compared_is_an_error(world: World) -> None:
    world.copied("verify.orders", 2)
    done = repl("verify", "verify-plain", "--topics", "nothing", "--path", str(world.topology), env=world.env)
    assert (done.returncode, done.stdout) == (1, "")
    assert "verify-plain copied no topic nothing — it copied verify.orders" in done.stderr


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
