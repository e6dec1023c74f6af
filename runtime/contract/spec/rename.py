"""Rename rules map a topic's name at the source to its name at the destination, and back.

A name that a rule does not match stays as it is. So a rule may still map two live topics to one name (`a-x`
and `b-x` under `a-(.*)` → `b-\\1`). That depends on the topics, and is found where they are known. This
module refuses a rule only where its form alone makes it impossible to invert. `backward` prefers the name
that the rule matches, and for every rule and every topic holds:

    forward(rule, backward(rule, name)) == name        wherever backward gives a name
    backward(rule, forward(rule, topic)) == topic      wherever no second topic has the same forward name

A rule by a regex is read as literal text and groups, so that it can be inverted. The inverse needs two
things. Every character of the old name is either literal in `match` or inside one of its groups, so the
groups' texts give the old name. And the new name splits into the groups' texts in one way only: at most one
group has an open end, each other group is delimited by literal text that it cannot match.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Annotated, ClassVar, Final, assert_never

from runtime.contract.spec.naming import illegal_because, illegal_character
from runtime.contract.spec.selection import LONGEST, Regex, UnreadableRegex, matches, regex
from runtime.contract.spec.shapes import (
    AlternativesShape,
    Key,
    MapShape,
    RecordName,
    SpecStruct,
    TextShape,
    ValueShape,
    record_of,
)
from runtime.contract.spec.shapes import Regex as RegexText

Piece = str | int  # literal text, or the number of a group

_LITERAL = re.compile(r"\\([^A-Za-z0-9])|([A-Za-z0-9_\-])")
_REFERENCE = re.compile(r"\\(\d+)|\\g<(\w+)>")
_ESCAPE_OR_CLASS = re.compile(r"\\.|\[\^?\]?(?:\\.|[^\]\\])*\]", re.DOTALL)
_ATOM = re.compile(r"\[\^?\]?(?:\\.|[^\]\\])*\]|\\[dwDWsS]|\\[^A-Za-z0-9]|\.|[A-Za-z0-9_\-]")
_NOT_AN_ATOM = re.compile(r"\(\?:|\)|\||[*+?]\??|\{\d*,?\d*\}\??")


class IrreversibleRename(ValueError):
    """The rule cannot be inverted; the text says why and what to write instead."""


@dataclass(frozen=True, slots=True)
class ReversibleRename:
    """Holds a parsed rule that maps names in both directions."""

    pattern: Regex
    inverse: Regex
    old: tuple[Piece, ...]
    new: tuple[Piece, ...]

    def forward(self, topic: str) -> str:
        """Returns the new name; a topic that the rule does not match stays as it is."""
        texts = self.pattern.captured(topic)
        if texts is None:
            return topic
        return "".join(texts[piece - 1] if isinstance(piece, int) else piece for piece in self.new)

    def backward(self, name: str) -> str | None:
        """Returns the old name; None where the rule yields no such name."""
        texts = self.inverse.captured(name)
        if texts is not None:
            groups = dict(zip((piece for piece in self.new if isinstance(piece, int)), texts, strict=True))
            old = "".join(groups[piece] if isinstance(piece, int) else piece for piece in self.old)
            if self.forward(old) == name and illegal_because(old) is None:
                return old
        return None if self.pattern.matches(name) else name


def pattern_problem(pattern: str, to: str) -> str | None:
    """Returns why the rule cannot be inverted, or None."""
    try:
        shape(pattern, to)
    except IrreversibleRename as error:
        return str(error)
    return None


@lru_cache(maxsize=256)
def shape(pattern: str, to: str) -> ReversibleRename:
    """Returns the parsed rule. Raises IrreversibleRename where it cannot be inverted."""
    try:
        compiled = regex(pattern)
    except UnreadableRegex as wrong:
        raise IrreversibleRename(f"match: {pattern!r} {wrong.what}: {wrong.hint}") from None
    if len(to) > LONGEST:
        raise IrreversibleRename(f"to: it is longer than {LONGEST:,} characters")
    old, bodies = _read_match(pattern)
    new = _read_to(to, compiled)
    for number in bodies:
        if number not in new:
            raise IrreversibleRename(
                f"to: leaves out group {number} of {pattern!r}: two names would become one"
            )
        if new.count(number) > 1:
            raise IrreversibleRename(f"to: {to!r} has group {number} twice: write it once")
    _splits_one_way(new, bodies)
    return ReversibleRename(compiled, _inverse(new, bodies), old, new)


def _read_match(pattern: str) -> tuple[tuple[Piece, ...], dict[int, str]]:
    """Returns the pattern as literals and groups, and the inner pattern of each group."""
    text = pattern.removeprefix("^")
    if text.endswith("$") and not text.endswith("\\$"):
        text = text[:-1]
    pieces: list[Piece] = []
    bodies: dict[int, str] = {}
    at = 0
    while at < len(text):
        if literal := _LITERAL.match(text, at):
            pieces.append(literal[1] or literal[2])
            at = literal.end()
        elif text[at] == "(":
            end = _end_of_group(text, at)
            number = len(bodies) + 1
            bodies[number] = _body(text[at + 1 : end], pattern)
            pieces.append(number)
            at = end + 1
        else:
            raise IrreversibleRename(
                f"match: {text[at:]!r} of {pattern!r} stands outside a group, so it could not be put back:"
                " write ( ) round what varies, and \\. for a dot"
            )
    return tuple(pieces), bodies


def _end_of_group(text: str, start: int) -> int:
    """Returns the position at which the group that opens at `start` closes."""
    depth, at = 0, start
    while at < len(text):
        if whole := _ESCAPE_OR_CLASS.match(text, at):
            at = whole.end()
            continue
        depth += {"(": 1, ")": -1}.get(text[at], 0)
        if depth == 0:
            return at
        at += 1
    raise IrreversibleRename(f"match: a group of {text!r} is not closed")


def _body(inside: str, pattern: str) -> str:
    """Returns the inner pattern of a group, without the group's name."""
    body = re.sub(r"^\?P?<\w+>", "", inside)
    if body.startswith("?"):
        raise IrreversibleRename(
            f"match: '({inside})' of {pattern!r} is no plain group: write ( ) round what varies"
        )
    bare = _ESCAPE_OR_CLASS.sub("x", body)
    if re.search(r"\((?!\?:)|[\^$]|[*+?}]\+", bare) or re.search(r"\\[1-9AbBZ]", body):
        raise IrreversibleRename(
            f"match: '({inside})' of {pattern!r} holds a group or a condition of its own:"
            " only (?: ) may stand inside"
        )
    return body


def _read_to(to: str, compiled: Regex) -> tuple[Piece, ...]:
    pieces: list[Piece] = []
    at = 0
    for reference in _REFERENCE.finditer(to):
        pieces += [to[at : reference.start()], _number(reference, compiled)]
        at = reference.end()
    pieces.append(to[at:])
    literals = "".join(piece for piece in pieces if isinstance(piece, str))
    if "$" in literals:
        raise IrreversibleRename(f"to: write \\1 where {to!r} has $1")
    if bad := illegal_character(literals):
        raise IrreversibleRename(f"to: a topic's name cannot hold {bad!r}, which stands in {to!r}")
    return tuple(piece for piece in pieces if piece != "")


def _number(reference: re.Match[str], compiled: Regex) -> int:
    text = reference[1] or reference[2]
    number = int(text) if text.isdecimal() else compiled.groupindex.get(text, 0)
    if not 1 <= number <= compiled.groups:
        raise IrreversibleRename(
            f"to: there is no group {text} in {compiled.pattern!r}, it has {compiled.groups}"
        )
    return number


def _splits_one_way(new: tuple[Piece, ...], bodies: dict[int, str]) -> None:
    """Checks that a new name splits into the groups' texts in one way only.

    It removes delimited groups from the left, then from the right: at most one may remain between them.
    """
    first = _cut(new, bodies)
    last = len(new) - 1 - _cut(new[::-1], bodies, backwards=True)
    open_groups = [piece for piece in new[first : last + 1] if isinstance(piece, int)]
    if len(open_groups) > 1:
        raise IrreversibleRename(
            f"to: where group {open_groups[0]} ends and group {open_groups[1]} begins cannot be told:"
            " put text between them that one of them cannot hold, as in ([a-z]+)\\.(.*)"
        )


def _cut(pieces: tuple[Piece, ...], bodies: dict[int, str], *, backwards: bool = False) -> int:
    """Returns how many pieces from this end have unambiguous limits."""
    for at, piece in enumerate(pieces):
        if isinstance(piece, str):
            continue
        beyond = pieces[at + 1] if at + 1 < len(pieces) else None
        if not isinstance(beyond, str):
            return at
        if _may_hold(bodies[piece], beyond[-1] if backwards else beyond[0]):
            return at
    return len(pieces)


def _may_hold(body: str, char: str) -> bool:
    """Returns whether a text that the group matches may hold this character; True where that is unknown."""
    at = 0
    while at < len(body):
        if atom := _ATOM.match(body, at):
            if _atom_may_hold(atom[0], char):
                return True
            at = atom.end()
        elif other := _NOT_AN_ATOM.match(body, at):
            at = other.end()
        else:
            return True
    return False


def _atom_may_hold(atom: str, char: str) -> bool:
    try:
        return matches(atom, char)
    except UnreadableRegex:
        return True


def _inverse(new: tuple[Piece, ...], bodies: dict[int, str]) -> Regex:
    """Returns the regex of new names. Its groups are in the order of `new`."""
    text = "".join(re.escape(piece) if isinstance(piece, str) else f"({bodies[piece]})" for piece in new)
    try:
        return regex(text)
    except UnreadableRegex as wrong:
        raise IrreversibleRename(f"to: the way back, {text[:60]!r}, {wrong.what}: {wrong.hint}") from None


class Template(SpecStruct, frozen=True, tag="template"):
    """Holds a rule such as `{source}.{topic}`: literal text around the placeholders `{topic}` and
    `{source}`.
    """

    text: str


class Match(SpecStruct, frozen=True, tag="match"):
    """Holds a whole-name regex and its replacement: `{match: "a-(.*)", to: "b-\\1"}`.

    Other names stay as they are.
    """

    record: ClassVar = RecordName("rename-match", "a rename by regex")

    match: Annotated[RegexText, Key("A regex for whole names.", example='"a-(.*)"')]
    to: Annotated[
        Annotated[RegexText, TextShape("a replacement")],
        Key("The replacement, with \\1 for the first group.", example='"b-\\\\1"'),
    ]


class Table(SpecStruct, frozen=True, tag="table"):
    """Holds names that are written out, as `{orders: orders.copy}`; any other name stays as it is."""

    names: Mapping[str, str]

    def __hash__(self) -> int:
        return hash(tuple(sorted(self.names.items())))


Rename = Template | Match | Table

SAME_NAME: Final = Template("{topic}")
RENAME: Final = AlternativesShape(
    (
        TextShape("a template"),
        record_of(Match),
        MapShape(ValueShape.TOPIC_NAME, ValueShape.TOPIC_NAME, "topic", least=1),
    ),
    '"{topic}" with text around it, {match: …, to: …} or a map of names',
)


def forward(rule: Rename, topic: str, source_cluster: str) -> str:
    """Returns the name at the destination."""
    match rule:
        case Template(text):
            before, after = _around(text, source_cluster)
            return f"{before}{topic}{after}"
        case Match(pattern, to):
            return shape(pattern, to).forward(topic)
        case Table():
            return rule.names.get(topic, topic)
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
            return shape(pattern, to).backward(name)
        case Table():
            if name in _old_by_new(rule):
                return _old_by_new(rule)[name]
            return None if name in rule.names else name
        case _:
            assert_never(rule)


def problem(rule: Rename) -> str | None:
    """Returns why the rule cannot be used (no inverse, or no legal name), or None where it can."""
    match rule:
        case Template(text):
            return _template_problem(text)
        case Match(pattern, to):
            return pattern_problem(pattern, to)
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


def _table_problem(names: Mapping[str, str]) -> str | None:
    taken: dict[str, str] = {}
    for old, new in sorted(names.items()):
        if why := illegal_because(old) or illegal_because(new):
            return why
        if new in taken:
            return f"{taken[new]} and {old} are both renamed to {new}: there would be no way back"
        taken[new] = old
    return None


@lru_cache(maxsize=4096)
def _around(text: str, source_cluster: str) -> tuple[str, str]:
    before, _, after = text.replace("{source}", source_cluster).partition("{topic}")
    return before, after


@lru_cache(maxsize=256)
def _old_by_new(rule: Table) -> dict[str, str]:
    return {new: old for old, new in rule.names.items()}
