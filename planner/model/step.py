"""A step of a plan, and how it ended: the same steps are shown and executed, and apply decides nothing.

The kinds of steps are in `planner.plan.steps`, each with everything that is particular to it. The results are
values for the journal, the terminal, the exit code and the history.
"""

from abc import ABCMeta, abstractmethod
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import Enum, StrEnum, auto
from typing import TYPE_CHECKING, Any, ClassVar

from msgspec import Struct, StructMeta

from planner.model.address import Address
from planner.model.change import Facts, Value
from planner.model.observed import RegistryEntry
from planner.model.plain import KIND, kind_name

# Prefix of the id of a step that restores what a flow took away: limits after a failback, rights to write.
RESTORE = "restore:"


class Milestone(Enum):
    """What a step of a plan reaches that steps about other objects wait for."""

    FLOW_REGISTERED = auto()  # a flow has ended, or runs as the plan wants it
    RULE_MADE = auto()
    RIGHT_RESTORED = auto()  # a rule that a flow took away is there again
    JOB_LAUNCHED = auto()


class StepMeta(StructMeta, ABCMeta):
    """Makes a step a struct of which only complete kinds have values."""


class OrderedStep(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """`needs` are the ids of the steps that go before a step.

    They stand in a class of their own because they go by keyword, and the other fields of a step by position.
    """

    needs: tuple[str, ...] = ()


class Step(
    OrderedStep,
    frozen=True,
    forbid_unknown_fields=True,
    tag_field=KIND,
    tag=kind_name,
    metaclass=StepMeta,
):
    """One change of one object at one cluster.

    A kind of step is a subclass, which overrides these defaults.
    """

    verb: ClassVar[str]
    past: ClassVar[str]  # the verb of a step that is done
    in_progress: ClassVar[str] = ""  # what is shown while a step runs that takes long
    registers: ClassVar[bool] = False  # it changes only what the registry remembers
    checked: ClassVar[bool] = False  # the brokers check it when it is planned
    outdated: ClassVar[str] = ""  # the error by which they show that the plan read an older state
    in_one_batch: ClassVar[bool] = False  # all steps that are ready go into one request, however many
    needed_right: ClassVar[str] = ""  # of the principal, for the request; "" where no one right is missing
    not_undone: ClassVar[tuple[str, str]] = "", ""  # why no rollback can undo it, and what to do instead

    id: str
    address: Address
    cluster: str

    def __str__(self) -> str:
        """Returns the step for users: `create topic.dc2.orders`."""
        return f"{self.verb} {self.address}"

    @property
    def restores(self) -> bool:
        """Returns whether the step restores what a flow took away."""
        return self.id.startswith(RESTORE)

    @property
    def progress(self) -> str:
        """Returns what is shown while the step runs; "" for a step that is soon done."""
        return self.in_progress

    @abstractmethod
    def details(self, hidden: Collection[str]) -> Iterator[str]:
        """Yields what the step does, in parts; empty ones are not shown.

        `hidden` are the settings whose values the broker never returns.
        """

    def values(self) -> Mapping[str, Value]:
        """Returns the fields of a flow or a job, by the names of the plan, which are shown below the step."""
        return {}

    @property
    def right(self) -> str:
        """Returns the right that a principal needs for the request; "" where no one right is missing."""
        return self.needed_right.format(topic=self.address.name)

    @property
    def metadata_records(self) -> int:
        """Returns how many records the brokers' metadata log has of the request, which they limit."""
        return max(1, len(self.keys))

    @property
    def keys(self) -> frozenset[str]:
        """Returns the settings of the object that show whether the step is still done."""
        return frozenset()

    @property
    def milestone(self) -> Milestone | None:
        """Returns what the step reaches at its cluster."""
        return None

    @property
    def depends_on(self) -> Iterable[Address]:
        """Returns the objects at its cluster that the step was made from."""
        return (self.address,)

    @property
    def noted(self) -> "Step":
        """Returns the step as the history keeps it."""
        return self

    @property
    def subject(self) -> str:
        """Returns what the step writes of its object: of steps with the same subject the last one counts."""
        return type(self).__name__

    def waits_for(self, others: "PlannedSteps") -> Iterable[str]:
        """Returns the ids of steps about other objects that go before this one."""
        return ()

    def precedes_job(self, clusters: Collection[str], destination: str, topics: Collection[Address]) -> bool:
        """Returns whether a job that copies these topics between these clusters waits for this step."""
        return False

    @property
    def left(self) -> Facts:
        """Returns what the step leaves behind of its object, in the terms of the object's kind."""
        return {}

    @property
    def irreversible(self) -> tuple[str, str]:
        """Returns why no rollback can undo the step, and what to do instead; two empty texts if one can."""
        return self.not_undone


if TYPE_CHECKING:
    AnyStep = Step


def declare_kinds(kinds: Any) -> None:
    """Says of which classes the steps of a record are, for its reader."""
    globals()["AnyStep"] = kinds


@dataclass(frozen=True, slots=True)
class PlannedSteps:
    """The steps of a plan that others wait for: their ids by cluster and milestone, and by flow.

    `flows` has the step that registers each flow. `owned` are the registry entries of the observed clusters.
    """

    reached: Mapping[tuple[str, Milestone], Sequence[str]]
    flows: Mapping[Address, str]
    owned: Mapping[Address, RegistryEntry]

    def at(self, cluster: str, *milestones: Milestone) -> tuple[str, ...]:
        """Returns the ids of the steps after which the milestones are reached at a cluster."""
        return tuple(step for milestone in milestones for step in self.reached.get((cluster, milestone), ()))


class Result(StrEnum):
    """How a step ended."""

    DONE = "done"
    FAILED = "failed"
    SKIPPED = "skipped"  # a step that it needs failed
    NOT_STARTED = "not started"  # interrupted, or the lease was lost, before it was sent
    SENT = "sent"  # in the history alone: a request whose answer was not recorded


@dataclass(frozen=True, slots=True)
class StepResult:
    """How a step ended, and how long its batch took, once that is known."""

    result: Result
    why: str = ""
    seconds: float = 0.0


DONE = StepResult(Result.DONE)


def failed(why: str) -> StepResult:
    """Returns a failed result."""
    return StepResult(Result.FAILED, why)


@dataclass(frozen=True, slots=True)
class StepsSent:
    """The requests of these steps are being sent to the cluster."""

    cluster: str
    steps: tuple[Step, ...]


@dataclass(frozen=True, slots=True)
class StepsEnded:
    """These steps have ended, with whatever result."""

    cluster: str
    results: tuple[tuple[Step, StepResult], ...]


Event = StepsSent | StepsEnded


@dataclass(frozen=True, slots=True)
class ApplySummary:
    """The result of every step of an apply, by its id."""

    outcomes: Mapping[str, StepResult]
    interrupted: bool
    seconds: float
    requests: int = 0

    def of(self, result: Result) -> Mapping[str, StepResult]:
        """Returns the steps that ended so."""
        return {step_id: ended for step_id, ended in self.outcomes.items() if ended.result is result}

    @property
    def complete(self) -> bool:
        """Returns whether every step is done."""
        return all(outcome.result is Result.DONE for outcome in self.outcomes.values())


NOTHING_DONE = ApplySummary({}, interrupted=False, seconds=0.0)


@dataclass(frozen=True, slots=True)
class ApplyRecord:
    """One apply in the history. `result` is done, failed or interrupted; None if its end was not recorded.

    `before` has the registry entries as they were, by the ids of the steps that wrote them again.
    """

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
    steps: "tuple[AnyStep, ...]" = ()
    outcomes: Mapping[str, StepResult] = field(default_factory=dict)
    before: Mapping[str, RegistryEntry] = field(default_factory=dict)

    @property
    def undoing(self) -> str:
        """Returns the reason of a change that undoes a part of this apply."""
        return f"undoes apply {self.id}"

    def merged(self, other: "ApplyRecord") -> "ApplyRecord":
        """Joins the same apply from another cluster's history: each has its own steps."""
        steps = {step.id: step for step in (*self.steps, *other.steps)}
        return replace(
            self,
            finished_ms=self.finished_ms if self.finished_ms is not None else other.finished_ms,
            result=self.result if self.result is not None else other.result,
            steps=tuple(steps.values()),
            outcomes={**other.outcomes, **self.outcomes},
            before={**other.before, **self.before},
        )
