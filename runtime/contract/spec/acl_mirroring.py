"""Mirrors the rules on source topics to the destination of a flow.

ALLOW WRITE is never mirrored: writers at the source need no access to the mirror. ALLOW ALL becomes READ and
DESCRIBE. A prefixed rule stays prefixed if the flow takes every topic under the prefix and the rename keeps a
common prefix. Otherwise each topic gets a rule of its own. A rule on every topic (`*`) is not mirrored: it
would also apply to the destination's own topics. Plan and job use the same code.
"""

from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import replace
from typing import Literal, assert_never

from runtime.contract.spec import rename as rename_rules
from runtime.contract.spec.acls import EVERY_TOPIC, AclRule
from runtime.contract.spec.naming import is_internal
from runtime.contract.spec.rename import SAME_NAME, Match, Table, Template
from runtime.contract.spec.route import CompiledRoute


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
            there = replace(rule, cluster=self._route.route.destination, resource=resource, pattern=pattern)
            for operation in operations:
                yield topic, replace(there, operation=operation)

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
            spoken_of = any(old.startswith(prefix) or new.startswith(prefix) for old, new in names)
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
