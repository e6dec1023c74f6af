"""A topology as YAML loads as the same topology, whatever is in it."""

from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from planner.config import load
from planner.diff.values import FOREVER
from planner.model.topology import Acl, AclRule, Cluster, Flow, Job, Selection, Topic, Topology
from planner.render.topology import topology_yaml

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


@given(st.lists(topics, max_size=6, min_size=1), st.sets(rules, max_size=8), texts)
@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_what_is_written_loads_as_the_same(
    tmp_path: Path, found: list[Topic], bindings: set[AclRule], comment: str
) -> None:
    unique = {(topic.cluster, topic.name): topic for topic in found}
    topology = Topology(
        "t",
        {name: Cluster(name, f"{name}.example.org:9092") for name in ("dc1", "dc2")},
        tuple(unique.values()),
        tuple(Acl(rule) for rule in bindings),
    )
    file = tmp_path / "topology.yaml"
    file.write_text(topology_yaml(topology, [comment], [comment]))
    loaded = load(file)
    assert {
        (one.cluster, one.name): (one.partitions, one.replication, one.config) for one in loaded.topics
    } == {(one.cluster, one.name): (one.partitions, one.replication, one.config) for one in topology.topics}
    assert {one.rule for one in loaded.acls} == bindings


@pytest.mark.parametrize("file", sorted(HERE.glob("*.yaml")), ids=lambda file: file.stem)
def test_the_examples_come_back_the_same(file: Path, tmp_path: Path) -> None:
    topology = load(file)
    again = tmp_path / "again.yaml"
    again.write_text(topology_yaml(topology))
    assert load(again).digest == topology.digest


@pytest.mark.parametrize(
    ("job", "line"),
    [
        (Job("dc2", metrics_host="0.0.0.0"), 'metrics: {host: "0.0.0.0"}'),
        (Job("dc2", metrics_port=9404), "metrics: {port: 9404}"),
        (Job("dc2", metrics_port=None), "metrics: off"),
    ],
)
def test_a_job_without_a_declared_port_is_written_without_one(tmp_path: Path, job: Job, line: str) -> None:
    clusters = {name: Cluster(name, f"{name}:9092") for name in ("dc1", "dc2")}
    flows = {"f": Flow("f", "dc1", "dc2", Selection(("a",)))}
    text = topology_yaml(Topology("t", clusters=clusters, flows=flows, jobs={"dc2": job}))
    assert line in text
    (tmp_path / "t.yaml").write_text(text)
    loaded = load(tmp_path / "t.yaml").jobs["dc2"]
    assert (loaded.metrics_port, loaded.metrics_host) == (job.metrics_port, job.metrics_host)
