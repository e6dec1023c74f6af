"""Steps: the whole instruction for apply, which decides nothing. The same list is explained and executed."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from planner.model.address import Address
from planner.model.owned import RegistryEntry
from planner.model.topology import AclRule


@dataclass(frozen=True, slots=True)
class CreateTopic:
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
    id: str
    address: Address
    cluster: str
    topic: str
    old: int
    new: int
    needs: tuple[str, ...] = ()


RESTORE = "restore:"  # how the id of a step begins that restores what a failback had lifted


@dataclass(frozen=True, slots=True)
class AlterConfigs:
    """Only the keys that change: `set` to a value, `unset` back to the cluster's own."""

    id: str
    address: Address
    cluster: str
    topic: str
    set: Mapping[str, str] = field(default_factory=dict)
    unset: tuple[str, ...] = ()
    old: Mapping[str, str | None] = field(default_factory=dict)  # what they were, for the rollback
    needs: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Reassign:
    """A new replication factor: the wanted replicas of every partition."""

    id: str
    address: Address
    cluster: str
    topic: str
    replicas: tuple[tuple[int, ...], ...]
    old: tuple[tuple[int, ...], ...]
    needs: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class DeleteTopic:
    """`topic_id` is the one that was planned: another topic under the same name is never deleted."""

    id: str
    address: Address
    cluster: str
    topic: str
    topic_id: str
    needs: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class CreateAcl:
    id: str
    address: Address
    cluster: str
    rule: AclRule
    needs: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class DeleteAcl:
    id: str
    address: Address
    cluster: str
    rule: AclRule
    needs: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Own:
    """Write the registry entry of an object: after its create or change, or alone when it is adopted.

    Three things are known only then, and stamped by the one who writes: `plan` (the digest of the plan),
    `at_ms`, and after a create the new topic's id as `spec["id"]`.
    """

    id: str
    address: Address
    cluster: str
    entry: RegistryEntry
    needs: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Disown:
    """Remove the registry entry: after a delete, or alone when an object is forgotten."""

    id: str
    address: Address
    cluster: str
    topology: str
    needs: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class LaunchJob:
    """Start a job that is not running. `spec` is the job specification of runtime.contract, as JSON text.

    `topics`: of how many the plan knows, by flow; the job copies when it has found as many.
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
    """Hand a running job its new specification through its control topic."""

    id: str
    address: Address
    cluster: str
    job: str
    spec: str
    needs: tuple[str, ...] = ()
    topics: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class StopJob:
    """`launch`: how it was started, as JSON text: who started it also knows how to end it."""

    id: str
    address: Address
    cluster: str
    job: str
    needs: tuple[str, ...] = ()
    launch: str = ""


Step = (
    CreateTopic
    | GrowPartitions
    | AlterConfigs
    | Reassign
    | DeleteTopic
    | CreateAcl
    | DeleteAcl
    | Own
    | Disown
    | LaunchJob
    | ReconfigureJob
    | StopJob
)


# What each kind does to its object, in one word.
_VERBS: dict[type, str] = {
    CreateTopic: "create",
    GrowPartitions: "grow",
    AlterConfigs: "configure",
    Reassign: "reassign",
    DeleteTopic: "delete",
    CreateAcl: "create",
    DeleteAcl: "delete",
    Own: "register",
    Disown: "forget",
    LaunchJob: "launch",
    ReconfigureJob: "reconfigure",
    StopJob: "stop",
}


def verb(step: Step) -> str:
    return _VERBS[type(step)]


def describe(step: Step) -> str:
    """The step in a person's words: `create topic.dc2.orders`."""
    return f"{verb(step)} {step.address}"
