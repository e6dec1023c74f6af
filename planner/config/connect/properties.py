"""Reads Java's properties files: key and value of each line, with the line's number."""

import re
from collections.abc import Iterator
from dataclasses import dataclass

_ESCAPES = {"t": "\t", "n": "\n", "r": "\r", "f": "\f"}
_UNICODE = re.compile(r"[0-9A-Fa-f]{4}")


@dataclass(frozen=True, slots=True)
class Property:
    key: str
    value: str
    line: int


def properties_of(text: str) -> list[Property]:
    """Returns the properties as java.util.Properties reads them: of equal keys the last one wins."""
    found: dict[str, Property] = {}
    for number, line in _logical_lines(text):
        key, value = _split(line)
        found[key] = Property(key, value, number)
    return list(found.values())


def _logical_lines(text: str) -> Iterator[tuple[int, str]]:
    """Yields lines without comments and blanks; an odd number of backslashes at the end continues a line."""
    whole, start = "", 0
    for number, natural in enumerate(text.splitlines(), 1):
        line = natural.lstrip(" \t\f")
        if not whole and (not line or line[0] in "#!"):
            continue
        start = start if whole else number
        trailing = len(line) - len(line.rstrip("\\"))
        if trailing % 2:
            whole += line[:-1]
            continue
        yield start, whole + line
        whole = ""
    if whole:
        yield start, whole


def _split(line: str) -> tuple[str, str]:
    """Returns key and value: the key ends at the first `=`, `:` or blank that is not escaped."""
    at = 0
    while at < len(line) and line[at] not in "=: \t\f":
        at += 2 if line[at] == "\\" else 1
    key, rest = line[:at], line[at:].lstrip(" \t\f")
    if rest[:1] in ("=", ":"):
        rest = rest[1:].lstrip(" \t\f")
    return _unescaped(key), _unescaped(rest)


def _unescaped(text: str) -> str:
    signs: list[str] = []
    at = 0
    while at < len(text):
        if text[at] != "\\" or at + 1 == len(text):
            signs.append(text[at])
            at += 1
            continue
        escaped = text[at + 1]
        if escaped == "u" and _UNICODE.fullmatch(text[at + 2 : at + 6]):
            signs.append(chr(int(text[at + 2 : at + 6], 16)))
            at += 6
            continue
        signs.append(_ESCAPES.get(escaped, escaped))
        at += 2
    return "".join(signs)
