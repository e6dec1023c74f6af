"""`repl try` shows what a flow's transform makes of records at the source, and writes nothing."""

import hashlib
import json
import shutil
from base64 import b64encode
from collections.abc import Callable
from pathlib import Path

import pytest
from confluent_kafka.admin import AdminClient

from runtime.lab.lab import Lab
from tests.commands import repl
from tests.protobuf import HERE, number
from tests.protobuf import customer as message
from tests.records import create_topic, write
from tests.topologies import declared, of_flows

pytestmark = pytest.mark.spark

FLOW = """\
apiVersion: repl/v1
name: tests
clusters:
  dc1: {bootstrap: '%s'}
  dc2: {bootstrap: '%s'}
flows:
  - name: f
    from: dc1
    to: dc2
    topics: {include: ['%s.*']}
    transform:
      value: {format: json, schema: "id BIGINT, email STRING, card STRING"}
      where: "100 DIV value.id > 0 AND topic <> '%s'"
      set: {value.email: "sha2(value.email, 256)"}
      drop: [value.card]
      on_bad_record: quarantine
      on_filtered: tombstone
  - name: messages
    from: dc1
    to: dc2
    rename: "messages.{topic}"
    topics: {include: ['%s.*']}
    transform:
      value: {format: protobuf, schema: {file: customer.desc, message: shop.Customer}}
      where: "value.level = 'HIGH'"
      set:
        # This can make a text 61 times as long, so a record of more than 64 MiB / 61 is too large for it.
        value.email: "regexp_replace(upper(value.email), 'Q', '%s')"
      drop: [value.photo]
      on_filtered: tombstone
"""
VALUES = [
    b'{"id": 1, "email": "a@b", "card": "4111", "more": [1.50]}',
    b'{"id": 1000}',
    b'{"id": 0}',
    b'{"id": 2, "ema',
]


@pytest.fixture
def topology(lab: Lab, fresh: Callable[[str], str], tmp_path: Path) -> tuple[Path, str]:
    topic = fresh("tried")
    file = tmp_path / "repl.yaml"
    places = (lab.clusters[name].bootstrap for name in ("dc1", "dc2"))
    file.write_text(FLOW % (*places, topic, f"{topic}-other", topic, "0" * 60))
    shutil.copy(HERE / "customer.desc", tmp_path)
    return file, topic


def test_records_of_the_source_are_shown_before_and_after(topology: tuple[Path, str], lab: Lab) -> None:
    file, topic = topology
    source = dict(lab.clusters["dc1"].client)
    create_topic(source, topic)
    create_topic(source, f"{topic}-other")
    write(source, f"{topic}-other", [b'{"id": 3}'], b"k", 0)
    write(source, f"{topic}-other", [b'{"id": 4}'], None, 0)
    write(source, topic, [b'{"id": 9}', *VALUES], b"k", 0)
    done = repl("try", "f", str(file), "--json", "--limit", "10")
    assert done.returncode == 2, done.stderr
    found = json.loads(done.stdout)
    counts = {"travels": 2, "tombstone": 2, "filtered": 1, "quarantined": 2, "stops": 0}
    assert found["counts"] == counts
    at = {(one["topic"], one["offset"]): one for one in found["records"]}
    assert len(at) == 7
    masked = hashlib.sha256(b"a@b").hexdigest()
    first = at[topic, 1]
    assert first["decision"] == "travels"
    assert first["value"] == {"text": VALUES[0].decode()}
    assert first["after"] == {"text": f'{{"id": 1, "email": "{masked}", "more": [1.50]}}'}
    assert [at[topic, offset]["decision"] for offset in range(2, 5)] == ["tombstone"] + ["quarantined"] * 2
    assert (at[topic, 2]["value"], at[topic, 2]["after"]) == ({"text": VALUES[1].decode()}, None)
    assert at[topic, 3]["why"] == "an expression of the transform fails on it"
    assert "value is not json of this schema" in at[topic, 4]["why"]
    assert [at[f"{topic}-other", offset]["decision"] for offset in (0, 1)] == ["tombstone", "filtered"]
    listed = AdminClient(lab.clusters["dc2"].client).list_topics(timeout=60).topics
    assert not [name for name in listed if name.startswith(topic)]


def test_records_of_a_file_need_no_cluster(topology: tuple[Path, str], tmp_path: Path) -> None:
    """Messages of Protobuf, as `repl read --json` prints records."""
    file, _ = topology
    sample = tmp_path / "sample.json"
    secret = {"id": 300, "email": "ann@example.com", "photo": b"\xff4111", "level": "HIGH"}
    low = message({"id": 301, "level": "LOW"})
    large = message({**secret, "photo": b"x" * 1_200_000})
    values = [message(secret) + number(1_000, 5), low, low, message(secret)[:-1], large]
    keys = [b"k", b"low", None, b"k", b"large"]
    records = [
        {
            "topic": "customers",
            "offset": at,
            "key": {"text": key.decode()} if key is not None else None,
            "value": {"base64": b64encode(value).decode()},
            "headers": [{"name": "name", "value": {"text": "Ann"}}],
        }
        for at, (key, value) in enumerate(zip(keys, values, strict=True))
    ]
    sample.write_text(json.dumps({"records": records}))
    shown = repl("try", "messages", str(file), "--sample", str(sample), "--full")
    assert shown.returncode == 2, shown.stderr
    changed = message({**secret, "email": "ANN@EXAMPLE.COM", "photo": b""}) + number(1_000, 5)
    assert f"after  0x{changed.hex()}" in shown.stdout
    assert f"before 0x{values[0].hex()}" in shown.stdout  # raw values, as the help says
    assert "travels as a tombstone, without its headers: where is not true" in shown.stdout
    assert "does not travel: where is not true" in shown.stdout
    assert "would stop its partition: its value can't be decoded" in shown.stdout
    assert "would stop its partition: an expression of the transform fails on it" in shown.stdout
    assert "5 records of flow.messages" in shown.stdout
    assert "1 travels, 1 tombstone, 1 filtered, 2 bad" in shown.stdout


FIELDS = (
    "id BIGINT, n INT, d DOUBLE, ok BOOLEAN, s STRING, unread STRING, out STRING,"
    " a STRUCT<b: STRING, l: ARRAY<BIGINT>>"
)
SHOWN = "to_json(struct(value.id, value.n, value.d, value.ok, value.s, value.a))"
# The slot reads the fields of the first two flows, and Spark those of the third: of a DATE only Spark knows.
READERS = {
    "fields": (FIELDS, SHOWN),
    "whole": (FIELDS, f"if(value IS NULL, '', {SHOWN})"),
    "spark": (f"{FIELDS}, day DATE", SHOWN),
}
MEMBERS = [
    *(
        b'"id":%s' % one
        for one in (b"1", b"-0", b"1.0", b"1e2", b'"1"', b"true", b"null", b"[]", b"01", b"+1")
    ),
    *(b'"id":%d' % one for one in (2**63 - 1, 2**63, -(2**63), -(2**63) - 1, 10**30)),
    *(b'"n":%d' % one for one in (2**31 - 1, 2**31, -(2**31))),
    *(
        b'"d":%s' % one
        for one in (b"1", b"-0", b"-0.0", b"0.1", b"1e999", b"1e-400", b"NaN", b'"NaN"', b"1.5E3")
    ),
    *(
        b'"d":%s' % one
        for one in (b"9007199254740993", b"123456789012345678901234567890", b"2.2250738585072011e-308")
    ),
    *(b'"ok":%s' % one for one in (b"true", b"false", b"null", b'"true"', b"1", b"tru")),
    *(
        b'"s":%s' % one
        for one in (
            b'"\xc3\xa9\xf0\x9f\x98\x80"',
            b'"\xff"',
            b'"\\u00e9\\/\\n"',
            b'"\\ud83d\\ude00"',
            b'"\\ud800"',
        )
    ),
    *(
        b'"s":%s' % one
        for one in (b'"\\u0000"', b'"\\x"', b'"a\x01"', b"1", b'{"x" : [1, 2.50]}', b"true", b'""')
    ),
    *(b'"unread":%s' % one for one in (b"1", b'{"x":[1]}', b"[1,]", b"NaN", b'"\xff"', b"nul")),
    *(
        b'"a":%s' % one
        for one in (b"{}", b"null", b"1", b"[]", b'{"b":"x","l":[1,null,2]}', b'{"b":1}', b'{"l":[1.5]}')
    ),
    *(b'"a":%s' % one for one in (b'{"b":"1","b":"2"}', b'{"l":1}', b'{"l":[]}', b'{"c":1}')),
    b'"id":1,"id":2',
    b'"id":1,"id":null',
    b'"i\\u0064":7',
    b'"ID":1',
    b'"other":"' + b"x1" * 900 + b'"',
    b'"other":' + b"1" * 1_200,
    b'"other":1.' + b"1" * 1_200,
    b'"d":1.' + b"1" * 1_200,
    b'"other":' + b"[" * 1_100 + b"]" * 1_100,
    b'"other":' + b"[" * 400 + b"]" * 400,
    b"",
    b'"x":1,',
    b"x:1",
    b"'x':1",
    b'"x" : 1 ',
]
VALUES_READ = [
    *(b"{%s}" % one for one in MEMBERS),
    *(b'{"id":5,%s,"s":"y"}' % one for one in MEMBERS),
    *(
        b"[]",
        b"null",
        b"1",
        b'[{"id":1}]',
        b'{"id":1} x',
        b'{"id":1}{"id":2}',
        b' \t{"id":1} ',
        b"{",
        b'{"id":1',
    ),
    b"\xef\xbb\xbf{}",
]


@pytest.mark.long
def test_fields_that_the_slot_reads_are_those_that_spark_reads(
    lab: Lab, fresh: Callable[[str], str], tmp_path: Path
) -> None:
    source = dict(lab.clusters["dc1"].client)
    topic = fresh("read")
    create_topic(source, topic)
    write(source, topic, VALUES_READ, b"k", 0)
    flows = [
        declared(
            name,
            topic,
            rename=f"{name}.{{topic}}",
            transform={
                "value": {"format": "json", "schema": schema},
                "set": {"value.out": shown},
                "on_bad_record": "quarantine",
            },
        )
        for name, (schema, shown) in READERS.items()
    ]
    file = of_flows(lab.clusters, tmp_path, *flows)
    found = {}
    for name in READERS:
        done = repl("try", name, str(file), "--json", "--limit", str(len(VALUES_READ)))
        assert done.returncode == 2, done.stderr
        records = json.loads(done.stdout)["records"]
        found[name] = [(one["offset"], one["decision"], one.get("after")) for one in records]
    assert len(found["spark"]) == len(VALUES_READ)
    for offset, (one, two, three) in enumerate(zip(*found.values(), strict=True)):
        assert one == two == three, VALUES_READ[offset][:200]
