"""The loader, the JSON Schema and the reference say the same: they come from one set of definitions."""

import json
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import yaml
from jsonschema import Draft202012Validator

from planner.config import load
from planner.config.language.reader import ShapeReader
from planner.config.schema import json_schema, reference
from planner.config.schema.publish import _records, default_text, example_value
from planner.config.variables import python_value
from planner.config.yaml_tree import documents
from planner.model.topology import Topology
from runtime.contract.spec.shapes import ABSENT, Key, RecordShape, record_of

TOPOLOGY = record_of(Topology)
HERE = Path("planner/config/schema")
FILES = [HERE / "example.yaml", HERE / "starter.yaml", *Path("plans/examples").glob("*.yaml")]
TOPOLOGIES = {path.name: path for path in FILES}
RECORDS = {record.name: record for record in _records(TOPOLOGY)}
KEYS = {f"{record.name}.{key.name}": (record, key) for record in RECORDS.values() for key in record.keys}


@cache
def schema() -> dict[str, Any]:
    return json_schema()


def refusals(value: object) -> list[str]:
    return [one.message for one in Draft202012Validator(schema()).iter_errors(value)]


def published(record: RecordShape, key: Key) -> dict[str, Any]:
    home = schema() if record is TOPOLOGY else schema()["$defs"][record.name]
    part: dict[str, Any] = home["properties"][key.name]
    return part


def refusals_of(record: RecordShape, key: Key, value: object) -> list[str]:
    part = {**published(record, key), "$defs": schema()["$defs"]}
    return [one.message for one in Draft202012Validator(part).iter_errors(value)]


def as_editors_see(text: str, version: str) -> Any:
    """A document as readers of YAML 1.2 and of 1.1 give it to a schema."""
    if version == "1.2":
        return python_value(documents(text, "t.yaml")[0][0])
    return json.loads(json.dumps(yaml.safe_load(text), default=lambda when: when.isoformat()))


@pytest.mark.parametrize("name", TOPOLOGIES)
@pytest.mark.parametrize("version", ["1.1", "1.2"])
def test_what_the_loader_takes_the_schema_takes(name: str, version: str) -> None:
    path = TOPOLOGIES[name]
    load(path)
    assert refusals(as_editors_see(path.read_text(encoding="utf-8"), version)) == []


@pytest.mark.parametrize("name", KEYS)
def test_every_example_and_default_is_right_in_all_three(name: str) -> None:
    record, key = KEYS[name]
    assert key.doc.endswith(".")
    assert key.example
    assert refusals_of(record, key, example_value(key.example)) == []
    reader = ShapeReader()
    (node,), _ = documents(key.example, "example")
    reader.read(key.shape, node, key.name)
    assert reader.diagnostics == []
    if key.default is not ABSENT:
        (default,), _ = documents(default_text(key), "default")
        reader.read(key.shape, default, key.name)
        assert reader.diagnostics == []
        assert refusals_of(record, key, python_value(default)) == []
        assert refusals_of(record, key, published(record, key)["default"]) == []
    assert any(f"| `{key.name}`" in page for page in reference().values())


@pytest.mark.parametrize("name", reference())
def test_the_documented_pages_are_the_generated_ones(name: str) -> None:
    assert Path("docs", name).read_text(encoding="utf-8") == reference()[name], "run: make docs"


def test_no_description_has_a_link_that_leads_nowhere_in_an_editor() -> None:
    assert "](" not in json.dumps(json_schema())


def test_the_example_holds_every_key_of_a_flow_but_the_ones_for_failing_back() -> None:
    example = as_editors_see((HERE / "example.yaml").read_text(encoding="utf-8"), "1.2")
    written = {key for flow in example["flows"] for key in flow}
    assert set(RECORDS["flow"].by_name) - written == {"reverse_of", "restart_from"}
    assert set(TOPOLOGY.by_name) == set(example)


WRONG: dict[str, list[Any]] = {
    "topic.partitions": [0, "six", "6", 1.5, [3]],
    "topic.name": ["a b", "", "..", "__repl.x", "x" * 250],
    "topic.on_remove": ["drop", False],
    "topic.protect": ["'yes'", 3],
    "topic.config": [["a"], "retention.ms", {"a": {"b": "c"}}, {"a b": 1}],
    "flow.rpo": ["5", 5, "5x", "5 days"],
    "flow.rate_limit": ["50MB", "50mb/s", 50],
    "flow.provenance": ["on", True, "header"],
    "flow.follow": ["5s", {"evry": "5s"}, {"every": 5}, True],
    "flow.start": ["first", {"timestamp": "2026-01-01"}, {"offset": {}}, {"offsets": {"a": {"x": 1}}}],
    "flow.rename": [{"a": "b/c"}, ["a"]],
    "flow.topics": [["a"], {}, {"include": []}, {"include": "a", "exclud": "b"}],
    "flow.name": ["a b", "-a", ""],
    "job.launcher": ["spark"],
    "job.slots": [0, "many"],
    "job.memory": ["lots", 1],
    "job.metrics": [9404, {"port": 0}, {"port": 70_000}, {"partitions": -1}],
    "job.conf": [{"executor": 1}],
    "cluster.bootstrap": ["kafka", "kafka:", [], {}],
    "cluster.client": [{"sasl.password": {"var": "P"}}, {"sasl.password": {"env": "P", "file": "f"}}],
    "acl.principal": ["app", "User:"],
    "acl.allow": ["REED", []],
    "quota.user": ["User:app", ""],
    "quota.producer_byte_rate": [1048576, "10MB", "0B/s x"],
    "quota.request_percentage": [0, -1, "50", "half"],
    "quota.connection_creation_rate": [0, 1.5],
    "policies.max_deletes": [-1, "none"],
    "policies.require": [{"replication": "=>3"}],
    "topology.clusters": [{}, {"dc.1": {"bootstrap": "a:1"}}, {"dc1": {}}, []],
    "topology.flows": [{}, [{"name": "f"}]],
}


@pytest.mark.parametrize("name", WRONG)
def test_what_the_schema_refuses_the_loader_refuses(name: str) -> None:
    record, key = KEYS[name]
    for value in WRONG[name]:
        assert refusals_of(record, key, value), value
        reader = ShapeReader()
        (node,), _ = documents(json.dumps(value), "t.yaml")
        reader.read(key.shape, node, key.name)
        assert reader.diagnostics, value


def test_a_file_of_a_folder_need_not_have_everything() -> None:
    assert refusals({"topics": [{"name": "a", "cluster": "dc1"}]}) == []
