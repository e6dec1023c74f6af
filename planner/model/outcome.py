"""What became of each step, as values: for the journal, the terminal and the exit code."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum

from planner.model.step import Step


class Result(StrEnum):
    DONE = "done"
    FAILED = "failed"
    SKIPPED = "skipped"  # something it needs failed
    NOT_STARTED = "not started"  # interrupted, or the lease was lost, before it was sent


@dataclass(frozen=True, slots=True)
class Verdict:
    """What became of one step's request."""

    result: Result
    why: str = ""


DONE = Verdict(Result.DONE)


def failed(why: str) -> Verdict:
    return Verdict(Result.FAILED, why)


@dataclass(frozen=True, slots=True)
class Outcome:
    step: Step
    result: Result
    why: str = ""
    seconds: float = 0.0


@dataclass(frozen=True, slots=True)
class Sent:
    """The requests of these steps are on their way to the cluster."""

    cluster: str
    steps: tuple[Step, ...]


@dataclass(frozen=True, slots=True)
class Ended:
    """These steps are over, one way or another."""

    cluster: str
    outcomes: tuple[Outcome, ...]


Event = Sent | Ended


@dataclass(frozen=True, slots=True)
class Summary:
    outcomes: Mapping[str, Outcome]
    interrupted: bool
    seconds: float
    requests: int = 0

    def of(self, *results: Result) -> Sequence[Outcome]:
        return [outcome for outcome in self.outcomes.values() if outcome.result in results]

    @property
    def complete(self) -> bool:
        return all(outcome.result is Result.DONE for outcome in self.outcomes.values())


NOTHING_DONE = Summary({}, interrupted=False, seconds=0.0)
