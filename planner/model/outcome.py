"""What became of each step, as values: for the journal, the terminal and the exit code."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum

from planner.model.step import Step


class Result(StrEnum):
    DONE = "done"
    FAILED = "failed"
    SKIPPED = "skipped"  # something it needs failed
    NOT_STARTED = "not started"  # interrupted, or the lease was lost, before it was sent


@dataclass(frozen=True, slots=True)
class RequestResult:
    """What became of one step's request."""

    result: Result
    why: str = ""


DONE = RequestResult(Result.DONE)


def failed(why: str) -> RequestResult:
    return RequestResult(Result.FAILED, why)


@dataclass(frozen=True, slots=True)
class StepOutcome:
    step: Step
    result: Result
    why: str = ""
    seconds: float = 0.0


@dataclass(frozen=True, slots=True)
class StepsSent:
    """The requests of these steps are on their way to the cluster."""

    cluster: str
    steps: tuple[Step, ...]


@dataclass(frozen=True, slots=True)
class StepsEnded:
    """These steps are over, one way or another."""

    cluster: str
    outcomes: tuple[StepOutcome, ...]


Event = StepsSent | StepsEnded


@dataclass(frozen=True, slots=True)
class ApplySummary:
    outcomes: Mapping[str, StepOutcome]
    interrupted: bool
    seconds: float
    requests: int = 0

    def of(self, *results: Result) -> Sequence[StepOutcome]:
        return [outcome for outcome in self.outcomes.values() if outcome.result in results]

    @property
    def complete(self) -> bool:
        return all(outcome.result is Result.DONE for outcome in self.outcomes.values())


NOTHING_DONE = ApplySummary({}, interrupted=False, seconds=0.0)


@dataclass(frozen=True, slots=True)
class StepResult:
    """`result` is done, failed, skipped or not started; "sent" is a request whose answer nobody noted."""

    result: str
    why: str = ""
    seconds: float = 0.0


@dataclass(frozen=True, slots=True)
class ApplyRecord:
    """`result` is done, failed or interrupted; None where the apply never said how it ended."""

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
        """The same apply as another cluster's history tells it: each knows its own steps."""
        known = {step.id: step for step in (*self.steps, *other.steps)}
        return replace(
            self,
            finished_ms=self.finished_ms if self.finished_ms is not None else other.finished_ms,
            result=self.result if self.result is not None else other.result,
            steps=tuple(known.values()),
            outcomes={**other.outcomes, **self.outcomes},
        )
