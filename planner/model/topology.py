"""The declared topology, complete: defaults are filled in, variables are expanded, nothing is resolved yet.

Everything is frozen; mappings are plain dicts that nobody changes after the loader built them.
Durations are milliseconds, sizes are bytes, rates are bytes per second.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Literal

from planner.model.diagnostic import SourceLocation
from runtime.contract.client.redaction import SECRET_WORDS as SECRET_WORDS
from runtime.contract.client.redaction import looks_secret as looks_secret
from runtime.contract.spec.rename import SAME_NAME, Rename

API_VERSION = "repl/v1"


@dataclass(frozen=True, slots=True)
class SecretRef:
    """`{env: VAR}` or `{file: path}`: resolved only at the edge that opens a connection, never shown."""

    kind: Literal["env", "file"]
    name: str
    source: SourceLocation | None = field(default=None, compare=False)


Setting = str | SecretRef


@dataclass(frozen=True, slots=True)
class Cluster:
    name: str
    bootstrap: str
    id: str | None = None
    client: Mapping[str, Setting] = field(default_factory=dict, repr=False)  # may hold a literal password
    source: SourceLocation | None = None


class OnRemove(StrEnum):
    KEEP = "keep"
    DELETE = "delete"


@dataclass(frozen=True, slots=True)
class Topic:
    """One topic at one cluster (`cluster: [a, b]` becomes two)."""

    name: str
    cluster: str
    partitions: int | None = None
    replication: int | None = None
    config: Mapping[str, str] = field(default_factory=dict)
    protect: bool = False
    on_remove: OnRemove = OnRemove.KEEP
    source: SourceLocation | None = None


@dataclass(frozen=True, slots=True, order=True)
class AclRule:
    """One binding, as Kafka knows it. Words are Kafka's upper-case enum names."""

    cluster: str
    resource_type: str
    resource: str
    pattern: Literal["LITERAL", "PREFIXED"]
    principal: str
    host: str
    operation: str
    permission: Literal["ALLOW", "DENY"]

    @property
    def name(self) -> str:
        """The rest of its address after the cluster."""
        star = "*" if self.pattern == "PREFIXED" else ""
        host = "" if self.host == "*" else f"@{self.host}"
        return (
            f"{self.permission.lower()}.{self.principal}{host}.{self.operation}"
            f".{self.resource_type.lower()}.{self.resource}{star}"
        )


@dataclass(frozen=True, slots=True)
class Acl:
    """A declared binding with its place in the file."""

    rule: AclRule
    source: SourceLocation | None = None


@dataclass(frozen=True, slots=True)
class Selection:
    """Whole-name regexes: include, less exclude, less the default denials where they are on."""

    include: tuple[str, ...] = ()
    exclude: tuple[str, ...] = ()
    default_exclude: bool = True


class Provenance(StrEnum):
    OFF = "off"
    BATCH = "batch"
    HEADERS = "headers"
    AUTO = "auto"


class FlowState(StrEnum):
    ACTIVE = "active"
    PAUSED = "paused"
    PROMOTED = "promoted"
    FAILED_OVER = "failed_over"


RUNNING = frozenset({FlowState.ACTIVE, FlowState.PAUSED})  # a job has the flow
ENDED = frozenset({FlowState.PROMOTED, FlowState.FAILED_OVER})


class ConfigSync(StrEnum):
    OFF = "off"
    SET = "set"
    ALL = "all"


class GroupMode(StrEnum):
    EXACT = "exact"
    TIMESTAMP = "timestamp"


class Protect(StrEnum):
    OFF = "off"
    ACL = "acl"


class OnDataLoss(StrEnum):
    STOP = "stop"
    SKIP = "skip"


class OnSourceDelete(StrEnum):
    KEEP = "keep"
    DELETE = "delete"


@dataclass(frozen=True, slots=True)
class StartAt:
    """`earliest`, `latest`."""

    at: Literal["earliest", "latest"]


@dataclass(frozen=True, slots=True)
class StartAtTimestamp:
    timestamp_ms: int


@dataclass(frozen=True, slots=True)
class StartAtOffsets:
    """Offsets by source topic and partition. What is not named starts at earliest; with restart_from it
    stays where it is.
    """

    offsets: Mapping[str, Mapping[int, int]]


Start = StartAt | StartAtTimestamp | StartAtOffsets


@dataclass(frozen=True, slots=True)
class Configs:
    sync: ConfigSync = ConfigSync.SET
    exclude: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Groups:
    select: Selection = Selection(include=(".*",))
    sync: bool = True
    every_ms: int = 5_000
    mode: GroupMode = GroupMode.EXACT


@dataclass(frozen=True, slots=True)
class OriginCommits:
    group: str
    every_ms: int = 5_000


@dataclass(frozen=True, slots=True)
class Flow:
    """A declared, directed copy. A duty that is off has None as its interval."""

    name: str
    source_cluster: str
    destination_cluster: str
    topics: Selection
    job: str
    rename: Rename = SAME_NAME
    provenance: Provenance = Provenance.AUTO
    start: Start = StartAt("earliest")
    restart_from: Start | None = None
    state: FlowState = FlowState.ACTIVE
    reverse_of: str | None = None
    promoted: tuple[str, ...] = ()
    configs: Configs = Configs()
    groups: Groups = Groups()
    acls_sync: bool = False
    protect: Protect = Protect.OFF
    rpo_ms: int | None = None
    rate_limit: int | None = None
    follow_every_ms: int | None = 5_000
    heartbeats_every_ms: int | None = 1_000
    checkpoints_every_ms: int | None = 60_000
    origin_commits: OriginCommits | None = None
    on_source_delete: OnSourceDelete = OnSourceDelete.KEEP
    on_data_loss: OnDataLoss = OnDataLoss.STOP
    source: SourceLocation | None = None


@dataclass(frozen=True, slots=True)
class Job:
    """One Spark application. A job no one wrote down has the defaults and no source."""

    name: str
    launcher: str = "local"
    master: str = "local[2]"
    slots: int | Literal["auto"] = "auto"
    memory: str = "1g"
    metrics_port: int | None = 9404
    metrics_host: str = "127.0.0.1"
    metrics_partitions: int = 2_000
    conf: Mapping[str, str] = field(default_factory=dict)
    options: Mapping[str, str] = field(default_factory=dict)
    source: SourceLocation | None = None


@dataclass(frozen=True, slots=True)
class Timestamps:
    """The topic of consumer timestamps. None means: what the other internal topics have."""

    replication: int | None = None
    retention_ms: int | None = None
    partitions: int = 1
    max_per_partition: int = 10


@dataclass(frozen=True, slots=True)
class Internal:
    """The product's own topics. None means: what the cluster can."""

    replication: int | None = None
    retention_ms: int | None = None
    timestamps: Timestamps = Timestamps()


@dataclass(frozen=True, slots=True)
class Requirement:
    """`replication: ">=3"`: a comparison every managed topic must pass."""

    subject: str
    operator: Literal[">=", "<=", ">", "<", "==", "!="]
    value: str
    source: SourceLocation | None = None


@dataclass(frozen=True, slots=True)
class Policies:
    max_deletes: int = 5
    require: tuple[Requirement, ...] = ()


@dataclass(frozen=True, slots=True)
class Topology:
    name: str
    clusters: Mapping[str, Cluster]
    topics: tuple[Topic, ...] = ()
    acls: tuple[Acl, ...] = ()
    flows: Mapping[str, Flow] = field(default_factory=dict)
    jobs: Mapping[str, Job] = field(default_factory=dict)
    internal: Internal = Internal()
    policies: Policies = Policies()
    digest: str = ""
