"""A flow over Avro copies what an independent encoder says, in the writer's own bytes.

Its bad records are in the quarantine topic exactly once, although its worker is killed and the topic deleted.
"""

import io
import json
import random
from collections.abc import Callable, Iterator
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

import psutil
import pytest
from fastavro import parse_schema, schemaless_writer
from msgspec.structs import replace

from runtime.contract.records.job_status import PartitionState
from runtime.contract.records.ledger import PartitionKey
from runtime.contract.spec.schemas import RegistrySpec
from runtime.contract.spec.transform import FormatSpec, TransformSpec
from runtime.lab.lab import Lab
from tests.fakes.registry import RegistryServer, registry_server
from tests.records import admin_of, create_topic, read, wait_for, write
from tests.spark.job import flow_of, spec_of, start_job

pytestmark = [pytest.mark.spark, pytest.mark.long]
_STARTS_S = 180
HOME = {
    "type": "record",
    "name": "Home",
    "fields": [{"name": "city", "type": "string"}, {"name": "street", "type": ["null", "string"]}],
}
SCHEMA: dict[str, Any] = {
    "type": "record",
    "name": "Customer",
    "fields": [
        {"name": "id", "type": "long"},
        {"name": "email", "type": ["null", "string"], "default": None},
        {"name": "card", "type": "string", "default": ""},
        {"name": "born", "type": {"type": "int", "logicalType": "date"}},
        {"name": "at", "type": {"type": "long", "logicalType": "timestamp-micros"}},
        {"name": "spent", "type": {"type": "bytes", "logicalType": "decimal", "precision": 12, "scale": 2}},
        {"name": "home", "type": ["null", HOME], "default": None},
        {"name": "tags", "type": {"type": "array", "items": "string"}},
        {"name": "more", "type": {"type": "map", "values": ["null", "double"]}},
        {"name": "photo", "type": "bytes"},
    ],
}
PARSED = parse_schema(json.loads(json.dumps(SCHEMA)))
BEGIN = datetime(2024, 1, 1, tzinfo=UTC)
TRANSFORM = TransformSpec(
    value=FormatSpec(format="avro", schema=json.dumps(SCHEMA)),
    where=(
        "value.born >= DATE'1980-01-01' AND value.at < TIMESTAMP'2024-01-01 00:10:00.000005Z'"
        " AND value.spent > 10.25 AND array_contains(value.tags, 'a')"
        " AND coalesce(value.home.city, '') <> 'Berlin' AND value.photo <> X'00'"
    ),
    set={"value.email": "concat(upper(value.email), value.id)", "value.home.street": "NULL"},
    drop=("value.card",),
    on_bad_record="quarantine",
)


def customer(number: int, chance: random.Random) -> dict[str, Any]:
    cities = [None, {"city": "Berlin", "street": "A"}, {"city": "Köln", "street": chance.choice([None, "B"])}]
    return {
        "id": number,
        "email": chance.choice([None, "ä@b"]),
        "card": "4111",
        "born": date(1979, 12, 1) + timedelta(days=chance.randrange(100)),
        "at": BEGIN + timedelta(minutes=chance.randrange(11), microseconds=chance.randrange(10)),
        "spent": Decimal(chance.randrange(1_000, 1_100)) / 100,
        "home": chance.choice(cities),
        "tags": chance.choice([["a"], ["b", "a"], ["b"], []]) if chance.random() < 0.3 else ["a"],
        "more": {"x": None, "y": number / 8},
        "photo": chance.choice([b"\x00", b"\xff\x00", b"p" * 300]),
    }


def encoded(value: dict[str, Any]) -> bytes:
    stream = io.BytesIO()
    schemaless_writer(stream, PARSED, value)
    return stream.getvalue()


def expected(value: dict[str, Any]) -> bytes | None:
    """The same transform in Python: the bytes at the destination; None for a record that does not travel."""
    home = value["home"]
    if not (
        value["born"] >= date(1980, 1, 1)
        and value["at"] < BEGIN + timedelta(minutes=10, microseconds=5)
        and value["spent"] > Decimal("10.25")
        and "a" in value["tags"]
        and (home is None or home["city"] != "Berlin")
        and value["photo"] != b"\x00"
    ):
        return None
    email = None if value["email"] is None else f"{value['email'].upper()}{value['id']}"
    changed = {**value, "email": email, "card": ""}
    if home is not None:
        changed["home"] = {**home, "street": None}
    return encoded(changed)


@pytest.fixture
def registry() -> Iterator[RegistryServer]:
    with registry_server() as found:
        found.add(7, SCHEMA)
        yield found


def test_values_keep_the_bytes_of_their_writer(
    registry: RegistryServer, lab: Lab, fresh: Callable[[str], str], tmp_path: Path
) -> None:
    """In Confluent's wire format: the partitions wait while the registry does not answer.

    The worker is killed while records are copied. Then the quarantine topic is deleted: the driver
    creates it again for the next bad record.
    """
    source, there = (dict(lab.clusters[name].client) for name in ("dc1", "dc2"))
    topic, flow, chance = fresh("avro"), fresh("flow"), random.Random(3)
    create_topic(source, topic)
    customers = [customer(number, chance) for number in range(3_000)]
    prefix = b"\x00\x00\x00\x00\x07"
    values = [prefix + encoded(one) for one in customers]
    bad = {1_000: values[1_000][:-1], 1_001: values[1_001] + b"x", 2_000: b"", 2_001: b"\x00" * 7}
    form = replace(TRANSFORM.value, registry=RegistrySpec(url=registry.url))
    transform = replace(TRANSFORM, value=form)
    registry.down = True
    written = [bad.get(at, value) for at, value in enumerate(values)]
    write(source, topic, written[:1_500], b"k", 0)
    with start_job(
        spec_of(lab, fresh("job"), [flow_of(flow, [topic], transform=transform)]), tmp_path
    ) as job:

        def is_in(state: PartitionState, position: int, why: str = "") -> bool:
            status = job.partitions().get(PartitionKey(flow, topic, 0))
            return (
                status is not None
                and (status.state, status.position) == (state, position)
                and why in status.why
            )

        wait_for(lambda: is_in(PartitionState.RETRYING, 0, "status 503"), _STARTS_S, about=job.tail)
        registry.down = False
        wait_for(lambda: is_in(PartitionState.CAUGHT_UP, 1_500), _STARTS_S, about=job.tail)
        write(source, topic, written[1_500:], b"k", 0)
        psutil.Process(job.reports()[0].process).kill()
        wait_for(lambda: is_in(PartitionState.CAUGHT_UP, 3_000), _STARTS_S, about=job.tail)
        wanted = [expected(one) for at, one in enumerate(customers) if at not in bad]
        travelled = [value for value in wanted if value is not None]
        assert 100 < len(travelled) < 2_900
        assert [one.value for one in read(there, topic)] == [prefix + value for value in travelled]
        assert [one.value for one in read(there, f"{topic}.quarantine")] == list(bad.values())
        reported = job.partitions()[PartitionKey(flow, topic, 0)]
        assert reported.quarantined == len(bad)
        assert reported.records + reported.dropped + reported.quarantined == 3_000
        admin_of(there).delete_topics([f"{topic}.quarantine"])[f"{topic}.quarantine"].result(60)
        write(source, topic, [b"gone", values[0]], b"k", 0)
        wait_for(lambda: is_in(PartitionState.CAUGHT_UP, 3_002), _STARTS_S, about=job.tail)
        assert [one.value for one in read(there, f"{topic}.quarantine")] == [b"gone"]
        assert job.stop() == 0
