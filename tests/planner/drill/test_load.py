"""The records of a drill: they fit declared formats, are the same each time, and come from samples."""

import datetime
import io
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from fastavro import parse_schema, schemaless_reader
from msgspec import structs

from planner.config import load
from planner.drill.lab_copy import scaled_down
from planner.drill.load import DRILL_HEADER, DrillLoad
from planner.drill.replica import Replica
from planner.drill.routes import routes_of
from planner.drill.values import UnknownType, maker_of, random_of
from planner.model.diagnostic import Failure
from planner.model.topology import Topology
from runtime.contract.spec.transform import FormatSpec
from runtime.sql.formats.encoded import Changes
from runtime.sql.formats.protobuf import ProtobufValues
from tests.protobuf import LEVELS, schema
from tests.topologies import without_answer

AVRO: dict[str, Any] = {
    "type": "record",
    "name": "Customer",
    "namespace": "shop",
    "fields": [
        {"name": "id", "type": "long"},
        {"name": "email", "type": ["null", "string"], "default": None},
        {"name": "kind", "type": {"type": "enum", "name": "Kind", "symbols": ["A", "B"]}},
        {"name": "other", "type": "Kind"},
        {"name": "price", "type": {"type": "bytes", "logicalType": "decimal", "precision": 8, "scale": 2}},
        {"name": "at", "type": {"type": "long", "logicalType": "timestamp-millis"}},
        {"name": "ref", "type": {"type": "string", "logicalType": "uuid"}},
        {"name": "raw", "type": {"type": "fixed", "name": "Raw", "size": 4}},
        {"name": "tags", "type": {"type": "map", "values": {"type": "array", "items": "double"}}},
    ],
}


def topology(folder: Path, flow: dict[str, Any], samples: dict[str, str] | None = None) -> Topology:
    people = {"name": "people", "from": "paris", "to": "tokyo", "rename": "copy.{topic}", **flow}
    drill = {"samples": samples or {}}
    return load(without_answer(folder, "topology", "paris", "tokyo", flows=[people], drill=drill))


def load_in(folder: Path, *given: Any) -> DrillLoad:
    return Replica(topology(folder, *given), folder / "drill", print).load


def in_format(**value: Any) -> dict[str, Any]:
    return {"topics": {"include": ["people"]}, "transform": {"where": "true", "value": value}}


def made(form: Any, schema: str) -> bytes:
    make = maker_of(FormatSpec(format=form, schema=schema))
    assert make is not None
    return make(random_of("1"))


def test_json_fits_every_type_of_a_schema() -> None:
    schema = (
        "id BIGINT NOT NULL, email: STRING COMMENT 'a, b', `a b` DECIMAL(10, 2), ok BOOLEAN, "
        "home STRUCT<city: STRING, rooms: ARRAY<INT>>, tags MAP<STRING, DOUBLE>, at TIMESTAMP, "
        "local timestamp_ntz, born DATE, raw BINARY, short VARCHAR(4)"
    )
    found = json.loads(made("json", schema))
    assert [type(one) for one in found.values()] == [
        *(int, str, float, bool, dict, dict),
        *(str, str, str, str, str),
    ]
    assert datetime.datetime.fromisoformat(found["at"]).tzinfo is not None
    assert datetime.date.fromisoformat(found["born"]).year == 2026
    assert len(found["short"]) == 4


@pytest.mark.parametrize(
    "schema", ["id", "id BIGINT,", "a STRUCT<b: INT", "a BIGINT; b INT", "span INTERVAL"]
)
def test_a_schema_that_is_none_is_refused(schema: str) -> None:
    with pytest.raises(UnknownType):
        made("json", schema)


def test_avro_values_are_read_back_by_their_schema() -> None:
    data = io.BytesIO(made("avro", json.dumps(AVRO)))
    found: Any = schemaless_reader(data, parse_schema(AVRO), None)
    assert not data.read()
    assert found["email"].startswith("email-")
    assert {found["kind"], found["other"]} <= {"A", "B"}
    assert 0 <= found["price"] < 10**6
    assert found["at"].year == 2026


def test_messages_of_protobuf_are_read_back_by_their_schema(tmp_path: Path) -> None:
    text = schema("shop.Customer")
    data = load_in(tmp_path, in_format(format="protobuf", schema=text)).record("paris", "people", 1).value
    found = json.loads(
        ProtobufValues(FormatSpec(format="protobuf", schema=text), Changes()).json(data or b"")
    )
    assert found["email"].startswith("email-")
    assert found["home"]["city"].startswith("city-")
    assert (found["fax"][:4], found["pager"], found["paid_by"]) == ("fax-", None, None)
    assert found["level"] in LEVELS
    assert found["at"].startswith("2026-")
    assert all(name.startswith("key-") for name in found["amounts"])
    with pytest.raises(UnknownType, match=r"value\.left contains itself"):
        made("protobuf", schema("shop.Tree", "order.desc"))


def test_the_same_number_gives_the_same_record_and_each_has_an_id(tmp_path: Path) -> None:
    one, other = (load_in(tmp_path, in_format(format="json", schema="id BIGINT")) for _ in range(2))
    first = one.record("paris", "people", 1)
    assert first == other.record("paris", "people", 1)
    assert first != one.record("paris", "people", 2)
    assert first.headers == ((DRILL_HEADER, first.id),)
    assert json.loads(one.record("tokyo", "copy.people", 1).value or b"").keys() == {"id"}


def test_a_topic_without_a_format_has_numbered_records(tmp_path: Path) -> None:
    found = load_in(tmp_path, {"topics": {"include": ["people"]}}).record("paris", "people", 3)
    assert (found.id, found.headers) == (found.value, ())
    assert json.loads(found.value or b"") == {"drill": 3, "from": "paris"}


def test_a_type_without_values_names_the_way_out(tmp_path: Path) -> None:
    with pytest.raises(Failure) as refused:
        load_in(tmp_path, in_format(format="json", schema="span INTERVAL"))
    (one,) = refused.value.diagnostics
    assert one.summary.endswith("for the values of people: a drill makes no values of the type INTERVAL")
    assert "repl read paris people --export FILE" in one.hint


def recorded(folder: Path, *lines: str) -> dict[str, str]:
    (folder / "people.jsonl").write_text("\n".join(lines))
    return {"people": "people.jsonl"}


def test_a_sample_is_written_again_and_again_with_its_headers(tmp_path: Path) -> None:
    samples = recorded(
        tmp_path,
        '{"key": {"text": "k"}, "value": {"base64": "/w=="}, "headers": [{"name": "h", "value": null}]}',
        '{"key": null, "value": null, "headers": [{"name": "__repl", "value": {"text": "x"}}]}',
    )
    found = load_in(tmp_path, {"topics": {"include": ["people"]}}, {**samples, "gone.*": "none.jsonl"})
    records = [found.record("paris", "people", number) for number in (2, 3, 4)]
    assert [(one.key, one.value) for one in records] == [(b"k", b"\xff"), (None, None), (b"k", b"\xff")]
    assert [len(one.headers) for one in records] == [2, 1, 2]
    assert len({one.id for one in records}) == 3
    assert found.notes == (
        "drill.samples: no running flow copies a topic that gone.* stands for",
        "people: 2 recorded records of people.jsonl are written, with the present time",
    )


@pytest.mark.parametrize(
    ("line", "why"),
    [
        ("{", "this line is no JSON"),
        ("[]", "this line is no record"),
        ('{"key": null}', "this line is no record"),
        ('{"value": {"base64": "?"}}', "base64 that can't be read"),
        ('{"value": 7}', "hold null, text, {text: …} or {base64: …}"),
        ('{"value": null, "headers": [{"name": "h"}]}', "a header without 'value'"),
    ],
)
def test_a_line_that_is_no_record_is_named(tmp_path: Path, line: str, why: str) -> None:
    samples = recorded(tmp_path, '{"value": "ok"}', line)
    with pytest.raises(Failure) as refused:
        load_in(tmp_path, {"topics": {"include": ["people"]}}, samples)
    (one,) = refused.value.diagnostics
    assert why in one.summary
    assert str(one.source) == f"{tmp_path / 'people.jsonl'}:2:1"
    assert "repl read" in one.hint


@pytest.mark.parametrize(("there", "why"), [(True, "no record is in it"), (False, "No such file")])
def test_a_sample_that_is_not_there_or_empty_is_an_error(tmp_path: Path, there: bool, why: str) -> None:
    samples = recorded(tmp_path) if there else {"people": "people.jsonl"}
    with pytest.raises(Failure, match=why):
        load_in(tmp_path, {"topics": {"include": ["people"]}}, samples)


@pytest.mark.parametrize("path", ["../people.jsonl", "/etc/passwd", "link"])
def test_a_sample_outside_of_the_folder_is_refused(tmp_path: Path, path: str) -> None:
    (tmp_path / "link").symlink_to("/etc/passwd")
    with pytest.raises(Failure, match="lies outside of the topology's folder"):
        topology(tmp_path, {"topics": {"include": ["people"]}}, {"people": path})


REGISTRY = {"registry": {"url": "http://127.0.0.1:1"}}


def test_a_registry_is_asked_only_for_recorded_samples(tmp_path: Path) -> None:
    flow = in_format(format="avro", schema=json.dumps(AVRO), **REGISTRY)
    made = Replica(topology(tmp_path, flow), tmp_path / "drill", print)
    transform = made.topology.flows["people"].transform
    assert transform is not None
    assert transform.value.registry is None
    assert any("no schema registry, so they have no schema id" in one for one in made.notes)

    sampled = topology(tmp_path, flow, recorded(tmp_path, '{"value": "x"}'))
    transform = Replica(sampled, tmp_path / "drill", print).topology.flows["people"].transform
    assert transform is not None
    assert transform.value.registry is not None

    flow["topics"]["include"] = ["people", "homes"]
    with pytest.raises(Failure, match="homes has no sample, and the flow's other topics have one"):
        load_in(tmp_path, flow, {"people": "people.jsonl"})


def test_values_that_change_are_left_out_of_the_failback_and_the_report_says_so(tmp_path: Path) -> None:
    flow = in_format(format="json", schema="id BIGINT, email STRING")
    assert not any("failback" in one for one in scaled_down(topology(tmp_path, flow))[1])
    flow["transform"]["drop"] = ["value.email"]
    small, notes = scaled_down(topology(tmp_path, flow))
    assert notes[-1] == (
        "people: the failback is left out, because values that a transform changes do not compare equal"
        " after a round trip"
    )
    assert [(one.transformed, one.filtered) for one in routes_of(small)] == [(True, True)]


def test_each_transform_has_a_core(tmp_path: Path) -> None:
    one = topology(tmp_path, in_format(format="json", schema="id BIGINT"))
    flows = {name: structs.replace(one.flows["people"], name=name) for name in ("a", "b", "c")}
    small, _ = scaled_down(replace(one, flows=flows))
    assert small.jobs["tokyo"].master == "local[3]"
