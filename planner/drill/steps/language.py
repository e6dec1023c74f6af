"""Sentences with names in braces. A step is a function with a sentence: `step` registers it.

The table of all steps is that of docs/drill-scenarios.md. This module knows neither pytest nor clusters.
"""

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from difflib import SequenceMatcher
from typing import Any, TypeVar

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


# What may stand for a name in braces, and what a function gets of it. Other names are those of a topology.
_KINDS: Mapping[str, tuple[str, Callable[[str], Any]]] = {
    "topics": (rf"{_EVERY}|{_NAME}(?:, {_NAME})*(?: and {_NAME})?", _topics),
    **dict.fromkeys(("count", "all", "again", "skipped", "ms", "code"), (_COUNT, _count)),
    **dict.fromkeys(("rate", "seconds"), (_NUMBER, float)),
    **dict.fromkeys(("command", "value"), (r"\S.*", str)),
    "text": (".*", str),
    "changes": (r"\{.*\}", str),
}


@dataclass(frozen=True, slots=True)
class DrillStep:
    """A step as people write it, and the function that carries it out.

    The function is a method of `of`: of the scenario ("") or of one of its attributes. A function of a module
    gets the scenario as its first argument. `demands`: it returns whether a promise was kept, or raises.
    `judges`: it looks at how the last command ended, so that command may have failed. `resumes`: consumers
    go on, so the time until their first record counts.
    """

    text: str
    function: Callable[..., Any]
    of: str
    demands: bool
    judges: bool
    resumes: bool
    pattern: re.Pattern[str]

    @property
    def about(self) -> str:
        """What it does or demands, for the table."""
        return " ".join((self.function.__doc__ or "").partition("\n\n")[0].split())

    @property
    def names(self) -> tuple[str, ...]:
        """The names in braces."""
        return tuple(self.pattern.groupindex)

    def values(self, texts: Mapping[str, str]) -> dict[str, Any]:
        """Returns what a function gets for the names in braces."""
        return {name: _KINDS[name][1](text) if name in _KINDS else text for name, text in texts.items()}

    def carry_out(self, drill: Any, texts: Mapping[str, str]) -> None:
        """Acts on a scenario. Raises PromiseBroken where a promise is not kept."""
        values = self.values(texts)
        if "." in self.function.__qualname__:
            target = getattr(drill, self.of) if self.of else drill
            kept = getattr(target, self.function.__name__)(**values)
        else:
            kept = self.function(drill, **values)
        if self.demands and kept is False:
            drill.demand(kept=False)


STEPS: list[DrillStep] = []


def step(
    text: str, *, of: str = "", demands: bool = False, judges: bool = False, resumes: bool = False
) -> Callable[[Function], Function]:
    """Registers a function as a step. The first paragraph of its docstring is the documentation."""
    pattern = re.compile(_PLACE.sub(_group, _PLURAL.sub(r"\1s?", text)))

    def register(function: Function) -> Function:
        STEPS.append(DrillStep(text, function, of, demands, judges, resumes, pattern))
        return function

    return register


def demand(
    text: str, *, of: str = "", judges: bool = False, resumes: bool = False
) -> Callable[[Function], Function]:
    """Registers a function as a step that says what must hold."""
    return step(text, of=of, demands=True, judges=judges, resumes=resumes)


def _group(place: re.Match[str]) -> str:
    name = place.group(1)
    return f"(?P<{name}>{_KINDS[name][0] if name in _KINDS else _NAME})"


def matching(sentence: str) -> Iterator[tuple[DrillStep, dict[str, str]]]:
    """Yields the steps that a sentence is, with what it says for the names in braces."""
    for known in STEPS:
        if match := known.pattern.fullmatch(sentence):
            yield known, match.groupdict()


def nearest(sentence: str) -> list[str]:
    """Returns the steps that a sentence may have meant, the nearest first."""

    def likeness(known: DrillStep) -> float:
        # What stands for a name counts for nothing: each word is compared with the words of the step.
        return SequenceMatcher(None, _PLACE.sub("", known.text).split(), sentence.split()).ratio()

    ranked = sorted(STEPS, key=likeness, reverse=True)[:_NEAR]
    return [known.text for known in ranked if likeness(known) >= _LIKE] or [known.text for known in ranked]


def table() -> dict[str, list[tuple[str, str]]]:
    """Returns all steps with what they do, below the headings of their two groups; changes by hand last."""
    ordered = sorted(STEPS, key=lambda known: bool(known.of))
    return {
        heading: [(known.text, known.about) for known in ordered if known.demands is demands]
        for demands, heading in ((False, "what happens"), (True, "what must hold"))
    }
