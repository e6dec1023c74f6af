"""A whole topology becomes the model that the rest of the planner works with."""

# ruff: noqa: E501  (the long lines are what a user writes)
from pathlib import Path

import pytest

from planner.config import load
from planner.model.topology import (
    AclRule,
    Flow,
    Job,
    OnRemove,
    Policies,
    Requirement,
    Selection,
)
from runtime.contract.spec.flow import ConfigsSpec, GroupsSpec, OriginCommitsSpec
from runtime.contract.spec.topic_settings import InternalSpec, TimestampsSpec
from tests.planner.config.given import loaded, mistakes

EVERYTHING = Path("planner/config/schema/example.yaml")


def test_everything_once() -> None:
    topology = load(EVERYTHING)
    dc1 = topology.clusters["dc1"]
    assert (topology.name, list(topology.clusters), dc1.id) == (
        "everything",
        ["dc1", "dc2"],
        "5L6g3nShT-eMCtK--X86sw",
    )
    assert dc1.client["sasl.password"] == {"env": "DC1_PASSWORD"}
    assert topology.clusters["dc2"].bootstrap == "127.0.0.1:29092,127.0.0.1:29093"
    assert [
        (one.cluster, one.name, one.partitions, one.protect, one.on_remove) for one in topology.topics
    ] == [
        ("dc1", "ledger", 6, True, OnRemove.DELETE),
        ("dc1", "orders", 12, False, OnRemove.KEEP),
        ("dc2", "ledger", 6, True, OnRemove.DELETE),
    ]
    assert topology.topics[1].config == {"min.insync.replicas": "2", "retention.ms": "604800000"}
    assert [one.rule for one in topology.acls] == [
        AclRule("dc1", "GROUP", "app-", "PREFIXED", "User:app", "*", "READ", "ALLOW"),
        AclRule("dc1", "TOPIC", "orders", "LITERAL", "User:app", "*", "DESCRIBE", "ALLOW"),
        AclRule("dc1", "TOPIC", "orders", "LITERAL", "User:app", "*", "READ", "ALLOW"),
        AclRule("dc2", "GROUP", "app-", "PREFIXED", "User:app", "*", "READ", "ALLOW"),
    ]
    assert [(one.cluster, one.entity.name, one.values) for one in topology.quotas] == [
        ("dc1", "ip/10.0.0.7", {"connection_creation_rate": 20}),
        ("dc1", "user/<default>/client-id/loader", {"controller_mutation_rate": 10}),
        (
            "dc1",
            "user/app",
            {"producer_byte_rate": 10**7, "consumer_byte_rate": 2 * 10**7, "request_percentage": 50},
        ),
        ("dc2", "user/<default>/client-id/loader", {"controller_mutation_rate": 10}),
    ]
    timestamps = TimestampsSpec(
        retention_ms=90 * 86_400_000,
        partitions=4,
        max_per_partition=20,
        retry_ms=60_000,
        expiry_ms=86_400_000,
    )
    assert topology.internal == InternalSpec(replication=3, timestamps=timestamps)
    assert topology.policies.max_deletes == 5
    assert dc1.labels == {"env": "prod", "region": "eu"}
    assert [(one.name, one.deny is None, str(one.source)) for one in topology.policies.rules] == [
        ("no-deletes-on-fridays", False, f"{EVERYTHING}:115:13"),
        ("says-deletes", True, f"{EVERYTHING}:116:61"),
    ]
    assert [(one.subject, one.operator, one.value) for one in topology.policies.require] == [
        ("min.insync.replicas", ">=", "2"),
        ("replication", ">=", "3"),
    ]
    flow = topology.flows["dc1-to-dc2"]
    assert flow.topics == Selection(("orders", r"payments\..*"), (r"payments\.tmp.*",), True)
    assert flow.source is not None
    assert (flow.source.line, flow.source.column) == (36, 11)


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


def test_a_job_that_says_nothing_has_the_models_own_defaults(tmp_path: Path) -> None:
    text = "flows: [{name: f, from: dc1, to: dc2, topics: {include: a}, job: j}]\njobs: {j: {}}\n"
    (job,) = loaded(tmp_path, text).jobs.values()
    assert job == Job("j", source=job.source)
    assert job.source is not None


def test_a_job_says_what_it_wants(tmp_path: Path) -> None:
    text = """
    flows: [{name: f, from: dc1, to: dc2, topics: {include: a}}]
    jobs:
      dc2: {launcher: yarn, slots: 4, memory: 2g, metrics: off, conf: {spark.a: 1, spark.b: on}, options: {queue: q}}
    """
    (job,) = loaded(tmp_path, text).jobs.values()
    assert job == Job(
        "dc2",
        launcher="yarn",
        master="yarn",
        slots=4,
        memory="2g",
        metrics=None,
        conf={"spark.a": "1", "spark.b": "on"},
        options={"queue": "q"},
        source=job.source,
    )


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
