"""Carry out a plan's steps: what can go now goes, batched, in parallel over and within clusters."""

import queue
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from functools import partial

from confluent_kafka import KafkaException

from planner.apply.context import ApplyContext
from planner.apply.handlers import HANDLERS
from planner.apply.schedule import Schedule
from planner.kafka import explain
from planner.model.diagnostic import Failure
from planner.model.outcome import (
    ApplySummary,
    Event,
    RequestResult,
    Result,
    StepOutcome,
    StepsEnded,
    StepsSent,
    failed,
)
from planner.model.step import Step

# Enough that one batch's propagation is awaited while the next is created; the controller works in order.
BATCHES_AT_ONCE = 4

Observer = Callable[[Event], None]

# Keeps the traceback of an exception that no handler expects; returns where it stands.
Report = Callable[[BaseException], str]


class Interruption:
    """The user's Ctrl-C as a value: set by whoever hears the signal, seen by every guard."""

    def __init__(self) -> None:
        self.happened = False

    def reason(self) -> str | None:
        return "interrupted" if self.happened else None


def execute(
    steps: Sequence[Step],
    hands: Mapping[str, ApplyContext],
    tell: Observer,
    interruption: Interruption,
    report: Report,
) -> ApplySummary:
    """An outcome for every step. Independent steps go on after a failure; Ctrl-C stops what was not sent.

    An exception that no handler expects fails the steps of its batch, and `report` gets it.
    """
    started = time.monotonic()
    schedule = Schedule(steps)
    outcomes: dict[str, StepOutcome] = {}
    finished: queue.SimpleQueue[tuple[Sequence[Step], Future[list[StepOutcome]]]] = queue.SimpleQueue()
    pools = {cluster: ThreadPoolExecutor(BATCHES_AT_ONCE, f"apply-{cluster}") for cluster in hands}
    running = 0

    def over(batch: Sequence[Step], done: Future[list[StepOutcome]]) -> None:
        finished.put((batch, done))

    def launch() -> int:
        batches = [] if interruption.happened else schedule.take()
        for batch in batches:
            cluster = batch[0].cluster
            future = pools[cluster].submit(_run, hands[cluster], batch, tell)
            future.add_done_callback(partial(over, batch))
        return len(batches)

    def note(cluster: str, ended: list[StepOutcome]) -> None:
        lost = schedule.over(ended)
        outcomes.update((outcome.step.id, outcome) for outcome in (*ended, *lost))
        if lost:
            told(cluster, lost)

    def told(cluster: str, ended: Sequence[StepOutcome]) -> None:
        # A journal that cannot be written fails the batches too; nothing that is skipped here was sent.
        with suppress(KafkaException, TimeoutError):
            tell(StepsEnded(cluster, tuple(ended)))

    def outcome_of(batch: Sequence[Step], future: Future[list[StepOutcome]]) -> list[StepOutcome]:
        if (wrong := future.exception()) is None:
            return future.result()
        why = f"an error in repl itself, {type(wrong).__name__}: {_first_line(wrong)}; {report(wrong)}"
        ended = [StepOutcome(step, Result.FAILED, why) for step in batch]
        told(batch[0].cluster, ended)
        return ended

    try:
        running += launch()
        while running:
            batch, future = finished.get()
            running -= 1
            note(batch[0].cluster, outcome_of(batch, future))
            running += launch()
    finally:
        for pool in pools.values():
            pool.shutdown(wait=False, cancel_futures=True)
    for step in schedule.rest():
        outcomes[step.id] = StepOutcome(step, Result.NOT_STARTED, interruption.reason() or "")
    requests = sum(one.guard.requests for one in hands.values())
    return ApplySummary(outcomes, interruption.happened, time.monotonic() - started, requests)


def _run(hands: ApplyContext, batch: Sequence[Step], tell: Observer) -> list[StepOutcome]:
    """One batch in its thread."""
    cluster = hands.endpoint.cluster
    began = time.monotonic()
    ended: list[StepOutcome] = []
    try:
        tell(StepsSent(cluster, tuple(batch)))
        verdicts = _perform(hands, batch)
        seconds = time.monotonic() - began
        ended = [
            StepOutcome(step, verdicts[step.id].result, verdicts[step.id].why, seconds) for step in batch
        ]
        tell(StepsEnded(cluster, tuple(ended)))
    except (KafkaException, TimeoutError) as failure:
        # The journal could not be written: the cluster does not take writes any more.
        why = f"the journal of {cluster} was not written: {explain(failure)}"
        return ended or [StepOutcome(step, Result.FAILED, why) for step in batch]
    return ended


def _first_line(wrong: BaseException) -> str:
    return next((line for line in str(wrong).splitlines() if line.strip()), "no message")


def _perform(hands: ApplyContext, batch: Sequence[Step]) -> dict[str, RequestResult]:
    kind = type(batch[0])
    handler = HANDLERS.get(kind)
    if handler is None:
        return {step.id: failed(f"this release cannot carry out {kind.__name__}") for step in batch}
    try:
        return handler(hands, batch)
    except (KafkaException, TimeoutError, Failure) as failure:
        return {step.id: failed(explain(failure)) for step in batch}
