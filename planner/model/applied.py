"""One apply as the history remembers it."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from planner.model.step import Step


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
