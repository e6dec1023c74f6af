"""Spark's analyzer refuses what a transform may not say, before a plan shows it.

What one expression may hold is in tests/security/test_sql_gate.py.
"""

import base64
import json
import shutil
import socket
from collections.abc import Iterator
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
CHAINS = {"wide": chain(10, 2), "deep": chain(49, 1), "deeper": chain(50, 1), "wider": chain(22, 2)}
OF_JSON = 'json, schema: "id BIGINT, email STRING, a STRUCT<b: STRING>"'
OF_AVRO = "avro, schema: {file: r.avsc}"
ACCEPTED = ""
# By the name of a flow: the format of its values, the rest of its transform, and what is wrong with it.
CASES = {
    "good": (
        OF_JSON,
        """where: value.id > 1 AND headers['h'] IS NULL
      set: {value.email: "sha2(value.email, 256)", value.a.b: 'NULL'}""",
        ACCEPTED,
    ),
    "unknown-column": (OF_JSON, "where: value.emial = 'x'", "(line 1, column 1): [FIELD_NOT_FOUND]"),
    "syntax": (OF_JSON, "where: 'value.email ='", "(line 1, column 14): [PARSE_SYNTAX_ERROR]"),
    "no-condition": (OF_JSON, "where: value.id", 'of type "BIGINT" is not a boolean'),
    "clock": (OF_JSON, "where: timestamp > now()", "(line 1, column 13): the function now is not supported"),
    "set-unknown": (OF_JSON, "set: {value.emial: \"'x'\"}", "the schema has no field value.emial"),
    "set-type": (OF_JSON, "set: {value.email: '1'}", "value.email is STRING, and 1 is INT: cast it"),
    "drop-unknown": (OF_JSON, "drop: [value.a.c]", "the schema has no field value.a.c: value.a has b"),
    "avro-good": (OF_AVRO, "where: value.day > DATE'2020-01-01'\n      drop: [value.email]", ACCEPTED),
    "avro-unknown": (OF_AVRO, "where: value.emial = 'x'", "[FIELD_NOT_FOUND]"),
    "avro-required": (
        OF_AVRO,
        "drop: [value.id]",
        "value.id is neither nullable nor has it a default",
    ),
    "avro-tags": (
        OF_AVRO,
        "set: {value.tags: \"array('x')\"}",
        "value.tags is of a type that can't be set in Avro",
    ),
    "avro-type": (OF_AVRO, "set: {value.email: '1'}", "value.email is STRING, and 1 is INT: cast it"),
}
# The same of messages of Protobuf: the descriptors, the rest of the transform, and what is wrong with it.
MESSAGES = {
    "p-good": (
        "customer.desc",
        """where: value.at > TIMESTAMP'2020-01-01' AND value.amounts['a'] > 1 AND value.home.city <> ''
      drop: [value.email, value.home.street]""",
        ACCEPTED,
    ),
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
LIMITS = {
    "wide": ACCEPTED,
    "deep": ACCEPTED,
    "deeper": "value.schema: value has more than 50 messages within one another",
    "wider": "value.schema: value has more than 5,000 fields, with those of its messages",
}
ATTACKS = {  # what reaches out while Spark analyzes it, and its error; the names are a file, and an address
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
LAKES = ("json", "parquet")
FILES = {  # of flows into files: the schema, what the transform says, and what is wrong with it
    "good": (
        "id INT, n BIGINT, a STRUCT<b: DATE, c: STRING>, m MAP<STRING, ARRAY<DECIMAL(9,2)>>, t TIMESTAMP_NTZ",
        "set: {value.n: value.id, value.a.c: 'NULL'}\n      drop: [value.a.b, value.id]",
        ACCEPTED,
    ),
    "nothing": ("id BIGINT", "drop: [value.id]", "value has no field left for the files"),
    "inner": ("a STRUCT<b: INT>, c INT", "drop: [value.a.b]", "value.a has no field left for the files"),
    "type": (
        "id BIGINT, v VARIANT",
        "where: value.id > 1",
        "value.v is VARIANT, which files have no column for",
    ),
    "column": ("id BIGINT", "where: value.emial = 'x'", "[FIELD_NOT_FOUND]"),
}
WHY = {
    **{name: why for name, (_, _, why) in (CASES | MESSAGES).items()},
    **{name: why for name, (_, why) in ATTACKS.items()},
    **LIMITS,
    **{f"{lake}-{name}": why for lake in LAKES for name, (_, _, why) in FILES.items()},
}


def flows(file: Path, url: str) -> Iterator[str]:
    for name, (form, text, _) in CASES.items():
        yield FLOW % (name, "us", name, form, text)
    for name, (descriptors, text, _) in MESSAGES.items():
        form = f"protobuf, schema: {{file: {descriptors}, message: shop.Customer}}"
        yield FLOW % (name, "us", name, form, text)
    for name in LIMITS:
        form = f"protobuf, schema: {{file: {name}.desc, message: M0}}"
        yield FLOW % (name, "us", name, form, "where: value.f1.f1 IS NULL\n      drop: [value.f1]")
    for name, (text, _) in ATTACKS.items():
        where = json.dumps(text % {"file": file, "url": url})
        yield FLOW % (name, "us", name, OF_JSON, f"where: {where}")
    for lake in LAKES:
        for name, (schema, text, _) in FILES.items():
            yield FLOW % (f"{lake}-{name}", lake, f"{lake}-{name}", f'json, schema: "{schema}"', text)


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
    for name, schema in CHAINS.items():
        (folder / f"{name}.desc").write_bytes(base64.b64decode(schema.split()[1]))
    with pytest.MonkeyPatch.context() as patch, socket.create_server(("127.0.0.1", 0)) as server:
        server.setblocking(False)
        patch.setenv("REPL_PASSWORD", "hunter2")
        file = folder / "t.yaml"
        url = f"http://127.0.0.1:{server.getsockname()[1]}/"
        file.write_text(TOPOLOGY + "".join(flows(folder / "plan.key", url)))
        with pytest.raises(Failure) as refused:
            validate(TopologyRequest(file))
        said = {
            str(diagnostic.address).removeprefix("flow."): diagnostic.summary
            for diagnostic in refused.value.diagnostics
        }
        yield Checked(said, server)


@pytest.mark.parametrize("name", WHY)
def test_each_flow_is_told_what_is_wrong_with_its_transform(checked: Checked, name: str) -> None:
    assert (name in checked.said) == (WHY[name] != ACCEPTED)
    assert WHY[name] in checked.said.get(name, "")


def test_an_attack_reaches_nothing(checked: Checked) -> None:
    with pytest.raises(BlockingIOError):
        checked.server.accept()  # nothing has connected
    assert "hunter2" not in str(checked.said)
    assert "sesame" not in str(checked.said)
