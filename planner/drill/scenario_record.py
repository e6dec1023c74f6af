"""What is kept of one scenario: its steps, its promises and its figures."""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from confluent_kafka import KafkaException

from planner.kafka.librdkafka import explain
from planner.model.diagnostic import Failure
from planner.model.drill import Promise, Scenario, ScenarioStep

Progress = Callable[[str], None]
WITHIN_S = 240.0  # for what a job must have done
_REPORT_S = 10.0  # between two lines of progress while something is waited for
_LOOK_S = 0.3


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

    def wait_while(
        self, missing: Callable[[], object], problem: str = "", within_s: float = WITHIN_S
    ) -> bool:
        """Waits while something is missing, and returns whether all came. If not, `problem` is raised."""
        left = wait_while(missing, within_s, self.progress)
        if left and problem:
            what = f": {left}" if isinstance(left, str) else ""
            raise DrillAborted(f"{problem} within {within_s:g} s{what}")
        return not left

    def count_loss(self) -> None:
        """Measures what a failover lost, where that is still to be counted."""

    def promise(
        self, text: str, wanted: str | int, measured: str | int, why: str, *, kept: bool | None = None
    ) -> bool:
        """Records a promise, and returns whether it was kept: by default, if what was measured is wanted.

        `why` says what a broken promise means.
        """
        kept = measured == wanted if kept is None else kept
        wanted, measured = (f"{value:,}" if isinstance(value, int) else value for value in (wanted, measured))
        self.scenario.promises.append(Promise(text, wanted, measured, kept, why))
        return kept

    def demand(self, *, kept: bool) -> None:
        """Raises PromiseBroken, with the sentence of the last broken promise, if it was not kept."""
        if not kept:
            broken = next(promise for promise in reversed(self.scenario.promises) if not promise.kept)
            raise PromiseBroken(f"{broken}; {broken.why}")

    @contextmanager
    def recording_problem(self) -> Iterator[None]:
        """Records what ends the scenario as its problem, beside one that it has already."""
        try:
            yield
        except (DrillAborted, Failure, KafkaException, TimeoutError) as wrong:
            problems = (self.scenario.problem, problem_of(wrong))
            self.scenario.problem = "; ".join(problem for problem in problems if problem)


def wait_while(missing: Callable[[], object], within_s: float, progress: Progress = lambda _: None) -> object:
    """Waits while something is missing, and returns what is still missing after this time.

    Where it is a text, it is reported every ten seconds.
    """
    began = reported = time.monotonic()
    while left := missing():
        now = time.monotonic()
        if now > began + within_s:
            return left
        if isinstance(left, str) and now > reported + _REPORT_S:
            reported = now
            progress(f"waiting for {now - began:.0f} s: {left}")
        time.sleep(_LOOK_S)
    return None


def problem_of(wrong: Exception) -> str:
    """Returns what ended a scenario, as one text."""
    match wrong:
        case Failure():
            return "; ".join(map(str, wrong.diagnostics))
        case DrillAborted():
            return str(wrong)
    return explain(wrong)
