"""What is kept of one scenario: its steps, its promises and its figures."""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from confluent_kafka import KafkaException

from planner.kafka.librdkafka import explain
from planner.model.diagnostic import Failure
from planner.model.drill import Promise, Scenario, ScenarioStep

Progress = Callable[[str], None]


class DrillAborted(Exception):
    """A step failed, so that the scenario can't go on."""


class PromiseBroken(AssertionError):
    """A scenario did not show what it must show."""


class ScenarioRecord:
    """Keeps the steps, the promises and the figures of one scenario.

    A step begins where the one before ended, so each second of the scenario belongs to a step. `lost_for_s`
    is the time from the oldest record that did not arrive to the loss, or to the cluster's newest record.
    """

    def __init__(self, progress: Progress, name: str = "", cluster: str = "") -> None:
        self.scenario = Scenario(name, cluster)
        self.lost_for_s: float | None = None
        self.progress = progress
        self._began = self._ended = time.monotonic()
        self._commands: list[tuple[str, str]] = []  # of the step under way, with what each printed

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
        self.scenario.steps.append(
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

    def count_loss(self) -> None:
        """Measures what a failover lost, where that is still to be counted."""

    def promise(self, text: str, wanted: str, measured: str, *, kept: bool, why: str) -> bool:
        """Records a promise, and returns whether it was kept."""
        self.scenario.promises.append(Promise(text, wanted, measured, kept, why))
        return kept

    def demand(self, *, kept: bool) -> None:
        """Raises PromiseBroken, with the sentence of the last broken promise, if it was not kept."""
        if not kept:
            broken = next(promise for promise in reversed(self.scenario.promises) if not promise.kept)
            raise PromiseBroken(f"{broken.text}: {broken.measured} (wanted: {broken.wanted}); {broken.why}")

    @contextmanager
    def recording_problem(self) -> Iterator[None]:
        """Records what ends the scenario as its problem, beside one that it has already."""
        try:
            yield
        except (DrillAborted, Failure, KafkaException, TimeoutError) as wrong:
            problems = (self.scenario.problem, problem_of(wrong))
            self.scenario.problem = "; ".join(problem for problem in problems if problem)


def problem_of(wrong: Exception) -> str:
    """Returns what ended a scenario, as one text."""
    match wrong:
        case Failure():
            return "; ".join(map(str, wrong.diagnostics))
        case DrillAborted():
            return str(wrong)
    return explain(wrong)
