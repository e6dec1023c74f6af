"""Rename rules map a topic's name at the source to its name at the destination, and back.

A name that a rule does not match stays as it is. So a rule may still map two live topics to one name (`a-x`
and `b-x` under `a-(.*)` → `b-\\1`). That depends on the topics, and is found where they are known. This
module refuses a rule only where its form alone makes it impossible to invert. `backward` prefers the name
that the rule matches, and for every rule and every topic holds:

    forward(rule, backward(rule, name)) == name        wherever backward gives a name
    backward(rule, forward(rule, topic)) == topic      wherever no second topic has the same forward name
"""

import re
from dataclasses import dataclass
from functools import lru_cache
from typing import assert_never

from runtime.contract.spec import rename_match
from runtime.contract.spec.naming import illegal_because, illegal_character


@dataclass(frozen=True, slots=True)
class Template:
    """Holds a rule such as `{source}.{topic}`: literal text around the placeholders `{topic}` and
    `{source}`.
    """

    text: str


@dataclass(frozen=True, slots=True)
class Match:
    """Holds `{match: "a-(.*)", to: "b-\\1"}`: a whole-name regex and its replacement; other names keep
    theirs.
    """

    match: str
    to: str


@dataclass(frozen=True, slots=True)
class Table:
    """Holds names that are written out, as `{orders: orders.copy}`; any other name stays as it is."""

    names: tuple[tuple[str, str], ...]


Rename = Template | Match | Table

SAME_NAME = Template("{topic}")


def forward(rule: Rename, topic: str, source_cluster: str) -> str:
    """Returns the name at the destination."""
    match rule:
        case Template(text):
            before, after = _around(text, source_cluster)
            return f"{before}{topic}{after}"
        case Match(pattern, to):
            return rename_match.shape(pattern, to).forward(topic)
        case Table():
            return _new_by_old(rule).get(topic, topic)
        case _:
            assert_never(rule)


def backward(rule: Rename, name: str, source_cluster: str) -> str | None:
    """Returns the source topic that has this name at the destination, or None where there is none."""
    match rule:
        case Template(text):
            before, after = _around(text, source_cluster)
            long_enough = len(name) > len(before) + len(after)
            if not (long_enough and name.startswith(before) and name.endswith(after)):
                return None
            return name[len(before) : len(name) - len(after)]
        case Match(pattern, to):
            return rename_match.shape(pattern, to).backward(name)
        case Table():
            if name in _old_by_new(rule):
                return _old_by_new(rule)[name]
            return None if name in _new_by_old(rule) else name
        case _:
            assert_never(rule)


def problem(rule: Rename) -> str | None:
    """Returns why the rule cannot be used (no inverse, or no legal name), or None where it can."""
    match rule:
        case Template(text):
            return _template_problem(text)
        case Match(pattern, to):
            return rename_match.problem(pattern, to)
        case Table(names):
            return _table_problem(names)
        case _:
            assert_never(rule)


_PLACEHOLDER = re.compile(r"\{([^{}]*)\}")


def _template_problem(text: str) -> str | None:
    named = _PLACEHOLDER.findall(text)
    for name in named:
        if name not in ("topic", "source"):
            return f"{{{name}}} is unknown: a rename knows {{topic}} and {{source}}"
    if named.count("topic") != 1:
        times = "not there" if "topic" not in named else f"there {named.count('topic')} times"
        return f"{{topic}} must stand in a rename exactly once, it is {times}"
    if bad := illegal_character(_PLACEHOLDER.sub("", text)):
        return f"a topic's name cannot hold {bad!r}, which stands in {text!r}"
    return None


def _table_problem(names: tuple[tuple[str, str], ...]) -> str | None:
    taken: dict[str, str] = {}
    seen: set[str] = set()
    for old, new in names:
        if why := illegal_because(old) or illegal_because(new):
            return why
        if old in seen:
            return f"{old} is renamed twice"
        if new in taken:
            return f"{taken[new]} and {old} are both renamed to {new}: there would be no way back"
        seen.add(old)
        taken[new] = old
    return None


@lru_cache(maxsize=4096)
def _around(text: str, source_cluster: str) -> tuple[str, str]:
    before, _, after = text.replace("{source}", source_cluster).partition("{topic}")
    return before, after


@lru_cache(maxsize=256)
def _new_by_old(rule: Table) -> dict[str, str]:
    return dict(rule.names)


@lru_cache(maxsize=256)
def _old_by_new(rule: Table) -> dict[str, str]:
    return {new: old for old, new in rule.names}
