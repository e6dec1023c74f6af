"""What the clusters should hold: the topology, expanded over what the sources hold."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from planner.model.address import Address, Kind, job_address, topic_address
from planner.model.diagnostic import Diagnostic, SourceLocation
from planner.model.topology import RUNNING, AclRule, Flow, Job, OnRemove
from runtime.contract.spec.jobspec import JobSpec


@dataclass(frozen=True, slots=True)
class Declared:
    """The topic stands in the YAML."""


@dataclass(frozen=True, slots=True)
class MirroredBy:
    """The topic is the destination of a flow. Several flows may fill one (an identity merge)."""

    flow: str
    source_cluster: str
    source_topic: str


@dataclass(frozen=True, slots=True)
class LiftedLimits:
    """Limits of a topic that are lifted while `flow`, a failback, copies into it.

    `before`: the value of each to restore afterwards; "" where the topic had none of its own.
    """

    flow: str
    before: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class DesiredTopic:
    """Only what is given here is compared. None leaves a value to the broker (at create) or alone (later).

    `unset` are keys that must go back to the cluster's own value (a mirror takes back what the source
    no longer sets). `mirrored`: the keys of a declared topic's `config` that a flow gave it.
    `restored`: values that a failback had lifted; they are set once and not owned.
    """

    cluster: str
    name: str
    origin: Declared | MirroredBy
    partitions: int | None = None
    replication: int | None = None
    config: Mapping[str, str] = field(default_factory=dict)
    unset: frozenset[str] = frozenset()
    protect: bool = False
    on_remove: OnRemove = OnRemove.KEEP
    source: SourceLocation | None = None
    mirrored: frozenset[str] = frozenset()
    lifted: LiftedLimits | None = None
    restored: Mapping[str, str] = field(default_factory=dict)

    @property
    def address(self) -> Address:
        return topic_address(self.cluster, self.name)


@dataclass(frozen=True, slots=True)
class DesiredAcl:
    rule: AclRule
    origin: Declared | MirroredBy | str  # a text: why it is wanted otherwise ("protect: acl of flow.x")
    source: SourceLocation | None = None

    @property
    def address(self) -> Address:
        return Address(Kind.ACL, self.rule.cluster, self.rule.name)


@dataclass(frozen=True, slots=True)
class DesiredFlow:
    """A flow with what it selects now: source topic → destination topic, sorted."""

    flow: Flow
    topics: tuple[tuple[str, str], ...]
    hidden: tuple[str, ...] = ()  # topics that only the default denials keep out
    provenance: str = "off"  # what `auto` came to
    provenance_reason: str = ""  # why `auto` came to it
    selection_known: bool = True  # False where the source could not be read
    native_only: bool = False  # it copies no record that another flow wrote at its source
    shared: bool = False  # others write its destination topics by design: both sides hold them
    promoted: tuple[str, ...] = ()  # topics of the source that it would take, promoted on their own


@dataclass(frozen=True, slots=True)
class DesiredJob:
    """`spec` is what it runs by; None where its flows contradict each other, which is an error elsewhere."""

    job: Job
    flows: tuple[str, ...]
    spec: JobSpec | None = None
    source: SourceLocation | None = None

    @property
    def address(self) -> Address:
        return job_address(self.job.name)

    @property
    def needed(self) -> bool:
        """A job whose flows were all promoted or failed over has nothing to do."""
        return self.spec is not None and any(flow.state in RUNNING for flow in self.spec.flows)


@dataclass(frozen=True, slots=True)
class Desired:
    """`unknown` maps an address to why it can't be known; clusters that can't be read are Observed's."""

    topology: str
    topics: tuple[DesiredTopic, ...] = ()
    acls: tuple[DesiredAcl, ...] = ()
    flows: tuple[DesiredFlow, ...] = ()
    jobs: tuple[DesiredJob, ...] = ()
    unknown: Mapping[str, str] = field(default_factory=dict)
    diagnostics: tuple[Diagnostic, ...] = ()
