"""The plan: the whole instruction for apply, with its changes and with what it was made from.

A change has one address, what happens to it, why, and which of its fields change. All are plain values.
`plain` gives a plan as trees of dicts, lists, text and numbers, of which its bytes and its digest are made: a
field that holds its default is left out, addresses are written as people write them, and secrets that are
written out in a cluster's client settings are masked. The bytes hold every field of the plan: the same plan
has the same bytes on every machine.
"""

import hashlib
import json
from collections.abc import Mapping
from dataclasses import MISSING, dataclass, field, fields, is_dataclass
from enum import Enum, StrEnum
from functools import cache
from typing import Any

from planner.model.address import Address
from planner.model.diagnostic import Diagnostic, Severity
from planner.model.step import (
    AlterConfigs,
    AlterQuota,
    CreateAcl,
    CreateTopic,
    DeleteAcl,
    DeleteTopic,
    Disown,
    GrowPartitions,
    LaunchJob,
    Own,
    Reassign,
    ReconfigureJob,
    RestoreOffsets,
    RestoreRecords,
    Step,
    StopJob,
)
from planner.model.topology import Cluster, Internal, Policies, looks_secret

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

    A flow with files has an `endpoint`, which it reads with `from_files`. Both of its clusters are the one at
    which its job is at home.
    """

    name: str
    source_cluster: str
    destination_cluster: str
    state: str
    job: str
    topics: int | None = None
    endpoint: str = ""
    from_files: bool = False


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
    labels: Mapping[str, Mapping[str, str]] = field(default_factory=dict)  # of clusters, for the rules
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


STEP_KINDS: Mapping[str, type[Step]] = {
    "create_topic": CreateTopic,
    "grow_partitions": GrowPartitions,
    "alter_configs": AlterConfigs,
    "reassign": Reassign,
    "delete_topic": DeleteTopic,
    "create_acl": CreateAcl,
    "delete_acl": DeleteAcl,
    "alter_quota": AlterQuota,
    "own": Own,
    "disown": Disown,
    "launch_job": LaunchJob,
    "reconfigure_job": ReconfigureJob,
    "stop_job": StopJob,
    "restore_records": RestoreRecords,
    "restore_offsets": RestoreOffsets,
}
KIND_OF: Mapping[type[Step], str] = {kind: name for name, kind in STEP_KINDS.items()}


def plain(value: Any) -> Any:
    """Returns any value of the model as a plain tree."""
    match value:
        case Enum():
            return value.value
        case None | bool() | int() | float() | str():
            return value
        case Address():
            return str(value)
        case Mapping():
            return {str(key): plain(one) for key, one in value.items()}
        case tuple() | list():
            return [plain(one) for one in value]
        case frozenset() | set():
            return sorted(plain(one) for one in value)
        case Cluster():
            return _fields({**_by_name(value), "client": _without_secrets(value)}, type(value))
        case _ if type(value) in KIND_OF:
            return {"step": KIND_OF[type(value)], **_fields(_by_name(value), type(value))}
        case _ if is_dataclass(value):
            return _fields(_by_name(value), type(value))
        case _:
            raise TypeError(f"{type(value).__name__} has no plain form")


def literal_secrets(plan: Plan) -> list[str]:
    """Returns `dc1: sasl.password` for each secret that is written out instead of being a reference."""
    return [
        f"{name}: {key}"
        for name, cluster in sorted(plan.connections.items())
        for key, value in sorted(cluster.client.items())
        if isinstance(value, str) and looks_secret(key)
    ]


def _without_secrets(cluster: Cluster) -> dict[str, Any]:
    return {
        key: SENSITIVE if isinstance(value, str) and looks_secret(key) else value
        for key, value in sorted(cluster.client.items())
    }


def _by_name(value: Any) -> dict[str, Any]:
    return {name: getattr(value, name) for name, _ in _defaults(type(value))}  # type: ignore[arg-type]


def _fields(values: Mapping[str, Any], kind: type) -> dict[str, Any]:
    return {name: plain(values[name]) for name, default in _defaults(kind) if values[name] != default}


@cache
def _defaults(kind: type) -> tuple[tuple[str, Any], ...]:
    """Returns each field with its default. MISSING stands for no default and equals no value."""
    return tuple(
        (
            one.name,
            one.default
            if one.default is not MISSING
            else one.default_factory()
            if one.default_factory is not MISSING
            else MISSING,
        )
        for one in fields(kind)
    )


PREFIX = "sha256:"


def digest(plan: Plan) -> str:
    """Returns the name of this plan: `sha256:` and 64 hex digits."""
    return digest_of(body_of(plan))


def body_of(plan: Plan) -> dict[str, Any]:
    """Returns the plan as the plain tree that a plan file holds."""
    body = plain(plan)
    assert isinstance(body, dict)
    return body


def digest_of(body: dict[str, Any]) -> str:
    """Returns the digest of a plan's plain tree."""
    return PREFIX + hashlib.sha256(canonical(body)).hexdigest()


def canonical(body: dict[str, Any]) -> bytes:
    """Returns the bytes that the digest and the signature are made over."""
    return json.dumps(body, sort_keys=True, separators=(",", ":")).encode("ascii")
