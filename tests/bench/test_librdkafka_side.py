"""The side `librdkafka` of `make bench-copy` copies records as they are, and loses none when it is killed."""

import time
from collections.abc import Callable
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition

from runtime.lab.lab import Lab
from tests.bench.copy.librdkafka import Librdkafka
from tests.bench.copy.run import Run
from tests.bench.copy.workloads import LATENCY, PARTITIONS
from tests.records import create_topic, read, wait_for, write

pytestmark = [pytest.mark.integration, pytest.mark.long]

SHAPES = (
    {"key": b"k", "value": b"v"},
    {"value": b"", "headers": [("trace", b"\x00\xff"), ("empty", None)]},
    {"key": b"gone", "value": None},
)


def run_of(lab: Lab, topic: str, folder: Path) -> Run:
    here, there = (lab.clusters[name].bootstrap for name in ("dc1", "dc2"))
    create_topic(lab.clusters["dc1"].client, topic, PARTITIONS)
    return Run(f"copy-of-{topic}", LATENCY, topic, here, there, folder)


def test_records_arrive_as_they_are(lab: Lab, fresh: Callable[[str], str], tmp_path: Path) -> None:
    run = run_of(lab, fresh("shapes"), tmp_path)
    now_ms = int(time.time() * 1000)  # brokers delete records that are older than the retention
    producer = Producer(lab.clusters["dc1"].client)
    for number in range(3 * PARTITIONS):
        producer.produce(
            run.topic,
            partition=number % PARTITIONS,
            timestamp=now_ms + number,
            **SHAPES[number % len(SHAPES)],
        )
    assert producer.flush(60) == 0
    running = Librdkafka().start(run)
    try:
        copied = first(lab.clusters["dc2"].client, run.mirror_topic, 3 * PARTITIONS)
    finally:
        running.stop()
    assert copied == first(lab.clusters["dc1"].client, run.topic, 3 * PARTITIONS)
    assert running.root.returncode == 0


def test_a_kill_loses_nothing(lab: Lab, fresh: Callable[[str], str], tmp_path: Path) -> None:
    """Records that were copied and not committed are copied again."""
    run, client = run_of(lab, fresh("killed"), tmp_path), lab.clusters["dc1"].client
    values = [b"%d" % number for number in range(2_000)]
    write(client, run.topic, values[:1_000], partition=1)
    running = Librdkafka().start(run)
    try:
        first(lab.clusters["dc2"].client, run.mirror_topic, 1)
    finally:
        running.root.kill()
        running.root.wait()
    write(client, run.topic, values[1_000:], partition=1)
    running = Librdkafka().start_again(run)
    try:
        wait_for(
            lambda: set(values) <= {one.value for one in read(lab.clusters["dc2"].client, run.mirror_topic)}
        )
    finally:
        running.stop()


def first(client: dict[str, object], topic: str, many: int) -> list[tuple[object, ...]]:
    """The first records of a topic, with all that was written of them."""
    consumer = Consumer({**client, "group.id": "reading-for-a-test", "enable.auto.commit": False})
    consumer.assign([TopicPartition(topic, number, 0) for number in range(PARTITIONS)])
    found: list[tuple[object, ...]] = []

    def read_all() -> bool:
        for one in consumer.consume(many, 0.2):
            assert one.error() is None, one.error()
            found.append(
                (one.partition(), one.offset(), one.key(), one.value(), one.headers(), one.timestamp()[1])
            )
        return len(found) >= many

    try:
        wait_for(read_all)
    finally:
        consumer.close()
    return sorted(found, key=lambda one: one[:2])
