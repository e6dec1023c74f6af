"""Changes fields of JSON objects.

msgspec divides an object into its members and keeps the text of each value. So fields outside of the schema,
their order and the digits of numbers stay as they are.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence

import msgspec
import numpy as np
from msgspec import Raw

from runtime.sql.formats.encoded import Changes, RecordValues, UneditableValue


class _Name:
    """The name of a member that is equal to no other one, so that a dict of them has every member."""

    def __init__(self, text: str) -> None:
        self.text = text


_members = msgspec.json.Decoder(dict[str, Raw]).decode
_all_members = msgspec.json.Decoder(dict[_Name, Raw], dec_hook=lambda _, text: _Name(text)).decode
_text = msgspec.json.Encoder().encode
_string = msgspec.json.Decoder(str).decode
_NULL = b"null"
_SPACED, _BRACE, _ESCAPE = b'": ', b"{", b"\\"
_MOST_COLONS = 1_000_000  # a member takes about 200 bytes in memory
# msgspec's recursion ends at less than 1,000 levels, by the stack of the process. This limit is fixed.
_MOST_LEVELS = 500
_STEPS = np.zeros(256, np.int8)
_STEPS[list(b"[{")], _STEPS[list(b"]}")] = 1, -1
_NO_BRACKETS = bytes(set(range(256)) - set(b'[]{}"'))

# A string, or what Spark's parser takes for a number beside JSON.
_TOKEN = re.compile(rb'"[^"\\]*+(?:\\.[^"\\]*+)*+"|[-+]?(?:NaN|INF|Infinity)\b', re.DOTALL)
_SURROGATE = re.compile(rb"\\u[dD][89a-fA-F]")  # also of a whole pair, which msgspec reads
_MARK = b'"\\u0000'
_NO_UTF8 = b"\xff"


class JsonValues(RecordValues):
    """Objects of JSON, of which the same fields change."""

    decodes = False

    def edited(self, data: bytes, values: Sequence[bytes]) -> bytes:
        """Returns the object with the new values. Raises UneditableValue.

        A field that the object does not have is added, unless its new value is null or the object around it
        is not there. An object that has none of the fields is returned as it is.
        """
        if len(data) > _MOST_COLONS and data.count(b":") > _MOST_COLONS:
            raise UneditableValue(f"it has more than {_MOST_COLONS:,} members, or colons in its texts")
        if len(data) > _MOST_LEVELS and _levels(data) > _MOST_LEVELS:
            raise UneditableValue(f"it has more than {_MOST_LEVELS} objects or arrays within one another")
        try:
            if (edited := _edited(data, self._changes, values)) is None:
                return data
            return msgspec.json.format(edited, indent=0) if _SPACED in data else edited
        except ValueError:
            return self._edited_beside_json(data, values)

    def _edited_beside_json(self, text: bytes, values: Sequence[bytes]) -> bytes:
        """Returns what `edited` returns, of a text that msgspec refuses as it is. Raises UneditableValue."""
        tokens = _Tokens()
        new = [tokens.hidden(value) for value in values]
        try:
            if (edited := _edited(tokens.hidden(text), self._changes, new)) is None:
                return text
            return tokens.shown(msgspec.json.format(edited, indent=0 if _SPACED in text else -1))
        except UnicodeDecodeError:
            raise UneditableValue("the name of a field is no UTF-8") from None
        except ValueError:
            raise UneditableValue("no JSON object") from None


def _levels(text: bytes) -> int:
    """Returns how many objects and arrays are within one another at most; 0 where there are few in all."""
    if text.count(b"[") + text.count(b"{") <= _MOST_LEVELS:
        return 0
    if rb"\"" in text:
        text = text.replace(rb"\\", b"").replace(rb"\"", b"")
    quoted = text.translate(None, _NO_BRACKETS).replace(b'""', b"")
    brackets = b"".join(quoted.split(b'"')[::2])  # what is outside of strings
    return int(np.cumsum(_STEPS[np.frombuffer(brackets, np.uint8)]).max(initial=0))


def _edited(text: bytes | Raw, changes: Changes, values: Sequence[bytes]) -> bytes | None:
    """Returns the object without blanks; None where it has none of the fields, and gets none.

    Where a name occurs several times, the last value counts, and no other one stays.
    """
    members = _members(text)
    changed = False
    for name in changes.drop:
        if name in members:
            del members[name]
            changed = True
    for name, number in changes.set.items():
        if name in members or values[number] != _NULL:
            members[name] = Raw(values[number])
            changed = True
    for name, inside in changes.inside.items():
        if (member := members.get(name)) is None or not bytes(member).startswith(_BRACE):
            continue
        if (edited := _edited(member, inside, values)) is not None:
            members[name] = Raw(edited)
            changed = True
    return _text(members) if changed or _occur_twice(text, changes.inside.keys() & members) else None


def _occur_twice(text: bytes | Raw, names: Collection[str]) -> bool:
    """Returns whether an object has one of the names several times: only the last value was looked at."""
    if not names:
        return False
    raw = bytes(text)
    if _ESCAPE not in raw and all(raw.count(_text(name)) == 1 for name in names):
        return False
    every = [name.text for name in _all_members(raw)]
    return any(every.count(name) > 1 for name in names)


class _Tokens:
    """Hides tokens that msgspec refuses and Spark reads: NaN, infinities, and halves of surrogate pairs.

    Each is replaced by a string that begins with U+0000, and so is every string of the text that does.
    No other string is: the name of a changed field must be found.
    """

    def __init__(self) -> None:
        self._tokens: list[bytes] = []

    def hidden(self, text: bytes) -> bytes:
        return _TOKEN.sub(self._hide, text)

    def shown(self, text: bytes) -> bytes:
        return _TOKEN.sub(self._show, text)

    def _hide(self, match: re.Match[bytes]) -> bytes:
        token = match[0]
        if token.startswith(b'"') and not token.startswith(_MARK) and _is_readable(token):
            return token
        self._tokens.append(token)
        # A name that is no UTF-8 is refused, so its string is none, either.
        is_utf8 = token.decode(errors="replace").encode() == token
        return _MARK + b'%d%b"' % (len(self._tokens) - 1, b"" if is_utf8 else _NO_UTF8)

    def _show(self, match: re.Match[bytes]) -> bytes:
        token = match[0]
        return (
            self._tokens[int(token[len(_MARK) : -1].removesuffix(_NO_UTF8))]
            if token.startswith(_MARK)
            else token
        )


def _is_readable(string: bytes) -> bool:
    """Returns whether msgspec reads a string, as far as halves of surrogate pairs are concerned."""
    if not _SURROGATE.search(string):
        return True
    try:
        _string(string)
    except ValueError:
        return False
    return True
