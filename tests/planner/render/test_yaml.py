"""A topology as YAML loads as the same topology, whatever is in it, and every key as the same value."""

import tempfile
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from types import MappingProxyType
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from planner.config import load
from planner.config.language.build import CONVERTERS as READERS
from planner.diff.values import FOREVER
from planner.model.topology import (
    Acl,
    AclRule,
    Cluster,
    Drill,
    Flow,
    Job,
    Policies,
    Quota,
    Topic,
    Topology,
)
from planner.render.topology import topology_yaml
from planner.render.yaml import CONVERTERS as WRITERS
from planner.render.yaml import values_of
from runtime.contract.spec.launch import MetricsSpec
from runtime.contract.spec.shapes import RecordShape, record_of
from runtime.contract.spec.topic_settings import InternalSpec
from tests.planner.config.test_properties import placeless

names = st.from_regex(r"[A-Za-z0-9._-]{1,20}", fullmatch=True).filter(lambda name: name not in (".", ".."))
texts = st.text(st.characters(codec="utf-8", exclude_categories=["Cs"]), min_size=1, max_size=30)
configs = st.dictionaries(
    st.sampled_from(["cleanup.policy", "retention.ms", "segment.bytes", "vendor.key", "min.insync.replicas"]),
    st.sampled_from(
        ["compact,delete", "604800000", "-1", "1073741824", "007", "true", "1e3", "{{ x }}", "a: b", FOREVER]
    ),
)
topics = st.builds(
    Topic,
    name=names,
    cluster=st.sampled_from(["dc1", "dc2"]),
    partitions=st.none() | st.integers(1, 3),
    replication=st.none() | st.integers(1, 3),
    config=configs.map(
        lambda config: {
            key: value
            for key, value in config.items()
            if not key.endswith((".ms", ".bytes")) or (value.lstrip("-").isdigit() and value[0] != "0")
        }
    ),
)
rules = st.builds(
    AclRule,
    cluster=st.sampled_from(["dc1", "dc2"]),
    resource_type=st.sampled_from(["TOPIC", "GROUP", "TRANSACTIONAL_ID"]),
    resource=st.sampled_from(["a", "b-", "*"]),
    pattern=st.sampled_from(["LITERAL", "PREFIXED"]),
    principal=st.sampled_from(["User:app", "User:CN=x,O=y", "Group:g h"]),
    host=st.sampled_from(["*", "10.0.0.7"]),
    operation=st.sampled_from(["READ", "WRITE", "ALL"]),
    permission=st.sampled_from(["ALLOW", "DENY"]),
)


# Values of keys, as YAML, beside the example that each key declares.
OF_FLOWS = {
    "topics": ["""{include: ['pay\\..*', 'a-(b|c)', "'x'"], exclude: [x.*], default_exclude: false}"""],
    "restart_from": ["{timestamp: 2026-01-31T08:00:00.001Z}"],
    "rename": ['"{source}.{topic}"', r"{match: 'a-(.*)', to: 'b-\1'}", "{a: b, c: d}"],
    "provenance": ["auto", "batch", "off"],
    "start": ["{timestamp: 1970-01-01T00:00:00Z}", "{offsets: {orders: {0: 42, 7: 0}, a.b: {1: 1}}}"],
    "state": ["promoted", "failed_over"],
    "configs": ["{sync: off}", "{sync: all, exclude: [a.b]}"],
    "groups": [
        "{include: [a], exclude: ['b|c'], default_exclude: false, sync: false, every: 999ms, mode: timestamp}"
    ],
    "acls": ["{sync: true}"],
    "quotas": ["{sync: true}"],
    "rpo": ["1ms", "90s", "1d"],
    "rate_limit": ["1B/s", "1KiB/s"],
    "follow": ["off", "{every: 999ms}"],
    "heartbeats": ["off", "{every: 60s}"],
    "checkpoints": ["off", "{every: 1d}"],
    "origin_commits": ["{every: 9s}", "{group: g}"],
    "on_source_delete": ["delete"],
    "on_data_loss": ["skip"],
    "transform": [
        "{value: {format: json, schema: id BIGINT}, key: {format: text}, drop: [value.b]}",
        "{value: {format: json, schema: id BIGINT}, where: value.id > 1, set: {value.a: upper(value.a)}}",
    ],
}
OF_JOBS = {
    "memory": ["512m"],
    "metrics": ["off", '{host: "::", partitions: 0}'],
    "conf": ["{spark.a: 'yes', spark.b: '1'}"],
    "options": ["{queue: '7', 'x y': a}"],
}
OF_INTERNAL = {
    "retention": ["1ms", "90s"],
    "timestamps": [
        "{retention: 1ms, replication: 2, partitions: 4}",
        "{max_per_partition: 20, retry: 999ms, expiry: 1d}",
    ],
}
FROZEN = """[{name: r, message: 'say "no"', deny: "now > timestamp('2026-01-01T00:00:00Z')"}]"""
OF_POLICIES = {"rules": [FROZEN, "[{name: w, message: m, warn: 'true'}]"]}
LAUNCHERS = ("slots: auto", "launcher: yarn", "launcher: standalone, master: 'spark://h:7077'")


def some_keys(
    declared: type, more: Mapping[str, list[str]] = MappingProxyType({}), *without: str
) -> st.SearchStrategy[str]:
    """Some keys of a record in YAML, each with its own example or another value."""
    keys = {
        key.name: st.sampled_from([key.example, *more.get(key.name, ())])
        for key in record_of(declared).keys
        if key.name not in without
    }
    chosen = st.fixed_dictionaries({}, optional=keys)
    return chosen.map(lambda pairs: ", ".join(f"{name}: {text}" for name, text in pairs.items()))


limits = st.fixed_dictionaries(
    {"request_percentage": st.floats(1e-9, 1e9) | st.integers(1, 10**12)},
    optional={
        "producer_byte_rate": st.sampled_from([1, 1_000, 1_048_576, 64_000_000, 2**63 - 1]),
        "consumer_byte_rate": st.integers(1, 2**63 - 1),
        "controller_mutation_rate": st.sampled_from([1, 0.5, 1e-05]),
    },
)
entities = st.sampled_from(["app", "<default>", "CN=repl,O=shop", "7", "a/b%", "null", "{{ x", "é"])
quotas = st.builds(
    lambda user, client, values: Quota("dc1", user, client, None, **values),
    entities,
    st.none() | entities,
    limits,
)
CLUSTERS = {
    "dc1": Cluster(
        "dc1",
        bootstrap="a:9092,b:9092",
        id="id-1",
        client={"sasl.password": {"env": "P"}, "client.rack": "y"},
    ),
    "dc2": Cluster("dc2", bootstrap="c:9092"),
}


def reloaded(topology: Topology, *comments: list[str]) -> Topology:
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "topology.yaml"
        file.write_text(topology_yaml(topology, *comments), encoding="utf-8")
        return load(file)


@given(
    some_keys(Flow, OF_FLOWS, "name", "from", "to", "reverse_of", "schemas", "every"),
    some_keys(Job, OF_JOBS, "slots", "launcher", "master"),
    st.sampled_from(LAUNCHERS),
    some_keys(InternalSpec, OF_INTERNAL),
    some_keys(Policies, OF_POLICIES),
    some_keys(Drill),
)
def test_a_topology_is_written_so_that_it_loads_as_the_same(
    flow: str, job: str, launcher: str, internal: str, policies: str, drill: str
) -> None:
    topics = "" if "topics: " in flow else "topics: {include: orders}"
    ends = ", ".join(filter(None, ("name: f, from: dc1, to: dc2", topics, flow)))
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "topology.yaml"
        file.write_text(
            "{apiVersion: repl/v1, name: t, clusters: {dc1: {bootstrap: 'a:1'}, dc2: {bootstrap: 'b:1'}},"
            f" flows: [{{{ends}}}], jobs: {{dc2: {{{', '.join(filter(None, (launcher, job)))}}}}},"
            f" internal: {{{internal}}}, policies: {{{policies}}}, drill: {{{drill}}}}}"
        )
        topology = load(file)
    assert placeless(reloaded(topology)) == placeless(topology)


@given(
    st.lists(quotas, unique_by=lambda one: one.entity, max_size=4),
    st.lists(topics, max_size=6, unique_by=lambda one: (one.cluster, one.name)),
    st.sets(rules, max_size=6),
    texts,
)
def test_quotas_topics_and_rules_are_written_so_that_they_load_as_the_same(
    of_dc1: list[Quota], declared: list[Topic], bindings: set[AclRule], comment: str
) -> None:
    of_dc2 = [replace(one, cluster="dc2") for one in of_dc1[:2]]
    addresses = [Quota("dc1", ip="10.0.0.7", connection_creation_rate=5)]
    topology = Topology(
        "t",
        CLUSTERS,
        topics=tuple(declared),
        acls=tuple(Acl(rule) for rule in bindings),
        quotas=(*of_dc1, *of_dc2, *addresses),
    )
    loaded = reloaded(topology, [comment], [comment])
    read_quotas, quotas = (
        {(quota.cluster, quota.entity): placeless(quota) for quota in each.quotas}
        for each in (loaded, topology)
    )
    assert read_quotas == quotas
    assert {one.rule for one in loaded.acls} == bindings
    read = {(one.cluster, one.name): (one.partitions, one.replication, one.config) for one in loaded.topics}
    assert read == {
        (one.cluster, one.name): (one.partitions, one.replication, one.config) for one in declared
    }


@pytest.mark.parametrize(
    ("job", "written"),
    [
        (Job("j"), {}),
        (Job("j", launcher="yarn"), {"launcher": "yarn"}),
        (Job("j", launcher="yarn", master="local[2]"), {"launcher": "yarn", "master": "local[2]"}),
        (Job("j", slots=3, metrics=MetricsSpec(host="::")), {"slots": 3, "metrics": {"host": "::"}}),
    ],
)
def test_a_key_is_left_out_where_its_default_gives_its_value(job: Job, written: dict[str, object]) -> None:
    assert values_of(job) == written


EXAMPLE = Path("planner/config/schema/example.yaml")
FILES = """\
apiVersion: repl/v1
name: files
clusters: {dc1: {bootstrap: "a:9092"}}
topics: [{name: inbox, cluster: dc1, partitions: 2}]
flows:
  - {name: out, from: dc1, to: lake, topics: {include: orders}, start: latest, state: paused}
  - {name: in, from: inbox, to: dc1, topics: {to: inbox}, every: 90s, on_data_loss: skip}
endpoints:
  lake: {file: "/mnt/a b", format: json, layout: "p={partition}/{topic}", size: 1g}
  inbox:
    file: s3a://bucket/a=b/c
    format: parquet
    client: {access.key: {env: KEY}, secret.key: {file: /run/secrets/s3}}
"""


@pytest.mark.parametrize("text", [FILES, EXAMPLE.read_text()], ids=["files", "every key"])
def test_what_is_written_of_a_file_loads_as_the_same(text: str, tmp_path: Path) -> None:
    (tmp_path / "before.yaml").write_text(text)
    before = load(tmp_path / "before.yaml")
    (tmp_path / "again.yaml").write_text(topology_yaml(before))
    again = load(tmp_path / "again.yaml")
    assert placeless(again.file_flows) == placeless(before.file_flows)
    assert placeless(again.endpoints) == placeless(before.endpoints)
    assert again.digest == before.digest


def test_every_converter_that_a_key_names_reads_and_writes() -> None:
    named = {key.converter for record in records(record_of(Topology)) for key in record.keys if key.converter}
    assert named == set(READERS) == set(WRITERS)


def test_every_field_of_a_flow_is_a_key() -> None:
    assert set(Flow.__struct_fields__) - {"source"} == {
        key.field
        for outer in record_of(Flow).keys
        for key in ([outer] if outer.field else records(outer.shape)[0].keys)
    }


def records(shape: Any) -> list[RecordShape]:
    """Returns the records inside a shape, itself first."""
    if isinstance(shape, RecordShape):
        return [shape, *(one for key in shape.keys for one in records(key.shape))]
    inner = [getattr(shape, name, None) for name in ("item", "value", "shape")]
    return [one for part in [*inner, *getattr(shape, "alternatives", ())] if part for one in records(part)]
