"""ACL rules on topics: which topics a rule applies to, and which principals may write a mirror topic.

Plan and job use the same code.
"""

from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Literal

EVERYONE = "User:*"
EVERY_TOPIC = "*"
PROTECTION = "protect: acl"  # the origin of a rule that keeps writers off begins so, in the registry
# What ALL is besides WRITE. READ implies DESCRIBE, ALTER_CONFIGS implies DESCRIBE_CONFIGS.
NOT_WRITE = ("READ", "CREATE", "DELETE", "ALTER", "ALTER_CONFIGS")


@dataclass(frozen=True, slots=True, order=True)
class AclRule:
    """One binding of Kafka, in Kafka's upper-case enum names."""

    cluster: str
    resource_type: str
    resource: str
    pattern: Literal["LITERAL", "PREFIXED"]
    principal: str
    host: str
    operation: str
    permission: Literal["ALLOW", "DENY"]

    @property
    def name(self) -> str:
        """Returns the part of its address behind the cluster."""
        star = "*" if self.pattern == "PREFIXED" else ""
        host = "" if self.host == "*" else f"@{self.host}"
        return (
            f"{self.permission.lower()}.{self.principal}{host}.{self.operation}"
            f".{self.resource_type.lower()}.{self.resource}{star}"
        )

    @property
    def lets_write(self) -> bool:
        """Returns whether the rule allows its principal to write its topics."""
        return self.permission == "ALLOW" and self.operation in ("WRITE", "ALL")

    def covers(self, topic: str) -> bool:
        """Returns whether the rule applies to the topic."""
        if self.resource_type != "TOPIC":
            return False
        if self.pattern == "PREFIXED":
            return topic.startswith(self.resource)
        return self.resource in (topic, EVERY_TOPIC)


class TopicRules:
    """Rules on topics, found by the topic that they apply to."""

    def __init__(self, rules: Iterable[AclRule]) -> None:
        self._literal: defaultdict[str, list[AclRule]] = defaultdict(list)
        self._prefixed: list[AclRule] = []
        for rule in sorted(rules):
            if rule.resource_type != "TOPIC":
                continue
            if rule.pattern == "PREFIXED":
                self._prefixed.append(rule)
            else:
                self._literal[rule.resource].append(rule)

    def of(self, topic: str) -> list[AclRule]:
        """Returns the rules that apply to a topic."""
        literal = (*self._literal.get(topic, ()), *self._literal.get(EVERY_TOPIC, ()))
        return [*literal, *(rule for rule in self._prefixed if topic.startswith(rule.resource))]

    def writing(self, topic: str) -> list[AclRule]:
        """Returns the rules that let a principal write a topic."""
        return [rule for rule in self.of(topic) if rule.lets_write]

    def foreign_writers(self, topic: str, job: str | None) -> list[str]:
        """Returns the principals, other than the job's and User:*, that may write a topic."""
        return sorted({rule.principal for rule in self.writing(topic)} - {EVERYONE, job})


def denial(cluster: str, topic: str, principal: str) -> AclRule:
    """Returns the rule that keeps a principal from writing a topic."""
    return AclRule(cluster, "TOPIC", topic, "LITERAL", principal, "*", "WRITE", "DENY")


def rules_of_open_topic(cluster: str, topic: str, job: str, *, closed: bool) -> Iterator[AclRule]:
    """Yields the rules of a mirror that everyone may write because no rule speaks of it.

    A topic that is `closed` by mirrored rules lacks only the right of the job.
    """
    whole = AclRule(cluster, "TOPIC", topic, "LITERAL", job, "*", "ALL", "ALLOW")
    yield whole
    for operation in () if closed else NOT_WRITE:
        yield replace(whole, principal=EVERYONE, operation=operation)


def flow_origin(flow: str) -> str:
    """Returns the origin, in the registry, of what a flow makes: mirror topics, mirrored rules, denials."""
    return f"flow.{flow}"


def protection_origin(flows: Iterable[str], instead: str = "") -> str:
    """Returns the origin of a rule that stands in the place of a right of everyone, in the registry."""
    origin = f"{PROTECTION} of {', '.join(f'flow.{name}' for name in sorted(flows))}"
    return f"{origin}, instead of {instead}" if instead else origin


WITHOUT_RULES = "allow.everyone.if.no.acl.found"
