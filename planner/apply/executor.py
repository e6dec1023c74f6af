"""Executes a plan's steps: in batches, in parallel within and across clusters, each after its needs.

The schedule decides which steps can start now. The order comes from `needs` alone.
"""

import asyncio
import time
from collections import defaultdict
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace

from planner.apply.context import ApplyContext
from planner.apply.denials import naming_right
from planner.apply.handlers import HANDLERS
from planner.kafka.changes import batches
from planner.kafka.failures import ClusterFailure
from planner.model.diagnostic import Failure
from planner.model.step import (
    ApplySummary,
    Event,
    Result,
    Step,
    StepResult,
    StepsEnded,
    StepsSent,
    failed,
)
from runtime.contract.client.secrets import redacted

Ended = tuple[Step, StepResult]


class Schedule:
    """The state of an apply's steps: waiting, ready, or handed out."""

    def __init__(self, steps: Sequence[Step]) -> None:
        self._steps: Mapping[str, Step] = {step.id: step for step in steps}
        self._open = {step.id: {need for need in step.needs if need in self._steps} for step in steps}
        self._dependants: dict[str, list[str]] = defaultdict(list)
        for step in steps:
            for need in step.needs:
                self._dependants[need].append(step.id)
        self._ready = [step.id for step in steps if not self._open[step.id]]
        self._waiting = {step.id for step in steps if self._open[step.id]}

    def next_batches(self) -> list[list[Step]]:
        """Returns the steps that can start now, in batches of one cluster and one kind, each step once."""
        taken = [self._steps[step_id] for step_id in self._ready]
        self._ready = []
        return list(batches(taken))

    def finish(self, ended: Iterable[Ended]) -> list[Ended]:
        """Records ended steps and returns the steps that are skipped because of them, with the reason."""
        skipped: list[Ended] = []
        for step, result in ended:
            if result.result is not Result.DONE:
                skipped += self._skip_dependants(step)
                continue
            for dependant in self._dependants[step.id]:
                self._open[dependant].discard(step.id)
                if not self._open[dependant] and dependant in self._waiting:
                    self._waiting.discard(dependant)
                    self._ready.append(dependant)
        return skipped

    def _skip_dependants(self, cause: Step) -> list[Ended]:
        skipped = []
        pending = list(self._dependants[cause.id])
        while pending:
            step_id = pending.pop()
            if step_id in self._waiting:
                self._waiting.discard(step_id)
                why = f"because {cause} was not done"
                skipped.append((self._steps[step_id], StepResult(Result.SKIPPED, why)))
                pending += self._dependants[step_id]
        return skipped

    def not_started(self) -> list[Step]:
        """Returns the steps that were never handed out."""
        left = self._waiting | set(self._ready)
        return [step for step_id, step in self._steps.items() if step_id in left]


# One batch is created while the propagation of another is awaited; the controller works in order.
BATCHES_AT_ONCE = 4


Observer = Callable[[Event], Awaitable[None]]


# Saves the traceback of an unexpected exception and returns where it was saved.
Report = Callable[[BaseException], str]


class Interruption:
    """The user's Ctrl-C as a value. The signal handler sets it, and every guard reads it."""

    def __init__(self) -> None:
        self.happened = False

    def reason(self) -> str | None:
        """Returns why nothing more is sent; None before the interruption."""
        return "interrupted" if self.happened else None


async def execute(
    steps: Sequence[Step],
    contexts: Mapping[str, ApplyContext],
    notify: Observer,
    interruption: Interruption,
    report: Report,
) -> ApplySummary:
    """Carries out the steps and returns the result of every step.

    A step that fails stops only the steps that need it. Ctrl-C stops every step that was not sent yet.
    `notify` is called with the end of every step, and raises ClusterFailure where that can't be recorded.
    An exception that no handler expects fails the steps of its batch, and `report` gets it.
    """
    started = time.monotonic()
    schedule = Schedule(steps)
    outcomes: dict[str, StepResult] = {}
    turns = {cluster: asyncio.Semaphore(BATCHES_AT_ONCE) for cluster in contexts}

    def start_batches() -> None:
        if not interruption.happened:
            for batch in schedule.next_batches():
                running.create_task(run_batch(batch))

    async def run_batch(batch: Sequence[Step]) -> None:
        cluster = batch[0].cluster
        async with turns[cluster]:
            try:
                ended = await _run(contexts[cluster], batch, notify)
            except Exception as wrong:  # noqa: BLE001  an error of repl itself stops this batch alone
                first_line = next((line for line in str(wrong).splitlines() if line.strip()), "no message")
                text = redacted(f"{type(wrong).__name__}: {first_line}")
                why = f"an error in repl itself, {text}; {report(wrong)}"
                ended = [(step, failed(why)) for step in batch]
        await record(ended)
        await record(schedule.finish(ended))
        start_batches()

    async def record(ended: Iterable[Ended]) -> None:
        by_cluster: dict[str, list[Ended]] = defaultdict(list)
        for step, result in ended:
            outcomes[step.id] = result
            by_cluster[step.cluster].append((step, result))
        for cluster, results in by_cluster.items():
            # A journal that can't be written fails the next batch before it is sent.
            with suppress(ClusterFailure):
                await notify(StepsEnded(cluster, tuple(results)))

    async with asyncio.TaskGroup() as running:
        start_batches()
    not_started = StepResult(Result.NOT_STARTED, interruption.reason() or "")
    await record((step, not_started) for step in schedule.not_started())
    requests = sum(context.guard.requests for context in contexts.values())
    return ApplySummary(outcomes, interruption.happened, time.monotonic() - started, requests)


async def _run(context: ApplyContext, batch: Sequence[Step], notify: Observer) -> list[Ended]:
    """Runs one batch once the journal says that it is sent.

    Where the guard lets nothing through, the journal is not written first: its cluster may not answer.
    """
    cluster = context.endpoint.cluster
    if (stop_reason := await context.guard.stop_reason()) is not None:
        return [(step, StepResult(Result.NOT_STARTED, stop_reason)) for step in batch]
    began = time.monotonic()
    try:
        await notify(StepsSent(cluster, tuple(batch)))
    except ClusterFailure as failure:
        # The cluster does not take writes any more.
        why = f"the journal of {cluster} was not written: {failure.explained}"
        return [(step, failed(why)) for step in batch]
    results = await _run_handler(context, batch)
    seconds = time.monotonic() - began
    return [(step, replace(results[step.id], seconds=seconds)) for step in batch]


async def _run_handler(context: ApplyContext, batch: Sequence[Step]) -> dict[str, StepResult]:
    """Returns the result of each step of the batch, by its id."""
    try:
        results = await HANDLERS[type(batch[0])](context, batch)
    except ClusterFailure as failure:
        results = {step.id: failed(failure.explained) for step in batch}
    except Failure as failure:
        results = {step.id: failed(str(failure)) for step in batch}
    named = {step.id: naming_right(step, results[step.id]) for step in batch}
    # Many people read the screen and the history.
    return {step_id: replace(result, why=redacted(result.why)) for step_id, result in named.items()}
