"""Lists the rights that a job needs at its clusters, and finds those that the rules of a cluster lack. Pure.

docs/operations.md lists the same rights, row by row; a test compares both.
"""

from collections.abc import Iterable, Iterator
from typing import Literal

from msgspec import Struct

from planner.model.topology import Flow
from planner.model.topology.resources import KAFKA_CLUSTER
from runtime.contract.spec.acls import EVERYONE, AclRule
from runtime.contract.spec.naming import HEARTBEATS, INTERNAL_PREFIX

EVERY = "*"
TRANSACTIONS = "repl."  # the transactional ids of jobs, and the groups of origin_commits, begin so
# Kafka's implied operations: the right on the left is also given by those on the right.
_IMPLIED_BY = {
    "DESCRIBE": ("READ", "WRITE", "DELETE", "ALTER"),
    "DESCRIBE_CONFIGS": ("ALTER_CONFIGS",),
}
_KINDS = {"TOPIC": "topic", "GROUP": "group", "TRANSACTIONAL_ID": "transactional id"}


class JobRight(Struct, frozen=True, order=True):
    """An operation on a resource. `*` is every resource of the type.

    `essential`: without it records, groups or rules do not arrive. Without another one, the notes of the
    flow say what the job leaves out.
    """

    resource_type: str
    resource: str
    pattern: Literal["LITERAL", "PREFIXED"]
    operation: str
    essential: bool = True

    def __str__(self) -> str:
        if self.resource_type == "CLUSTER":
            return f"{self.operation} on the cluster"
        kind = _KINDS[self.resource_type]
        if self.pattern == "PREFIXED":
            return f"{self.operation} on {kind}s that begin with {self.resource}"
        if self.resource == EVERY:
            return f"{self.operation} on every {kind}"
        return f"{self.operation} on {kind} {self.resource}"

    def rule(self, cluster: str, principal: str) -> AclRule:
        """Returns the rule that gives the right."""
        return AclRule(
            cluster, self.resource_type, self.resource, self.pattern, principal, "*", self.operation, "ALLOW"
        )


def rights_at_source(flow: Flow, topics: Iterable[str]) -> Iterator[JobRight]:
    """Yields what the flow's job needs at the source; `topics` are the source topics."""
    for topic in topics:
        yield JobRight("TOPIC", topic, "LITERAL", "READ")
        yield JobRight("TOPIC", topic, "LITERAL", "DESCRIBE_CONFIGS", essential=False)
    if flow.heartbeats_every_ms is not None:
        for operation in ("CREATE", "READ", "WRITE", "DESCRIBE_CONFIGS"):
            yield JobRight("TOPIC", HEARTBEATS, "LITERAL", operation, essential=False)
    yield JobRight("TOPIC", INTERNAL_PREFIX, "PREFIXED", "READ", essential=False)
    if flow.origin_commits is not None:
        yield JobRight("GROUP", TRANSACTIONS, "PREFIXED", "READ", essential=False)
    if flow.groups.sync:
        yield JobRight("GROUP", EVERY, "LITERAL", "DESCRIBE")
    yield JobRight("TRANSACTIONAL_ID", EVERY, "LITERAL", "DESCRIBE", essential=False)
    if flow.acls_sync:
        yield JobRight("CLUSTER", KAFKA_CLUSTER, "LITERAL", "DESCRIBE")


def rights_at_destination(flow: Flow, mirrors: Iterable[str]) -> Iterator[JobRight]:
    """Yields what the flow's job needs at the destination; `mirrors` include quarantine topics."""
    for topic in mirrors:
        yield from _written(topic, "LITERAL")
    yield from _written(INTERNAL_PREFIX, "PREFIXED")
    yield JobRight("TRANSACTIONAL_ID", TRANSACTIONS, "PREFIXED", "WRITE")
    if flow.groups.sync:
        yield JobRight("GROUP", EVERY, "LITERAL", "READ")
    if flow.acls_sync or flow.protect == "acl":
        yield JobRight("CLUSTER", KAFKA_CLUSTER, "LITERAL", "DESCRIBE")
        yield JobRight("CLUSTER", KAFKA_CLUSTER, "LITERAL", "ALTER")


def _written(name: str, pattern: Literal["LITERAL", "PREFIXED"]) -> Iterator[JobRight]:
    for operation in ("CREATE", "READ", "WRITE", "ALTER", "ALTER_CONFIGS"):
        yield JobRight("TOPIC", name, pattern, operation, essential=operation in ("READ", "WRITE"))


def missing_rights(
    rights: Iterable[JobRight], rules: Iterable[AclRule], principal: str, *, open_without_rules: bool
) -> list[JobRight]:
    """Returns the rights that the rules of a cluster do not give to a principal, sorted.

    A right on every resource, or on a prefix, counts as given where a rule gives it on some of them: which
    ones a flow needs is not known. `open_without_rules`: a resource without rules is open to everyone.
    """
    listed = list(rules)
    return sorted(
        right
        for right in set(rights)
        if not _is_given(right, listed, principal, open_without_rules=open_without_rules)
    )


def _is_given(right: JobRight, rules: list[AclRule], principal: str, *, open_without_rules: bool) -> bool:
    related = [
        rule
        for rule in rules
        if rule.resource_type == right.resource_type
        and (
            right.resource == EVERY
            or _is_whole(rule, right)
            or (right.pattern == "PREFIXED" and rule.resource.startswith(right.resource))
        )
    ]
    if right.operation == "CREATE" and right.resource_type == "TOPIC":
        # Brokers take CREATE on the cluster, too.
        related += [rule for rule in rules if rule.resource_type == "CLUSTER" and rule.operation == "CREATE"]
    applying = [rule for rule in related if rule.principal in (principal, EVERYONE)]
    denying = (right.operation, "ALL")
    allowing = (*denying, *_IMPLIED_BY.get(right.operation, ()))
    if any(
        rule.permission == "DENY" and rule.operation in denying and _is_whole(rule, right)
        for rule in applying
    ):
        return False
    if any(rule.permission == "ALLOW" and rule.operation in allowing for rule in applying):
        return True
    return open_without_rules and not related


def _is_whole(rule: AclRule, right: JobRight) -> bool:
    """Returns whether the rule applies to everything that the right is about."""
    if rule.pattern == "PREFIXED":
        return right.resource != EVERY and right.resource.startswith(rule.resource)
    return rule.resource == EVERY or (right.pattern == "LITERAL" and rule.resource == right.resource)
