"""Replaces and removes fields of a JSON object in its text. Every other byte of the text stays. It is pure.

A field that occurs twice is replaced or removed twice, and its name may be written with escapes: no value
that a transform hides gets through in another spelling. Spark has checked the text before.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

import msgspec

from runtime.contract.spec.transform import fields_of

# Only characters and escapes are repeated possessively, and other groups are atomic. Python before 3.11.5
# does not go back where the last repetition of a possessive group fails half-way.
_STRING = rb'"[^"\\]*+(?:\\.[^"\\]*+)*+"'
_SCALAR = rb'[^\s,{}\[\]":]++'
_DEEPEST = 3  # objects and arrays within one another that the pattern of a member passes over


def _nested(depth: int) -> bytes:
    """Returns the pattern of an object or array of so many levels, whose brackets match: it is valid JSON."""
    inside = rb'[^"{}\[\]]++|' + _STRING + (rb"|" + _nested(depth - 1) if depth > 1 else b"")
    return rb"[{\[](?>(?:" + inside + rb")*)[}\]]"


_VALUE = _STRING + rb"|" + _SCALAR + rb"|" + _nested(_DEEPEST)
_MARK = re.compile(_STRING + rb"|[{}\[\]]", re.DOTALL)
_NEXT = re.compile(rb"\s*+([,}])")
_OPEN = re.compile(rb"\s*\{")
_EMPTY = re.compile(rb"\s*\}")
_BLANK = re.compile(rb"\s*\Z")
_NULL = b"null"
_COMMA = ord(",")
_BLANKS = b" \t\r\n"
_SIMPLE = re.compile(r"[A-Za-z_][A-Za-z0-9_-]*")
_FLAT = re.compile(rb'\s*+:\s*+("[^"]*+"|' + _SCALAR + rb")\s*+([,}])")


class UneditableValue(ValueError):
    """The value cannot be edited: it is no complete JSON object, or its new content is null."""


@dataclass(slots=True)
class _Fields:
    """The fields of one object that change: dropped, set by the number of the value, or changed inside."""

    drop: set[bytes] = field(default_factory=set)
    set: dict[bytes, int] = field(default_factory=dict)
    inside: dict[bytes, _Fields] = field(default_factory=dict)
    member: re.Pattern[bytes] = _MARK

    def compile(self) -> None:
        """Compiles the pattern of the next member that may change, or the last one, behind those that stay.

        A pattern that passes over members is several times faster than a loop over them. It stops at a name
        with escapes and at a value of more levels than `_DEEPEST`.
        """
        names = b"|".join(map(re.escape, sorted([*self.drop, *self.set, *self.inside])))
        stays = rb'\s*+(?!"(?:' + names + rb')")"[^"\\]*+"\s*+:\s*+(?:' + _VALUE + rb")\s*+,"
        found = rb"\s*+(" + _STRING + rb")\s*+:\s*+(?:(" + _VALUE + rb")\s*+([,}])|[{\[])"
        self.member = re.compile(rb"((?>(?:" + stays + rb")*))" + found, re.DOTALL)
        for one in self.inside.values():
            one.compile()


class JsonEditor:
    """An editor changes the same fields of every text; new values come in the order of the sorted paths."""

    def __init__(self, paths: Mapping[str, str], drop: Iterable[str]) -> None:
        self._root = _Fields()
        for path in drop:
            *outer, last = (name.encode() for name in fields_of(path))
            self._at(outer).drop.add(last)
        for number, path in enumerate(sorted(paths)):
            *outer, last = (name.encode() for name in fields_of(path))
            self._at(outer).set[last] = number
        self._root.compile()
        # Quoted names with the numbers of their values, -1 for those that are dropped. It is empty where flat
        # objects can't be searched for them.
        numbers: dict[str, int] = dict.fromkeys(drop, -1) | {
            path: at for at, path in enumerate(sorted(paths))
        }
        fields = {path: fields_of(path) for path in numbers}
        self.flat = [(f'"{fields[path][0]}"'.encode(), number) for path, number in numbers.items()]
        if not all(len(one) == 1 and _SIMPLE.fullmatch(one[0]) for one in fields.values()):
            self.flat = []

    def edited(self, text: bytes, values: list[bytes]) -> bytes:
        """Returns the text with the new values, each as JSON. Raises UneditableValue.

        A field that is not in the text is added, unless its new value is null or the object around it is not
        there.
        """
        if self.flat and (flat := self._edited_flat(text, values)) is not None:
            return flat
        opened = _OPEN.match(text)
        if opened is None:
            raise UneditableValue("no JSON object")
        parts: list[bytes] = [text[: opened.end()]]
        end = _edit(text, opened.end(), self._root, values, parts)
        if end < len(text):
            if _BLANK.match(text, end) is None:
                raise UneditableValue("text behind the JSON object")
            parts.append(text[end:])
        return b"".join(parts)

    def _edited_flat(self, text: bytes, values: list[bytes]) -> bytes | None:
        """Returns what `edited` returns; None where it must do it.

        A text without escapes and with one pair of braces is searched for the quoted names. Spark has parsed
        it, so a quoted name before a colon is the name of a member of its only object.
        """
        if b"\\" in text or text[-1:] != b"}" or text.count(b"{") != 1 or text.count(b"}") != 1:
            return None
        cuts: list[tuple[int, int, bytes]] = []
        for quoted, number in self.flat:
            at = text.find(quoted)
            if at < 0:
                if number >= 0 and values[number] != _NULL:
                    return None
                continue
            found = _FLAT.match(text, at + len(quoted))
            if found is None or text.find(quoted, at + 1) >= 0:
                return None
            begin, end = found.span(1)
            if number >= 0:
                cuts.append((begin, end, values[number]))
                continue
            behind, after = found.span(2)
            while text[at - 1] in _BLANKS:
                at -= 1
            if text[at - 1] == _COMMA:
                cuts.append((at - 1, behind, b""))
            else:
                cuts.append((at, after if text[behind] == _COMMA else behind, b""))
        return _replaced(text, sorted(cuts))

    def _at(self, outer: list[bytes]) -> _Fields:
        found = self._root
        for name in outer:
            found = found.inside.setdefault(name, _Fields())
        return found


def _replaced(text: bytes, cuts: list[tuple[int, int, bytes]]) -> bytes | None:
    """Returns the text with other content in place of the cuts; None where they overlap."""
    parts: list[bytes] = []
    at = 0
    for begin, end, content in cuts:
        if begin < at:
            return None
        parts += text[at:begin], content
        at = end
    parts.append(text[at:])
    return b"".join(parts)


def _edit(text: bytes, at: int, changed: _Fields, values: list[bytes], parts: list[bytes]) -> int:
    """Appends the object whose members begin at `at`, and returns where it ends."""
    members: list[bytes] = []
    seen: set[bytes] = set()
    while True:
        member = changed.member.match(text, at)
        if member is None:
            if not members and (empty := _EMPTY.match(text, at)) is not None:
                parts.append(b",".join(_added(changed, seen, values)) + text[at : empty.end()])
                return empty.end()
            raise UneditableValue(f"no member of the JSON object at byte {at}")
        stay, quoted, value, follows = member.groups()
        if stay:
            members.append(stay[:-1])
            at += len(stay)
        if value is not None:
            begin, end = member.span(3)
            behind, after = member.start(4), member.end()
        else:
            begin = member.end() - 1
            end = _end(text, begin)
            if (next_ := _NEXT.match(text, end)) is None:
                raise UneditableValue(f"no end of the member of the JSON object at byte {at}")
            behind, after, follows = next_.start(1), next_.end(), next_[1]
        name = quoted[1:-1] if b"\\" not in quoted else _name(quoted)
        if (number := changed.set.get(name)) is not None:
            seen.add(name)
            members.append(text[at:begin] + values[number] + text[end:behind])
        elif name in changed.inside and text[begin : begin + 1] == b"{":
            inner: list[bytes] = [text[at : begin + 1]]
            _edit(text, begin + 1, changed.inside[name], values, inner)
            members.append(b"".join(inner) + text[end:behind])
        elif name not in changed.drop:
            members.append(text[at:behind])
        at = after
        if follows == b"}":
            break
    members += _added(changed, seen, values)
    parts.append(b",".join(members) + b"}")
    return at


def _added(changed: _Fields, seen: set[bytes], values: list[bytes]) -> list[bytes]:
    if len(seen) == len(changed.set):
        return []
    return [
        msgspec.json.encode(name.decode()) + b":" + values[number]
        for name, number in changed.set.items()
        if name not in seen and values[number] != _NULL
    ]


def _end(text: bytes, begin: int) -> int:
    """Returns where the object or array that begins here ends."""
    depth = 0
    for mark in _MARK.finditer(text, begin):
        if mark[0] in (b"{", b"["):
            depth += 1
        elif mark[0] in (b"}", b"]"):
            depth -= 1
            if depth == 0:
                return mark.end()
    raise UneditableValue("a JSON object or array does not end")


def _name(quoted: bytes) -> bytes:
    try:
        name: str = msgspec.json.decode(quoted, type=str)
    except msgspec.DecodeError as error:
        raise UneditableValue(f"a name of a JSON field can't be read: {error}") from None
    return name.encode()
