"""A flow with a transform copies what an independent implementation of it says, and maps it exactly."""

import hashlib
import json
import random
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import psutil
import pytest
from confluent_kafka import Producer

from runtime.contract.records.job_status import PartitionState
from runtime.contract.records.ledger import PartitionKey
from runtime.contract.records.offset_map import EndOfOffsetMap, MappedOffset
from runtime.contract.spec.transform import FormatSpec, TransformSpec
from runtime.lab.lab import Lab
from tests import checker
from tests.records import Record, create_topic, read, wait_for, write
from tests.spark.job import Running, flow_of, offset_maps, spec_of, start_job

pytestmark = pytest.mark.spark
_STARTS_S = 180
PARTITIONS = 3
TRANSFORM = TransformSpec(
    value=FormatSpec(format="json", schema="id BIGINT, email STRING, country STRING, card STRING"),
    key=FormatSpec(format="text"),
    where="value.country <> 'DE' AND headers['test'] IS NULL AND 1000000 DIV value.id > 0",
    set={"value.email": "sha2(value.email, 256)"},
    drop=["value.card"],
)


def value_of(number: int, chance: random.Random) -> bytes | None:
    """Records of every kind that the transform must get right."""
    country = chance.choice(["DE", "DE", "FR", "US", None])
    fields: dict[str, Any] = {"id": number, "email": f"user{number}@example.com", "country": country}
    fields |= {"card": "4111 1111", "amount": number / 8, "note": 'card: "é" ' * chance.randrange(5)}
    match chance.randrange(8):
        case 0:
            return None
        case 1:
            del fields["email"]
        case 2:
            fields["email"] = None
        case 3:
            fields = dict(sorted(fields.items()), more={"card": [1, {"email": "inner"}]})
    return json.dumps(fields, ensure_ascii=chance.random() < 0.5, indent=chance.choice([None, 1])).encode()


def produce(client: dict[str, Any], topic: str, numbers: range, chance: random.Random) -> None:
    producer = Producer({**client, "enable.idempotence": True, "linger.ms": 2, "compression.type": "lz4"})
    for number in numbers:
        name, content = ("test", b"1") if chance.random() < 0.1 else ("h", b"\x00")
        key = None if chance.random() < 0.1 else f"k{number}".encode()
        producer.produce(
            topic, value_of(number, chance), key, number % PARTITIONS, timestamp=1_700_000_000_000 + number,
            headers=[(name, content)],
        )  # fmt: skip
        producer.poll(0)
        if chance.random() < 0.01:
            producer.flush()
    assert producer.flush(120) == 0


def expected(value: bytes | None, headers: list[tuple[str, bytes]]) -> tuple[bool, Any]:
    """The same transform in Python: whether the record travels, and its fields then."""
    if value is None:
        return True, None
    fields = json.loads(value)
    if fields["country"] in (None, "DE") or dict(headers).get("test") is not None:
        return False, None
    del fields["card"]
    if fields.get("email") is not None:
        fields["email"] = hashlib.sha256(fields["email"].encode()).hexdigest()
    return True, fields


def running(job: Running) -> None:
    job.wait_for(lambda status: [slot.state for slot in status.slots] == ["running"])


def check(job: Running, lab: Lab, flow: str, topic: str) -> int:
    """Compares both sides record by record, and maps every source offset; returns how many travelled."""
    source, there = (dict(lab.clusters[name].client) for name in ("dc1", "dc2"))
    written, arrived = read_whole(source, topic), read_whole(there, topic)
    travelled = 0
    for partition in range(PARTITIONS):
        kept: list[tuple[int, Record, Any]] = []
        for one, headers, _ in written:
            if one.partition == partition:
                travels, fields = expected(one.value, headers)
                if travels:
                    kept.append((one.offset, one, fields))
        mine = [entry for entry in arrived if entry[0].partition == partition]
        assert [entry[0].key for entry in mine] == [one.key for _, one, _ in kept]
        assert [json.loads(entry[0].value) if entry[0].value else None for entry in mine] == [
            fields for _, _, fields in kept
        ]
        offsets = offset_maps(job.spec, flow)[PartitionKey(flow, topic, partition)]
        behind = 0
        for one, _, _ in (entry for entry in written if entry[0].partition == partition):
            while behind < len(kept) and kept[behind][0] < one.offset:
                behind += 1
            answer = offsets.translate(one.offset)
            if behind == len(kept):
                assert isinstance(answer, EndOfOffsetMap)
            else:
                exact = kept[behind][0] == one.offset
                assert answer == MappedOffset(mine[behind][0].offset, exact)
        travelled += len(kept)
    return travelled


def read_whole(client: dict[str, Any], topic: str) -> list[tuple[Record, list[tuple[str, bytes]], int]]:
    """Every committed record with its headers and its timestamp."""
    from confluent_kafka import Consumer, TopicPartition

    plain = read(client, topic)
    consumer = Consumer(
        {**client, "group.id": "whole", "isolation.level": "read_committed", "enable.auto.commit": False}
    )
    try:
        consumer.assign([TopicPartition(topic, one, 0) for one in {record.partition for record in plain}])
        found: dict[tuple[int | None, int | None], tuple[Any, int]] = {}
        while len(found) < len(plain):
            message = consumer.poll(10)
            assert message is not None
            if message.error() is None:
                at = (message.partition(), message.offset())
                found[at] = (message.headers() or [], message.timestamp()[1])
        return [(one, *found[one.partition, one.offset]) for one in plain]
    finally:
        consumer.close()


def test_what_travels_is_what_the_transform_says_through_the_death_of_its_workers(
    lab: Lab, fresh: Callable[[str], str], tmp_path: Path
) -> None:
    source = dict(lab.clusters["dc1"].client)
    topic, flow, chance = fresh("masked"), fresh("flow"), random.Random(7)
    create_topic(source, topic, PARTITIONS, config=checker.TOPIC_CONFIG)
    produce(source, topic, range(1, 4_000), chance)
    spec = spec_of(lab, fresh("job"), [flow_of(flow, [topic], transform=TRANSFORM)])
    job = start_job(spec, tmp_path)

    def caught_up() -> bool:
        partitions = [one for key, one in job.partitions().items() if key.topic == topic]
        return len(partitions) == PARTITIONS and all(
            one.state is PartitionState.CAUGHT_UP and one.position == one.source_end for one in partitions
        )

    def stopped(partition: int) -> bool:
        found = job.partitions()[PartitionKey(flow, topic, partition)]
        return (
            found.state is PartitionState.RECORD_INVALID
            and found.position == found.source_end - partition - 1
        )

    def again(attempt: int) -> bool:
        return job.reports()[0].attempt > attempt

    try:
        running(job)
        wait_for(caught_up, _STARTS_S, about=job.tail)
        for victim in (0, 1):  # the slot itself, then the feeding worker
            attempt = job.reports()[0].attempt
            slot = job.reports()[0].status.process
            others = [one.pid for one in job.workers if one.pid != slot]
            psutil.Process(slot if victim == 0 else others[0]).kill()
            produce(source, topic, range(4_000 + victim * 2_000, 6_000 + victim * 2_000), chance)
            wait_for(partial(again, attempt), _STARTS_S, about=job.tail)
            wait_for(caught_up, _STARTS_S, about=job.tail)
        assert check(job, lab, flow, topic) > 1_000

        write(source, topic, [b'{"id": 1, "country": "FR"}', b'{"id": 2, "cou'], b"k", 0)
        write(source, topic, [b'{"id": 0, "country": "FR"}', b'{"id": 2}'], b"k", 1)
        for partition, behind, why in (
            (0, 1, "it does not match the transform's format: value is not json of this schema"),
            (1, 2, "an expression of the transform fails on it"),
        ):
            wait_for(partial(stopped, partition), _STARTS_S, about=job.tail)
            found = job.partitions()[PartitionKey(flow, topic, partition)]
            assert found.why == f"{topic}-{partition} at offset {found.position}: {why}"
            assert found.position == found.source_end - behind
        assert job.stop() == 0
    finally:
        job.kill()
