"""The plan: the whole instruction for apply, with what it was made from."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from planner.model.address import Address
from planner.model.change import Action, Change
from planner.model.diagnostic import Diagnostic, Severity
from planner.model.step import Step
from planner.model.topology import Cluster, Internal, Policies

FORMAT_VERSION = 1
WAITS = "partition-waits"  # the code of a diagnostic: a partition of a flow waits for a decision


class Mode(StrEnum):
    APPLY = "apply"
    DESTROY = "destroy"
    ROLLBACK = "rollback"
    DRIFT = "drift"


@dataclass(frozen=True, slots=True)
class Fingerprint:
    """What a plan saw of one object it touches. Absent objects have `exists` False.

    `config` are the explicitly set values it read; only those are compared again. A flow or a job has the
    `cluster` whose registry and status topic tell of it, and as `config` what was read there. `removal` is
    what the registry says of the end of a topic that somebody owns: `keep`, `delete` or `protected`.
    """

    address: Address
    exists: bool
    topic_id: str | None = None
    partitions: int | None = None
    replicas: str | None = None
    config: Mapping[str, str | None] = field(default_factory=dict)
    owner: str | None = None
    cluster: str | None = None
    removal: str | None = None


@dataclass(frozen=True, slots=True)
class PlannedFlow:
    """A flow as the plan saw it, for those who draw or list it; `topics` None where that is unknown."""

    name: str
    source_cluster: str
    destination_cluster: str
    state: str
    job: str
    topics: int | None = None


@dataclass(frozen=True, slots=True)
class Plan:
    """Three facts, not one status: `complete` (everything could be read), `errored`, `applyable`."""

    topology: str
    mode: Mode
    topology_digest: str
    created_at: str  # ISO 8601, given from outside
    clusters: Mapping[str, str]  # name → the cluster id that was seen
    changes: tuple[Change, ...]
    steps: tuple[Step, ...]
    fingerprints: tuple[Fingerprint, ...] = ()
    diagnostics: tuple[Diagnostic, ...] = ()
    unknown: Mapping[str, str] = field(default_factory=dict)
    targets: tuple[str, ...] = ()
    connections: Mapping[str, Cluster] = field(
        default_factory=dict
    )  # how to reach them; secrets by reference
    flows: tuple[PlannedFlow, ...] = ()
    internal: Internal = field(default_factory=Internal)  # how the product keeps its own topics
    policies: Policies = field(default_factory=Policies)  # an apply holds the plan to them once more
    format_version: int = FORMAT_VERSION

    @property
    def complete(self) -> bool:
        return not self.unknown

    @property
    def errored(self) -> bool:
        return any(one.severity is Severity.ERROR for one in self.diagnostics)

    @property
    def applyable(self) -> bool:
        return bool(self.steps) and not self.errored

    @property
    def waits(self) -> bool:
        """Whether a partition of its flows waits for a decision."""
        return any(one.code == WAITS for one in self.diagnostics)

    @property
    def changed(self) -> bool:
        """Would an apply do anything? Beginning to manage an object is something."""
        return any(
            change.adopted or change.action not in (Action.NO_OP, Action.UNKNOWN) for change in self.changes
        )
