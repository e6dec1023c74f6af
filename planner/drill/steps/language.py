"""Sentences with names in braces, and the table of all steps that the documentation shows."""

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from difflib import SequenceMatcher
from typing import Any, TypeVar

from pytest_bdd import parsers
from pytest_bdd import step as pytest_bdd_step

_NAME = r"[A-Za-z0-9_](?:[A-Za-z0-9_.-]*[A-Za-z0-9_])?"
_EVERY = "every topic"
_COUNT = r"\d[\d,]*"
_NUMBER = r"\d+(?:\.\d+)?"
_PLACE = re.compile(r"\{(\w+)\}")
_PLURAL = re.compile(r"(?<=\} )(partition|record)s\b")  # of one, the sentence has the singular
_NEAR = 3  # steps that an error names
_LIKE = 0.5  # of SequenceMatcher: less is another sentence

Function = TypeVar("Function", bound=Callable[..., Any])


def _topics(text: str) -> tuple[str, ...]:
    return () if text == _EVERY else tuple(re.split(r", | and ", text))


def _count(text: str) -> int:
    return int(text.replace(",", ""))


_PATTERNS: dict[str, str] = {
    "topics": rf"{_EVERY}|{_NAME}(?:, {_NAME})*(?: and {_NAME})?",
    **dict.fromkeys(("count", "all", "again", "skipped", "ms", "code"), _COUNT),
    **dict.fromkeys(("rate", "seconds"), _NUMBER),
    "command": r"\S.*",
    "text": ".*",
    "value": r"\S.*",
    "changes": r"\{.*\}",
}
_CONVERTERS: dict[str, Callable[[str], Any]] = {
    "topics": _topics,
    **dict.fromkeys(("count", "all", "again", "skipped", "ms", "code"), _count),
    **dict.fromkeys(("rate", "seconds"), float),
}


@dataclass(frozen=True, slots=True)
class StepText:
    """A step as people write it. `about` says what it does, or what it demands."""

    text: str
    about: str
    pattern: re.Pattern[str]
    demands: bool
    looks: bool  # it judges how the last command ended, so that command may have failed


STEPS: list[StepText] = []


def step(text: str, *, demands: bool = False, looks: bool = False) -> Callable[[Function], Function]:
    """Registers a function as a step. The first line of its docstring is the documentation."""
    pattern = re.compile(_PLACE.sub(_group, _PLURAL.sub(r"\1s?", text)))

    def register(function: Function) -> Function:
        about = (function.__doc__ or "").partition("\n\n")[0]
        STEPS.append(StepText(text, " ".join(about.split()), pattern, demands, looks))
        parser = parsers.re(pattern.pattern)
        pytest_bdd_step(parser, converters=_CONVERTERS, stacklevel=2)(function)
        return function

    return register


def _group(place: re.Match[str]) -> str:
    name = place.group(1)
    return f"(?P<{name}>{_PATTERNS.get(name, _NAME)})"


def matching(sentence: str) -> Iterator[tuple[StepText, dict[str, str]]]:
    """Yields the steps that a sentence is, with what it says for the names in braces."""
    for known in STEPS:
        if found := known.pattern.fullmatch(sentence):
            yield known, found.groupdict()


def nearest(sentence: str) -> list[str]:
    """Returns the steps that a sentence may have meant, the nearest first."""

    def likeness(known: StepText) -> float:
        # What stands for a name counts for nothing: each word is compared with the words of the step.
        return SequenceMatcher(None, _PLACE.sub("", known.text).split(), sentence.split()).ratio()

    ranked = sorted(STEPS, key=likeness, reverse=True)
    return [one.text for one in ranked[:_NEAR] if likeness(one) >= _LIKE] or [
        one.text for one in ranked[:_NEAR]
    ]


def markdown() -> str:
    """Returns the tables of docs/drill-scenarios.md."""
    parts = []
    for demands, title in ((False, "| step | what happens |"), (True, "| step | what must hold |")):
        rows = [f"| `{one.text}` | {one.about} |" for one in STEPS if one.demands is demands]
        parts.append("\n".join([title, "| --- | --- |", *rows]))
    return "\n\n".join(parts) + "\n"
