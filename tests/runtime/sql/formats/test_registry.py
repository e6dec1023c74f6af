"""Avro in Confluent's wire format: each value is read and changed by the schema that it was written with."""

import asyncio
import io
import json
from collections.abc import Iterator
from typing import Any

import pytest
from fastavro import parse_schema, schemaless_reader, schemaless_writer

from runtime.contract.spec.schemas import RegistrySpec
from runtime.contract.spec.transform import FormatSpec
from runtime.schemas.client import RegistryUnavailable, SchemaRegistry
from runtime.sql.formats.avro import AvroValues
from runtime.sql.formats.encoded import Changes, UndecodableValue, UneditableValue
from tests.fakes.registry import RegistryServer, registry_server


def record(*fields: dict[str, Any], name: str = "Customer") -> dict[str, Any]:
    return {"type": "record", "name": name, "fields": list(fields)}


ID = {"name": "id", "type": "long"}
EMAIL = {"name": "email", "type": ["null", "string"], "default": None}
CARD = {"name": "card", "type": ["null", "string"], "default": None}
NEWER = {"name": "level", "type": "string", "default": "low"}
READER = record(ID, EMAIL, CARD, NEWER)
OLD = record(ID, CARD)  # without email and level
OTHER = record({"name": "note", "type": ["string", "long"]}, NEWER, CARD, EMAIL, ID)
REQUIRED = record(ID, {"name": "card", "type": "string"}, EMAIL, NEWER)


@pytest.fixture
def registry() -> Iterator[RegistryServer]:
    with registry_server() as found:
        for number, schema in ((1, READER), (2, OLD), (3, OTHER), (4, REQUIRED)):
            found.add(number, schema)
        yield found


def framed(number: int, schema: Any, value: Any) -> bytes:
    stream = io.BytesIO()
    schemaless_writer(stream, parse_schema(json.loads(json.dumps(schema))), value)
    return b"\x00" + number.to_bytes(4, "big") + stream.getvalue()


def values_of(registry: RegistryServer, **client: Any) -> AvroValues:
    form = FormatSpec(
        format="avro", schema=json.dumps(READER), registry=RegistrySpec(url=registry.url, client=client)
    )
    return AvroValues(form, Changes.of(["value.email"], ["value.card"]))


def prepared(values: AvroValues, *records: bytes) -> AvroValues:
    asyncio.run(values.prepare(records))
    return values


def test_a_value_is_read_as_the_declared_schema_and_keeps_its_writers(registry: RegistryServer) -> None:
    whole = {"id": 1, "email": "a@b", "card": "4111", "level": "high"}
    records = [
        (1, READER, whole, whole),
        (2, OLD, {"id": 1, "card": "4111"}, {"id": 1, "email": None, "card": "4111", "level": "low"}),
        (3, OTHER, {**whole, "note": 7}, whole),
    ]
    values = values_of(registry)
    written = [framed(number, schema, value) for number, schema, value, _ in records]
    prepared(values, *written)
    for data, (number, schema, value, read) in zip(written, records, strict=True):
        assert json.loads(values.json(data)) == read
        edited = values.edited(data, [b'"masked"'])
        assert edited[:5] == b"\x00" + number.to_bytes(4, "big")
        now = schemaless_reader(io.BytesIO(edited[5:]), parse_schema(json.loads(json.dumps(schema))), None)
        assert now == value | {"card": None} | ({"email": "masked"} if "email" in value else {})
    prepared(values, *written)
    assert sorted(registry.asked) == [f"/schemas/ids/{number}" for number in (1, 2, 3)]  # each once


def test_a_field_that_its_writer_requires_cannot_be_dropped(registry: RegistryServer) -> None:
    data = framed(4, REQUIRED, {"id": 1, "email": None, "card": "4111", "level": "low"})
    values = prepared(values_of(registry), data)
    assert json.loads(values.json(data))["card"] == "4111"
    with pytest.raises(UneditableValue, match=r"value\.card is neither nullable nor has it a default"):
        values.edited(data, [b"null"])


@pytest.mark.parametrize(
    ("data", "why"),
    [
        (b"\x00\x00\x00\x00\x09abc", "the registry has no schema id 9"),
        (b"\x01\x00\x00\x00\x01abc", "it has no schema id of a registry"),
        (b"\x00\x00", "it has no schema id of a registry"),
        (b"\x00\x00\x00\x00\x05abc", "schema id 5 is PROTOBUF, not Avro"),
        (b"\x00\x00\x00\x00\x06\x02", "no value of the schema"),
        (b"\x00\x00\x00\x00\x01\x02", "no value of the schema"),
    ],
)
def test_what_cannot_be_decoded_is_a_bad_record(registry: RegistryServer, data: bytes, why: str) -> None:
    registry.add(5, "syntax", schemaType="PROTOBUF")
    registry.add(6, record({"name": "other", "type": "long"}))  # the reader's id has no default
    values = prepared(values_of(registry), data)
    with pytest.raises(UndecodableValue, match=why):
        values.json(data)


NODE = record({"name": "next", "type": ["null", "Node"]}, name="Node")
FRAME_7 = b"\x00\x00\x00\x00\x07"


def nested(levels: int) -> Any:
    schema: Any = "long"
    for _ in range(levels):
        schema = {"type": "array", "items": schema}
    return schema


def chained(records: int) -> list[Any]:
    """Returns fields of which the last one has so many records within one another. Their text is flat."""
    first = record({"name": "x", "type": "long"}, name="R0")
    others = [
        record({"name": "x", "type": f"R{at - 1}"}, {"name": "y", "type": f"R{at - 1}"}, name=f"R{at}")
        for at in range(1, records)
    ]
    return [{"name": f"f{at}", "type": one} for at, one in enumerate([first, *others])]


@pytest.mark.parametrize(
    ("fields", "why"),
    [
        ([{"name": "x", "type": {"type": "array", "items": "Customer"}}], "Customer contains itself"),
        ([{"name": "x", "type": {"type": "map", "values": ["null", NODE]}}], "Node contains itself"),
        ([{"name": "x", "type": nested(99)}], "more than 100 types within one another"),
        ([{"name": "x", "type": nested(300)}], "more than 100 types within one another"),
        (chained(99), "more than 100 types within one another"),
        ([{"name": "x", "type": nested(98)}], "no value of the schema"),
        (chained(98), "no value of the schema"),
    ],
)
def test_a_writers_schema_has_limited_levels(
    registry: RegistryServer, fields: list[dict[str, Any]], why: str
) -> None:
    registry.add(7, record(*fields, ID))
    values = prepared(values_of(registry), FRAME_7)
    with pytest.raises(UndecodableValue, match=why):
        values.json(FRAME_7)
    with pytest.raises(UneditableValue, match=why):
        values.edited(FRAME_7, [b"null"])


def test_schemas_that_a_schema_refers_to_are_fetched(registry: RegistryServer) -> None:
    home = record({"name": "city", "type": "string"}, name="Home")
    registry.add(
        7,
        record(ID, CARD, {"name": "home", "type": "Home"}),
        references=[{"name": "Home", "subject": "home value", "version": 2}],
    )
    registry.add(8, home, "home value", 2)
    data = framed(
        7, record(ID, CARD, {"name": "home", "type": home}), {"id": 1, "card": "4", "home": {"city": "K"}}
    )
    values = prepared(values_of(registry), data)
    assert json.loads(values.json(data))["id"] == 1
    assert values.edited(data, [b"null"]) == data.replace(b"\x02\x024", b"\x00")


def reference(name: str, version: int = 1) -> dict[str, Any]:
    return {"name": name, "subject": name, "version": version}


def test_schemas_that_refer_to_each_other_are_those_of_a_bad_record(registry: RegistryServer) -> None:
    for number, subject, other in ((7, "", "one"), (8, "one", "two"), (9, "two", "one")):
        registry.add(number, record(ID), subject, references=[reference(other)])
    with pytest.raises(UndecodableValue, match="a schema refers to more than 100 others"):
        prepared(values_of(registry), FRAME_7).json(FRAME_7)
    assert len(registry.asked) < 110


def test_a_request_that_the_registry_refuses_is_no_bad_record(registry: RegistryServer) -> None:
    registry.add(7, record(ID), references=[reference("one", 0)])
    registry.add(8, record(ID), "one")
    with pytest.raises(RegistryUnavailable, match="one version 0: HTTP status 422: The specified version"):
        prepared(values_of(registry), FRAME_7)


def test_a_registry_that_does_not_answer_is_no_bad_record(
    registry: RegistryServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    data = framed(1, READER, {"id": 1, "email": None, "card": None, "level": "low"})
    registry.authorization = "Basic cmVwbDpzM2NyM3Q="
    monkeypatch.setenv("REGISTRY_PASSWORD", "s3cr3t")
    with pytest.raises(RegistryUnavailable, match=r"schema id 1: HTTP status 401"):
        prepared(values_of(registry), data)
    password = {"sasl.username": "repl", "sasl.password": {"env": "REGISTRY_PASSWORD"}}
    values = values_of(registry, **password)
    registry.down = True
    with pytest.raises(RegistryUnavailable, match=r"HTTP status 503"):
        prepared(values, data)
    registry.down = False
    assert json.loads(prepared(values, data).json(data))["id"] == 1
    monkeypatch.delenv("REGISTRY_PASSWORD")
    with pytest.raises(RegistryUnavailable, match="REGISTRY_PASSWORD is not set"):
        prepared(values_of(registry, **password), data)


def test_a_registry_is_reached_over_http_alone() -> None:
    with pytest.raises(RegistryUnavailable, match="is no web address"):
        asyncio.run(SchemaRegistry(RegistrySpec(url="file:///etc")).schema(1))
