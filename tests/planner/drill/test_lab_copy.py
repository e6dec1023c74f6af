"""PURE: what a topology becomes on lab clusters, and what the report says about it."""

import re
from pathlib import Path
from typing import Any

import pytest

from planner.config import load
from planner.drill.lab_copy import (
    client_of,
    cluster_copies,
    login_variables,
    needs_authorizer,
    scaled_down,
)
from planner.model.diagnostic import Failure
from planner.model.topology import Topology
from planner.model.topology.root import KAFKA_VERSION as VERSION_SHAPE
from planner.render.topology import topology_yaml
from runtime.lab.cluster import KAFKA_VERSION, OLDEST, SCRAM, Security
from tests.fakes.tables import cases
from tests.topologies import without_answer

RULE = {"cluster": "tokyo", "principal": "User:app", "allow": ["READ"], "topic": "orders"}


def topology(folder: Path, *, paris: Any = None, flow: Any = None, **more: Any) -> Topology:
    topics = {"topics": {"include": ["orders"]}, "replication": 3}
    orders = {"name": "orders", "from": "paris", "to": "tokyo", **topics, **(flow or {})}
    clusters = {"paris": {"bootstrap": "paris:9092", **(paris or {})}, "tokyo": {"bootstrap": "tokyo:9092"}}
    body = {"clusters": clusters, "flows": [orders], **more}
    return load(without_answer(folder, "topology", **body).parent)


CERTIFICATE = {"ssl.certificate.location": "/app.crt", "ssl.key.location": "/app.key"}
BY_NAME = {"sasl.username": "app", "sasl.password": {"env": "SECRET"}}


PEM: dict[str, Any] = {"ssl.certificate.pem": {"env": "CERTIFICATE"}, "ssl.key.pem": {"env": "KEY"}}


def client(protocol: str, mechanism: str = "", **more: Any) -> dict[str, Any]:
    """How a cluster is reached; a login by name has its credentials."""
    named = BY_NAME if "SASL" in protocol.upper() else {}
    return {
        "security.protocol": protocol,
        **({"sasl.mechanism": mechanism} if mechanism else {}),
        **named,
        **more,
    }


OTHER_KEY = {"sasl.mechanisms": "plain"}
OAUTH = client("SASL_SSL", "OAUTHBEARER", **{"sasl.oauthbearer.config": "p"})
NO_TLS = "no TLS, because Kafka 3.2.3 can't read the keys of the lab"
NO_OAUTH = "SCRAM-SHA-512 in place of OAUTHBEARER, which the lab does not have"
NO_KERBEROS = "SCRAM-SHA-512 in place of GSSAPI, which the lab does not have"
BOTH, BY_SCRAM = client("SASL_SSL", "PLAIN", **CERTIFICATE), client("SASL_SSL", "SCRAM-SHA-256")
NO_CERTIFICATES = "no certificates of clients, which log in by name"
NAMES, CERTIFICATES = ("a login by SCRAM-SHA-512", "certificates of clients")
RULES, OLD = {"acls": [RULE]}, {"drill": {"versions": {"paris": "3.2.3"}}}


@cases(
    "client more security mechanism why",
    {
        "plain": ({}, {}, Security.PLAIN, SCRAM, ""),
        "said to be plain": (client("PLAINTEXT"), {}, Security.PLAIN, SCRAM, ""),
        "TLS": (client("ssl", **{"ssl.ca.location": "/ca.pem"}), {}, Security.SERVER_TLS, SCRAM, ""),
        "certificates": (client("SSL", **CERTIFICATE), {}, Security.TLS, SCRAM, ""),
        "certificates in the environment": (client("SSL", **PEM), {}, Security.TLS, SCRAM, ""),
        "SCRAM over TLS": (client("SASL_SSL", "SCRAM-SHA-512"), {}, Security.SASL_TLS, SCRAM, ""),
        "the other key": (client("sasl_ssl", **OTHER_KEY), {}, Security.SASL_TLS, "PLAIN", ""),
        "SCRAM": (client("SASL_PLAINTEXT", "SCRAM-SHA-256"), {}, Security.SASL, "SCRAM-SHA-256", ""),
        "a token": (OAUTH, {}, Security.SASL_TLS, SCRAM, NO_OAUTH),
        "Kerberos": (client("SASL_PLAINTEXT"), {}, Security.SASL, SCRAM, NO_KERBEROS),
        "certificates beside a login": (BOTH, {}, Security.SASL_TLS, "PLAIN", NO_CERTIFICATES),
        "ACLs": ({}, RULES, Security.SASL, SCRAM, f"{NAMES}, because ACLs need principals"),
        "ACLs over TLS": (
            *(client("SSL"), RULES, Security.TLS, SCRAM),
            f"{CERTIFICATES}, because ACLs need principals",
        ),
        "an old version": (client("SSL"), OLD, Security.PLAIN, SCRAM, NO_TLS),
        "an old version with a login": (BY_SCRAM, RULES | OLD, Security.SASL, "SCRAM-SHA-256", NO_TLS),
    },
)
def test_a_copy_has_the_logins_of_its_cluster_or_a_note_says_what_the_lab_lacks(
    tmp_path, client, more, security, mechanism, why
) -> None:
    made = topology(tmp_path, paris={"client": client}, **more)
    copy = cluster_copies(made)["paris"]
    assert (copy.spec.security, copy.spec.mechanism, copy.why) == (security, mechanism, why)
    assert [note for note in scaled_down(made)[1] if note.startswith("paris") and why in note]


def test_clusters_of_one_topology_have_logins_versions_and_rules_of_their_own(tmp_path: Path) -> None:
    made = topology(
        tmp_path,
        paris={
            "client": client("SASL_SSL", "PLAIN"),
            "allow_everyone_if_no_acl_found": True,
        },
        acls=[RULE],
        drill={"versions": {"paris": "3.9.1"}},
    )
    paris, tokyo = (copy.spec for copy in cluster_copies(made).values())
    assert (paris.name, paris.version, paris.brokers) == ("paris", "3.9.1", 1)
    assert (paris.security, paris.mechanism, paris.authorizer) == (Security.SASL_TLS, "PLAIN", True)
    assert paris.properties == {"allow.everyone.if.no.acl.found": "true"}
    assert (tokyo.version, tokyo.brokers, tokyo.security) == (KAFKA_VERSION, 1, Security.SASL)
    assert (tokyo.listeners, tokyo.properties) == ((), {})
    assert scaled_down(made)[1][:5] == (
        (
            "each cluster is scaled down to one broker, or what a step needs; replication and"
            " min.insync.replicas are left out"
        ),
        "paris: Kafka 3.9.1, as drill.versions says",
        f"tokyo: Kafka {KAFKA_VERSION}, the lab's own version; drill.versions may name another",
        "paris: clients connect by SASL_SSL with PLAIN, as declared, with secrets of the lab",
        (
            "tokyo: clients connect by SASL_PLAINTEXT with SCRAM-SHA-512"
            " (a login by SCRAM-SHA-512, because ACLs need principals)"
        ),
    )


def test_a_drill_writes_to_no_endpoint_of_the_topology(tmp_path: Path) -> None:
    credentials = {"region": "eu", "access.key": {"env": "KEY"}, "secret.key": {"env": "SECRET"}}
    endpoints = {
        "archive": {"file": "s3a://bucket/kafka", "format": "raw", "client": credentials},
        "inbox": {"file": "/data/inbox", "format": "text"},
    }
    flows = [
        {"name": "backup", "from": "paris", "to": "archive", "topics": {"include": ["orders"]}},
        {"name": "lines", "from": "inbox", "to": "paris", "topics": {"to": "lines"}},
    ]
    declared = topology(tmp_path, endpoints=endpoints, flows=flows)
    small, notes = scaled_down(declared, files=tmp_path / "files")
    (tmp_path / "topology.yaml").write_text(topology_yaml(small))
    copy = load(tmp_path)

    assert {name: one.folder for name, one in copy.endpoints.items()} == {
        "archive": f"{tmp_path}/files/archive",
        "inbox": f"{tmp_path}/files/inbox",
    }
    assert not any(one.client for one in copy.endpoints.values())
    assert copy.endpoints["archive"].format == "raw"
    assert notes[-2:] == (
        (
            "archive: an empty folder of the drill in place of s3a://bucket/kafka:"
            " the store, its settings and its rights are not tried"
        ),
        "inbox: an empty folder of the drill in place of /data/inbox",
    )


JOB_RULE = {"cluster": "paris", "allow": ["READ"], "topic": "orders", "host": "10.0.0.7"}


NAMED, CERTIFIED = {"client": client("SASL_SSL", "PLAIN")}, {"client": client("SSL", **CERTIFICATE)}
EXACT = "with exactly the rights that acls declare"
LISTED = "with the rights that docs/operations.md lists"
UNTRIED = "whether they have them in production is not tried"


@cases(
    "paris named drill user exact note",
    {
        "its own rules": (NAMED, "User:app", {}, "app", True, f"User:app, {EXACT}"),
        "rules of a certificate": (
            *({**CERTIFIED, "principal": "User:CN=repl"}, "User:CN=repl", {}, "repl-job", True),
            f"User:repl-job in place of User:CN=repl, {EXACT}",
        ),
        "no rules": (
            *(NAMED, "User:other", {}, "app", False),
            f"User:app, {LISTED} (acls declare none for it); {UNTRIED}",
        ),
        "no name": (
            *(CERTIFIED, "User:other", {}, "repl-job", False),
            f"User:repl-job, {LISTED} (clusters.paris.principal is not set); {UNTRIED}",
        ),
        "rules that are managed elsewhere": (
            *(NAMED, "User:app", {"job_rights": "documented"}, "app", False),
            f"User:app, {LISTED} (drill.job_rights says so); {UNTRIED}",
        ),
    },
)
def test_jobs_have_a_login_of_their_own_where_brokers_know_principals(
    tmp_path, paris, named, drill, user, exact, note
) -> None:
    made = topology(tmp_path, paris=paris, acls=[{**JOB_RULE, "principal": named}], drill=drill)
    copy = cluster_copies(made)["paris"]
    assert (copy.job, copy.exact) == (user, exact)
    small, notes = scaled_down(made)
    assert f"paris: jobs run as {note}" in notes
    assert small.clusters["paris"].principal == f"User:{user}"
    (rule,) = [acl.rule for acl in small.acls]
    renamed = named == copy.declared
    assert (rule.principal, rule.host) == ((f"User:{user}", "*") if renamed else (named, "10.0.0.7"))
    assert (copy.spec.authorizer, copy.spec.users) == (True, ("drill-other", user))


@pytest.mark.parametrize("name", ["admin", "controller", "drill-other"])
def test_a_login_that_the_lab_needs_itself_is_not_the_jobs(tmp_path: Path, name: str) -> None:
    made = topology(tmp_path, paris={"client": client("SASL_SSL", "PLAIN", **{"sasl.username": name})})
    assert cluster_copies(made)["paris"].job == "repl-job"


def test_jobs_have_no_login_where_brokers_know_no_principals(tmp_path: Path) -> None:
    made = topology(tmp_path, paris={"client": {"security.protocol": "SSL"}})
    assert [(copy.job, copy.principal) for copy in cluster_copies(made).values()] == [(None, None)] * 2
    assert not any(copy.spec.authorizer for copy in cluster_copies(made).values())


def test_settings_that_are_no_address_and_no_login_stay(tmp_path: Path) -> None:
    client = {
        "security.protocol": "SASL_SSL",
        "sasl.mechanism": "PLAIN",
        **BY_NAME,
        "ssl.endpoint.identification.algorithm": "none",
        "broker.address.family": "v6",
        "client.id": "shop",
        "socket.timeout.ms": "9000",
    }
    paris = topology(tmp_path, paris={"client": client}).clusters["paris"]
    lab: dict[str, str | dict[str, str]] = {"security.protocol": "SSL", "ssl.key.location": "/key"}
    assert client_of(paris, lab) == {
        "client.id": "shop",
        "socket.timeout.ms": "9000",
        "security.protocol": "SSL",
        "ssl.key.pem": {"env": "REPL_DRILL_PARIS_SSL_KEY_PEM"},
    }
    assert login_variables("paris", lab) == {"ssl.key.location": "REPL_DRILL_PARIS_SSL_KEY_PEM"}


@pytest.mark.parametrize(
    ("brokers", "replication", "in_sync", "expected"),
    [
        (1, 3, "2", (None, None)),
        (2, 3, "2", (2, "1")),
        (3, 3, "2", (3, "2")),
        (3, 5, "3", (3, "1")),
        (3, 5, "4", (3, "2")),
        (3, None, "2", (None, "2")),
        (2, None, "2", (None, "1")),
        (3, 2, None, (2, None)),
    ],
)
def test_replicas_are_scaled_down_and_as_many_may_be_lost(
    tmp_path: Path, brokers: int, replication: int | None, in_sync: str | None, expected: tuple[Any, Any]
) -> None:
    topic: dict[str, Any] = {"name": "orders", "cluster": "paris", "config": {"retention.ms": "7d"}}
    if replication is not None:
        topic["replication"] = replication
    if in_sync is not None:
        topic["config"]["min.insync.replicas"] = in_sync
    small, notes = scaled_down(topology(tmp_path, topics=[topic], drill={"brokers": brokers}))
    (made,) = small.topics
    assert (made.replication, made.config.get("min.insync.replicas")) == expected
    assert made.config["retention.ms"] == "604800000"
    assert small.flows["orders"].replication == (None if brokers == 1 else min(3, brokers))
    assert ("brokers" in notes[0]) == (brokers > 1)


@pytest.mark.parametrize("more", [{"protect": "acl"}, {"acls": {"sync": True}}])
def test_an_authorizer_is_there_where_flows_need_rules(tmp_path: Path, more: dict[str, Any]) -> None:
    declared = topology(tmp_path, flow=more)
    small, notes = scaled_down(declared)
    assert needs_authorizer(small)
    assert small.flows["orders"].protect is declared.flows["orders"].protect
    assert any(note.startswith("the lab's brokers have an authorizer") for note in notes)
    assert all(copy.spec.authorizer for copy in cluster_copies(declared).values())


@pytest.mark.parametrize(
    ("drill", "why"),
    [
        ({"versions": {"rome": "3.9.1"}}, 'there is no cluster "rome"'),
        ({"versions": {"paris": "3.9"}}, "write three numbers, as 3.9.1"),
        ({"versions": {"paris": 3.9}}, "write three numbers, as 3.9.1"),
        ({"versions": {"paris": str(OLDEST).replace("2.4", "2.3")}}, "a version of Kafka from 2.4.0 on"),
        ({"brokers": 0}, "brokers"),
        ({"brokers": 10}, "brokers"),
    ],
)
def test_a_version_or_a_number_that_the_lab_can_not_have_is_refused(tmp_path, drill, why) -> None:
    with pytest.raises(Failure) as refused:
        topology(tmp_path, drill=drill)
    (one,) = refused.value.diagnostics
    assert why in f"{one.summary} {one.hint}"
    assert one.source is not None


@pytest.mark.parametrize("version", [str(OLDEST), "2.10.0", "3.0.2", KAFKA_VERSION])
def test_the_lab_and_the_language_take_the_same_versions(version: str) -> None:
    assert VERSION_SHAPE.pattern is not None
    assert re.fullmatch(VERSION_SHAPE.pattern, version)
