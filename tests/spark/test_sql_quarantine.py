"""Bad records of a flow go to its quarantine topic exactly once, whatever happens to slot and topic."""

import json
import random
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import psutil
import pytest
from confluent_kafka.admin import AdminClient

from runtime.contract.records.job_status import PartitionState
from runtime.contract.records.ledger import PartitionKey
from runtime.contract.spec.jobspec import CopySettings
from runtime.contract.spec.transform import FormatSpec, TransformSpec
from runtime.lab.lab import Lab
from tests.records import alter_topic, committed, create_topic, read, settled, wait_for, write
from tests.spark.job import Running, assert_translated, flow_of, spec_of, start_job

pytestmark = [pytest.mark.spark, pytest.mark.long]
_STARTS_S = 180
PARTITIONS = 3
MISMATCH = "it does not match the transform's format: value is not json of this schema"
FAILS = "an expression of the transform fails on it"
TRANSFORM = TransformSpec(
    value=FormatSpec(format="json", schema="id BIGINT, email STRING"),
    where="1000 DIV value.id > 0",
    set={"value.email": "'x'"},
    on_bad_record="quarantine",
)


class Expected(NamedTuple):
    """What must become of a record: its fields at the mirror, or the reason of its quarantine."""

    fields: Any = None
    reason: str = ""
    travels: bool = True


def expected(value: bytes) -> Expected:
    """The same transform in Python."""
    try:
        fields = json.loads(value)
    except ValueError:
        return Expected(reason=MISMATCH, travels=False)
    if not isinstance(fields, dict) or not isinstance(fields["id"], int):
        return Expected(reason=MISMATCH, travels=False)
    if fields["id"] == 0:
        return Expected(reason=FAILS, travels=False)
    fields["email"] = "x"
    return Expected(fields, travels=1000 // fields["id"] > 0)


def values(numbers: range, chance: random.Random) -> list[bytes]:
    """Good, filtered and bad records of every kind, in any order; runs of bad ones too."""
    found: list[bytes] = []
    while len(found) < len(numbers):
        number = numbers[len(found)]
        good = json.dumps({"id": number % 2_000 + 1, "email": f"{number}@example.com"}).encode()
        match chance.randrange(9):
            case 0:
                found.append(good[:-3])
            case 1:
                found.append(b'{"id": "%d"}' % number + b" " * chance.randrange(2_000))
            case 2:
                found.append(b'{"id": 0, "email": "a"}')
            case 3:
                found += [b"[%d]" % number] * chance.randrange(40)
            case _:
                found.append(good)
    return found[: len(numbers)]


class Quarantined(NamedTuple):
    partition: int
    key: bytes | None
    value: bytes | None
    headers: dict[str, str]  # without the time


def quarantined(client: dict[str, Any], topic: str) -> list[Quarantined]:
    """The committed records of a quarantine topic, in the order of their partitions."""
    settled(client, topic)
    found: list[Quarantined] = []
    for message in committed(client, topic):
        headers = {name: text.decode() for name, text in message.headers() if name != "repl.timestamp"}
        found.append(Quarantined(message.partition(), message.key(), message.value(), headers))
    return found


def check(job: Running, source: dict[str, Any], there: dict[str, Any], flow: str, topic: str) -> int:
    """Compares the source with mirror, quarantine and offset map; returns how many are in quarantine."""
    written, arrived, bad = read(source, topic), read(there, topic), quarantined(there, f"{topic}.quarantine")
    for partition in range(PARTITIONS):
        mine = [(one, expected(one.value or b"")) for one in written if one.partition == partition]
        kept = [(one.offset, wanted.fields) for one, wanted in mine if wanted.travels]
        mirrored = [one for one in arrived if one.partition == partition]
        assert [json.loads(one.value or b"") for one in mirrored] == [fields for _, fields in kept]
        pairs = [(offset, copy.offset) for (offset, _), copy in zip(kept, mirrored, strict=True)]
        at = PartitionKey(flow, topic, partition)
        assert_translated(job.spec, at, len(mine), pairs)
        place = {"repl.flow": flow, "repl.topic": topic, "repl.partition": str(partition)}
        refused = [
            Quarantined(
                partition,
                one.key,
                one.value,
                {"repl.reason": wanted.reason, **place, "repl.offset": str(one.offset)},
            )
            for one, wanted in mine
            if wanted.reason
        ]
        assert [one for one in bad if one.partition == partition] == refused
        reported = job.partitions()[at]
        assert reported.quarantined == len(refused)
        assert reported.records + reported.dropped + reported.quarantined == len(mine)
    return len(bad)


def test_bad_records_are_quarantined_exactly_once(
    lab: Lab, fresh: Callable[[str], str], tmp_path: Path
) -> None:
    source, there = (dict(lab.clusters[name].client) for name in ("dc1", "dc2"))
    topic, flow, chance = fresh("bad"), fresh("flow"), random.Random(11)
    quarantine = f"{topic}.quarantine"
    create_topic(source, topic, PARTITIONS)

    ends = [0] * PARTITIONS

    def put(partition: int, *records: bytes) -> None:
        write(source, topic, records, b"k%d" % partition, partition)
        ends[partition] += len(records)

    def produce(numbers: range) -> None:
        for partition in range(PARTITIONS):
            put(partition, *values(numbers, chance))

    copy = CopySettings(
        retry_ms=50, retry_max_ms=500, transaction_timeout_ms=10_000, stop_retry_ms=500, transaction_ms=100
    )
    flows = [flow_of(flow, [topic], transform=TRANSFORM)]
    with start_job(spec_of(lab, fresh("job"), flows, copy=copy), tmp_path) as job:

        def found(partition: int) -> Any:
            return job.partitions().get(PartitionKey(flow, topic, partition))

        def caught_up(*partitions: int) -> bool:
            return all(
                (one := found(number)) is not None
                and one.state is PartitionState.CAUGHT_UP
                and one.position == ends[number]
                for number in partitions or range(PARTITIONS)
            )

        def again(attempt: int) -> bool:
            return job.reports()[0].attempt > attempt

        def waits(partition: int, state: PartitionState, why: str) -> bool:
            one = found(partition)
            return one.state is state and why in one.why

        put(2, *[b"x" * 4_000] * 4_000)  # more than a partition may queue
        produce(range(1, 2_000))
        job.wait_for(lambda status: [slot.state for slot in status.slots] == ["running"])
        wait_for(caught_up, _STARTS_S, about=job.tail)
        for at in range(2):
            attempt = job.reports()[0].attempt
            produce(range(2_000 + at * 1_000, 3_000 + at * 1_000))
            psutil.Process(job.reports()[0].process).kill()
            produce(range(4_000 + at * 1_000, 5_000 + at * 1_000))
            wait_for(partial(again, attempt), _STARTS_S, about=job.tail)
            wait_for(caught_up, _STARTS_S, about=job.tail)
        assert check(job, source, there, flow, topic) > 1_000

        # One that can't be written stops its own partition alone, and goes on once it can.
        alter_topic(there, quarantine, {"max.message.bytes": "1000"})
        put(0, random.Random(1).randbytes(4_000))
        large = f"raise max.message.bytes of {quarantine} at the destination"
        wait_for(partial(waits, 0, PartitionState.RECORD_TOO_LARGE, large), _STARTS_S, about=job.tail)
        put(1, b'{"id": 7}')
        wait_for(partial(caught_up, 1, 2), _STARTS_S, about=job.tail)
        alter_topic(there, quarantine, {"max.message.bytes": "2000000"})
        wait_for(caught_up, _STARTS_S, about=job.tail)
        before = check(job, source, there, flow, topic)

        # A topic that was deleted is made again; what it held is gone with it.
        admin = AdminClient(there)
        admin.delete_topics([quarantine])[quarantine].result(60)
        put(1, b"gone", b'{"id": 9}')
        wait_for(caught_up, _STARTS_S, about=job.tail)
        (left,) = quarantined(there, quarantine)
        assert (left.partition, left.key, left.value, left.headers["repl.reason"]) == (
            1,
            b"k1",
            b"gone",
            MISMATCH,
        )
        assert sum(found(number).quarantined for number in range(PARTITIONS)) == before + 1
        assert job.stop() == 0
