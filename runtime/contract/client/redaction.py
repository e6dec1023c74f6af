"""Text from clients and brokers without the secrets that this process has read.

librdkafka quotes a value that it does not take, and a broker may send back what it was sent. Every value that
a reference came to is remembered here. Code that makes an error out of foreign text passes it through
`redacted`.
"""

from __future__ import annotations

import re
import threading

SENSITIVE = "(sensitive value)"

# A shorter value is replaced only where quotes stand around it: elsewhere it would tear words apart.
_LEAST = 6
_LEAST_OF_A_LINE = 16
_QUOTED_BY_LIBRDKAFKA = re.compile(r'Invalid value "(.*?)("(?= for configuration property)|\Z)', re.DOTALL)


class _Remembered:
    """The values, longest first, so that one that holds another is replaced whole."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._values: frozenset[str] = frozenset()
        self._pattern: re.Pattern[str] | None = None

    def add(self, value: str) -> None:
        lines = [line.strip() for line in value.splitlines()]
        more = {value, value.strip(), *(line for line in lines if len(line) >= _LEAST_OF_A_LINE)} - {""}
        with self._lock:
            if more <= self._values:
                return
            self._values |= more
            ordered = sorted(self._values, key=len, reverse=True)
            self._pattern = re.compile(
                "|".join(
                    re.escape(one) if len(one) >= _LEAST else rf"(?<=[\"'`]){re.escape(one)}(?=[\"'`])"
                    for one in ordered
                )
            )

    def redacted(self, text: str) -> str:
        pattern = self._pattern
        return text if pattern is None else pattern.sub(SENSITIVE, text)


_REMEMBERED = _Remembered()


def remember(value: str) -> None:
    """From now on `redacted` hides this value, and each of its long lines."""
    _REMEMBERED.add(value)


def redacted(text: str) -> str:
    """The text with every remembered value replaced."""
    return _REMEMBERED.redacted(text)


def without_quoted_value(text: str) -> str:
    """The text of a client that could not be made, without the value that librdkafka quotes in it."""
    return redacted(_QUOTED_BY_LIBRDKAFKA.sub("Invalid value", text))
