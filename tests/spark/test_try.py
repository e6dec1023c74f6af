"""`repl try` shows what a flow's transform makes of records at the source, and writes nothing."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from confluent_kafka.admin import AdminClient

from runtime.lab.lab import Lab
from tests.commands import repl
from tests.records import create_topic, write

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
    file.write_text(FLOW % (*places, topic, f"{topic}-other"))
    return file, topic


def test_records_of_the_source_are_shown_before_and_after(topology: tuple[Path, str], lab: Lab) -> None:
    file, topic = topology
    source = dict(lab.clusters["dc1"].client)
    create_topic(source, topic)
    create_topic(source, f"{topic}-other")
    write(source, f"{topic}-other", [b'{"id": 3}'], b"k", 0)
    write(source, topic, [b'{"id": 9}', *VALUES], b"k", 0)
    done = repl("try", "f", str(file), "--json", "--limit", "10")
    assert done.returncode == 2, done.stderr
    found = json.loads(done.stdout)
    assert found["counts"] == {"travels": 2, "filtered": 2, "quarantined": 2, "stops": 0}
    at = {(one["topic"], one["offset"]): one for one in found["records"]}
    assert len(at) == 6
    masked = "fb98d44ad7501a959f3f4f4a3f004fe2d9e581ea6207e218c4b02c08a4d75adf"
    first = at[topic, 1]
    assert first["decision"] == "travels"
    assert first["value"] == {"text": VALUES[0].decode()}
    assert first["after"] == {"text": f'{{"id": 1, "email": "{masked}", "more": [1.50]}}'}
    assert [at[topic, offset]["decision"] for offset in range(2, 5)] == ["filtered"] + ["quarantined"] * 2
    assert at[topic, 3]["why"] == "an expression of the transform fails on it"
    assert "value is not json of this schema" in at[topic, 4]["why"]
    assert at[f"{topic}-other", 0]["decision"] == "filtered"
    listed = AdminClient(lab.clusters["dc2"].client).list_topics(timeout=60).topics
    assert not [name for name in listed if name.startswith(topic)]


def test_records_of_a_file_need_no_cluster(topology: tuple[Path, str], tmp_path: Path) -> None:
    file, _ = topology
    sample = tmp_path / "sample.txt"
    sample.write_bytes(b"\n".join(VALUES[:2]))
    shown = repl("try", "f", str(file), "--sample", str(sample))
    assert shown.returncode == 0, shown.stderr
    assert "does not travel: where is not true" in shown.stdout
    assert "1 travels, 1 filtered" in shown.stdout
    assert "4111" in shown.stdout  # as the help says


def test_a_transform_that_spark_refuses_is_named(topology: tuple[Path, str], tmp_path: Path) -> None:
    file, _ = topology
    file.write_text(file.read_text().replace("value.id > 0", "value.idd > 0"))
    sample = tmp_path / "sample.txt"
    sample.write_bytes(VALUES[0])
    done = repl("try", "f", str(file), "--sample", str(sample))
    assert done.returncode == 1
    assert "`idd`" in done.stderr
    assert "Traceback" not in done.stderr
