"""Decides which topics an ACL rule covers, which principals may write a mirror, and how rules are mirrored.

Plan and job use the same code. ALLOW WRITE is never mirrored: writers at the source need no access to the
mirror. ALLOW ALL becomes READ and DESCRIBE. A prefixed rule stays prefixed if the flow takes every topic
under the prefix and the rename keeps a common prefix. Otherwise each topic gets a rule of its own. A rule on
every topic (`*`) is not mirrored: it would also apply to the destination's own topics.
"""

from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass, replace
from typing import Literal, Self, assert_never

import msgspec

from runtime.contract.spec import rename as rename_rules
from runtime.contract.spec.naming import is_internal
from runtime.contract.spec.rename import SAME_NAME, Match, Table, Template
from runtime.contract.spec.route import CompiledRoute

EVERYONE = "User:*"
EVERY_TOPIC = "*"
PROTECTION = "protect: acl"  # the origin of a rule that keeps writers off begins so, in the registry
FENCE = "cutover "  # the origin of what stops the producers of a wave begins so, in the registry
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
        """Returns the part of its address behind the cluster.

        A star at the end means a prefix, or every resource: one in a resource's own name is escaped. The host
        stands behind the last `@`.
        """
        literal = self.pattern == "LITERAL"
        resource = self.resource
        if not (literal and resource == EVERY_TOPIC):
            resource = resource.replace("%", "%25").replace("*", "%2A") + ("" if literal else "*")
        host = "" if self.host == "*" and "@" not in self.principal else f"@{self.host}"
        return (
            f"{self.permission.lower()}.{self.principal}{host}.{self.operation}"
            f".{self.resource_type.lower()}.{resource}"
        )

    @property
    def spec(self) -> dict[str, str]:
        """The rule as the registry records it, below its cluster."""
        return {key: str(value) for key, value in asdict(self).items() if key != "cluster"}

    @classmethod
    def recorded(cls, cluster: str, spec: Mapping[str, str]) -> Self | None:
        """Returns the rule that an entry of the registry records; None for one of a newer release."""
        try:
            return msgspec.convert({**spec, "cluster": cluster}, cls)
        except msgspec.ValidationError:
            return None

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
    """Yields the rules of a mirror that every principal may write because no rule covers it.

    A topic that is `closed` by mirrored rules lacks only the right of the job.
    """
    whole = AclRule(cluster, "TOPIC", topic, "LITERAL", job, "*", "ALL", "ALLOW")
    yield whole
    for operation in () if closed else NOT_WRITE:
        yield replace(whole, principal=EVERYONE, operation=operation)


def flow_origin(flow: str) -> str:
    """Returns the registry's origin for the objects of a flow: mirror topics, mirrored rules, denials."""
    return f"flow.{flow}"


def protection_origin(flows: Iterable[str], instead: str = "") -> str:
    """Returns the registry's origin for a rule that replaces a rule for User:*."""
    origin = f"{PROTECTION} of {', '.join(f'flow.{name}' for name in sorted(flows))}"
    return f"{origin}, instead of {instead}" if instead else origin


WITHOUT_RULES = "allow.everyone.if.no.acl.found"


class AclMirror:
    """An AclMirror returns the rules at the destination of one flow that follow from rules at its source.

    `names` maps the copied topics to their names at the destination, `every` holds all topics of the source,
    and `left` those of them that were promoted on their own. `everywhere` and `split` collect what could not
    be mirrored as it is: principals with a rule on every topic, and prefixes.
    """

    def __init__(
        self,
        route: CompiledRoute,
        names: Mapping[str, str],
        every: Iterable[str],
        left: Collection[str],
    ) -> None:
        self._route = route
        self._names = names
        self._every = sorted(every)
        self._left = left
        self.everywhere: set[str] = set()
        self.split: set[str] = set()

    def of(self, rule: AclRule) -> Iterator[tuple[str, AclRule]]:
        """Yields the source's topic or prefix and the rule at the destination, for one rule at the source."""
        operations = tuple(_operations(rule))
        if rule.resource_type != "TOPIC" or not operations or is_internal(rule.resource):
            return
        if rule.resource == EVERY_TOPIC and rule.pattern == "LITERAL":
            self.everywhere.add(rule.principal)
            return
        for topic, resource, pattern in self._resources(rule):
            mirrored = replace(
                rule, cluster=self._route.route.destination, resource=resource, pattern=pattern
            )
            for operation in operations:
                yield topic, replace(mirrored, operation=operation)

    def _resources(self, rule: AclRule) -> list[tuple[str, str, Literal["LITERAL", "PREFIXED"]]]:
        """Returns the source name, the destination name and the pattern of each mirrored resource."""
        if rule.pattern == "LITERAL":
            destination = self._names.get(rule.resource)
            return [(rule.resource, destination, "LITERAL")] if destination is not None else []
        under = [topic for topic in self._every if topic.startswith(rule.resource)]
        taken = [topic for topic in under if topic in self._names]
        if not taken:
            return []
        whole = all(topic in self._names or topic in self._left for topic in under)
        prefix = destination_prefix(self._route, rule.resource) if whole else None
        if prefix is not None:
            return [(rule.resource, prefix, "PREFIXED")]
        self.split.add(rule.resource)
        return [(topic, self._names[topic], "LITERAL") for topic in taken]


def _operations(rule: AclRule) -> Iterable[str]:
    """Returns the operations that a mirrored rule has; nothing for ALLOW WRITE."""
    if rule.permission == "DENY":
        return (rule.operation,)
    if rule.operation == "ALL":
        return ("READ", "DESCRIBE")
    return () if rule.operation == "WRITE" else (rule.operation,)


def destination_prefix(compiled: CompiledRoute, prefix: str) -> str | None:
    """Returns the prefix that covers exactly the renamed topics; None if there is none or it is unknown."""
    rename = compiled.route.rename
    if compiled.route.undoes is not None:
        return prefix if rename == SAME_NAME else None
    match rename:
        case Template(text):
            before, _, after = text.replace("{source}", compiled.route.source).partition("{topic}")
            return before + prefix if not after else None
        case Table(names):
            spoken_of = any(old.startswith(prefix) or new.startswith(prefix) for old, new in names.items())
            return None if spoken_of else prefix
        case Match(pattern, to):
            return _through_match(pattern, to, prefix)
        case _:
            assert_never(rename)


def _through_match(pattern: str, to: str, prefix: str) -> str | None:
    r"""Renames a prefix by a regex: `a-(.*)` → `b-\1` turns the prefix `a-x` into `b-x`.

    Other shapes of regex return None.
    """
    shape = rename_rules.shape(pattern, to)
    groups = [piece for piece in shape.old if isinstance(piece, int)]
    open_end = pattern.removesuffix("$").endswith(("(.*)", "(.+)"))
    if len(groups) != 1 or not open_end or shape.new[-1] != groups[0]:
        return None
    old = "".join(piece for piece in shape.old if isinstance(piece, str))
    new = "".join(piece for piece in shape.new if isinstance(piece, str))
    return new + prefix.removeprefix(old) if prefix.startswith(old) else None
