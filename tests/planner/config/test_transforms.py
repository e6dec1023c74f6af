"""The transform of a flow, as far as its text goes."""

from pathlib import Path

import pytest

from planner.graph.jobs import transform_of
from planner.model.topology import RecordFormat
from runtime.contract.spec.transform import FormatSpec, TransformSpec
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
        " drop: value.card, on_bad_record: quarantine}"
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
    )


def test_a_flow_without_one_has_none(tmp_path: Path) -> None:
    text = "flows: [{name: f, from: dc1, to: dc2, topics: {include: [orders]}}]"
    assert transform_of(loaded(tmp_path, text).flows["f"]) is None


@pytest.mark.parametrize(
    ("transform", "what"),
    [
        ("{value: {format: avro, schema: s}, where: 'true'}", "value: format avro is not supported yet"),
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
