"""Spark's analyzer refuses what a transform may not say, before a plan shows it."""

import base64
import json
import shutil
import socket
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
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
endpoints:
  json: {file: /data/json, format: json}
  parquet: {file: /data/parquet, format: parquet}
jobs:
  at-eu: {}
flows:
"""
FLOW = """\
  - name: %s
    from: eu
    to: %s
    topics: {include: [t-%s]}
    transform:
      value: {format: %s}
      %s
"""
JSON = 'json, schema: "id BIGINT, email STRING, a STRUCT<b: STRING>"'
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


@dataclass
class Checked:
    """Holds by flow what a check said of the transform that it refused, and the server that attacks name."""

    said: dict[str, str]
    server: socket.socket


@pytest.fixture(scope="module")
def checked(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Checked]:
    """All flows in one topology, so that Spark starts once and has to report every mistake."""
    folder = tmp_path_factory.mktemp("check")
    (folder / "plan.key").write_text("open-sesame")
    (folder / "r.avsc").write_text(json.dumps(AVRO))
    for descriptors in ("customer.desc", "alone.desc", "order.desc"):
        shutil.copy(PROTOBUF / descriptors, folder)
    for name, (descriptors, _) in CHAINS.items():
        (folder / f"{name}.desc").write_bytes(base64.b64decode(descriptors.split()[1]))
    with pytest.MonkeyPatch.context() as patch, socket.create_server(("127.0.0.1", 0)) as server:
        server.setblocking(False)
        patch.setenv("REPL_PASSWORD", "hunter2")
        places = {"file": folder / "plan.key", "url": f"http://127.0.0.1:{server.getsockname()[1]}/"}
        file = folder / "t.yaml"
        file.write_text(TOPOLOGY + "".join(flows(places)))
        with pytest.raises(Failure) as refused:
            validate(TopologyRequest(file))
        said = {
            str(diagnostic.address).removeprefix("flow."): diagnostic.summary
            for diagnostic in refused.value.diagnostics
        }
        yield Checked(said, server)


def flows(places: Mapping[str, object]) -> Iterator[str]:
    for name, (text, _) in ({"good": (GOOD, "")} | CASES).items():
        yield FLOW % (name, "us", name, JSON, text)
    for name, (text, _) in ATTACKS.items():
        yield FLOW % (name, "us", name, JSON, f"where: {json.dumps(text % places)}")
    for name, (text, _) in ({"a-good": (GOOD_AVRO, "")} | AVRO_CASES).items():
        yield FLOW % (name, "us", name, "avro, schema: {file: r.avsc}", text)
    for name, (descriptors, text, _) in (
        {"p-good": ("customer.desc", GOOD_MESSAGE, "")} | PROTOBUF_CASES
    ).items():
        form = f"protobuf, schema: {{file: {descriptors}, message: shop.Customer}}"
        yield FLOW % (name, "us", name, form, text)
    for name in CHAINS:
        form = f"protobuf, schema: {{file: {name}.desc, message: M0}}"
        yield FLOW % (name, "us", name, form, "where: value.f1.f1 IS NULL\n      drop: [value.f1]")
    for lake in ("json", "parquet"):
        for name, (schema, text, _) in ({"good": (*GOOD_FILES, "")} | FILE_CASES).items():
            yield FLOW % (f"{lake}-{name}", lake, f"{lake}-{name}", f'json, schema: "{schema}"', text)


def assert_refused(checked: Checked, cases: Mapping[str, str]) -> None:
    """By the name of a flow: what its error says."""
    assert {
        name: checked.said.get(name, "")
        for name, why in cases.items()
        if why not in checked.said.get(name, "")
    } == {}


def test_every_mistake_of_every_flow_is_reported_at_once(checked: Checked) -> None:
    cases = CASES | ATTACKS | AVRO_CASES
    assert_refused(checked, {name: why for name, (*_, why) in cases.items()})
    assert_refused(checked, {name: why for name, (*_, why) in PROTOBUF_CASES.items()})
    names = {f"{lake}-{name}" for lake in ("json", "parquet") for name in FILE_CASES}
    assert checked.said.keys() == cases.keys() | PROTOBUF_CASES.keys() | names | {"deeper", "wider"}


def test_an_attack_reaches_nothing(checked: Checked) -> None:
    assert_refused(checked, {name: why for name, (_, why) in ATTACKS.items()})
    with pytest.raises(BlockingIOError):
        checked.server.accept()  # nothing has connected
    assert "hunter2" not in str(checked.said)
    assert "sesame" not in str(checked.said)


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


GOOD_AVRO = "where: value.day > DATE'2020-01-01'\n      drop: [value.email]"


def test_a_change_that_would_break_the_schema_of_avro_is_refused(checked: Checked) -> None:
    assert_refused(checked, {name: why for name, (_, why) in AVRO_CASES.items()})


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


GOOD_MESSAGE = """where: value.at > TIMESTAMP'2020-01-01' AND value.amounts['a'] > 1 AND value.home.city <> ''
      drop: [value.email, value.home.street]"""


def test_a_change_that_would_break_a_message_of_protobuf_is_refused(checked: Checked) -> None:
    assert_refused(checked, {name: why for name, (*_, why) in PROTOBUF_CASES.items()})


TOO_MANY = "value has more than 5,000 fields"
TOO_DEEP = "value has more than 50 messages within one another"
CHAINS = {  # by the name of a flow: its descriptors, and what is wrong with them
    "wide": (chain(10, 2), ""),
    "deep": (chain(49, 1), ""),
    "deeper": (chain(50, 1), f"value.schema: {TOO_DEEP}"),
    "wider": (chain(22, 2), f"value.schema: {TOO_MANY}, with those of its messages"),
}


def test_descriptors_beyond_the_limits_are_refused_and_spark_takes_those_within(checked: Checked) -> None:
    assert {name: checked.said.get(name, "") for name in CHAINS} == {
        name: why for name, (_, why) in CHAINS.items()
    }


FILE_CASES = {  # by the name of a flow: the schema, what its transform says, and what is wrong with it
    "nothing": ("id BIGINT", "drop: [value.id]", "value has no field left for the files"),
    "inner": ("a STRUCT<b: INT>, c INT", "drop: [value.a.b]", "value.a has no field left for the files"),
    "type": (
        "id BIGINT, v VARIANT",
        "where: value.id > 1",
        "value.v is VARIANT, which files have no column for",
    ),
    "column": ("id BIGINT", "where: value.emial = 'x'", "[FIELD_NOT_FOUND]"),
}
GOOD_FILES = (
    "id INT, n BIGINT, a STRUCT<b: DATE, c: STRING>, m MAP<STRING, ARRAY<DECIMAL(9,2)>>, t TIMESTAMP_NTZ",
    "set: {value.n: value.id, value.a.c: 'NULL'}\n      drop: [value.a.b, value.id]",
)


@pytest.mark.parametrize("lake", ["json", "parquet"])
def test_values_that_files_can_not_hold_are_refused(checked: Checked, lake: str) -> None:
    assert_refused(checked, {f"{lake}-{name}": why for name, (*_, why) in FILE_CASES.items()})
