"""A whole topology becomes the model that the rest of the planner works with."""

# ruff: noqa: E501  (the long lines are what a user writes)
from pathlib import Path

import pytest

from planner.model.topology import Flow, Job, Policies, Requirement, Selection
from runtime.contract.spec.flow import ConfigsSpec, GroupsSpec, OriginCommitsSpec
from tests.planner.config.given import loaded, mistakes


def test_a_flow_that_says_nothing_has_the_models_own_defaults(tmp_path: Path) -> None:
    """The language's defaults and the model's are the same."""
    topology = loaded(tmp_path, "flows: [{name: f, from: dc1, to: dc2, topics: {include: a}}]\n")
    flow = topology.flows["f"]
    assert flow == Flow(
        name="f",
        source_cluster="dc1",
        destination_cluster="dc2",
        topics=Selection(("a",)),
        job="dc2",
        origin_commits=OriginCommitsSpec("repl.f"),
        source=flow.source,
    )
    assert topology.jobs == {"dc2": Job("dc2")}
    assert topology.policies == Policies()


def test_defaults_are_inherited_key_by_key(tmp_path: Path) -> None:
    topology = loaded(
        tmp_path,
        """
        defaults:
          topic: {partitions: 6, protect: true, config: {retention.ms: 1d, segment.ms: 1h}}
          flow: {groups: {every: 9s, mode: timestamp}, heartbeats: off, state: paused, configs: {exclude: x.y}}
        topics:
          - {name: a, cluster: dc1, config: {retention.ms: 2d}}
          - {name: b, cluster: dc1, partitions: 1, protect: false}
        flows:
          - {name: f, from: dc1, to: dc2, topics: {include: a}, groups: {mode: exact}, heartbeats: {every: 2s}}
          - {name: g, from: dc1, to: dc2, topics: {include: b}, state: active, provenance: off, configs: {sync: all}}
        """,
    )
    a, b = topology.topics
    assert (a.partitions, a.protect, a.config) == (
        6,
        True,
        {"retention.ms": "172800000", "segment.ms": "3600000"},
    )
    assert (b.partitions, b.protect, b.config["retention.ms"]) == (1, False, "86400000")
    f, g = topology.flows["f"], topology.flows["g"]
    assert f.groups == GroupsSpec(every_ms=9_000)
    assert (f.heartbeats_every_ms, g.heartbeats_every_ms) == (2_000, None)
    assert (f.state, g.state, g.provenance) == ("paused", "active", "off")
    assert (f.configs, g.configs.sync) == (ConfigsSpec(exclude=("x.y",)), "all")


def test_every_kind_of_acl(tmp_path: Path) -> None:
    topology = loaded(
        tmp_path,
        """
        acls:
          - {cluster: dc1, principal: "User:a", allow: idempotent_write, whole_cluster: true, prefixed: true}
          - {cluster: dc1, principal: "User:a", deny: ALL, transactional_id: x, host: 10.0.0.7}
          - {cluster: dc1, principal: "User:a", allow: DESCRIBE, delegation_token: "*"}
          - {cluster: dc1, principal: "User:a", allow: CREATE_TOKENS, user: "User:b"}
        """,
    )
    assert [one.rule.name for one in topology.acls] == [
        "allow.User:a.IDEMPOTENT_WRITE.cluster.kafka-cluster",
        "allow.User:a.DESCRIBE.delegation_token.*",
        "deny.User:a@10.0.0.7.ALL.transactional_id.x",
        "allow.User:a.CREATE_TOKENS.user.User:b",
    ]


def test_requirements_compare_in_kafkas_units(tmp_path: Path) -> None:
    text = "topics: [{name: a, cluster: dc1}]\npolicies: {require: {retention.ms: '<= 7d', partitions: 3}}\n"
    partitions, retention = loaded(tmp_path, text).policies.require
    assert partitions == Requirement("partitions", "==", "3", partitions.source)
    assert retention == Requirement("retention.ms", "<=", "604800000", retention.source)


def test_the_digest_tells_topologies_apart(tmp_path: Path) -> None:
    text = "topics: [{name: a, cluster: dc1, config: {retention.ms: %s}}]\n"
    same = {loaded(tmp_path, text % value).digest for value in ("7d", "1w", "604800000", "'7d'")}
    other = {loaded(tmp_path, text % value).digest for value in ("8d", "7d, segment.ms: 1")}
    assert (len(same), len(other), len(same | other)) == (1, 2, 3)


F = "name: f, from: dc1, to: dc2, topics: {include: a}"


@pytest.mark.parametrize(
    ("first", "second", "collide"),
    [
        ("metrics: {port: 9404}", "metrics: {port: 9404}", True),
        ("metrics: {port: 9404}", "metrics: {port: 9404, host: 127.0.0.1}", True),
        ('metrics: {port: 9404, host: "0.0.0.0"}', "metrics: {port: 9404, host: 10.0.0.1}", True),
        ('metrics: {port: 9404, host: "::"}', "metrics: {port: 9404}", True),
        ("metrics: {port: 9404, host: 10.0.0.1}", "metrics: {port: 9404, host: 10.0.0.2}", False),
        ("metrics: {port: 9404}", "metrics: {port: 9405}", False),
        ("metrics: {port: 9404}", "metrics: {host: 127.0.0.1}", False),
        ("metrics: off", "metrics: off", False),
        ("memory: 1g", "memory: 2g", False),
        ("metrics: {port: 9404}", "launcher: yarn, metrics: {port: 9404}", False),
    ],
)
def test_jobs_of_the_local_launcher_declare_ports_of_their_own(
    tmp_path: Path, first: str, second: str, collide: bool
) -> None:
    flows = f"flows: [{{{F}}}, {{{F.replace('f', 'g', 1)}, job: other}}]\n"
    found = mistakes(tmp_path, f"{flows}jobs:\n  dc2: {{{first}}}\n  other: {{{second}}}\n")
    assert ["metrics port 9404" in one for one in found] == ([True] if collide else [])
