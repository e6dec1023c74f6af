"""Writes values as YAML for people: short maps on one line, quotes only where they are needed."""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from planner.render.escape import UNSHOWABLE

WIDTH = 110

_BARE = re.compile(r"[A-Za-z_][A-Za-z0-9_./+-]*|/[A-Za-z0-9_./+-]+")
_BARE_VALUE = re.compile(r"-?(0|[1-9]\d*)(\.\d+)?|\d+(ms|s|m|h|d|w|B|[KMGT]i?B)(/s)?")
_HOST_PORT = re.compile(r"[A-Za-z0-9][A-Za-z0-9.-]*:\d{1,5}")
# What one YAML reader or another takes for something else than text.
_WORDS = frozenset({"true", "false", "yes", "no", "on", "off", "y", "n", "null", "~", ".nan", ".inf"})
_UNPRINTABLE = re.compile(f"[{UNSHOWABLE}]")


@dataclass(frozen=True, slots=True)
class UnquotedText:
    """A word of the language, or a quantity, which is never quoted."""

    text: str


Value = str | int | bool | UnquotedText | Sequence["Value"] | Mapping[str, "Value"]


def scalar(value: str | int | bool | UnquotedText) -> str:
    match value:
        case UnquotedText(text):
            return text
        case bool():
            return "true" if value else "false"
        case int():
            return str(value)
        case str():
            return _text(value)


def printable(text: str) -> str:
    """Returns text for a comment: a character that YAML refuses becomes a question mark."""
    return _UNPRINTABLE.sub("?", text.replace("\n", " "))


def setting(value: str) -> str | UnquotedText:
    """Returns the value of a Kafka setting: a number or a quantity is not quoted."""
    if _BARE_VALUE.fullmatch(value) or value in ("true", "false"):
        return UnquotedText(value)
    return value


def _text(value: str) -> str:
    if (_BARE.fullmatch(value) or _HOST_PORT.fullmatch(value)) and value.lower() not in _WORDS:
        return value
    # A brace pair would be computed as an expression, so it is written as one that yields itself.
    value = re.sub(r"\{\{|\{%|\{#", lambda found: "{{ '" + found[0] + "' }}", value)
    if _UNPRINTABLE.search(value) or ('"' in value and "'" in value):
        return '"' + "".join(_escaped(sign) for sign in value) + '"'
    if "\\" in value or '"' in value:
        return "'" + value.replace("'", "''") + "'"
    return f'"{value}"'


def _key(key: str) -> str:
    return key if key.isdecimal() else _text(key)


def _escaped(sign: str) -> str:
    match sign:
        case '"' | "\\":
            return "\\" + sign
        case "\n":
            return "\\n"
        case "\t":
            return "\\t"
        case _ if _UNPRINTABLE.match(sign):
            number = ord(sign)
            return (
                f"\\x{number:02x}"
                if number < 256
                else f"\\u{number:04x}"
                if number < 65536
                else f"\\U{number:08x}"
            )
        case _:
            return sign


def inline(value: Value) -> str:
    """Returns a value on one line: `{a: 1, b: [x, y]}`."""
    match value:
        case str() | int() | UnquotedText():
            return scalar(value)
        case Mapping():
            return "{" + ", ".join(f"{_key(key)}: {inline(one)}" for key, one in value.items()) + "}"
        case _:
            return "[" + ", ".join(inline(one) for one in value) + "]"


def pair(key: str, value: Value, indent: int = 0) -> Iterator[str]:
    """Yields `key: value` on one line if it fits, otherwise the parts below the key."""
    margin = " " * indent
    line = f"{margin}{_key(key)}: {inline(value)}"
    if len(line) <= WIDTH or not _has_parts(value):
        yield line
        return
    yield f"{margin}{_key(key)}:"
    yield from below(value, indent + 2)


def below(value: Value, indent: int) -> Iterator[str]:
    """Yields the parts of a map or list, each on its own lines."""
    match value:
        case Mapping():
            for key, one in value.items():
                yield from pair(key, one, indent)
        case _:
            assert isinstance(value, Sequence)
            assert not isinstance(value, str)
            for one in value:
                yield from item(one, indent)


def item(value: Value, indent: int) -> Iterator[str]:
    """Yields `- value` on one line if it fits, otherwise the parts, the first behind the dash."""
    margin = " " * indent
    line = f"{margin}- {inline(value)}"
    if len(line) <= WIDTH or not _has_parts(value):
        yield line
        return
    lines = below(value, indent + 2)
    yield f"{margin}- {next(lines).lstrip()}"
    yield from lines


def _has_parts(value: Value) -> bool:
    return not isinstance(value, str | int | UnquotedText) and bool(value)
