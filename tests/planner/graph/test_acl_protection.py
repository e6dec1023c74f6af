"""`protect: acl`: who may write a mirror, by which rule, and what stands in its place."""

from collections.abc import Sequence

import pytest

from planner.graph.expansion import expand
from planner.model.address import Address, Kind
from planner.model.desired import Desired
from planner.model.observed import REPLACED, ObservedCluster, RegistryEntry
from planner.model.topology import AclRule, Cluster, Flow
from tests.planner.graph.build import cluster, codes, flow, observed, rule, rules, said, topology

SASL = {
    "security.protocol": "SASL_SSL",
    "sasl.mechanism": "SCRAM-SHA-512",
    "sasl.username": "repl",
    "sasl.password": {"env": "PASSWORD"},
}


def protected(*acls: AclRule, client: dict[str, object] | None = None, both: bool = False) -> Desired:
    flows = [flow("dc1>dc2", protect="acl"), *([flow("dc2>dc1")] if both else [])]
    clusters = {
        "dc1": Cluster("dc1", bootstrap="dc1:9092"),
        "dc2": Cluster("dc2", bootstrap="dc2:9092", client=SASL if client is None else client),  # type: ignore[arg-type]
    }
    live = observed(cluster("dc1", "a"), cluster("dc2", acls=acls))
    return expand(topology(*flows, clusters=clusters), live)


@pytest.mark.parametrize(
    ("acl", "denied"),
    [
        (rule("dc2 ALLOW User:app WRITE a"), ["dc2.deny.User:app.WRITE.topic.a"]),
        (rule("dc2 ALLOW User:app ALL a"), ["dc2.deny.User:app.WRITE.topic.a"]),
        (rule("dc2 ALLOW User:app WRITE *"), ["dc2.deny.User:app.WRITE.topic.a"]),
        (rule("dc2 ALLOW User:app WRITE a", "PREFIXED"), ["dc2.deny.User:app.WRITE.topic.a"]),
        (rule("dc2 ALLOW User:app WRITE b", "PREFIXED"), []),
        (rule("dc2 ALLOW User:app WRITE b"), []),
        (rule("dc2 ALLOW User:app READ a"), []),
        (rule("dc2 DENY User:app WRITE a"), []),
        (rule("dc2 ALLOW User:app WRITE a", kind="GROUP"), []),
        (rule("dc2 ALLOW User:repl WRITE a"), []),
    ],
)
def test_foreign_writers_are_kept_off_and_the_job_is_not(acl: AclRule, denied: list[str]) -> None:
    desired = protected(acl)
    assert rules(desired) == denied
    assert codes(desired) == []


@pytest.mark.parametrize(
    "client",
    [
        {},
        {"security.protocol": "SSL", "sasl.username": "repl"},
        {"security.protocol": "SASL_SSL", "sasl.username": {"env": "USER"}},
    ],
)
def test_nobody_is_denied_who_may_be_the_job(client: dict[str, object]) -> None:
    desired = protected(rule("dc2 ALLOW User:app WRITE a"), client=client)
    assert desired.acls == ()
    assert said(desired, "protect-unknown-principal") == [
        (
            "protect: acl has no effect: the topology does not name the principal of the job, and one of"
            " User:app may be it — declare clusters.dc2.principal, or write sasl.username under"
            " clusters.dc2.client as plain text (the password stays a reference); foreign records are found"
            " and shown in any case"
        )
    ]


def everyone(operation: str, resource: str, pattern: str = "LITERAL") -> AclRule:
    return rule(f"dc2 ALLOW User:* {operation} {resource}", pattern)


def owned(one: AclRule, topology: str = "t", *, replaced: bool = False) -> RegistryEntry:
    spec = one.spec | ({REPLACED: "true"} if replaced else {})
    origin = "protect: acl of flow.dc1-dc2"
    return RegistryEntry(
        Address(Kind.ACL, "dc2", one.name), topology, spec, origin=origin, created=not replaced
    )


def open_cluster(
    *acls: AclRule,
    entries: Sequence[RegistryEntry] = (),
    flows: Sequence[Flow] = (),
    declared: Sequence[AclRule] = (),
    topics: Sequence[str] = ("a", "own"),
    source: ObservedCluster | str | None = None,
    **more: object,
) -> Desired:
    """A mirror `a` at dc2, beside dc2's own topic; the job is User:repl."""
    dc2 = Cluster("dc2", bootstrap="dc2:9092", principal="User:repl", **more)  # type: ignore[arg-type]
    clusters = {
        "dc1": Cluster("dc1", bootstrap="dc1:9092"),
        "dc2": dc2,
        "dc3": Cluster("dc3", bootstrap="dc3:9092"),
    }
    wanted = flows or [flow("dc1>dc2", protect="acl")]
    live = observed(
        cluster("dc1", "a") if source is None else source,
        cluster("dc2", *topics, acls=acls, owned=tuple(entries)),
        cluster("dc3", "b"),
    )
    return expand(topology(*wanted, *declared, clusters=clusters), live)


def outcome(desired: Desired) -> list[str]:
    """A replaced rule begins with -, one that waits for the flow's end with >."""
    mark = {(True, False): "-", (False, True): ">", (False, False): ""}
    return sorted(f"{mark[one.replaced, one.waits]}{one.rule.name}" for one in desired.acls)


OTHERS = ("ALTER", "ALTER_CONFIGS", "CREATE", "DELETE", "READ")
OWN_TOPICS = ["allow.User:*.WRITE.topic.__repl.*", "allow.User:*.WRITE.topic.own"]


@pytest.mark.parametrize(
    ("acl", "expected"),
    [
        (
            everyone("WRITE", "a"),
            ["-allow.User:*.WRITE.topic.a", "allow.User:*.DESCRIBE.topic.a", "allow.User:repl.WRITE.topic.a"],
        ),
        (
            everyone("ALL", "a"),
            [
                "-allow.User:*.ALL.topic.a",
                *(f"allow.User:*.{one}.topic.a" for one in OTHERS),
                "allow.User:repl.ALL.topic.a",
            ],
        ),
        (
            everyone("WRITE", "*"),
            [
                "-allow.User:*.WRITE.topic.*",
                "allow.User:*.DESCRIBE.topic.*",
                *OWN_TOPICS,
                "allow.User:repl.WRITE.topic.*",
            ],
        ),
        (
            everyone("WRITE", "a", "PREFIXED"),
            [
                "-allow.User:*.WRITE.topic.a*",
                "allow.User:*.DESCRIBE.topic.a*",
                "allow.User:repl.WRITE.topic.a*",
            ],
        ),
        (everyone("WRITE", "b"), []),
        (everyone("READ", "*"), []),
    ],
)
def test_a_rule_for_everyone_is_replaced(acl: AclRule, expected: list[str]) -> None:
    desired = open_cluster(acl)
    assert outcome(desired) == expected
    assert codes(desired) == (["protect-replaces"] if expected else [])


def test_the_plan_says_which_rule_is_replaced() -> None:
    assert said(open_cluster(everyone("WRITE", "*")), "protect-replaces") == [
        (
            "protect: acl replaces allow.User:*.WRITE.topic.* at dc2, by which everyone may write the"
            " mirrors of flow.dc1-dc2: User:repl gets the rule instead; everyone may go on writing the topic"
            " own — it is restored when the flow is promoted or failed over; a topic that is created later"
            " may be written by everyone after the next apply"
        )
    ]


def test_a_replaced_rule_stays_replaced_and_later_topics_get_a_rule_that_waits() -> None:
    gone = everyone("WRITE", "*")
    entries = [owned(gone, replaced=True), owned(everyone("DESCRIBE", "*")), owned(everyone("WRITE", "own"))]
    live = [everyone("DESCRIBE", "*"), everyone("WRITE", "own")]
    assert outcome(open_cluster(*live, entries=entries, topics=("a", "own", "new"))) == [
        "-allow.User:*.WRITE.topic.*",
        ">allow.User:*.DESCRIBE.topic.*",
        ">allow.User:*.WRITE.topic.__repl.*",
        ">allow.User:*.WRITE.topic.new",
        ">allow.User:*.WRITE.topic.own",
        "allow.User:repl.WRITE.topic.*",
    ]


@pytest.mark.parametrize(
    ("flows", "replaced"),
    [
        ([flow("dc1>dc2", protect="acl", state="promoted")], []),
        (
            [
                flow("dc1>dc2", protect="acl", state="promoted"),
                flow("x=dc3>dc2", "b", protect="acl"),
            ],
            ["allow.User:*.WRITE.topic.*"],
        ),
    ],
)
def test_a_rule_is_restored_with_the_last_flow_that_needs_it_replaced(
    flows: list[Flow], replaced: list[str]
) -> None:
    desired = open_cluster(entries=[owned(everyone("WRITE", "*"), replaced=True)], flows=flows)
    assert [one.rule.name for one in desired.acls if one.replaced] == replaced
    waiting = [one.rule.resource for one in desired.acls if one.waits and one.rule.operation == "WRITE"]
    assert waiting == (["__repl.", "a", "own"] if replaced else [])


@pytest.mark.parametrize(
    ("more", "why"),
    [
        ({"declared": [everyone("WRITE", "*")]}, "declared in this topology"),
        ({"entries": [owned(everyone("WRITE", "*"), "billing")]}, "owned by the topology 'billing'"),
    ],
)
def test_a_rule_that_others_manage_is_not_replaced(more: dict[str, object], why: str) -> None:
    desired = open_cluster(everyone("WRITE", "*"), **more)  # type: ignore[arg-type]
    assert not any(one.replaced for one in desired.acls)
    assert said(desired, "protect-everyone") == [
        (
            "protect: acl can't protect the topic a: everyone may write by allow.User:*.WRITE.topic.*"
            f" ({why}) — narrow that rule at dc2; foreign records are found and shown in any case"
        )
    ]


def test_nothing_is_replaced_for_a_job_whose_principal_is_unknown() -> None:
    desired = protected(everyone("WRITE", "a"), client={})
    assert desired.acls == ()
    assert codes(desired) == ["protect-unknown-principal"]


def test_while_a_source_does_not_answer_everything_stays() -> None:
    """Its mirrors are unknown: they must not count as topics that everyone may write."""
    gone, job = everyone("WRITE", "*"), rule("dc2 ALLOW User:repl WRITE *")
    desired = open_cluster(job, entries=[owned(gone, replaced=True), owned(job)], source="dc1")
    assert outcome(desired) == ["-allow.User:*.WRITE.topic.*", "allow.User:repl.WRITE.topic.*"]


CLOSED = [*(f"allow.User:*.{one}.topic.a" for one in OTHERS), "allow.User:repl.ALL.topic.a"]


@pytest.mark.parametrize(
    ("open_without_rules", "acls", "expected"),
    [
        (False, [], []),
        (True, [], CLOSED),
        (True, [rule("dc2 ALLOW User:app READ a")], []),  # rules speak of it: nobody else may write
        (True, [rule("dc2 ALLOW User:app WRITE a")], ["deny.User:app.WRITE.topic.a"]),
        (True, [rule("dc2 ALLOW User:app READ a", kind="GROUP")], CLOSED),
    ],
)
def test_a_mirror_without_rules_gets_some_where_everyone_may_do_everything_then(
    open_without_rules: bool, acls: list[AclRule], expected: list[str]
) -> None:
    desired = open_cluster(*acls, allow_everyone_if_no_acl_found=open_without_rules)
    assert outcome(desired) == expected


def test_a_mirror_that_mirrored_rules_close_stays_open_to_the_job() -> None:
    source = cluster("dc1", "a", acls=(rule("dc1 ALLOW User:app READ a"),))
    flows = [flow("dc1>dc2", protect="acl", acls_sync=True)]
    desired = open_cluster(flows=flows, source=source, allow_everyone_if_no_acl_found=True)
    assert outcome(desired) == ["allow.User:app.READ.topic.a", "allow.User:repl.ALL.topic.a"]


def test_a_topic_of_both_sides_has_no_foreign_writers() -> None:
    desired = protected(rule("dc2 ALLOW User:app WRITE a"), both=True)
    assert desired.acls == ()
    assert "protect-shared" in codes(desired)


def test_without_an_authorizer_there_is_nothing_to_protect_with() -> None:
    desired = expand(
        topology(flow("dc1>dc2", protect="acl"), flow("dc1>dc3", protect="acl")),
        observed(cluster("dc1", "a"), cluster("dc2"), "dc3"),
    )
    assert desired.acls == ()
