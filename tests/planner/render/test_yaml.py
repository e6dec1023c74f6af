"""A topology as YAML loads as the same topology, whatever is in it, and every key as the same value."""

import tempfile
from dataclasses import replace
from pathlib import Path
from typing import Any, get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import Struct, structs

from planner.config import load
from planner.config.language.build import CONVERTERS as READERS
from planner.diff.values import FOREVER
from planner.model.topology import (
    Acl,
    AclRule,
    Cluster,
    Drill,
    DrillSample,
    Flow,
    Job,
    Policies,
    Provenance,
    Quota,
    Requirement,
    Rule,
    Selection,
    Topic,
    Topology,
)
from planner.render.topology import topology_yaml
from planner.render.yaml import CONVERTERS as WRITERS
from planner.render.yaml import values_of
from runtime.contract.spec.flow import (
    AtOffsets,
    AtTimestamp,
    ConfigsSpec,
    Earliest,
    FlowState,
    GroupsSpec,
    Latest,
    OriginCommitsSpec,
)
from runtime.contract.spec.launch import MetricsSpec
from runtime.contract.spec.rename import Match, Table, Template
from runtime.contract.spec.shapes import RecordShape, record_of
from runtime.contract.spec.topic_settings import InternalSpec, TimestampsSpec
from runtime.contract.spec.transform import FormatSpec, TransformSpec

HERE = Path(__file__).resolve().parents[3] / "plans" / "examples"
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


some_regexes = st.sampled_from([("orders",), (r"pay\..*", "a-(b|c)"), ("'x'",)])
regexes = st.just(()) | some_regexes
intervals = st.sampled_from([1, 999, 1_000, 5_000, 60_000, 86_400_000])
settings_of_spark = st.sampled_from([{}, {"spark.a": "1"}, {"spark.a": "yes", "spark.b": "{{ x"}])
starts = (
    st.sampled_from([Earliest(), Latest()])
    | st.integers(0, 2_000_000_000_000).map(AtTimestamp)
    | st.just(AtOffsets({"orders": {0: 42, 7: 0}, "a.b": {1: 1}}))
)
renames = st.sampled_from(
    [
        Template("{topic}"),
        Template("{source}.{topic}"),
        Match("a-(.*)", "b-\\1"),
        Table({"a": "b", "c": "d"}),
    ]
)
groups = st.builds(
    GroupsSpec,
    include=regexes,
    exclude=regexes,
    default_exclude=st.booleans(),
    sync=st.booleans(),
    every_ms=intervals,
    mode=st.sampled_from(["exact", "timestamp"]),
)
formats = st.just(FormatSpec()) | st.builds(
    FormatSpec, format=st.just("json"), schema=st.just("id BIGINT, a STRING, b STRING")
)
transforms = st.builds(
    TransformSpec,
    value=st.builds(FormatSpec, format=st.just("json"), schema=st.just("id BIGINT, a STRING")),
    key=formats,
    where=st.just("value.id > 1"),
    set=st.sampled_from([{}, {"value.a": "upper(value.a)"}]),
    drop=st.sampled_from([(), ("value.b",)]),
)
flows = st.builds(
    Flow,
    name=st.sampled_from(["f", "g-1"]),
    source_cluster=st.just("dc1"),
    destination_cluster=st.just("dc2"),
    topics=st.builds(Selection, include=some_regexes, exclude=regexes, default_exclude=st.booleans()),
    promoted=regexes,
    restart_from=st.none() | starts,
    rename=renames,
    provenance=st.sampled_from(get_args(Provenance)),
    start=starts,
    state=st.sampled_from(get_args(FlowState)),
    configs=st.builds(
        ConfigsSpec, sync=st.sampled_from(["off", "set", "all"]), exclude=st.sampled_from([(), ("a.b",)])
    ),
    groups=groups,
    acls_sync=st.booleans(),
    quotas_sync=st.booleans(),
    replication=st.none() | st.integers(1, 5),
    protect=st.sampled_from(["off", "acl"]),
    rpo_ms=st.none() | intervals,
    rate_limit=st.none() | st.sampled_from([1, 1_000, 1_024, 50_000_000]),
    follow_every_ms=st.none() | intervals,
    heartbeats_every_ms=st.none() | intervals,
    checkpoints_every_ms=st.none() | intervals,
    origin_commits=st.none()
    | st.builds(OriginCommitsSpec, group=st.sampled_from(["", "g"]), every_ms=intervals),
    on_source_delete=st.sampled_from(["keep", "delete"]),
    on_data_loss=st.sampled_from(["stop", "skip"]),
    transform=st.none() | transforms,
    every_ms=st.none(),
    job=st.sampled_from(["", "other"]),
)
jobs = st.builds(
    Job,
    name=st.just("other"),
    launcher=st.sampled_from(["local", "yarn"]),
    master=st.just(""),
    slots=st.sampled_from(["auto", 3]),
    memory=st.sampled_from(["1g", "512m"]),
    metrics=st.none()
    | st.builds(
        MetricsSpec,
        port=st.sampled_from([9404, 9405]),
        host=st.sampled_from(["127.0.0.1", "::"]),
        partitions=st.sampled_from([2_000, 0]),
    ),
    conf=settings_of_spark,
    options=st.dictionaries(st.sampled_from(["queue", "x y"]), st.sampled_from(["7", "a"])),
)
internals = st.builds(
    InternalSpec,
    replication=st.none() | st.just(3),
    retention_ms=intervals,
    timestamps=st.builds(
        TimestampsSpec,
        retention_ms=st.none() | intervals,
        replication=st.none() | st.just(2),
        partitions=st.sampled_from([1, 4]),
        max_per_partition=st.sampled_from([10, 20]),
        retry_ms=st.none() | intervals,
        expiry_ms=st.none() | intervals,
    ),
)
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
RULES = (
    Rule("r", 'say "no"', deny="plan.changed && now > timestamp('2026-01-01T00:00:00Z')"),
    Rule("w", "m", warn="true"),
)
policies = st.sampled_from([Policies(), Policies(0, (Requirement("replication", ">=", "3"),), RULES)])
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


def without_places(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: without_places(one) for name, one in value.items()}
    if isinstance(value, tuple):
        return tuple(without_places(one) for one in value)
    if not hasattr(value, "source"):
        return value
    return (structs.replace if isinstance(value, Struct) else replace)(value, source=None)


@given(
    flows,
    st.none() | jobs,
    internals,
    policies,
    st.builds(
        Drill,
        st.none() | intervals,
        st.none() | intervals,
        st.none() | st.integers(0, 9),
        samples=st.sampled_from([(), (DrillSample(r"pay\..*", "a/b.jsonl"),)]),
    ),
)
def test_a_topology_is_written_so_that_it_loads_as_the_same(flow, job, internal, limits, drill) -> None:
    flow = structs.replace(flow, job="other" if job is not None else "dc2")
    topology = Topology(
        "t",
        CLUSTERS,
        flows={flow.name: flow},
        jobs={job.name: job} if job else {},
        internal=internal,
        policies=limits,
        drill=drill,
    )
    loaded = reloaded(topology)
    assert without_places(loaded.flows) == topology.flows
    assert without_places(loaded.jobs) == (topology.jobs or {"dc2": Job("dc2")})
    assert without_places(loaded.clusters) == topology.clusters
    assert replace(loaded.drill, samples=without_places(loaded.drill.samples)) == drill
    assert (loaded.internal, without_places(loaded.policies.require)) == (internal, limits.require)
    assert without_places(loaded.policies.rules) == limits.rules


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
    assert set(without_places(loaded.quotas)) == set(topology.quotas)
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


@pytest.mark.parametrize(
    ("job", "line"),
    [
        (Job("dc2", metrics=MetricsSpec(host="0.0.0.0")), 'metrics: {host: "0.0.0.0"}'),
        (Job("dc2", metrics=MetricsSpec(port=9404)), "metrics: {port: 9404}"),
        (Job("dc2", metrics=None), "metrics: off"),
    ],
)
def test_metrics_are_written_as_they_were_declared(job: Job, line: str) -> None:
    flows = {"f": Flow("f", "dc1", "dc2", Selection(("a",)))}
    topology = Topology("t", CLUSTERS, flows=flows, jobs={"dc2": job})
    assert line in topology_yaml(topology)
    assert reloaded(topology).jobs["dc2"].metrics == job.metrics


EXAMPLES = [HERE.parents[1] / "planner" / "config" / "schema" / "example.yaml", *sorted(HERE.glob("*.yaml"))]
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


def comes_back(file: Path, folder: Path) -> None:
    (folder / "again.yaml").write_text(topology_yaml(load(file)))
    again, before = load(folder / "again.yaml"), load(file)
    assert without_places(again.file_flows) == without_places(before.file_flows)
    assert without_places(again.endpoints) == without_places(before.endpoints)
    assert again.digest == before.digest


@pytest.mark.parametrize("file", EXAMPLES, ids=lambda file: file.stem)
def test_the_examples_come_back_the_same(file: Path, tmp_path: Path) -> None:
    comes_back(file, tmp_path)


def test_flows_into_files_and_from_files_come_back_the_same(tmp_path: Path) -> None:
    (tmp_path / "files.yaml").write_text(FILES)
    comes_back(tmp_path / "files.yaml", tmp_path)


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
