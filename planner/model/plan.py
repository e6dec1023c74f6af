"""The plan: the whole instruction for apply, with its changes and with what it was made from.

A change has one address, what happens to it, why, and which of its fields change. All are plain values.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from planner.model.address import Address
from planner.model.diagnostic import Diagnostic, Severity
from planner.model.step import Step
from planner.model.topology import Cluster, Internal, Policies

Path = tuple[str, ...]
# A field's value as plain data: durations are milliseconds, rates are bytes per second.
Value = str | int | float | bool | None | tuple[str | int, ...] | Mapping[str, object]

SENSITIVE = "(sensitive value)"  # stands in the place of a value that is never shown


class Action(StrEnum):
    NO_OP = "no-op"
    CREATE = "create"
    UPDATE = "update"
    DELETE = "delete"
    REPLACE = "replace"
    FORGET = "forget"
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True)
class FieldChange:
    """A field with its old and its new value, which are plain data and not yet text.

    `path` is ("config", "retention.ms"), ("partitions",), ("replication",), the topology's name of a key of a
    flow or a job, or ("recorded", key) where the cluster is as wanted and only the registry changes.

    None, old or new, is a value that is not set on the object itself. A topic has the cluster's own value
    then, which is `inherited` where it is known.
    """

    path: Path
    old: Value
    new: Value
    sensitive: bool = False
    note: str = ""
    inherited: str | None = None

    @property
    def key(self) -> str:
        return self.path[-1]


@dataclass(frozen=True, slots=True)
class Change:
    """What a plan does with one object.

    An object that exists and will only be managed from now on is a NO_OP that is `adopted`.
    """

    address: Address
    action: Action
    reason: str
    fields: tuple[FieldChange, ...] = ()
    before: Mapping[str, object] | None = None
    after: Mapping[str, object] | None = None
    unchanged: int = 0  # settings that are declared and already so
    adopted: bool = False  # exists already and will be managed from now on
    notes: tuple[str, ...] = field(default=())  # consequences: keys move, records inside, …


FORMAT_VERSION = 1
WAITS = "partition-waits"  # the code of a diagnostic: a partition of a flow waits for a decision


class Mode(StrEnum):
    """What kind of plan it is."""

    APPLY = "apply"
    DESTROY = "destroy"
    ROLLBACK = "rollback"
    DRIFT = "drift"
    RESTORE = "restore"


@dataclass(frozen=True, slots=True)
class Fingerprint:
    """What a plan saw of one object that it touches. `exists` is False for an absent object.

    `config` has the explicitly set values that were read; only those are compared again. A flow or a job has
    the `cluster` whose registry and status topic were read, and their values in `config`. `removal` is what
    the registry says about removing an owned topic: `keep`, `delete` or `protected`.
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
    """A flow as the plan saw it, for drawings and lists. `topics` is None if it is unknown.

    A flow into files has an `endpoint`, and its source as destination: its job is at home there.
    """

    name: str
    source_cluster: str
    destination_cluster: str
    state: str
    job: str
    topics: int | None = None
    endpoint: str = ""


@dataclass(frozen=True, slots=True)
class Plan:
    """A plan has three properties, not one status: `complete` (all could be read), `errored`, `applyable`."""

    topology: str
    mode: Mode
    topology_digest: str
    created_at: str  # ISO 8601, set by the caller
    clusters: Mapping[str, str]  # name → the cluster id that was seen
    changes: tuple[Change, ...]
    steps: tuple[Step, ...]
    fingerprints: tuple[Fingerprint, ...] = ()
    diagnostics: tuple[Diagnostic, ...] = ()
    unknown: Mapping[str, str] = field(default_factory=dict)
    targets: tuple[str, ...] = ()
    connections: Mapping[str, Cluster] = field(
        default_factory=dict
    )  # how to reach the clusters; secrets are references
    flows: tuple[PlannedFlow, ...] = ()
    internal: Internal = field(default_factory=Internal)  # settings of the internal topics
    policies: Policies = field(default_factory=Policies)  # an apply checks them once more
    format_version: int = FORMAT_VERSION

    @property
    def complete(self) -> bool:
        """Returns whether everything could be read."""
        return not self.unknown

    @property
    def errored(self) -> bool:
        """Returns whether the plan has an error."""
        return any(one.severity is Severity.ERROR for one in self.diagnostics)

    @property
    def applyable(self) -> bool:
        """Returns whether an apply would execute steps."""
        return bool(self.steps) and not self.errored

    @property
    def waits(self) -> bool:
        """Returns whether a partition of the plan's flows waits for a decision."""
        return any(one.code == WAITS for one in self.diagnostics)

    @property
    def changed(self) -> bool:
        """Returns whether an apply would do anything. Starting to manage an object counts."""
        return any(
            change.adopted or change.action not in (Action.NO_OP, Action.UNKNOWN) for change in self.changes
        )
