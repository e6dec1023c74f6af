"""The transform of a flow, as far as its text goes."""

from pathlib import Path
from typing import Literal

import pytest

from planner.graph.jobs import transform_of
from planner.model.topology import RecordFormat
from runtime.contract.spec.transform import FormatSpec, RegistrySpec, Setting, TransformSpec
from tests.planner.config.given import loaded, mistakes

FLOW = """\
flows:
  - name: f
    from: dc1
    to: dc2
    topics: {include: [orders]}
    transform: %s
"""
JSON = 'value: {format: json, schema: "id BIGINT, email STRING, card STRING"}'


def test_a_transform_reaches_the_job(tmp_path: Path) -> None:
    text = FLOW % (
        f"{{{JSON}, key: {{format: text}}, where: \"key <> 'x'\", set: {{value.email: upper(value.email)}},"
        " drop: value.card, on_bad_record: quarantine, on_filtered: tombstone}"
    )
    flow = loaded(tmp_path, text).flows["f"]
    assert flow.transform is not None
    assert flow.transform.value.format is RecordFormat.JSON
    assert transform_of(flow) == TransformSpec(
        value=FormatSpec(format="json", schema="id BIGINT, email STRING, card STRING"),
        key=FormatSpec(format="text"),
        where="key <> 'x'",
        set={"value.email": "upper(value.email)"},
        drop=["value.card"],
        on_bad_record="quarantine",
        on_filtered="tombstone",
    )


def test_what_is_copied_of_filtered_records_is_skip_by_default_and_follows_a_filter(tmp_path: Path) -> None:
    for written, made in (
        ("", "skip"),
        (", on_filtered: skip", "skip"),
        (", on_filtered: tombstone", "tombstone"),
    ):
        flow = loaded(tmp_path, FLOW % f"{{where: 'true'{written}}}").flows["f"]
        spec = transform_of(flow)
        assert spec is not None
        assert spec.on_filtered == made
    (mistake,) = mistakes(tmp_path, FLOW % f"{{{JSON}, drop: value.card, on_filtered: tombstone}}")
    assert "on_filtered without where: no record is left out" in mistake


def test_a_registry_reaches_the_job_with_references_alone(tmp_path: Path) -> None:
    (tmp_path / "c.avsc").write_text("{}")
    registry = "{url: 'https://r:8081', client: {sasl.username: u, sasl.password: {env: PASSWORD}}}"
    text = (
        FLOW % f"{{value: {{format: avro, schema: {{file: c.avsc}}, registry: {registry}}}, drop: [value.a]}}"
    )
    made = transform_of(loaded(tmp_path, text).flows["f"])
    assert made is not None
    client: dict[str, Setting] = {"sasl.username": "u", "sasl.password": {"env": "PASSWORD"}}
    assert made.value.registry == RegistrySpec(url="https://r:8081", client=client)


@pytest.mark.parametrize(
    ("registry", "what"),
    [
        ("{url: 'ftp://r'}", "a web address"),
        ("{url: 'https://r', client: {sasl.password: open}}", "stands in the topology as plain text"),
        ("{url: 'https://r', client: {sasl.password: {file: p}}}", "sasl.password of the registry is a file"),
        ("{url: 'https://r', client: {client.id: x}}", "client.id is no setting of a registry"),
        ("{url: 'https://r', client: {ssl.ca.location: ca.pem}}", "is a relative path"),
        ("{url: 'http://r', client: {sasl.password: {env: P}}}", "is not https"),
    ],
)
def test_what_no_registry_takes_is_an_error(tmp_path: Path, registry: str, what: str) -> None:
    found = mistakes(
        tmp_path, FLOW % f"{{value: {{format: avro, schema: '{{}}', registry: {registry}}}, where: 'true'}}"
    )
    assert any(what in one for one in found), found


def test_a_flow_without_one_has_none(tmp_path: Path) -> None:
    text = "flows: [{name: f, from: dc1, to: dc2, topics: {include: [orders]}}]"
    assert transform_of(loaded(tmp_path, text).flows["f"]) is None


@pytest.mark.parametrize(
    ("form", "text"), [("avro", '{"type": "record"}'), ("json", "id BIGINT,\n  email STRING")]
)
def test_a_schema_may_be_a_file_beside_the_topology(
    tmp_path: Path, form: Literal["avro", "json"], text: str
) -> None:
    """Its text is part of the topology then: the job needs no file."""
    (tmp_path / "schemas").mkdir()
    (tmp_path / "schemas" / "customer").write_text(text + "\n")
    transform = f"{{value: {{format: {form}, schema: {{file: schemas/customer}}}}, drop: [value.email]}}"
    made = transform_of(loaded(tmp_path, FLOW % transform).flows["f"])
    assert made is not None
    assert made.value == FormatSpec(format=form, schema=text)


def test_the_descriptors_of_protobuf_are_a_file_beside_the_topology(tmp_path: Path) -> None:
    """The job gets the name of the message, and the bytes of the file in base64."""
    (tmp_path / "c.desc").write_bytes(b"\n\xff\x00 ")
    form = "{format: protobuf, schema: {file: c.desc, message: shop.Customer}}"
    made = transform_of(loaded(tmp_path, FLOW % f"{{value: {form}, key: {form}, drop: value.a}}").flows["f"])
    assert made is not None
    assert made.value == made.key == FormatSpec(format="protobuf", schema="shop.Customer Cv8AIA==")


@pytest.mark.parametrize(
    ("transform", "what"),
    [
        (
            "{value: {format: text, registry: {url: 'https://r'}}, where: 'true'}",
            "format text has no registry",
        ),
        ("{value: {format: protobuf}, where: 'true'}", "value: format protobuf needs a schema"),
        (
            "{value: {format: protobuf, schema: {file: a.desc}}, where: 'true'}",
            "value: the schema of format protobuf names no message",
        ),
        (
            "{value: {format: avro, schema: {file: a.avsc, message: a.B}}, where: 'true'}",
            "value: format avro has no message",
        ),
        (
            "{value: {format: protobuf, schema: {file: a.desc, message: a.B}}, where: 'true'}",
            "No such file or directory",
        ),
        ("{value: {format: avro}, where: 'true'}", "value: format avro needs a schema"),
        ("{value: {format: avro, schema: {file: none.avsc}}, where: 'true'}", "No such file or directory"),
        ("{value: {format: avro, schema: {file: ../x}}, where: 'true'}", "outside of the topology's folder"),
        ("{value: {format: json}, where: 'true'}", "value: format json needs a schema"),
        ("{value: {format: text, schema: s}, where: 'true'}", "value: format text has no schema"),
        ("{value: {format: text}}", "a transform that changes nothing"),
        ("{set: {key: upper(key)}}", "set: key would change the key"),
        (f"{{{JSON}, drop: [email]}}", "drop: email is no field of the value"),
        (f"{{{JSON}, set: {{value: upper(value.email)}}}}", "set: value is no field of the value"),
        ("{value: {format: text}, drop: [value.a]}", "drop: value.a can't be changed"),
        (f"{{{JSON}, set: {{value.a: '1'}}, drop: [value.a]}}", "set and drop: value.a is named twice"),
        (
            f"{{{JSON}, set: {{value.a: '1'}}, drop: [value.a.b]}}",
            "set and drop: value.a.b lies inside value.a",
        ),
        ("{wher: 'true'}", 'unknown key "wher" in a transform — did you mean "where"?'),
    ],
)
def test_what_no_job_can_do_is_an_error(tmp_path: Path, transform: str, what: str) -> None:
    found = mistakes(tmp_path, FLOW % transform)
    assert any(what in one for one in found), found
