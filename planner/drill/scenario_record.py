"""What is kept of one scenario: its steps, its promises and its figures."""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from planner.model.diagnostic import Failure
from planner.model.drill import Promise, RecoveryTime, Scenario, ScenarioStep

Progress = Callable[[str], None]


class DrillAborted(Exception):
    """A step failed, so that the scenario can't go on."""


class PromiseBroken(AssertionError):
    """A scenario did not show what it must show."""


@dataclass(frozen=True, slots=True)
class DrillLoss:
    """Acknowledged records of a lost cluster that are not at the destinations.

    `seconds` is the time from the oldest of them to the loss, or to the newest record of the cluster.
    `at_risk` counts the records that were acknowledged since the flows had last copied everything.
    """

    records: int
    seconds: float
    at_risk: int | None = None


class ScenarioRecord:
    """Keeps the steps, the promises and the figures of one scenario.

    A step begins where the one before ended, so each second of the scenario belongs to a step.
    """

    def __init__(self, progress: Progress) -> None:
        self.loss: DrillLoss | None = None
        self.rto: RecoveryTime | None = None
        self.progress = progress
        self._began = self._ended = time.monotonic()
        self._steps: list[ScenarioStep] = []
        self._promises: list[Promise] = []
        self._commands: list[tuple[str, str]] = []  # of the step under way, with what each printed

    def result(self, name: str, cluster: str, problem: str = "") -> Scenario:
        """Returns the scenario as the report shows it."""
        loss = self.loss
        return Scenario(
            name,
            cluster,
            tuple(self._steps),
            tuple(self._promises),
            rto_s=None if self.rto is None else self.rto.total_s,
            rpo_records=None if loss is None else loss.records,
            problem=problem,
            rto=self.rto,
            at_risk_records=None if loss is None else loss.at_risk,
        )

    @contextmanager
    def step(self, text: str, shown: str = "") -> Iterator[None]:
        """Records a step: when it began, how long it took, and whether it failed.

        `shown` is the progress that is reported, where it is not the text.
        """
        self.progress(shown or text)
        failed = True
        try:
            yield
            failed = False
        finally:
            self.end_step(text, failed=failed)

    def end_step(self, text: str, *, failed: bool) -> None:
        """Records a step that has just ended."""
        now = time.monotonic()
        commands, self._commands = self._commands, []
        self._steps.append(
            ScenarioStep(
                self._ended - self._began,
                now - self._ended,
                text,
                "\n".join(command for command, _ in commands),
                "".join(output for _, output in commands),
                failed,
            )
        )
        self._ended = now

    def promise(self, text: str, wanted: str, measured: str, *, kept: bool, why: str) -> bool:
        """Records a promise, and returns whether it was kept."""
        self._promises.append(Promise(text, wanted, measured, kept, why))
        return kept

    def demand(self, *, kept: bool) -> None:
        """Raises PromiseBroken, with the sentence of the last broken promise, if it was not kept."""
        if not kept:
            broken = next(promise for promise in reversed(self._promises) if not promise.kept)
            raise PromiseBroken(f"{broken.text}: {broken.measured} (wanted: {broken.wanted}); {broken.why}")


def problem_of(wrong: Failure | DrillAborted) -> str:
    """Returns what ended a scenario, as one text."""
    if isinstance(wrong, Failure):
        return "; ".join(map(str, wrong.diagnostics))
    return str(wrong)
