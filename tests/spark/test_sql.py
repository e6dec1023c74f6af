"""A flow with a transform on real brokers and real Spark, beside an independent implementation of it.

One job for all of these; each has a topic of its own.
"""

from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from dataclasses import replace
from functools import partial
from typing import Any

import psutil
import pytest

from runtime.contract.records.job_status import PartitionState, SlotReport
from runtime.contract.records.ledger import PartitionKey
from runtime.lab.lab import Lab
from tests import checker
from tests.records import create_topic, wait_for
from tests.runtime.slot.world import Side
from tests.spark.job import Running, assert_translated, flow_of, spec_of, start_job

pytestmark = pytest.mark.spark
FLOW = "masking"
KINDS, BAD = "masking-kinds", "masking-bad"
DELETING, KEYED = "masking-deletes", "deleting-kinds"  # filtered records are copied as tombstones
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
    return {name: Side(name, cluster.bootstrap, cluster.client) for name, cluster in lab.clusters.items()}


@pytest.fixture(scope="module")
def job(lab: Lab, sides: dict[str, Side], tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    for topic in (KINDS, BAD, KEYED):
        create_topic(sides["dc1"].client, topic, PARTITIONS, config=checker.TOPIC_CONFIG)
    flow = flow_of(FLOW, ["masking-.*"], transform=checker.TRANSFORM)
    deleting = flow_of(DELETING, [KEYED], transform=checker.DELETING)
    with start_job(spec_of(lab, FLOW, [flow, deleting]), tmp_path_factory.mktemp("job")) as running:
        running.wait_for(lambda status: [slot.state for slot in status.slots] == ["running"] * 2)
        yield running


def test_every_kind_of_record_through_the_death_of_both_workers(job: Running, sides: dict[str, Side]) -> None:
    """Of both flows: what the second one filters is copied as tombstones, which the offset map holds."""
    here, there = dict(sides["dc1"].client), dict(sides["dc2"].client)
    spec = checker.Spec(json=True, records=1_500, large_every=300, huge_every=700)
    fewer = replace(spec, records=500, huge_every=0)
    written = {topic: checker.write(here, topic, what) for topic, what in ((KINDS, spec), (KEYED, fewer))}
    for victim in ("slot", "feeding worker"):
        more = checker.Spec(json=True, records=10**9, seed=len(victim), rate=300, large_every=0)
        before = job.reports()
        slots = {report.process for report in before.values()}
        with ExitStack() as stack:
            writers = {topic: stack.enter_context(checker.writing(here, topic, more)) for topic in written}
            for writer in writers.values():
                writer.wait_for(100)
            killed = slots if victim == "slot" else {worker.pid for worker in job.workers} - slots
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
        wait_for(partial(caught_up, job, sides["dc1"], topic), PATIENCE_S, about=job.tail)
        ends = [end for _, end in sides["dc1"].ends(topic, PARTITIONS)]
        for partition, pairs in report.pairs.items():
            assert_translated(job.spec, PartitionKey(flow, topic, partition), ends[partition], pairs)
        counts = [count for key, count in job.partitions().items() if key.topic == topic]
        assert sum(count.records for count in counts) == report.records
        assert sum(count.records + count.dropped for count in counts) == written[topic].records
        assert sum(count.tombstones for count in counts) == (deleted[0] if topic == KEYED else 0)
        assert sum(count.dropped for count in counts) > 100
        assert report.records > 500
    assert deleted[0] > 300


def started_again(job: Running, before: Mapping[int, SlotReport]) -> bool:
    now = job.reports()
    return all(now[slot].attempt > report.attempt for slot, report in before.items())


def caught_up(job: Running, source: Side, topic: str) -> bool:
    """Whether all that is at the source was read. A slot may not know yet of what was just written."""
    ends = dict(enumerate(end for _, end in source.ends(topic, PARTITIONS)))
    partitions = {key.partition: status for key, status in job.partitions().items() if key.topic == topic}
    return ends == {
        partition: status.position
        for partition, status in partitions.items()
        if status.state is PartitionState.CAUGHT_UP
    }


def test_a_record_that_cannot_be_handled_stops_its_partition_alone(
    job: Running, sides: dict[str, Side]
) -> None:
    rows = [{"value": value, "partition": 3} for value in (GOOD, None, GOOD)]
    for partition, (bad, _) in STOPS.items():
        rows += [{"value": value, "partition": partition} for value in (GOOD, GOOD, bad, GOOD)]
    sides["dc1"].write(BAD, rows, linger_ms=200)

    def all_known() -> bool:
        reported = {key.partition: status for key, status in job.partitions().items() if key.topic == BAD}
        states = {partition: (status.state, status.position) for partition, status in reported.items()}
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
