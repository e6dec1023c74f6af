"""Registers all steps with pytest-bdd: each acts on the fixture `drill`, the scenario under way."""

from collections.abc import Callable
from inspect import Parameter, Signature
from typing import Any

from pytest_bdd import parsers, step

from planner.drill import promises
from planner.drill.steps.language import STEPS, DrillStep

assert promises, "its import registers the steps, and those of scenario_run and operator"


def _function_of(known: DrillStep) -> Callable[..., None]:
    def carry_out(drill: Any, **texts: str) -> None:
        known.carry_out(drill, texts)

    names = ("drill", *known.names)  # pytest-bdd fills in what the signature names
    parameters = [Parameter(name, Parameter.POSITIONAL_OR_KEYWORD) for name in names]
    carry_out.__signature__ = Signature(parameters)  # type: ignore[attr-defined]
    return carry_out


for _known in STEPS:
    step(parsers.re(_known.pattern.pattern))(_function_of(_known))
