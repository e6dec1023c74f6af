"""What the clusters should hold: the topology, expanded over the live topics."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from msgspec import Struct

from planner.model.address import (
    Address,
    Kind,
    flow_address,
    job_address,
    schema_address,
    topic_address,
)
from planner.model.diagnostic import Diagnostic, SourceLocation
from planner.model.observed import DECLARED, ObservedSubject
from planner.model.topology import AclRule, Flow, Job, OnRemove, QuotaEntity
from runtime.contract.results.waves import WaveState
from runtime.contract.spec.acls import FENCE, flow_origin
from runtime.contract.spec.jobspec import JobSpec, ProvenanceMode
from runtime.contract.spec.transform import quarantine_origin
from runtime.schemas.versions import SchemaVersion, missing_versions


@dataclass(frozen=True, slots=True)
class Declared:
    """The object is declared in the YAML.

    An origin has a `text` for the registry and a `reason` for people.
    """

    @property
    def text(self) -> str:
        return DECLARED

    @property
    def reason(self) -> str:
        return "declared"


@dataclass(frozen=True, slots=True)
class MirroredBy:
    """The object is made by a flow. Several flows may fill one topic (an identity merge).

    A quota belongs to no topic.
    """

    flow: str
    source_cluster: str
    source_topic: str = ""

    @property
    def text(self) -> str:
        return flow_origin(self.flow)

    @property
    def reason(self) -> str:
        return f"mirrored by flow.{self.flow}"


@dataclass(frozen=True, slots=True)
class QuarantineOf:
    """The topic takes the bad records of `mirror`, a topic that a flow with a transform makes."""

    flow: str
    mirror: str

    @property
    def text(self) -> str:
        return quarantine_origin(self.flow)

    @property
    def reason(self) -> str:
        return f"takes the bad records of {self.mirror}: on_bad_record of flow.{self.flow}"


@dataclass(frozen=True, slots=True)
class FencedBy:
    """The object stops the producers of a wave at the source."""

    cutover: str
    wave: str

    @property
    def text(self) -> str:
        return f"{FENCE}{self.cutover}, wave {self.wave}"

    @property
    def reason(self) -> str:
        return f"stops the producers of the wave {self.wave}"


@dataclass(frozen=True, slots=True)
class DesiredTopic:
    """A topic as it should be. None leaves a value to the broker at creation, and unchanged later.

    `unset` are keys that go back to the cluster's value: a mirror gives up what its source no longer sets.
    `mirrored` are the keys of a declared topic's `config` that a flow set. `before` are limits that are
    lifted while the flow `lifted_by`, a failback, copies into the topic: the value of each to restore
    afterwards, "" where the topic had none of its own. `restored` are such values, which are set once and not
    registered.
    """

    cluster: str
    name: str
    origin: Declared | MirroredBy | QuarantineOf
    partitions: int | None = None
    replication: int | None = None
    config: Mapping[str, str] = field(default_factory=dict)
    unset: frozenset[str] = frozenset()
    protect: bool = False
    on_remove: OnRemove = OnRemove.KEEP
    source: SourceLocation | None = None
    mirrored: frozenset[str] = frozenset()
    lifted_by: str = ""
    before: Mapping[str, str] = field(default_factory=dict)
    restored: Mapping[str, str] = field(default_factory=dict)

    @property
    def address(self) -> Address:
        return topic_address(self.cluster, self.name)


@dataclass(frozen=True, slots=True)
class DesiredAcl:
    """An ACL rule as it should be.

    A `replaced` rule is taken away and remembered, and restored once it is no longer desired as replaced. A
    rule that `waits` gives a right back, so it is made after the flows of this plan have released their
    mirrors.
    """

    rule: AclRule
    origin: Declared | MirroredBy | FencedBy | str  # a text: another reason ("protect: acl of flow.x")
    source: SourceLocation | None = None
    replaced: bool = False
    waits: bool = False

    @property
    def reason(self) -> str:
        return self.origin if isinstance(self.origin, str) else self.origin.reason

    @property
    def address(self) -> Address:
        return Address(Kind.ACL, self.rule.cluster, self.rule.name)


@dataclass(frozen=True, slots=True)
class DesiredQuota:
    """The client quotas of an entity as they should be. Limits that `values` does not name are left alone."""

    cluster: str
    entity: QuotaEntity
    values: Mapping[str, float]
    origin: Declared | MirroredBy | FencedBy
    source: SourceLocation | None = None

    @property
    def address(self) -> Address:
        return Address(Kind.QUOTA, self.cluster, self.entity.name)


@dataclass(frozen=True, slots=True)
class DesiredSubject:
    """A subject at a destination's schema registry, with the versions of the source's that it should have.

    `keep`: they have the ids and numbers of the source. A setting that is "" is left alone.
    """

    cluster: str
    name: str
    origin: MirroredBy  # its topic is the one whose subject this is; "" for one that others refer to
    subject: str  # its name at the source
    versions: tuple[SchemaVersion, ...]
    keep: bool
    compatibility: str = ""
    mode: str = ""
    source: SourceLocation | None = None

    @property
    def address(self) -> Address:
        return schema_address(self.cluster, self.name)

    @property
    def reason(self) -> str:
        if not self.versions:
            return f"producers register there: flow.{self.origin.flow} copies its topic no more"
        refers = "" if self.origin.source_topic else ", whose schemas refer to it"
        return f"follows flow.{self.origin.flow}{refers}"

    def missing(self, live: ObservedSubject | None) -> tuple[SchemaVersion, ...]:
        """Returns the versions that the destination does not have."""
        return missing_versions(self.versions, live.versions if live is not None else (), keep=self.keep)


@dataclass(frozen=True, slots=True)
class DesiredFlow:
    """A flow with what it selects now: source topic → destination topic, sorted."""

    flow: Flow
    topics: tuple[tuple[str, str], ...]
    hidden: tuple[str, ...] = ()  # topics that only the default denials keep out
    provenance: ProvenanceMode = "off"  # how `auto` was resolved
    provenance_reason: str = ""  # why `auto` was resolved so
    selection_known: bool = True  # False where the source could not be read
    native_only: bool = False  # it copies no record that another flow wrote at its source
    # Other flows or clients write its destination topics by design. None where the only other
    # writer may be a flow whose source does not answer.
    shared: bool | None = False
    promoted: tuple[str, ...] = ()  # topics of the source that were promoted on their own


@dataclass(frozen=True, slots=True)
class DesiredJob:
    """A job and its flows. `spec` is None if its flows contradict each other, which is an error elsewhere."""

    job: Job
    flows: tuple[str, ...]
    spec: JobSpec | None = None
    source: SourceLocation | None = None

    @property
    def address(self) -> Address:
        return job_address(self.job.name)

    @property
    def addresses(self) -> tuple[Address, ...]:
        """Returns the addresses of the job and of its flows."""
        return (self.address, *map(flow_address, self.flows))

    @property
    def needed(self) -> bool:
        """Returns whether a flow of the job runs: a job without one has nothing to do."""
        return self.spec is not None and any(flow.runs for flow in self.spec.flows)


class PlannedWave(Struct, frozen=True):
    """A wave in a plan: its size, the groups that move with it, and the duration of the first copy.

    `topics` are those at the source, `left` of them have not moved. `size` is in bytes, None where it may not
    be read. `groups` are those that read its topics. `behind` are the records that its jobs had not copied
    when they last reported; None where no job has. `copy_ms` is how long the first copy of the topics takes
    that no job copies yet, at `rate` bytes a second.
    """

    cutover: str
    wave: str
    source: str
    fence: str
    fenced: bool
    topics: int
    left: int
    partitions: int
    size: int | None
    groups: tuple[str, ...]
    rate: int
    behind: int | None
    copy_ms: int | None

    @property
    def state(self) -> WaveState:
        if self.topics and not self.left:
            return WaveState.MOVED
        return WaveState.FENCED if self.fenced else WaveState.WAITING


@dataclass(frozen=True, slots=True)
class Desired:
    """The desired state. `unknown` has why an address can't be known; Observed has unreachable clusters.

    `on_remove` says of topics that are not desired what their removal means, whatever was applied.
    """

    topology: str
    topics: tuple[DesiredTopic, ...] = ()
    acls: tuple[DesiredAcl, ...] = ()
    quotas: tuple[DesiredQuota, ...] = ()
    subjects: tuple[DesiredSubject, ...] = ()
    flows: tuple[DesiredFlow, ...] = ()
    jobs: tuple[DesiredJob, ...] = ()
    unknown: Mapping[str, str] = field(default_factory=dict)
    diagnostics: tuple[Diagnostic, ...] = ()
    on_remove: Mapping[Address, OnRemove] = field(default_factory=dict)
    waves: tuple[PlannedWave, ...] = ()
