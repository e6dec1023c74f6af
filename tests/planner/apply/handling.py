"""Handlers of steps, each in an event loop of its own: for tests that are no coroutines."""

from planner.apply.context import ApplyContext, RequestGuard
from planner.apply.handlers import HANDLERS
from planner.kafka import run
from planner.model.step import Step, StepResult


def guard(*reasons: str | None) -> RequestGuard:
    """Answers with each reason in turn; the last one stays. None lets requests through."""
    left = list(reasons or (None,))

    async def stop_reason() -> str | None:
        return left.pop(0) if len(left) > 1 else left[0]

    return RequestGuard(stop_reason)


def carried_out(context: ApplyContext, *steps: Step) -> dict[str, StepResult]:
    """What the handler of these steps says of each."""

    async def handled() -> dict[str, StepResult]:
        try:
            return await HANDLERS[type(steps[0])](context, steps)
        finally:
            context.close()

    return run(handled())
