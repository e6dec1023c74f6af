"""What must hold between the parts of a topology, each case with what is said of it."""

# ruff: noqa: E501  (the long lines are what a user reads)

from pathlib import Path

import pytest

from tests.planner.config.given import mistakes, mistakes_alone, warnings

A = "topics: [{name: a, cluster: dc1}]\n"
F = "name: f, from: dc1, to: dc2, topics: {include: a}"

WRONG = {
    "a topic at no cluster": (
        "topics:\n  - {name: a, cluster: dc3}\n",
        '2:24: there is no cluster "dc3" — did you mean "dc2"?',
    ),
    "a topic at one cluster that is none": (
        "topics:\n  - {name: a, cluster: [dc1, paris]}\n",
        '2:30: there is no cluster "paris" — declare it under clusters; there is dc1 and dc2',
    ),
    "a topic twice at a cluster": (
        "topics:\n  - {name: a, cluster: [dc1, dc1]}\n",
        '2:30: "dc1" stands in the list twice — name each cluster once',
    ),
    "two topics that Kafka can't tell apart": (
        "topics:\n  - {name: a.b, cluster: dc1}\n  - {name: a_b, cluster: dc1}\n",
        '3:12: "a_b" and "a.b" (FILE:7:12) can\'t both be at dc1 — Kafka takes . and _ for the same: rename one',
    ),
    "a topic twice": (
        "topics:\n  - {name: a, cluster: dc1}\n  - {name: a, cluster: [dc2, dc1]}\n",
        '3:12: the topic "a" at dc1 stands in two places, first at FILE:7:12 — keep one',
    ),
    "an illegal name": (
        "topics:\n  - {name: a/b, cluster: dc1}\n",
        (
            "2:12: a topic's name holds only letters, digits, '.', '_' and '-', 'a/b' holds '/' — "
            "use a name that Kafka takes"
        ),
    ),
    "a topic of the product's own": (
        "topics:\n  - {name: __repl.ledger, cluster: dc1}\n",
        "2:12: __repl.ledger is one of the product's own topics — they are created and kept without being declared",
    ),
    "a misspelt key": (
        "topics:\n  - {name: a, cluster: dc1, partions: 3}\n",
        '2:29: unknown key "partions" in a topic — did you mean "partitions"?',
    ),
    "an unknown key": (
        A + "zebra: 1\n",
        (
            '2:1: unknown key "zebra" in a topology — a topology has apiVersion, name, vars, clusters, defaults, '
            "topics, acls, quotas, flows, endpoints, jobs, internal, policies and drill"
        ),
    ),
    "a flow to itself": (
        "flows: [{name: f, from: dc1, to: dc1, topics: {include: a}}]\n",
        '1:34: the flow copies "dc1" to itself — name another cluster in from or to',
    ),
    "a flow to nowhere": (
        "flows: [{name: f, from: dc1, to: dc, topics: {include: a}}]\n",
        '1:34: there is no cluster "dc" — did you mean "dc2"?',
    ),
    "a flow without topics": (
        "flows: [{name: f, from: dc1, to: dc2}]\n",
        '1:9: a flow without "topics" — add topics: {include: [orders]}',
    ),
    "a flow that includes nothing": (
        "flows: [{name: f, from: dc1, to: dc2, topics: {include: []}}]\n",
        '1:57: "include" is an empty list — it takes a regular expression for whole names, or a list of such',
    ),
    "a flow twice": (
        f"flows:\n  - {{{F}}}\n  - {{{F}}}\n",
        '3:12: the flow "f" stands in two places, first at FILE:7:12 — keep one',
    ),
    "a job that is none": (
        f"flows: [{{{F}, job: dc9}}]\n",
        '1:66: there is no job "dc9" — declare it under jobs',
    ),
    "a job that is misspelt": (
        f"jobs: {{copier: {{}}}}\nflows: [{{{F}, job: copyer}}, {{{F.replace('f', 'g', 1)}, job: copier}}]\n",
        '2:66: there is no job "copyer" — did you mean "copier"?',
    ),
    "a way back of nothing": (
        f"flows: [{{{F}, reverse_of: g}}]\n",
        '1:73: there is no flow "g" — declare it under flows; there is f',
    ),
    "a way back that leads on": (
        f"flows: [{{{F}}}, {{name: f-back, from: dc1, to: dc2, topics: {{include: a}}, reverse_of: f}}]\n",
        '1:131: the flow does not reverse "f", which goes from dc1 to dc2 — write from: dc2 and to: dc1',
    ),
    "a rename without a way back": (
        f"flows: [{{{F}, rename: copy}}]\n",
        "1:69: {topic} must stand in a rename exactly once, it is not there — a rename must have a way back",
    ),
    "an ACL on nothing": (
        "acls: [{cluster: dc1, principal: 'User:a', allow: READ}]\n",
        (
            "1:8: an ACL that does not say on what — "
            "add one of topic, group, transactional_id, delegation_token, user or whole_cluster"
        ),
    ),
    "an ACL that says nothing": (
        "acls: [{cluster: dc1, principal: 'User:a', topic: a}]\n",
        "1:8: an ACL that neither allows nor denies — add allow: [READ], or deny",
    ),
    "an ACL twice": (
        (
            "acls:\n  - {cluster: [dc1, dc2], principal: 'User:a', allow: [READ, WRITE], topic: [a, b]}\n"
            "  - {cluster: dc2, principal: 'User:a', allow: write, topic: b}\n"
        ),
        "3:5: the ACL dc2.allow.User:a.WRITE.topic.b stands in two places, first at FILE:7:5 — keep one",
    ),
    "an ACL for no one": (
        "acls: [{cluster: dc1, principal: app, allow: READ, topic: a}]\n",
        '1:34: "principal" is "app", not a principal — write its type too, for example "User:app"',
    ),
    "a master of another launcher": (
        f"flows: [{{{F}}}]\njobs: {{dc2: {{master: 'spark://a:7077'}}}}\n",
        (
            '2:22: the launcher local does not take the master "spark://a:7077" — '
            "write launcher: standalone, or a master of local"
        ),
    ),
    "a launcher without its master": (
        f"flows: [{{{F}}}]\njobs: {{dc2: {{launcher: kubernetes}}}}\n",
        "2:24: the launcher kubernetes needs a master — add master: k8s://host:port",
    ),
    "a standby on Kubernetes": (
        f"flows: [{{{F}}}]\njobs: {{dc2: {{launcher: kubernetes, master: 'k8s://h:443', standby: 1}}}}\n",
        (
            "2:68: the launcher kubernetes takes no standby: Kubernetes starts a lost driver on another node"
            " — remove standby"
        ),
    ),
    "speculation": (
        f"flows: [{{{F}}}]\njobs: {{dc2: {{conf: {{spark.speculation: on}}}}}}\n",
        "2:20: spark.speculation would run a copying task twice — leave it out: every record has one writer",
    ),
    "a metrics port twice": (
        (
            f"flows: [{{{F}}}, {{{F.replace('f', 'g', 1)}, job: other}}]\n"
            "jobs:\n  dc2: {metrics: {port: 9500}}\n  other: {metrics: {port: 9500}}\n"
        ),
        (
            '4:27: the jobs "dc2" and "other" declare the metrics port 9500, first at FILE:8:25 — '
            "give each job on one machine its own, or declare none: then a free one is taken"
        ),
    ),
    "a requirement of nothing known": (
        A + "policies: {require: {replicas: '>=3'}}\n",
        '2:32: nothing is known as "replicas" that could be required — did you mean "replication"?',
    ),
    "a requirement that is no number": (
        A + "policies: {require: {replication: '>=three'}}\n",
        '2:35: "replication" is required to be ">=three": not a whole number — write it as ">=3"',
    ),
    "a requirement that compares nothing": (
        A + "policies: {require: {replication: '=>3'}}\n",
        '2:35: "replication" is "=>3", not a comparison — write it as ">=3"',
    ),
}


@pytest.mark.parametrize("case", WRONG)
def test_what_cannot_be_is_said_where_it_stands(case: str, tmp_path: Path) -> None:
    text, expected = WRONG[case]
    assert mistakes(tmp_path, text) == [expected.replace("FILE", str(tmp_path / "t.yaml"))]


HEADS = {
    "no version": ("name: a\nclusters: {dc1: {bootstrap: 'a:1'}}\n", '1:1: a topology without "apiVersion"'),
    "a newer version": ("apiVersion: repl/v2\n", '1:13: the language "repl/v2" is newer than this repl'),
    "another's file": (
        "apiVersion: apps/v1\nkind: Deployment\n",
        '1:13: apiVersion is "apps/v1": this is no topology',
    ),
    "no name": (
        "apiVersion: repl/v1\nclusters: {dc1: {bootstrap: 'a:1'}}\n",
        '1:1: a topology without "name"',
    ),
    "no cluster": ("apiVersion: repl/v1\nname: a\n", '1:1: a topology without "clusters"'),
    "an empty map of clusters": (
        "apiVersion: repl/v1\nname: a\nclusters: {}\n",
        '3:11: "clusters" is an empty map',
    ),
    "a dot in a cluster's name": (
        "apiVersion: repl/v1\nname: a\nclusters: {dc.1: {bootstrap: 'a:1'}}\n",
        '3:12: "cluster" is "dc.1", not a cluster\'s name — use letters, digits, _ and -, without dots',
    ),
    "no port": (
        "apiVersion: repl/v1\nname: a\nclusters: {dc1: {bootstrap: kafka.example.org}}\n",
        '3:29: "bootstrap" is "kafka.example.org", not a broker\'s host:port — write it as kafka1.example.org:9092',
    ),
    "an impossible port": (
        "apiVersion: repl/v1\nname: a\nclusters: {dc1: {bootstrap: 'a:70000'}}\n",
        '3:29: "a:70000" has no port that can exist — ports go from 1 to 65535',
    ),
    "another client's name": (
        "apiVersion: repl/v1\nname: a\nclusters: {dc1: {bootstrap: 'a:1', client: {ssl.truststore.location: x}}}\n",
        (
            '3:45: "ssl.truststore.location" is not a setting of this client (librdkafka\'s names are used) — '
            "use ssl.ca.location (a PEM file)"
        ),
    ),
}


@pytest.mark.parametrize("case", HEADS)
def test_the_head_of_a_topology(case: str, tmp_path: Path) -> None:
    text, expected = HEADS[case]
    assert mistakes_alone(tmp_path, text)[0].startswith(expected)


def test_all_mistakes_come_at_once_in_the_order_of_the_file(tmp_path: Path) -> None:
    found = mistakes(
        tmp_path,
        """\
        topics:
          - {name: a b, cluster: dc9}
          - {nme: a, cluster: dc1, partitions: six}
        flows:
          - {name: f, from: dc1, to: dc1, topics: {include: "("}, state: dead, rpo: 5}
        jobs: {x: {slots: many}}
        """,
    )
    assert [line.split(": ")[0] for line in found] == [
        *("2:12", "2:26"),
        *("3:6", "3:40"),
        *("5:30", "5:53", "5:66", "5:77"),
        "6:19",
    ]


WARNED = {
    "a job that runs nothing": (
        f"flows: [{{{F}}}]\njobs: {{dc3: {{}}}}\n",
        '2:8: no flow runs in the job "dc3" — did you mean "dc2"?',
    ),
    "a star that is meant for a file": (
        "flows: [{name: f, from: dc1, to: dc2, topics: {include: orders*}}]\n",
        (
            '1:57: "orders*" is a regex: its star repeats the one sign before it — '
            'write "orders.*" for every name that begins so'
        ),
    ),
    "an operation that a group does not have": (
        "acls: [{cluster: dc1, principal: 'User:a', allow: WRITE, group: g}]\n",
        "1:8: WRITE means nothing for a group — Kafka knows ALL, ALTER_CONFIGS, DELETE, DESCRIBE, DESCRIBE_CONFIGS or READ",
    ),
}


@pytest.mark.parametrize("case", WARNED)
def test_what_is_likely_a_mistake_is_a_warning(case: str, tmp_path: Path) -> None:
    text, expected = WARNED[case]
    assert warnings(tmp_path, text) == [expected]


def test_a_wrong_entry_is_not_a_missing_one_too(tmp_path: Path) -> None:
    """Cluster dc3 and job j are wrong inside; what refers to them is right."""
    text = """
    apiVersion: repl/v1
    name: a
    clusters: {dc1: {bootstrap: "a:1"}, dc3: {bootstrap: []}}
    flows: [{name: f, from: dc1, to: dc3, topics: {include: a}, job: j}]
    jobs: {j: 7}
    """
    import textwrap

    found = mistakes_alone(tmp_path, textwrap.dedent(text))
    assert [line.split(": ")[0] for line in found] == ["4:54", "6:11"]


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
