"""Sends a batch of requests, and sends again what failed for a moment, until a deadline.

A request that a policy refuses is never repeated.
"""

import random
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from typing import Any, TypeVar

from confluent_kafka import KafkaException

from planner.kafka import explain, is_transient
from planner.model.step import DONE, RequestResult, Result, Step, failed

S = TypeVar("S", bound=Step)

REQUEST_SECONDS = 30.0
DEADLINE_SECONDS = 120.0
_FIRST_PAUSE = 0.1
_LONGEST_PAUSE = 5.0


@dataclass(slots=True)
class RequestGuard:
    """Is asked before every request. `stop_reason` returns why nothing more may be sent to this cluster."""

    stop_reason: Callable[[], str | None]
    requests: int = 0

    def before_request(self) -> str | None:
        """Counts the request and returns the reason not to send it."""
        self.requests += 1
        return self.stop_reason()


# Sends one request for all the steps and returns a future for each, by the step's id.
Sender = Callable[[Sequence[S]], Mapping[str, "Future[Any]"]]

# Classifies a final error: the cluster may be as wanted, since an earlier answer was lost, for example.
ErrorClassifier = Callable[[S, KafkaException], RequestResult]


def error_is_final(_step: Step, failure: KafkaException) -> RequestResult:
    """Fails the step: for requests that are idempotent by themselves."""
    return failed(explain(failure))


def send_with_retries(
    steps: Sequence[S],
    send: Sender[S],
    classify_error: ErrorClassifier[S],
    guard: RequestGuard,
    within: float = DEADLINE_SECONDS,
) -> dict[str, RequestResult]:
    """Sends the batch and repeats what failed for a moment, with growing pauses.

    Returns a result for every step's id.
    """
    deadline = time.monotonic() + within
    results: dict[str, RequestResult] = {}
    left = list(steps)
    pause = _FIRST_PAUSE
    while left:
        if (stop_reason := guard.before_request()) is not None:
            results.update({step.id: RequestResult(Result.NOT_STARTED, stop_reason) for step in left})
            break
        again: list[tuple[S, str]] = []
        for step, failure in _send_once(left, send):
            match failure:
                case None:
                    results[step.id] = DONE
                case _ if is_transient(failure):
                    again.append((step, explain(failure)))
                case KafkaException():
                    results[step.id] = classify_error(step, failure)
                case _:
                    results[step.id] = failed(explain(failure))
        if again and time.monotonic() + pause > deadline:
            results.update({step.id: failed(f"given up after {within:.0f} s: {why}") for step, why in again})
            break
        left = [step for step, _ in again]
        if left:
            time.sleep(pause * random.uniform(0.5, 1.0))  # noqa: S311  spreads retries, guards nothing
            pause = min(pause * 2, _LONGEST_PAUSE)
    return results


def _send_once(steps: Sequence[S], send: Sender[S]) -> list[tuple[S, BaseException | None]]:
    """Sends one request and returns the exception of each step, or None."""
    try:
        futures = send(steps)
    except (KafkaException, TimeoutError) as failure:
        return [(step, failure) for step in steps]
    outcomes: list[tuple[S, BaseException | None]] = []
    for step in steps:
        try:
            futures[step.id].result(timeout=REQUEST_SECONDS * 2)
        except (KafkaException, TimeoutError) as failure:
            outcomes.append((step, failure))
        else:
            outcomes.append((step, None))
    return outcomes
