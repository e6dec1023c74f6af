"""Removes the secrets that this process has read from texts of clients and brokers.

librdkafka quotes a value that it refuses, and a broker may return a value that it received. Every value that
a reference resolved to is remembered here. Code that makes an error out of foreign text passes it through
`redacted`.
"""

from __future__ import annotations

import re
import threading

SENSITIVE = "(sensitive value)"

# A shorter value is replaced only between quotes: elsewhere the replacement would break words.
_MIN_LENGTH = 6
_MIN_LINE_LENGTH = 16
_QUOTED_BY_LIBRDKAFKA = re.compile(r'Invalid value "(.*?)("(?= for configuration property)|\Z)', re.DOTALL)


class _Remembered:
    """Holds the remembered values, longest first, so that a value that contains another is replaced whole."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._values: frozenset[str] = frozenset()
        self._pattern: re.Pattern[str] | None = None

    def add(self, value: str) -> None:
        lines = [line.strip() for line in value.splitlines()]
        more = {value, value.strip(), *(line for line in lines if len(line) >= _MIN_LINE_LENGTH)} - {""}
        with self._lock:
            if more <= self._values:
                return
            self._values |= more
            ordered = sorted(self._values, key=len, reverse=True)
            self._pattern = re.compile(
                "|".join(
                    re.escape(one) if len(one) >= _MIN_LENGTH else rf"(?<=[\"'`]){re.escape(one)}(?=[\"'`])"
                    for one in ordered
                )
            )

    def redacted(self, text: str) -> str:
        pattern = self._pattern
        return text if pattern is None else pattern.sub(SENSITIVE, text)


_REMEMBERED = _Remembered()


def remember(value: str) -> None:
    """Makes `redacted` hide this value, and each of its long lines, from now on."""
    _REMEMBERED.add(value)


def redacted(text: str) -> str:
    """Returns the text with every remembered value replaced."""
    return _REMEMBERED.redacted(text)


def without_quoted_value(text: str) -> str:
    """Returns the error text of a client that could not be made, without the value that librdkafka quotes."""
    return redacted(_QUOTED_BY_LIBRDKAFKA.sub("Invalid value", text))
