"""The results of steps, as values: for the journal, the terminal, the exit code and the history."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum

from planner.model.step import Step


class Result(StrEnum):
    """How a step ended."""

    DONE = "done"
    FAILED = "failed"
    SKIPPED = "skipped"  # a step that it needs failed
    NOT_STARTED = "not started"  # interrupted, or the lease was lost, before it was sent


@dataclass(frozen=True, slots=True)
class RequestResult:
    """How one step's request ended."""

    result: Result
    why: str = ""


DONE = RequestResult(Result.DONE)


def failed(why: str) -> RequestResult:
    """Returns a failed result."""
    return RequestResult(Result.FAILED, why)


@dataclass(frozen=True, slots=True)
class StepOutcome:
    """How one step ended, and how long it took."""

    step: Step
    result: Result
    why: str = ""
    seconds: float = 0.0


@dataclass(frozen=True, slots=True)
class StepsSent:
    """The requests of these steps are being sent to the cluster."""

    cluster: str
    steps: tuple[Step, ...]


@dataclass(frozen=True, slots=True)
class StepsEnded:
    """These steps have ended, with whatever result."""

    cluster: str
    outcomes: tuple[StepOutcome, ...]


Event = StepsSent | StepsEnded


@dataclass(frozen=True, slots=True)
class ApplySummary:
    """The outcome of every step of an apply."""

    outcomes: Mapping[str, StepOutcome]
    interrupted: bool
    seconds: float
    requests: int = 0

    def of(self, *results: Result) -> Sequence[StepOutcome]:
        """Returns the outcomes with one of these results."""
        return [outcome for outcome in self.outcomes.values() if outcome.result in results]

    @property
    def complete(self) -> bool:
        """Returns whether every step is done."""
        return all(outcome.result is Result.DONE for outcome in self.outcomes.values())


NOTHING_DONE = ApplySummary({}, interrupted=False, seconds=0.0)


@dataclass(frozen=True, slots=True)
class StepResult:
    """A step in the history. `result` is done, failed, skipped, not started, or sent.

    "sent" is a request whose answer was not recorded.
    """

    result: str
    why: str = ""
    seconds: float = 0.0


@dataclass(frozen=True, slots=True)
class ApplyRecord:
    """One apply in the history. `result` is done, failed or interrupted; None if its end was not recorded."""

    id: str
    topology: str
    mode: str
    plan: str  # the plan's digest
    user: str
    host: str
    pid: int
    git: str | None
    clusters: Mapping[str, str]  # name → cluster id
    total: int
    started_ms: int
    finished_ms: int | None = None
    result: str | None = None
    steps: tuple[Step, ...] = ()
    outcomes: Mapping[str, StepResult] = field(default_factory=dict)

    def merged(self, other: "ApplyRecord") -> "ApplyRecord":
        """Joins the same apply from another cluster's history: each has its own steps."""
        known = {step.id: step for step in (*self.steps, *other.steps)}
        return replace(
            self,
            finished_ms=self.finished_ms if self.finished_ms is not None else other.finished_ms,
            result=self.result if self.result is not None else other.result,
            steps=tuple(known.values()),
            outcomes={**other.outcomes, **self.outcomes},
        )
