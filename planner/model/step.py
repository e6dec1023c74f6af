"""Steps, and their results: the same list of steps is shown and executed, and apply decides nothing.

The results are values for the journal, the terminal, the exit code and the history.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum

from planner.model.address import Address
from planner.model.observed import RegistryEntry
from planner.model.topology import AclRule, QuotaEntity


@dataclass(frozen=True, slots=True)
class CreateTopic:
    """Creates a topic."""

    id: str
    address: Address
    cluster: str
    topic: str
    partitions: int | None
    replication: int | None
    config: Mapping[str, str]
    needs: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class GrowPartitions:
    """Adds partitions to a topic."""

    id: str
    address: Address
    cluster: str
    topic: str
    old: int
    new: int
    needs: tuple[str, ...] = ()


# Prefix of the id of a step that restores what a flow took away: limits after a failback, rights to write.
RESTORE = "restore:"
REPLACE = "replace:"  # prefix of the id of a step that deletes a rule in whose place others were made


@dataclass(frozen=True, slots=True)
class AlterConfigs:
    """Changes only these keys: `set` to a value, `unset` back to the cluster's value."""

    id: str
    address: Address
    cluster: str
    topic: str
    set: Mapping[str, str] = field(default_factory=dict)
    unset: tuple[str, ...] = ()
    old: Mapping[str, str | None] = field(default_factory=dict)  # the values before, for a rollback
    needs: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Reassign:
    """Changes the replication factor: has the wanted replicas of every partition."""

    id: str
    address: Address
    cluster: str
    topic: str
    replicas: tuple[tuple[int, ...], ...]
    old: tuple[tuple[int, ...], ...]
    needs: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class DeleteTopic:
    """Deletes the topic with the planned `topic_id`, never another topic of the same name."""

    id: str
    address: Address
    cluster: str
    topic: str
    topic_id: str
    needs: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class CreateAcl:
    """Creates an ACL rule."""

    id: str
    address: Address
    cluster: str
    rule: AclRule
    needs: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class DeleteAcl:
    """Deletes an ACL rule."""

    id: str
    address: Address
    cluster: str
    rule: AclRule
    needs: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class AlterQuota:
    """Sets these limits of an entity and removes those in `unset`; other limits of it stay as they are."""

    id: str
    address: Address
    cluster: str
    entity: QuotaEntity
    set: Mapping[str, float] = field(default_factory=dict)
    unset: tuple[str, ...] = ()
    old: Mapping[str, float | None] = field(default_factory=dict)  # the values before, for a rollback
    needs: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Own:
    """Writes the registry entry of an object: after its create or change, or alone when it is adopted.

    Three values are known only then and are filled in by the handler: `plan` (the digest of the plan),
    `at_ms`, and after a create the new topic's id as `spec["id"]`.
    """

    id: str
    address: Address
    cluster: str
    entry: RegistryEntry
    needs: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Disown:
    """Removes the registry entry: after a delete, or alone when an object is forgotten."""

    id: str
    address: Address
    cluster: str
    topology: str
    needs: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class LaunchJob:
    """Starts a job that is not running. `spec` is its job spec as JSON text.

    `topics`: how many topics the plan knows, by flow. The job copies when it has found as many.
    """

    id: str
    address: Address
    cluster: str
    job: str
    spec: str
    needs: tuple[str, ...] = ()
    topics: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class ReconfigureJob:
    """Sends a running job its new spec through its control topic."""

    id: str
    address: Address
    cluster: str
    job: str
    spec: str
    needs: tuple[str, ...] = ()
    topics: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class StopJob:
    """Stops a job. `launch` is how it was started, as JSON text: the same launcher stops it."""

    id: str
    address: Address
    cluster: str
    job: str
    needs: tuple[str, ...] = ()
    launch: str = ""


@dataclass(frozen=True, slots=True)
class RestoreRecords:
    """Writes the records of a backup's topic into `topic`, and compares them in the end.

    `commit` and `digest` name the state of the flow's manifest in `folder`. `ends` has, for each partition,
    the offset of the backup before which the restore ends. `client` is a JSON text: how the object store is
    reached that `folder` names, with references in the place of secrets.
    """

    id: str
    address: Address
    cluster: str
    topic: str
    endpoint: str
    folder: str
    flow: str
    commit: int
    digest: str
    source: str
    source_id: str
    ends: tuple[int, ...]
    records: int
    client: str = ""
    needs: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class BackedUpOffset:
    """An offset of a backup that a group had committed, in a partition of the restored topic."""

    topic: str
    partition: int
    offset: int
    metadata: str = ""


@dataclass(frozen=True, slots=True)
class RestoreOffsets:
    """Commits the offsets of a consumer group, translated by the offset map of the restored topics."""

    id: str
    address: Address
    cluster: str
    group: str
    flow: str
    offsets: tuple[BackedUpOffset, ...]
    needs: tuple[str, ...] = ()


Step = (
    CreateTopic
    | GrowPartitions
    | AlterConfigs
    | Reassign
    | DeleteTopic
    | CreateAcl
    | DeleteAcl
    | AlterQuota
    | Own
    | Disown
    | LaunchJob
    | ReconfigureJob
    | StopJob
    | RestoreRecords
    | RestoreOffsets
)


# The verb of each kind of step.
_VERBS: dict[type, str] = {
    CreateTopic: "create",
    GrowPartitions: "grow",
    AlterConfigs: "configure",
    Reassign: "reassign",
    DeleteTopic: "delete",
    CreateAcl: "create",
    DeleteAcl: "delete",
    AlterQuota: "configure",
    Own: "register",
    Disown: "forget",
    LaunchJob: "launch",
    ReconfigureJob: "reconfigure",
    StopJob: "stop",
    RestoreRecords: "restore",
    RestoreOffsets: "restore",
}


def verb(step: Step) -> str:
    """Returns the verb of the step."""
    return _VERBS[type(step)]


def describe(step: Step) -> str:
    """Returns the step for users: `create topic.dc2.orders`."""
    return f"{verb(step)} {step.address}"


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
