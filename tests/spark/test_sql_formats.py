"""Flows over Avro and Protobuf copy what independent encoders say, in the writer's own bytes."""

import io
import json
import random
import shutil
from collections.abc import Callable, Iterator
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from fastavro import parse_schema, schemaless_writer
from msgspec.structs import replace

from runtime.contract.records.job_status import PartitionState, PartitionStatus
from runtime.contract.records.ledger import PartitionKey
from runtime.contract.spec.transform import FormatSpec, RegistrySpec, TransformSpec
from runtime.lab.lab import Lab
from tests.commands import repl
from tests.fakes.registry import SmallRegistry, small_registry
from tests.protobuf import HERE, number, schema
from tests.protobuf import customer as message
from tests.records import create_topic, read, wait_for, write
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


PROTOBUF = TransformSpec(
    value=FormatSpec(format="protobuf", schema=schema("shop.Customer")),
    where=(
        "value.level = 'HIGH' AND value.at < TIMESTAMP'2024-01-01 00:10:00.000005Z' AND value.phone IS NULL"
        " AND value.spent > 18446744073709551000 AND value.amounts['b'] > 1 AND value.home.city <> 'Berlin'"
        " AND array_contains(value.tags, 'a') AND value.email <> ''"
    ),
    set={
        "value.email": "concat(upper(value.email), value.id)",
        "value.spent": "value.spent - 1",
        "value.pager": "length(value.photo)",
        "value.level": "'LOW'",
    },
    drop=("value.home.street", "value.photo"),
    on_bad_record="quarantine",
)
DELETING = replace(PROTOBUF, on_filtered="tombstone")
UNKNOWN = number(1_000, 5)  # a field that the declared message does not have


def shop_customer(at: int, chance: random.Random) -> dict[str, Any]:
    begin = int(BEGIN.timestamp()) * 1_000_000
    return {
        "id": at,
        "email": chance.choice(["", "ä@b", "c", "d", "e"]),
        "phone": chance.choice([None, None, None, ""]),
        "level": chance.choice(["UNKNOWN", "HIGH", "HIGH", "HIGH"]),
        "home": chance.choice([None, {"street": "S"}, {"city": "Köln", "street": "S"}, {"city": "Berlin"}]),
        "tags": chance.choice([["a"], ["b", "a"], ["b"], []]),
        "amounts": chance.choice([{"a": 1.0, "b": 1.5}, {"b": 2.0}, {"b": 1.0}, {}]),
        "at": chance.choice([None, begin, begin + 600_000_004, begin + 600_000_005]),
        "photo": chance.randbytes(chance.randrange(3)),
        "spent": chance.choice([1, 2**64 - 1, 2**64 - 1]),
    }


def expected_message(value: dict[str, Any]) -> bytes | None:
    """The same transform in Python. A text that is absent is empty, and a time that is absent is null."""
    home = value["home"]
    if not (
        value["level"] == "HIGH"
        and value["at"] is not None
        and value["at"] < int(BEGIN.timestamp()) * 1_000_000 + 600_000_005
        and value["phone"] is None
        and value["spent"] > 18446744073709551000
        and value["amounts"].get("b", 0) > 1
        and home is not None
        and home.get("city") != "Berlin"
        and "a" in value["tags"]
        and value["email"] != ""
    ):
        return None
    changed = {**value, "email": f"{value['email'].upper()}{value['id']}", "level": "LOW"}
    changed |= {"spent": value["spent"] - 1, "pager": len(value["photo"]), "photo": b""}
    return message({**changed, "home": {**home, "street": ""}}) + UNKNOWN


@pytest.fixture
def registry() -> Iterator[SmallRegistry]:
    with small_registry() as found:
        found.add(7, SCHEMA)
        found.schemas[8] = {"schema": (HERE / "customer.proto").read_text(), "schemaType": "PROTOBUF"}
        yield found


@pytest.mark.parametrize("framed", [False, True])
def test_values_keep_the_bytes_of_their_writer(
    framed: bool, registry: SmallRegistry, lab: Lab, fresh: Callable[[str], str], tmp_path: Path
) -> None:
    """With Confluent's wire format, the partitions wait while the registry does not answer."""
    source, there = (dict(lab.clusters[name].client) for name in ("dc1", "dc2"))
    topic, flow, chance = fresh("avro"), fresh("flow"), random.Random(3)
    other, second = fresh("protobuf"), fresh("flow")
    create_topic(source, topic)
    create_topic(source, other)
    customers = [customer(number, chance) for number in range(3_000)]
    prefix, frame = (b"\x00\x00\x00\x00\x07", b"\x00\x00\x00\x00\x08\x00") if framed else (b"", b"")
    values = [prefix + encoded(one) for one in customers]
    bad = {1_000: values[1_000][:-1], 1_001: values[1_001] + b"x", 2_000: b"", 2_001: b"\x00" * 7}
    shop = [shop_customer(number, chance) for number in range(3_000)]
    messages = [frame + message(one) + UNKNOWN for one in shop]
    bad_messages = {1_000: messages[1_000][:-1], 2_000: b"\x00\x00\x00\x00\x07\x00", 2_001: b"\x00\x01"}
    transform, transform_messages = TRANSFORM, PROTOBUF if framed else DELETING
    if framed:
        spec = RegistrySpec(url=registry.url)
        transform = replace(TRANSFORM, value=replace(TRANSFORM.value, registry=spec))
        transform_messages = replace(PROTOBUF, value=replace(PROTOBUF.value, registry=spec))
        registry.down = True
    write(source, other, [bad_messages.get(at, value) for at, value in enumerate(messages)], b"k", 0)
    write(source, topic, [bad.get(at, value) for at, value in enumerate(values)], b"k", 0)
    flows = [
        flow_of(flow, [topic], transform=transform),
        flow_of(second, [other], transform=transform_messages),
    ]
    job = start_job(spec_of(lab, fresh("job"), flows), tmp_path)

    def both() -> list[PartitionStatus]:
        found = job.partitions()
        keys = (PartitionKey(flow, topic, 0), PartitionKey(second, other, 0))
        return [found[key] for key in keys if key in found]

    def caught_up() -> bool:
        return [(one.state, one.position) for one in both()] == [(PartitionState.CAUGHT_UP, 3_000)] * 2

    def wait() -> bool:
        states = [one.state for one in both() if "status 503" in one.why]
        return states == [PartitionState.RETRYING] * 2

    try:
        if framed:
            wait_for(wait, _STARTS_S, about=job.tail)
            registry.down = False
        wait_for(caught_up, _STARTS_S, about=job.tail)
        wanted = [expected(one) for at, one in enumerate(customers) if at not in bad]
        travelled = [value for value in wanted if value is not None]
        assert 100 < len(travelled) < 2_900
        assert [one.value for one in read(there, topic)] == [prefix + value for value in travelled]
        assert [one.value for one in read(there, f"{topic}.quarantine")] == list(bad.values())
        changed = [expected_message(one) for at, one in enumerate(shop) if at not in bad_messages]
        sent = [frame + value for value in changed if value is not None]
        assert len(sent) > 20
        # A filtered record has no value at the destination, or is not there.
        assert [one.value for one in read(there, other)] == (sent if framed else changed)
        assert [one.value for one in read(there, f"{other}.quarantine")] == list(bad_messages.values())
        if not framed:
            verify(topology(lab, second, other, tmp_path), second, len(changed), len(bad_messages))
        assert job.stop() == 0
    finally:
        job.kill()


def topology(lab: Lab, flow: str, topic: str, folder: Path) -> Path:
    """The flow of Protobuf messages as people write it."""
    shutil.copy(HERE / "customer.desc", folder)
    transform = {
        "value": {"format": "protobuf", "schema": {"file": "customer.desc", "message": "shop.Customer"}},
        "where": PROTOBUF.where,
        "on_filtered": "tombstone",
        "set": PROTOBUF.set,
        "drop": PROTOBUF.drop,
        "on_bad_record": "quarantine",
    }
    ends = {"name": flow, "from": "dc1", "to": "dc2", "topics": {"include": [topic]}}
    document = {
        "apiVersion": "repl/v1",
        "name": "tests",
        "clusters": {name: {"bootstrap": one.bootstrap} for name, one in lab.clusters.items()},
        "flows": [{**ends, "transform": transform}],
    }
    path = folder / "repl.yaml"
    path.write_text(json.dumps(document))  # JSON is YAML
    return path


def verify(file: Path, flow: str, compared: int, quarantined: int) -> None:
    """`repl verify` decodes and edits the messages again, and expects tombstones of filtered records."""
    done = repl("verify", flow, "--path", str(file), "--json", timeout=300)
    assert done.returncode == 0, done.stdout + done.stderr
    (found,) = json.loads(done.stdout)["partitions"]
    assert (found["compared"], found["filtered"], found["differences"]) == (compared, quarantined, [])
