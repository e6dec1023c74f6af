"""Replaces and removes fields of a JSON object in its text. Every other byte of the text stays. It is pure.

A field that occurs twice is replaced or removed twice, and its name may be written with escapes: no value
that a transform hides gets through in another spelling. Spark has checked the text before.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field

import msgspec

from runtime.contract.spec.transform import fields_of

_STRING = rb'"(?:[^"\\]|\\.)*+"'
_MEMBER = re.compile(
    rb"\s*(" + _STRING + rb")\s*:\s*(?:(" + _STRING + rb'|[^\s,{}\[\]":]+)|([{\[]))', re.DOTALL
)
_MARK = re.compile(_STRING + rb"|[{}\[\]]", re.DOTALL)
_NEXT = re.compile(rb"\s*([,}])")
_OPEN = re.compile(rb"\s*\{")
_EMPTY = re.compile(rb"\s*\}")
_BLANK = re.compile(rb"\s*\Z")
_NULL = b"null"


class UneditableValue(ValueError):
    """The value cannot be edited: it is no complete JSON object, or its new content is null."""


@dataclass(slots=True)
class _Fields:
    """The fields of one object that change: dropped, set by the number of the value, or changed inside."""

    drop: set[bytes] = field(default_factory=set)
    set: dict[bytes, int] = field(default_factory=dict)
    inside: dict[bytes, _Fields] = field(default_factory=dict)


class JsonEditor:
    """An editor changes the same fields of every text; new values come in the order of the sorted paths."""

    def __init__(self, paths: Mapping[str, str], drop: list[str]) -> None:
        self._root = _Fields()
        for path in drop:
            *outer, last = (name.encode() for name in fields_of(path))
            self._at(outer).drop.add(last)
        for number, path in enumerate(sorted(paths)):
            *outer, last = (name.encode() for name in fields_of(path))
            self._at(outer).set[last] = number

    def edited(self, text: bytes, values: list[bytes]) -> bytes:
        """Returns the text with the new values, each as JSON. Raises UneditableValue.

        A field that is not in the text is added, unless its new value is null or the object around it is not
        there.
        """
        opened = _OPEN.match(text)
        if opened is None:
            raise UneditableValue("no JSON object")
        parts: list[bytes] = [text[: opened.end()]]
        end = _edit(text, opened.end(), self._root, values, parts)
        if _BLANK.match(text, end) is None:
            raise UneditableValue("text behind the JSON object")
        parts.append(text[end:])
        return b"".join(parts)

    def _at(self, outer: list[bytes]) -> _Fields:
        found = self._root
        for name in outer:
            found = found.inside.setdefault(name, _Fields())
        return found


def _edit(text: bytes, at: int, changed: _Fields, values: list[bytes], parts: list[bytes]) -> int:
    """Appends the object whose members begin at `at`, and returns where it ends."""
    if (empty := _EMPTY.match(text, at)) is not None:
        added = _added(changed, set(), values)
        parts.append(b",".join(added) + text[at : empty.end()] if added else text[at : empty.end()])
        return empty.end()
    members: list[bytes] = []
    seen: set[bytes] = set()
    while True:
        member = _MEMBER.match(text, at)
        if member is None:
            raise UneditableValue(f"no member of the JSON object at byte {at}")
        name = _name(member[1])
        begin = member.start(2) if member[2] is not None else member.start(3)
        end = member.end() if member[2] is not None else _end(text, begin)
        follows = _NEXT.match(text, end)
        if follows is None:
            raise UneditableValue(f"no end of the member of the JSON object at byte {at}")
        behind = follows.start(1)
        seen.add(name)
        if name in changed.drop:
            pass
        elif (number := changed.set.get(name)) is not None:
            members.append(text[at:begin] + values[number] + text[end:behind])
        elif name in changed.inside and member[3] == b"{":
            inner: list[bytes] = [text[at : begin + 1]]
            _edit(text, begin + 1, changed.inside[name], values, inner)
            members.append(b"".join(inner) + text[end:behind])
        else:
            members.append(text[at:behind])
        at = follows.end()
        if follows[1] == b"}":
            break
    parts.append(b",".join([*members, *_added(changed, seen, values)]) + b"}")
    return at


def _added(changed: _Fields, seen: set[bytes], values: list[bytes]) -> list[bytes]:
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
    if b"\\" not in quoted:
        return quoted[1:-1]
    try:
        name: str = msgspec.json.decode(quoted, type=str)
    except msgspec.DecodeError as error:
        raise UneditableValue(f"a name of a JSON field can't be read: {error}") from None
    return name.encode()
