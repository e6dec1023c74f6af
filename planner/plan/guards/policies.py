"""`policies.require`: a comparison that every managed topic must pass."""

import operator
from collections.abc import Callable, Iterable, Iterator
from decimal import Decimal, InvalidOperation

from planner.diff.values import readable
from planner.model.desired import DesiredTopic
from planner.model.diagnostic import Diagnostic, ExitCode, error
from planner.model.observed import Observed, ObservedCluster
from planner.model.topology import Requirement

COMPARE: dict[str, Callable[[Decimal, Decimal], bool]] = {
    ">=": operator.ge,
    "<=": operator.le,
    ">": operator.gt,
    "<": operator.lt,
    "==": operator.eq,
    "!=": operator.ne,
}
UNLIMITED = frozenset({"retention.ms", "retention.bytes", "local.retention.ms", "local.retention.bytes"})


def unmet_requirements(
    requirements: Iterable[Requirement], topics: Iterable[DesiredTopic], observed: Observed
) -> Iterator[Diagnostic]:
    """Yields a refusal for each topic that fails a requirement."""
    rules = tuple(requirements)
    for topic in topics if rules else ():
        cluster = observed.reachable(topic.cluster)
        for rule in rules:
            found = value_of(rule.subject, topic, cluster)
            if found is None or holds(rule, found):
                continue
            yield error(
                f"{rule.subject} is {readable(rule.subject, found)}, "
                f'policies.require says "{rule.operator}{readable(rule.subject, rule.value)}"',
                f"declare a {rule.subject} of the topic that the policy allows",
                address=str(topic.address),
                source=topic.source,
                code="policy",
                exit=ExitCode.REFUSED,
            )


def value_of(subject: str, topic: DesiredTopic, cluster: ObservedCluster | None) -> str | None:
    """Returns the topic's value after the plan: declared, live or the cluster's default; None if unknown."""
    live = cluster.topics.get(topic.name) if cluster is not None else None
    match subject:
        case "partitions":
            wanted, found = topic.partitions, live.partitions if live else None
            own = cluster.default_partitions if cluster else None
            return _text(wanted, found, own)
        case "replication":
            wanted, found = topic.replication, live.replication if live else None
            own = cluster.default_replication if cluster else None
            return _text(wanted, found, own)
        case key:
            there = live.config[key].value if live is not None and key in live.config else None
            back = there if key not in topic.unset else None
            return _text(topic.config.get(key), back, cluster.defaults.get(key) if cluster else None)


def _text(*values: int | str | None) -> str | None:
    return next((str(value) for value in values if value is not None), None)


def holds(rule: Requirement, found: str) -> bool:
    """Returns whether the value passes the requirement.

    Numbers are compared as numbers, -1 of a retention means no limit, and words are compared for equality.
    """
    left, right = _number(rule.subject, found), _number(rule.subject, rule.value)
    if left is not None and right is not None:
        return COMPARE[rule.operator](left, right)
    match rule.operator:
        case "==":
            return found == rule.value
        case "!=":
            return found != rule.value
        case _:
            return False


def _number(subject: str, text: str) -> Decimal | None:
    if subject in UNLIMITED and text == "-1":
        return Decimal("Infinity")
    try:
        return Decimal(text)
    except InvalidOperation:
        return None
