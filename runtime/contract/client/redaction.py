"""Decides which settings are secrets, and removes the secrets that this process has read from texts.

A job's settings travel in the plan file, in the job spec, and in topics at the destination. Whatever has the
right to read those reads the settings too. So no setting of a job holds a secret.

librdkafka quotes a value that it refuses, and a broker may return a value that it received. Every value that
a reference resolved to is remembered here. Code that makes an error out of foreign text passes it through
`redacted`.
"""

from __future__ import annotations

import re
import threading
from collections.abc import Mapping

PLAN_KEY = "REPL_PLAN_KEY"  # the key that plans are signed with; no job inherits it
PLAN_KEY_FILE = "REPL_PLAN_KEY_FILE"
OPERATOR_KEYS = frozenset({PLAN_KEY, PLAN_KEY_FILE})

SECRET_WORDS = re.compile(
    r"pass(word|wd|phrase)|secret|token(?!\.endpoint)|credential|jaas|user\.info|(^|[._])(key|keystore)\.pem$|api[._]?key",
    re.IGNORECASE,
)
# Keys of object stores under Spark's settings for Hadoop: fs.s3a.access.key, fs.azure.account.key.…
_STORE_KEYS = re.compile(
    r"(access|secret|account|private|encryption|sas)[._-]?key(\.|$)|\.sas\.", re.IGNORECASE
)
# Settings with such a name whose value is a path, a name, a class, a number or a switch.
_HARMLESS = re.compile(
    r"(file|path|provider|providers|enabled|bitlength|renewal|ratio|interval|wait|class|\.name|\.type|mapping)$"
    r"|\.secrets\.|secretkeyref\.|tokensecret\.(name|itemkey)$|secretname$|^spark\.redaction\.",
    re.IGNORECASE,
)
_JAVA_OPTION = re.compile(r"-D([^=\s]+)=\S")
SENSITIVE = "(sensitive value)"
# A shorter value is replaced only between quotes: elsewhere the replacement would break words.
_MIN_LENGTH = 6
_MIN_LINE_LENGTH = 16
_QUOTED_BY_LIBRDKAFKA = re.compile(r'Invalid value "(.*?)("(?= for configuration property)|\Z)', re.DOTALL)


def looks_secret(key: str) -> bool:
    """Returns whether the value of this key (`sasl.password`, `ssl.key.pem`, …) must never be shown."""
    return SECRET_WORDS.search(key) is not None


def secret_settings(conf: Mapping[str, str]) -> list[str]:
    """Returns the names of the Spark settings that hold a secret, never with a value."""
    return [key for key, value in sorted(conf.items()) if value and _holds_secret(key, value)]


def _holds_secret(key: str, value: str) -> bool:
    if key.lower().endswith("javaoptions"):
        return any(_names_secret(option) for option in _JAVA_OPTION.findall(value))
    return _names_secret(key)


def _names_secret(key: str) -> bool:
    return _HARMLESS.search(key) is None and (looks_secret(key) or _STORE_KEYS.search(key) is not None)


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
