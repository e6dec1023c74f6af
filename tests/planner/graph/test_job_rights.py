"""PURE: which rights a job needs, as docs/operations.md lists them, and which of them rules do not give."""

from dataclasses import replace
from typing import Any, Literal

import pytest
from msgspec import structs

from planner.graph.job_rights import JobRight, missing_rights, rights_at_destination, rights_at_source
from planner.model.topology import Flow, Selection
from runtime.contract.spec.acls import AclRule
from runtime.contract.spec.flow import OriginCommitsSpec
from tests.rights import rights

JOB = "User:repl"
FLOW = Flow(
    "orders",
    "dc1",
    "dc2",
    Selection(("orders",)),
    origin_commits=OriginCommitsSpec("repl.orders"),
    acls_sync=True,
    protect="acl",
)
READ = JobRight("TOPIC", "orders", "LITERAL", "READ")
INTERNAL = JobRight("TOPIC", "__repl.", "PREFIXED", "WRITE")
GROUPS = JobRight("GROUP", "*", "LITERAL", "READ")


def rule(operation: str, name: str = "orders", **more: Any) -> AclRule:
    made = AclRule("dc2", "TOPIC", name, "LITERAL", JOB, "*", operation, "ALLOW")
    return replace(made, **more)


def missing(right: JobRight, *rules: AclRule, open_without_rules: bool = False) -> bool:
    return bool(missing_rights([right], rules, JOB, open_without_rules=open_without_rules))


@pytest.mark.parametrize(
    ("heading", "needed"),
    [
        ("A job, at its sources", list(rights_at_source(FLOW, ["orders"]))),
        ("A job, at its destination", list(rights_at_destination(FLOW, ["orders"]))),
    ],
)
def test_these_are_the_rights_that_the_documentation_lists(heading: str, needed: list[JobRight]) -> None:
    documented = {
        (row.resource, row.name, operation)
        for row in rights(heading, "orders")
        for operation in row.operations
    }
    assert {(one.resource_type, one.resource, one.operation) for one in needed} == documented


def test_a_duty_that_is_turned_off_needs_no_right() -> None:
    off = structs.replace(
        FLOW,
        heartbeats_every_ms=None,
        origin_commits=None,
        acls_sync=False,
        protect="off",
        groups=structs.replace(FLOW.groups, sync=False),
    )
    assert {str(one) for one in rights_at_source(off, ["orders"])} == {
        "READ on topic orders",
        "DESCRIBE_CONFIGS on topic orders",
        "READ on topics that begin with __repl.",
        "DESCRIBE on every transactional id",
    }
    assert not [
        one for one in rights_at_destination(off, ["orders"]) if one.resource_type in ("GROUP", "CLUSTER")
    ]


@pytest.mark.parametrize(
    ("right", "given"),
    [
        (READ, rule("READ")),
        (READ, rule("ALL")),
        (READ, rule("READ", "*")),
        (READ, rule("READ", "ord", pattern="PREFIXED")),
        (READ, rule("READ", principal="User:*")),
        (JobRight("TOPIC", "orders", "LITERAL", "DESCRIBE_CONFIGS"), rule("ALTER_CONFIGS")),
        (
            JobRight("TOPIC", "orders", "LITERAL", "CREATE"),
            rule("CREATE", "kafka-cluster", resource_type="CLUSTER"),
        ),
        (INTERNAL, rule("WRITE", "__repl.", pattern="PREFIXED")),
        (INTERNAL, rule("WRITE", "__", pattern="PREFIXED")),
        (INTERNAL, rule("WRITE", "__repl.ledger")),  # the others may not be needed
        (GROUPS, rule("READ", "billing", resource_type="GROUP")),
    ],
)
def test_a_rule_gives_a_right(right: JobRight, given: AclRule) -> None:
    assert not missing(right, given)


@pytest.mark.parametrize(
    ("right", "others"),
    [
        (READ, []),
        (READ, [rule("WRITE")]),
        (READ, [rule("READ", "orders-eu")]),
        (READ, [rule("READ", "orders-", pattern="PREFIXED")]),
        (READ, [rule("READ", principal="User:app")]),
        (READ, [rule("READ"), rule("READ", permission="DENY")]),
        (READ, [rule("READ"), rule("ALL", "*", permission="DENY", principal="User:*")]),
        (INTERNAL, [rule("WRITE")]),
        (GROUPS, [rule("READ")]),
    ],
)
def test_rules_do_not_give_a_right(right: JobRight, others: list[AclRule]) -> None:
    assert missing(right, *others)


def test_a_topic_without_rules_is_open_where_the_brokers_say_so() -> None:
    assert not missing(READ, open_without_rules=True)
    assert missing(READ, rule("READ", principal="User:app"), open_without_rules=True)


@pytest.mark.parametrize(
    ("kind", "name", "pattern", "said"),
    [
        ("TOPIC", "orders", "LITERAL", "WRITE on topic orders"),
        ("TRANSACTIONAL_ID", "repl.", "PREFIXED", "WRITE on transactional ids that begin with repl."),
        ("GROUP", "*", "LITERAL", "WRITE on every group"),
        ("CLUSTER", "kafka-cluster", "LITERAL", "WRITE on the cluster"),
    ],
)
def test_a_right_is_said_with_its_resource(
    kind: str, name: str, pattern: Literal["LITERAL", "PREFIXED"], said: str
) -> None:
    assert str(JobRight(kind, name, pattern, "WRITE")) == said
