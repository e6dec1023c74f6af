"""Spark's analyzer refuses what a transform may not say, before a plan shows it."""

import base64
import json
import shutil
import socket
from pathlib import Path

import pytest

from planner.model.diagnostic import Failure
from planner.workflows.plans import validate
from planner.workflows.requests import TopologyRequest
from tests.runtime.sql.formats.test_protobuf_limits import chain

PROTOBUF = Path(__file__).parent.parent / "protobuf"
pytestmark = pytest.mark.spark
TOPOLOGY = """\
apiVersion: repl/v1
name: test
clusters:
  eu: {bootstrap: "127.0.0.1:1"}
  us: {bootstrap: "127.0.0.1:2"}
jobs:
  at-eu: {}
flows:
"""
FLOW = """\
  - name: %s
    from: eu
    to: us
    topics: {include: [t-%s]}
    job: at-eu
    transform:
      value: {format: json, schema: "id BIGINT, email STRING, a STRUCT<b: STRING>"}
      %s
"""
CASES = {  # by the name of a flow: what its transform says, and what is wrong with it
    "unknown-column": ("where: value.emial = 'x'", "(line 1, column 1): [FIELD_NOT_FOUND]"),
    "syntax": ("where: 'value.email ='", "(line 1, column 14): [PARSE_SYNTAX_ERROR]"),
    "unbalanced": ("where: 'true) OR (true'", "[PARSE_SYNTAX_ERROR]"),
    "no-condition": ("where: value.id", 'of type "BIGINT" is not a boolean'),
    "aggregate": ("where: count(*) > 1", "the function count is not supported"),
    "window": ("where: sum(value.id) over () > 1", "window expression is not supported"),
    "subquery": ("where: exists (select 1)", "exists is not supported"),
    "explode": ("set: {value.email: \"explode(array('a'))\"}", "the function explode is not supported"),
    "random": ("where: rand() > 0.5", "the function rand is not supported"),
    "clock": ("where: timestamp > now()", "(line 1, column 13): the function now is not supported"),
    "hidden": ("where: __tombstone", "__tombstone"),
    "set-unknown": ("set: {value.emial: \"'x'\"}", "the schema has no field value.emial"),
    "set-type": ("set: {value.email: '1'}", "value.email is STRING, and 1 is INT: cast it"),
    "drop-unknown": ("drop: [value.a.c]", "the schema has no field value.a.c: value.a has b"),
}
ATTACKS = {  # what reaches out while Spark analyzes it; `%s` is a file, and an address
    "a-variable": ("`${env:REPL_PASSWORD}` = 'x'", "(line 1, column 1): ${env:REPL_PASSWORD} is no column"),
    "a-file": ("exists(select * from csv.`%(file)s`)", "exists is not supported"),
    "an-address": (
        "from_json(value.email, schema_of_xml('<a/>', map('rowValidationXSDPath', '%(url)s'))) IS NULL",
        "the function schema_of_xml is not supported",
    ),
    "a-doctype": (
        """xpath_string('<!DOCTYPE a SYSTEM "%(url)s"><a/>', '/a') = ''""",
        "the function xpath_string is not supported",
    ),
    "without-end": (
        "from_json(value.email, regexp_replace(repeat('a',3000), '.*.*.*.*=', 'x')) IS NULL",
        "count of repeat(fill, count) must be a whole number from 0 to 1,000",
    ),
}
GOOD = """where: value.id > 1 AND headers['h'] IS NULL
      set: {value.email: "sha2(value.email, 256)", value.a.b: 'NULL'}"""


def written(folder: Path, flows: dict[str, str]) -> TopologyRequest:
    file = folder / "t.yaml"
    file.write_text(TOPOLOGY + "".join(FLOW % (name, name, text) for name, text in flows.items()))
    return TopologyRequest(file)


def test_every_mistake_of_every_flow_is_reported_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("REPL_PASSWORD", "hunter2")
    (tmp_path / "plan.key").write_text("open-sesame")
    with socket.create_server(("127.0.0.1", 0)) as server:
        server.setblocking(False)
        places = {"file": tmp_path / "plan.key", "url": f"http://127.0.0.1:{server.getsockname()[1]}/"}
        attacks = {
            name: (f"where: {json.dumps(text % places)}", why) for name, (text, why) in ATTACKS.items()
        }
        cases = CASES | attacks
        flows = {"good": GOOD} | {name: text for name, (text, _) in cases.items()}
        with pytest.raises(Failure) as refused:
            validate(written(tmp_path, flows))
        with pytest.raises(BlockingIOError):
            server.accept()  # nothing has connected
    found = {str(one.address).removeprefix("flow."): one.summary for one in refused.value.diagnostics}
    assert found.keys() == cases.keys()
    assert {name for name, (_, why) in cases.items() if why not in found[name]} == set()
    assert "hunter2" not in str(found)
    assert "sesame" not in str(found)


AVRO = {
    "type": "record",
    "name": "R",
    "fields": [
        {"name": "id", "type": "long"},
        {"name": "email", "type": ["null", "string"], "default": None},
        {"name": "tags", "type": {"type": "array", "items": "string"}},
        {"name": "day", "type": {"type": "int", "logicalType": "date"}},
    ],
}
AVRO_CASES = {
    "a-unknown": ("where: value.emial = 'x'", "[FIELD_NOT_FOUND]"),
    "a-required": ("drop: [value.id]", "value.id is neither nullable nor has it a default"),
    "a-tags": ("set: {value.tags: \"array('x')\"}", "value.tags is of a type that can't be set in Avro"),
    "a-type": ("set: {value.email: '1'}", "value.email is STRING, and 1 is INT: cast it"),
}


def test_a_change_that_would_break_the_schema_of_avro_is_refused(tmp_path: Path) -> None:
    (tmp_path / "r.avsc").write_text(json.dumps(AVRO))
    flows = {"a-good": "where: value.day > DATE'2020-01-01'\n      drop: [value.email]"}
    flows |= {name: text for name, (text, _) in AVRO_CASES.items()}
    request = written(tmp_path, flows)
    file = tmp_path / "t.yaml"
    ddl = 'format: json, schema: "id BIGINT, email STRING, a STRUCT<b: STRING>"'
    file.write_text(file.read_text().replace(ddl, "format: avro, schema: {file: r.avsc}"))
    with pytest.raises(Failure) as refused:
        validate(request)
    found = {str(one.address).removeprefix("flow."): one.summary for one in refused.value.diagnostics}
    assert found.keys() == AVRO_CASES.keys()
    assert {name for name, (_, why) in AVRO_CASES.items() if why not in found[name]} == set()


PROTOBUF_CASES = {
    "p-unknown": ("customer.desc", "where: value.emial = 'x'", "[FIELD_NOT_FOUND]"),
    "p-presence": ("customer.desc", "where: value.phone + 1", "of type"),
    "p-tags": ("customer.desc", "set: {value.tags: \"array('x')\"}", "can't be set in Protobuf"),
    "p-type": (
        "customer.desc",
        "set: {value.spent: \"'x'\"}",
        "value.spent is DECIMAL(20,0), and 'x' is STRING",
    ),
    "p-imports": (
        "alone.desc",
        "drop: [value.id]",
        "lacks shop.common.Address, the type of shop.Customer.home",
    ),
    "p-message": ("order.desc", "drop: [value.id]", "the descriptor set has no message shop.Customer"),
}


def test_a_change_that_would_break_a_message_of_protobuf_is_refused(tmp_path: Path) -> None:
    good = "where: value.at > TIMESTAMP'2020-01-01' AND value.amounts['a'] > 1 AND value.home.city <> ''"
    cases = {"p-good": ("customer.desc", f"{good}\n      drop: [value.email, value.home.street]", "")}
    cases |= PROTOBUF_CASES
    for descriptors in ("customer.desc", "alone.desc", "order.desc"):
        shutil.copy(PROTOBUF / descriptors, tmp_path)
    request = written(tmp_path, {name: text for name, (_, text, _) in cases.items()})
    file = tmp_path / "t.yaml"
    text = file.read_text()
    for one, _, _ in cases.values():
        form = f"format: protobuf, schema: {{file: {one}, message: shop.Customer}}"
        text = text.replace('format: json, schema: "id BIGINT, email STRING, a STRUCT<b: STRING>"', form, 1)
    file.write_text(text)
    with pytest.raises(Failure) as refused:
        validate(request)
    found = {str(one.address).removeprefix("flow."): one.summary for one in refused.value.diagnostics}
    assert found.keys() == PROTOBUF_CASES.keys()
    assert {name for name, (*_, why) in PROTOBUF_CASES.items() if why not in found[name]} == set()


def test_descriptors_beyond_the_limits_are_refused_and_spark_takes_those_within(tmp_path: Path) -> None:
    many, deep = "value has more than 5,000 fields", "value has more than 50 messages within one another"
    cases = {"wide": (chain(10, 2), ""), "deep": (chain(49, 1), ""), "deeper": (chain(50, 1), deep)}
    cases["wider"] = (chain(22, 2), many)
    request = written(tmp_path, dict.fromkeys(cases, "where: value.f1.f1 IS NULL\n      drop: [value.f1]"))
    file = tmp_path / "t.yaml"
    text = file.read_text()
    for name, (descriptors, _) in cases.items():
        (tmp_path / f"{name}.desc").write_bytes(base64.b64decode(descriptors.split()[1]))
        form = f"format: protobuf, schema: {{file: {name}.desc, message: M0}}"
        text = text.replace('format: json, schema: "id BIGINT, email STRING, a STRUCT<b: STRING>"', form, 1)
    file.write_text(text)
    with pytest.raises(Failure) as refused:
        validate(request)
    found = {str(one.address).removeprefix("flow."): one.summary for one in refused.value.diagnostics}
    assert found == {
        "deeper": f"value.schema: {deep}",
        "wider": f"value.schema: {many}, with those of its messages",
    }


def test_a_transform_that_spark_takes_is_valid(tmp_path: Path) -> None:
    assert validate(written(tmp_path, {"good": GOOD})).topology.flows["good"].transform is not None


LAKE = """\
endpoints:
  lake: {file: /data/lake, format: %s}
flows:
"""
IN_FILES = """\
  - name: %s
    from: eu
    to: lake
    topics: {include: [t-%s]}
    transform:
      value: {format: json, schema: "%s"}
      %s
"""
FILE_CASES = {  # by the name of a flow: the schema, what its transform says, and what is wrong with it
    "f-nothing": ("id BIGINT", "drop: [value.id]", "value has no field left for the files"),
    "f-inner": ("a STRUCT<b: INT>, c INT", "drop: [value.a.b]", "value.a has no field left for the files"),
    "f-type": (
        "id BIGINT, v VARIANT",
        "where: value.id > 1",
        "value.v is VARIANT, which files have no column for",
    ),
    "f-column": ("id BIGINT", "where: value.emial = 'x'", "[FIELD_NOT_FOUND]"),
}
GOOD_FILES = {
    "f-good": (
        "id INT, n BIGINT, a STRUCT<b: DATE, c: STRING>, m MAP<STRING, ARRAY<DECIMAL(9,2)>>, t TIMESTAMP_NTZ",
        "set: {value.n: value.id, value.a.c: 'NULL'}\n      drop: [value.a.b, value.id]",
    )
}


@pytest.mark.parametrize("form", ["json", "parquet"])
def test_values_that_files_can_not_hold_are_refused(tmp_path: Path, form: str) -> None:
    flows = GOOD_FILES | {name: case[:2] for name, case in FILE_CASES.items()}
    request = written(tmp_path, {})
    text = (tmp_path / "t.yaml").read_text().replace("flows:\n", LAKE % form)
    entries = [IN_FILES % (name, name, *case) for name, case in flows.items()]
    (tmp_path / "t.yaml").write_text(text + "".join(entries))
    with pytest.raises(Failure) as refused:
        validate(request)
    found = {str(one.address).removeprefix("flow."): one.summary for one in refused.value.diagnostics}
    assert found.keys() == FILE_CASES.keys()
    assert {name for name, (*_, why) in FILE_CASES.items() if why not in found[name]} == set()
