"""Spark's analyzer refuses what a transform may not say, before a plan shows it.

What one expression may hold is in tests/security/test_sql_gate.py.
"""

import base64
import json
import shutil
from collections.abc import Iterator
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
CHAINS = {"wide": chain(10, 2), "deep": chain(49, 1)}  # as large as a schema may be
OF_JSON = 'json, schema: "id BIGINT, email STRING, a STRUCT<b: STRING>"'
OF_AVRO = "avro, schema: {file: r.avsc}"
OF_PROTOBUF = "protobuf, schema: {file: customer.desc, message: shop.Customer}"
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
    "avro-type": (OF_AVRO, "set: {value.email: '1'}", "value.email is STRING, and 1 is INT: cast it"),
    "p-good": (
        OF_PROTOBUF,
        """where: value.at > TIMESTAMP'2020-01-01' AND value.amounts['a'] > 1 AND value.home.city <> ''
      drop: [value.email, value.home.street]""",
        ACCEPTED,
    ),
    "p-unknown": (OF_PROTOBUF, "where: value.emial = 'x'", "[FIELD_NOT_FOUND]"),
    "p-presence": (OF_PROTOBUF, "where: value.phone + 1", "of type"),
    "p-type": (
        OF_PROTOBUF,
        "set: {value.spent: \"'x'\"}",
        "value.spent is DECIMAL(20,0), and 'x' is STRING",
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
    **{name: why for name, (_, _, why) in CASES.items()},
    **dict.fromkeys(CHAINS, ACCEPTED),
    **{f"{lake}-{name}": why for lake in LAKES for name, (_, _, why) in FILES.items()},
}


def flows() -> Iterator[str]:
    for name, (form, text, _) in CASES.items():
        yield FLOW % (name, "us", name, form, text)
    for name in CHAINS:
        form = f"protobuf, schema: {{file: {name}.desc, message: M0}}"
        yield FLOW % (name, "us", name, form, "where: value.f1.f1 IS NULL\n      drop: [value.f1]")
    for lake in LAKES:
        for name, (schema, text, _) in FILES.items():
            yield FLOW % (f"{lake}-{name}", lake, f"{lake}-{name}", f'json, schema: "{schema}"', text)


@pytest.fixture(scope="module")
def refused(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """What a check says of each flow that it refuses.

    All flows are in one topology, so that Spark starts once and has to report every mistake.
    """
    folder = tmp_path_factory.mktemp("check")
    (folder / "r.avsc").write_text(json.dumps(AVRO))
    shutil.copy(PROTOBUF / "customer.desc", folder)
    for name, schema in CHAINS.items():
        (folder / f"{name}.desc").write_bytes(base64.b64decode(schema.split()[1]))
    file = folder / "t.yaml"
    file.write_text(TOPOLOGY + "".join(flows()))
    with pytest.raises(Failure) as failure:
        validate(TopologyRequest(file))
    return {
        str(diagnostic.address).removeprefix("flow."): diagnostic.summary
        for diagnostic in failure.value.diagnostics
    }


@pytest.mark.parametrize("name", WHY)
def test_each_flow_is_told_what_is_wrong_with_its_transform(refused: dict[str, str], name: str) -> None:
    assert (name in refused) == (WHY[name] != ACCEPTED)
    assert WHY[name] in refused.get(name, "")
