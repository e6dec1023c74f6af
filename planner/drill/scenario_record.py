"""What is kept of one scenario: its steps, its promises and its figures."""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from planner.drill.replica import Progress
from planner.model.diagnostic import Failure
from planner.model.drill import Promise, Scenario, Step


class DrillAborted(Exception):
    """A step failed, so that the scenario can't go on."""


class PromiseBroken(AssertionError):
    """A scenario did not show what it must show."""


@dataclass(frozen=True, slots=True)
class DrillLoss:
    """Acknowledged records of a lost cluster that are not at the destinations.

    `seconds` is the time from the oldest of them to the loss, or to the newest record of the cluster.
    """

    records: int
    seconds: float


class ScenarioRecord:
    """Keeps the steps, the promises and the figures of one scenario."""

    def __init__(self, progress: Progress) -> None:
        self.loss: DrillLoss | None = None
        self.rto_s: float | None = None
        self._progress = progress
        self._began = time.monotonic()
        self._steps: list[Step] = []
        self._promises: list[Promise] = []

    def result(self, name: str, cluster: str, problem: str = "") -> Scenario:
        """Returns the scenario as the report shows it."""
        return Scenario(
            name,
            cluster,
            tuple(self._steps),
            tuple(self._promises),
            rto_s=self.rto_s,
            rpo_records=None if self.loss is None else self.loss.records,
            problem=problem,
        )

    @contextmanager
    def step(self, text: str) -> Iterator[None]:
        """Records a step: when it began, how long it took, and whether it failed."""
        self._progress(text)
        began = time.monotonic()
        failed = True
        try:
            yield
            failed = False
        finally:
            self._steps.append(Step(began - self._began, time.monotonic() - began, text, failed=failed))

    def promise(self, text: str, wanted: str, measured: str, *, kept: bool, why: str) -> bool:
        """Records a promise, and returns whether it was kept."""
        self._promises.append(Promise(text, wanted, measured, kept, why))
        return kept

    def demand(self, *, kept: bool) -> None:
        """Raises PromiseBroken, with the sentence of the last broken promise, if it was not kept."""
        if not kept:
            one = next(one for one in reversed(self._promises) if not one.kept)
            raise PromiseBroken(f"{one.text}: {one.measured} (wanted: {one.wanted}); {one.why}")


def problem_of(wrong: Failure | DrillAborted) -> str:
    """Returns what ended a scenario, as one text."""
    if isinstance(wrong, Failure):
        return "; ".join(str(one) for one in wrong.diagnostics)
    return str(wrong)
