"""A flow with a transform on real brokers and real Spark, beside an independent implementation of it.

One job for all of these. They build on each other and are meant to run in this order; each has a topic of its
own.
"""

import json
import random
from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import psutil
import pytest
from confluent_kafka import TopicPartition

from runtime.contract.records.job_status import PartitionState, SlotReport
from runtime.contract.records.ledger import PartitionKey
from runtime.contract.records.offset_map import EndOfOffsetMap, MappedOffset
from runtime.contract.spec.flow import GroupsSpec
from runtime.lab.lab import Lab
from tests import checker
from tests.commands import repl
from tests.records import create_topic, wait_for
from tests.runtime.driver.groups_world import consumer_of
from tests.runtime.slot.world import Row, Side
from tests.spark.job import Running, flow_of, offset_maps, spec_of, start_job

pytestmark = pytest.mark.spark
FLOW, KINDS, BAD, RESUMED = "masking", "masking-kinds", "masking-bad", "masking-resumed"
DELETING, KEYED = "masking-deletes", "deleting-kinds"  # filtered records are copied as tombstones
GROUP = "masking-app"
PARTITIONS = 4
PATIENCE_S = 240
GOOD = b'{"id": 1, "country": "FR", "card": "4111"}'
# By partition: a record in the middle of a batch that stops it, and why.
STOPS = {
    0: (b'{"id": 2, "cou', "it does not match the transform's format: value is not json of this schema"),
    1: (
        b'{"id": "two", "country": "FR"}',
        "it does not match the transform's format: value is not json of this schema",
    ),
    2: (b'{"id": 0, "country": "FR"}', "an expression of the transform fails on it"),  # a division by zero
}


@pytest.fixture(scope="module")
def sides(lab: Lab) -> dict[str, Side]:
    return {name: Side(name, one.bootstrap, one.client) for name, one in lab.clusters.items()}


@pytest.fixture(scope="module")
def job(lab: Lab, sides: dict[str, Side], tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    for topic in (KINDS, BAD, RESUMED, KEYED):
        create_topic(sides["dc1"].client, topic, PARTITIONS, config=checker.TOPIC_CONFIG)
    groups = GroupsSpec(include=(GROUP,), every_ms=500)
    flow = flow_of(FLOW, ["masking-.*"], transform=checker.TRANSFORM, groups=groups)
    deleting = flow_of(DELETING, [KEYED], transform=checker.DELETING)
    running = start_job(spec_of(lab, FLOW, [flow, deleting]), tmp_path_factory.mktemp("job"))
    try:
        running.wait_for(lambda status: [slot.state for slot in status.slots] == ["running"] * 2)
        yield running
    finally:
        running.kill()


def test_every_kind_of_record_through_the_death_of_both_workers(job: Running, sides: dict[str, Side]) -> None:
    """Of both flows: what the second one filters is copied as tombstones, which the offset map holds."""
    here, there = dict(sides["dc1"].client), dict(sides["dc2"].client)
    spec = checker.Spec(json=True, records=1_500, large_every=300, huge_every=700)
    fewer = replace(spec, records=500, huge_every=0)
    written = {topic: checker.write(here, topic, what) for topic, what in ((KINDS, spec), (KEYED, fewer))}
    for victim in ("slot", "feeding worker"):
        more = checker.Spec(json=True, records=10**9, seed=len(victim), rate=300, large_every=0)
        before = job.reports()
        slots = {report.status.process for report in before.values()}
        with ExitStack() as stack:
            writers = {topic: stack.enter_context(checker.writing(here, topic, more)) for topic in written}
            for writer in writers.values():
                writer.wait_for(100)
            killed = slots if victim == "slot" else {one.pid for one in job.workers} - slots
            for pid in killed:
                psutil.Process(pid).kill()
            wait_for(partial(started_again, job, before), PATIENCE_S, about=job.tail)
            for topic, writer in writers.items():
                writer.wait_for(writer.so_far + 100)
                for partition, sent in writer.written.committed.items():
                    written[topic].committed[partition] += sent
                for partition, sent in writer.written.aborted.items():
                    written[topic].aborted[partition] += sent
    deleted = [0]

    def deleting(key: bytes | None, value: bytes | None, headers: Any) -> Any:
        copied = checker.deleting(key, value, headers)
        deleted[0] += value is not None and copied is not None and copied[0] is None
        return copied

    for flow, topic, change in ((FLOW, KINDS, checker.masking), (DELETING, KEYED, deleting)):
        report = checker.compare(
            here, there, topic, written=written[topic], change=change, patience=PATIENCE_S
        )
        assert report.clean, str(report)
        wait_for(partial(caught_up, job, topic), PATIENCE_S, about=job.tail)
        for partition, pairs in report.pairs.items():
            check_map(job, sides, PartitionKey(flow, topic, partition), pairs)
        counts = [one for key, one in job.partitions().items() if key.topic == topic]
        assert sum(one.records for one in counts) == report.records
        assert sum(one.records + one.dropped for one in counts) == written[topic].records
        assert sum(one.tombstones for one in counts) == (deleted[0] if topic == KEYED else 0)
        assert sum(one.dropped for one in counts) > 100
        assert report.records > 500
    assert deleted[0] > 300


def started_again(job: Running, before: Mapping[int, SlotReport]) -> bool:
    now = job.reports()
    return all(now[slot].attempt > report.attempt for slot, report in before.items())


def caught_up(job: Running, topic: str) -> bool:
    partitions = [one for key, one in job.partitions().items() if key.topic == topic]
    return len(partitions) == PARTITIONS and all(
        one.state is PartitionState.CAUGHT_UP and one.position == one.source_end for one in partitions
    )


def check_map(job: Running, sides: dict[str, Side], at: PartitionKey, pairs: list[tuple[int, int]]) -> None:
    """Every source offset is translated to the first record at or behind it that was copied."""
    offsets = offset_maps(job.spec, at.flow)[at]
    behind = 0
    for offset in range(sides["dc1"].ends(at.topic, PARTITIONS)[at.partition][1]):
        while behind < len(pairs) and pairs[behind][0] < offset:
            behind += 1
        found = offsets.translate(offset)
        if behind == len(pairs):
            assert isinstance(found, EndOfOffsetMap)
        else:
            assert found == MappedOffset(pairs[behind][1], pairs[behind][0] == offset)


def test_a_record_that_cannot_be_handled_stops_its_partition_alone(
    job: Running, sides: dict[str, Side]
) -> None:
    rows = [{"value": value, "partition": 3} for value in (GOOD, None, GOOD)]
    for partition, (bad, _) in STOPS.items():
        rows += [{"value": value, "partition": partition} for value in (GOOD, GOOD, bad, GOOD)]
    sides["dc1"].write(BAD, rows, linger_ms=200)

    def all_known() -> bool:
        reported = {key.partition: one for key, one in job.partitions().items() if key.topic == BAD}
        states = {partition: (one.state, one.position) for partition, one in reported.items()}
        stopped = dict.fromkeys(STOPS, (PartitionState.RECORD_INVALID, 2))
        return states == {**stopped, 3: (PartitionState.CAUGHT_UP, 3)}

    wait_for(
        all_known, PATIENCE_S, about=job.tail
    )  # the records before a bad one are committed after its state
    for partition, (_, why) in STOPS.items():
        found = job.partitions()[PartitionKey(FLOW, BAD, partition)]
        assert found.why == f"{BAD}-{partition} at offset 2: {why}"
    masked = b'{"id": 1, "country": "FR"}'
    arrived = [[row.value for row in rows] for rows in sides["dc2"].read(BAD, PARTITIONS)]
    assert arrived == [[masked] * 2] * len(STOPS) + [[masked, None, masked]]


@pytest.mark.long
def test_verify_recomputes_the_transform(
    job: Running, sides: dict[str, Side], lab: Lab, tmp_path: Path
) -> None:
    """With another transform than the one that copied, its differences are named."""
    countries = [b"US", b"FR"] * 200
    values = [
        b'{"id": %d, "email": "a@b.example", "country": "%s"}' % (at + 1, country)
        for at, country in enumerate(countries)
    ]
    sides["dc1"].write(KINDS, [{"value": value, "partition": at % 4} for at, value in enumerate(values)])
    ends = {at: end for at, (_, end) in enumerate(sides["dc1"].ends(KINDS, PARTITIONS))}

    def copied() -> bool:
        return ends == {
            key.partition: one.position for key, one in job.partitions().items() if key.topic == KINDS
        }

    wait_for(copied, PATIENCE_S, about=job.tail)
    other = topology(lab, tmp_path, "value.country = 'US'", "upper(value.email)")
    differs = repl("verify", FLOW, "--path", str(other), "--topics", KINDS, "--sample", "50%")
    assert differs.returncode == 2, differs.stdout + differs.stderr
    assert "changed: value of source offset" in differs.stdout
    assert "foreign: offset" in differs.stdout
    assert "a sample of 50%" in differs.stdout


def topology(lab: Lab, folder: Path, where: str, email: str) -> Path:
    """The flow as people write it, with another transform."""
    transform = checker.TRANSFORM
    document = {
        "apiVersion": "repl/v1",
        "name": "tests",
        "clusters": {name: {"bootstrap": one.bootstrap} for name, one in lab.clusters.items()},
        "jobs": {FLOW: {}},
        "flows": [
            {
                "name": FLOW,
                "from": "dc1",
                "to": "dc2",
                "job": FLOW,
                "topics": {"include": ["masking-.*"]},
                "transform": {
                    "value": {"format": "json", "schema": transform.value.schema},
                    "key": {"format": "text"},
                    "where": where,
                    "set": {**transform.set, "value.email": email},
                    "drop": transform.drop,
                },
            }
        ],
    }
    path = folder / "repl.yaml"
    path.write_text(json.dumps(document))  # JSON is YAML
    return path


def test_a_group_goes_on_exactly_behind_nine_tenths_of_filtered_records(
    job: Running, sides: dict[str, Side]
) -> None:
    """It committed on a filtered record, on one that travels, at the end, and never; then the job is gone."""
    chance = random.Random(3)
    rows = []
    for number in range(2_000):
        country = "FR" if chance.random() < 0.1 else "DE"
        value = json.dumps({"id": number + 1, "country": country}).encode()
        rows.append({"value": value, "partition": number % PARTITIONS})
    sides["dc1"].write(RESUMED, rows)
    wait_for(partial(caught_up, job, RESUMED), PATIENCE_S, about=job.tail)
    written, arrived = (sides[name].read(RESUMED, PARTITIONS) for name in ("dc1", "dc2"))
    at_filtered, at_travelling = (
        next(row.offset for row in written[partition][100:] if travels(row) is wanted)
        for partition, wanted in ((0, False), (1, True))
    )
    committed = [at_filtered, at_travelling, sides["dc1"].ends(RESUMED, PARTITIONS)[2][1], 0]
    consumer = consumer_of(sides["dc1"], GROUP)
    places = [TopicPartition(RESUMED, at, offset) for at, offset in enumerate(committed)]
    consumer.commit(offsets=places[:3], asynchronous=False)
    consumer.close()
    rest = [
        [row.value for row in written[at] if travels(row) and row.offset >= offset]
        for at, offset in enumerate(committed)
    ]
    reader = consumer_of(sides["dc2"], GROUP, auto_offset_reset="earliest")
    try:
        due = [arrived[at][len(arrived[at]) - len(rest[at])].offset for at in (0, 1)]

        def translated() -> bool:
            found = reader.committed([TopicPartition(RESUMED, at) for at in range(3)], timeout=30)
            return [one.offset for one in found[:2]] == due and found[2].offset > arrived[2][-1].offset

        wait_for(translated, PATIENCE_S, about=job.tail)
        job.kill()
        reader.subscribe([RESUMED])
        got: list[list[bytes | None]] = [[] for _ in range(PARTITIONS)]
        ends: set[int | None] = set()
        while len(ends) < PARTITIONS:
            message = reader.poll(PATIENCE_S)
            assert message is not None
            if message.error() is not None:
                ends.add(message.partition())
            else:
                got[message.partition() or 0].append(message.value())
    finally:
        reader.close()
    assert got == rest


def travels(row: Row) -> bool:
    return checker.transformed(row.value, [])[0]
