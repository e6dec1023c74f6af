"""Sentences with names in braces. A step is a function with a sentence: `step` registers it.

This module knows neither pytest nor clusters.
"""

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from difflib import SequenceMatcher
from functools import partial
from typing import Any, TypeVar

_NAME = r"[A-Za-z0-9_](?:[A-Za-z0-9_.-]*[A-Za-z0-9_])?"
_EVERY = "every topic"
_NUMBER = r"\d+(?:\.\d+)?"
_PLACE = re.compile(r"\{(\w+)\}")
_PLURAL = re.compile(r"(?<=\} )(partition|record)s\b")  # of one, the sentence has the singular
_NEAR = 3  # steps that an error names
_LIKE = 0.5  # of SequenceMatcher: less is another sentence

Function = TypeVar("Function", bound=Callable[..., Any])


# What may stand for a name in braces, and what a function gets of it. Other names are those of a topology.
_KINDS: Mapping[str, tuple[str, Callable[[str], Any]]] = {
    "topics": (
        rf"{_EVERY}|{_NAME}(?:, {_NAME})*(?: and {_NAME})?",
        lambda text: () if text == _EVERY else tuple(re.split(r", | and ", text)),
    ),
    **dict.fromkeys(
        ("count", "all", "again", "skipped", "ms", "code"),
        (r"\d[\d,]*", lambda text: int(text.replace(",", ""))),
    ),
    **dict.fromkeys(("rate", "seconds"), (_NUMBER, float)),
    **dict.fromkeys(("command", "value"), (r"\S.*", str)),
    "text": (".*", str),
    "changes": (r"\{.*\}", str),
}


@dataclass(frozen=True, slots=True)
class DrillStep:
    """A step as people write it, and the function that carries it out.

    The function is a method of the scenario, or gets it as its first argument. `demands`: it returns whether
    a promise was kept, or raises. `judges`: it looks at how the last command ended, so that command may have
    failed. `resumes`: consumers go on, so the time until their first record counts.
    """

    text: str
    function: Callable[..., Any]
    demands: bool
    judges: bool
    resumes: bool
    pattern: re.Pattern[str]

    @property
    def about(self) -> str:
        """What it does or demands, for the table."""
        return " ".join((self.function.__doc__ or "").partition("\n\n")[0].split())

    def values(self, texts: Mapping[str, str]) -> dict[str, Any]:
        """Returns what a function gets for the names in braces."""
        return {name: _KINDS[name][1](text) if name in _KINDS else text for name, text in texts.items()}

    def carry_out(self, drill: Any, texts: Mapping[str, str]) -> None:
        """Acts on a scenario. Raises PromiseBroken where a promise is not kept."""
        values = self.values(texts)
        if "." in self.function.__qualname__:
            kept = getattr(drill, self.function.__name__)(**values)
        else:
            kept = self.function(drill, **values)
        if self.demands and kept is False:
            drill.demand(kept=False)


STEPS: list[DrillStep] = []


def step(
    text: str, *, demands: bool = False, judges: bool = False, resumes: bool = False
) -> Callable[[Function], Function]:
    """Registers a function as a step. The first paragraph of its docstring is the documentation."""

    def group(place: re.Match[str]) -> str:
        name = place[1]
        return f"(?P<{name}>{_KINDS[name][0] if name in _KINDS else _NAME})"

    pattern = re.compile(_PLACE.sub(group, _PLURAL.sub(r"\1s?", text)))

    def register(function: Function) -> Function:
        STEPS.append(DrillStep(text, function, demands, judges, resumes, pattern))
        return function

    return register


demand = partial(step, demands=True)  # says what must hold


def matching(sentence: str) -> Iterator[tuple[DrillStep, dict[str, str]]]:
    """Yields the steps that a sentence is, with what it says for the names in braces."""
    for step in STEPS:
        if match := step.pattern.fullmatch(sentence):
            yield step, match.groupdict()


def nearest(sentence: str) -> list[str]:
    """Returns the steps that a sentence may have meant, the nearest first."""

    def likeness(step: DrillStep) -> float:
        # What stands for a name counts for nothing: each word is compared with the words of the step.
        return SequenceMatcher(None, _PLACE.sub("", step.text).split(), sentence.split()).ratio()

    ranked = sorted(STEPS, key=likeness, reverse=True)[:_NEAR]
    return [step.text for step in ranked if likeness(step) >= _LIKE] or [step.text for step in ranked]
