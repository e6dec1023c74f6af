"""Handlers of steps, each in an event loop of its own: for tests that are no coroutines."""

from collections.abc import Sequence
from typing import Any

from planner.apply.context import ApplyContext, JobTimeouts, RequestGuard, WriteRegistry
from planner.apply.handlers import HANDLERS
from planner.kafka import ClusterEndpoint, run
from planner.model.address import Address
from planner.model.observed import RegistryEntry
from planner.model.step import Step, StepResult
from tests.fakes.applying import tools


def guard(*reasons: str | None) -> RequestGuard:
    """Answers with each reason in turn; the last one stays. None lets requests through."""
    left = list(reasons or (None,))

    async def stop_reason() -> str | None:
        return left.pop(0) if len(left) > 1 else left[0]

    return RequestGuard(stop_reason)


async def no_registry(_own: Sequence[RegistryEntry], _disown: Sequence[Address]) -> None:
    """The registry of a test in which no step registers ownership."""
    raise AssertionError("a step registers ownership")


def context(
    at: ClusterEndpoint, registry: WriteRegistry = no_registry, *stop_reasons: str | None, **more: Any
) -> ApplyContext:
    """The context of steps at one cluster, in an apply of the plan `digest`, at the time 42."""
    timeouts = more.pop("timeouts", JobTimeouts())
    answers = guard(*stop_reasons)
    return ApplyContext(at, registry, answers, "digest", lambda: 42, "", tools(**more), timeouts)


def carried_out(context: ApplyContext, *steps: Step) -> dict[str, StepResult]:
    """What the handler of these steps says of each."""

    async def handled() -> dict[str, StepResult]:
        try:
            return await HANDLERS[type(steps[0])](context, steps)
        finally:
            context.close()

    return run(handled())
