"""All steps: each is registered with pytest-bdd and acts on the fixture `drill`, the scenario under way."""

from collections.abc import Callable
from inspect import Parameter, Signature
from typing import Any

from pytest_bdd import parsers, step

from planner.drill import promises, topics_by_hand
from planner.drill.steps.language import STEPS, DrillStep

assert promises, "its import registers its steps, and those of client_run and scenario_run"
assert topics_by_hand


def _function_of(drill_step: DrillStep) -> Callable[..., None]:
    def carry_out(drill: Any, **texts: str) -> None:
        drill_step.carry_out(drill, texts)

    names = ("drill", *drill_step.pattern.groupindex)  # pytest-bdd fills in what the signature names
    parameters = [Parameter(name, Parameter.POSITIONAL_OR_KEYWORD) for name in names]
    carry_out.__signature__ = Signature(parameters)  # type: ignore[attr-defined]
    return carry_out


for _step in STEPS:
    step(parsers.re(_step.pattern.pattern))(_function_of(_step))


def table() -> dict[str, list[tuple[str, str]]]:
    """Returns all steps with what they do, below the headings of their two groups; changes by hand last."""
    ordered = sorted(STEPS, key=lambda step: step.function.__module__)
    return {
        heading: [(step.text, step.about) for step in ordered if step.demands is demands]
        for demands, heading in ((False, "what happens"), (True, "what must hold"))
    }
