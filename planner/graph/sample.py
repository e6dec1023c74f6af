"""A name that a regex would match: for asking what two regexes have in common before any topic exists."""

import re

from runtime.contract.spec.naming import illegal_because
from runtime.contract.spec.regex import matches

_STEPS = (
    (re.compile(r"\\[dD]"), "0"),
    (re.compile(r"\\[wWS]"), "x"),
    (re.compile(r"\\([^A-Za-z0-9])"), "\\1"),
    (re.compile(r"\[\^[^\]]*\]"), "x"),
    (re.compile(r"\[([A-Za-z0-9_])[^\]]*\]"), "\\1"),
    (re.compile(r"\((?:\?:)?([^()|]*)(?:\|[^()]*)?\)"), "\\1"),
    (re.compile(r"\{\d*,?\d*\}|[*+?^$]"), ""),
)


def sample(pattern: str) -> str | None:
    """One legal name that the whole pattern matches; None where none was found easily."""
    guess = re.sub(r"(?<!\\)\.", "x", pattern)
    for step, by in _STEPS:
        guess = step.sub(by, guess)
    for name in (guess, guess.split("|")[0]):
        if illegal_because(name) is None and matches(pattern, name):
            return name
    return None
