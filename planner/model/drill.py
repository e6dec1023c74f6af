"""The report of a drill: scenarios with their steps, and promises that were kept or broken. Pure."""

import datetime
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

LAB, LIVE = "lab", "live"


@dataclass(frozen=True, slots=True)
class ScenarioStep:
    """One step: at which second of the scenario it began, how long it took, and what a command printed."""

    at_s: float
    took_s: float
    text: str
    command: str = ""
    output: str = ""
    failed: bool = False


@dataclass(frozen=True, slots=True)
class Promise:
    """What a scenario must show, and what was measured. `why` says what a broken promise means."""

    text: str
    wanted: str
    measured: str
    kept: bool
    why: str = ""

    def __str__(self) -> str:
        return f"{self.text}: {self.measured} (wanted: {self.wanted})"


@dataclass(frozen=True, slots=True)
class CanaryFigures:
    """How many canaries were written for a flow, and how long they took from end to end."""

    flow: str
    records: int
    p50_ms: float | None
    max_ms: float | None


@dataclass(frozen=True, slots=True)
class RecoveryTime:
    """The parts of an RTO: the failover command, the time before consumers started, and until a record came.

    `wait_s` is all the time from the loss on in which neither the command nor a consumer was under way.
    """

    failover_s: float
    wait_s: float
    first_record_s: float

    @property
    def total_s(self) -> float:
        return self.failover_s + self.wait_s + self.first_record_s


@dataclass(slots=True)
class Scenario:
    """One scenario. A figure is None where it could not be measured.

    `rto`: from the loss until a consumer got its next record. `rpo_records`: acknowledged records that are
    not at the destination, of `at_risk_records` that were acknowledged since everything had been copied.
    `read_again` and `skipped` are records of the consumer groups. `canaries` are those of a live drill that
    writes them.
    """

    name: str
    cluster: str
    steps: list[ScenarioStep] = field(default_factory=list)
    promises: list[Promise] = field(default_factory=list)
    rto: RecoveryTime | None = None
    rpo_records: int | None = None
    at_risk_records: int | None = None
    read_again: int | None = None
    skipped: int | None = None
    problem: str = ""
    canaries: list[CanaryFigures] = field(default_factory=list)

    @property
    def rto_s(self) -> float | None:
        return None if self.rto is None else self.rto.total_s

    @property
    def passed(self) -> bool:
        return not self.problem and all(promise.kept for promise in self.promises)

    @property
    def took_s(self) -> float:
        return max((step.at_s + step.took_s for step in self.steps), default=0.0)


@dataclass(frozen=True, slots=True)
class DrillReport:
    """The report of a drill. `notes` say what the lab's copy of the topology lacks.

    `every_ms`: how often a drill must pass, if the topology says so. `against`: lab clusters, or the live
    ones, which are only read. `features`: the folder or file of the scenarios; empty for the standard drill.
    """

    topology: str
    digest: str
    started_at: str
    version: str
    notes: tuple[str, ...] = ()
    scenarios: tuple[Scenario, ...] = field(default_factory=tuple)
    every_ms: int | None = None
    against: str = LAB
    features: str = ""

    @property
    def started_ms(self) -> int:
        """Returns when the drill began, in milliseconds since 1970."""
        return int(datetime.datetime.fromisoformat(self.started_at).timestamp() * 1000)

    @property
    def passed(self) -> bool:
        return bool(self.scenarios) and all(scenario.passed for scenario in self.scenarios)

    @property
    def rto_s(self) -> float | None:
        """Returns the longest RTO of the scenarios that measured one."""
        return largest(scenario.rto_s for scenario in self.scenarios)

    @property
    def rpo_records(self) -> float | None:
        """Returns the most records that did not arrive."""
        return largest(scenario.rpo_records for scenario in self.scenarios)

    @property
    def faults(self) -> tuple[str, ...]:
        """Returns each broken promise, and why a scenario could not be finished."""
        faults = []
        for scenario in self.scenarios:
            faults += [f"{scenario.name}: {promise}" for promise in scenario.promises if not promise.kept]
            faults += [f"{scenario.name}: {scenario.problem}"] if scenario.problem else []
        return tuple(faults)


@dataclass(frozen=True, slots=True)
class StoredDrill:
    """A stored report: its file, the tree that it holds, and what the operator's key says about it."""

    file: str
    report: DrillReport
    tree: dict[str, Any]
    signature: str


def largest(values: Iterable[float | None]) -> float | None:
    """Returns the largest value that is not None."""
    return max((value for value in values if value is not None), default=None)
