"""What the live clusters hold, as planner.observe read it: facts only.

Registry entries say which topology owns which object at a cluster, as last applied. A ClusterReport holds
what `repl doctor` found out about a cluster.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from enum import StrEnum
from functools import cached_property

from msgspec import Struct, field

from planner.model.address import Address
from planner.model.diagnostic import Diagnostic
from planner.model.managed_services import ManagedService
from planner.model.plain import KIND, kind_name
from planner.model.topology import QUOTA_KEYS, AclRule, OnRemove, QuotaEntity
from planner.model.topology.quotas import number, number_text
from runtime.contract.records.ledger import Generation
from runtime.contract.records.registry import ANNOUNCED
from runtime.contract.spec.acls import EVERYONE, FENCE, PROTECTION
from runtime.contract.spec.jobspec import FlowSpec, JobSpec
from runtime.contract.spec.schemas import SubjectNames
from runtime.contract.spec.topic_settings import LIFTED
from runtime.schemas.versions import SchemaVersion

CONFIG = "config."
BEFORE = "before."  # the value before a failback lifted the setting
ID = "id"
SOURCE_CLUSTER = "source.cluster"
SOURCE_TOPIC = "source.topic"
MIRRORED = "mirrored"  # the settings of a declared topic that a flow set, separated by commas
REPLACED = "replaced"  # a rule that `protect: acl` has taken away, to be restored
SCHEMAS = "schemas"  # the key of ObservedCluster.unreadable
DECLARED = "declared"  # the origin of a declared object; a mirror's is flow.<name>


class RegistryEntry(Struct, frozen=True, omit_defaults=True, forbid_unknown_fields=True):
    """One entry. `spec` is what was applied (configs, partitions, …). It also remembers the protection."""

    address: Address
    topology: str
    spec: Mapping[str, str] = field(default_factory=dict)
    protect: bool = False
    on_remove: OnRemove = OnRemove.KEEP
    origin: str = DECLARED
    created: bool = False  # created by this topology, not adopted
    plan: str = ""  # digest of the plan that wrote it
    at_ms: int = 0

    @property
    def config(self) -> dict[str, str]:
        """Returns the applied settings; `spec` has them as `config.<key>`."""
        return {key.removeprefix(CONFIG): value for key, value in self.spec.items() if key.startswith(CONFIG)}

    @property
    def mirrored(self) -> frozenset[str]:
        """Returns the settings of a declared topic that a flow set."""
        listed = self.spec.get(MIRRORED, "").split(",")
        return frozenset(key for key in listed if CONFIG + key in self.spec)

    @property
    def before(self) -> dict[str, str]:
        """Returns the values to restore after a failback, by setting; "" if the topic had none of its own.

        Those of other settings than a failback lifts were not written by repl, and are left out.
        """
        kept = ((key, self.spec.get(BEFORE + key)) for key in sorted(LIFTED))
        return {key: value for key, value in kept if value is not None}

    def number(self, key: str) -> int | None:
        """Returns the applied partitions or replication; None where they were left to the cluster."""
        text = self.spec.get(key, "")
        return int(text) if text.isascii() and text.isdecimal() else None

    @property
    def source(self) -> tuple[str, str] | None:
        """Returns the cluster and the topic that a mirror is copied from; None for another object."""
        cluster = self.spec.get(SOURCE_CLUSTER)
        return None if cluster is None else (cluster, self.spec.get(SOURCE_TOPIC, ""))

    def is_another(self, topic_id: str) -> bool:
        """Returns whether the topic was recreated: its id is not the applied one.

        Without both ids this is not known: Kafka before 2.8 gives topics none.
        """
        applied = self.spec.get(ID, "")
        return bool(applied and topic_id) and applied != topic_id

    @property
    def flow(self) -> str | None:
        """Returns the name of the flow that mirrors this object; None for a declared object."""
        return self.origin.removeprefix("flow.") if self.origin.startswith("flow.") else None

    @property
    def is_protection(self) -> bool:
        """Returns whether the entry is of a rule that `protect: acl` made or replaced."""
        return self.origin.startswith(PROTECTION)

    @property
    def is_fence(self) -> bool:
        """Returns whether the entry is an ACL or a quota of the fence of a wave."""
        return self.origin.startswith(FENCE)

    @property
    def is_announced(self) -> bool:
        """Returns whether the entry was written before its object, which an interrupted apply never made."""
        return ANNOUNCED in self.spec

    @property
    def is_replaced(self) -> bool:
        """Returns whether the entry is of a rule that `protect: acl` has taken away.

        It takes rules away that let everyone write topics. An entry of another rule was not written by repl:
        nothing is made of it.
        """
        rule = AclRule.recorded(self.address.cluster or "", self.spec) if REPLACED in self.spec else None
        if rule is None or rule.resource_type != "TOPIC" or rule.principal != EVERYONE:
            return False
        return rule.lets_write

    @property
    def limits(self) -> dict[str, float]:
        """Returns the applied limits of a quota; none where a newer release wrote the entry."""
        try:
            return {key: number(float(self.spec[key])) for key in QUOTA_KEYS if key in self.spec}
        except ValueError:
            return {}


def quota_spec(entity: QuotaEntity, values: Mapping[str, float]) -> dict[str, str]:
    return {**entity.parts, **{key: number_text(value) for key, value in sorted(values.items())}}


class ConfigSource(StrEnum):
    """Where a topic's effective value comes from. Only TOPIC is set on the topic itself."""

    TOPIC = "topic"
    BROKER = "broker"
    DEFAULT = "default"


class ConfigValue(Struct, frozen=True, omit_defaults=True, forbid_unknown_fields=True):
    """A setting's value, and where it comes from. A sensitive value is never readable."""

    value: str | None
    source: ConfigSource = ConfigSource.TOPIC
    sensitive: bool = False
    read_only: bool = False


def replication_factors(replicas: Sequence[Sequence[int]]) -> int | tuple[int, ...]:
    """Returns the number of replicas of a topic, or that of each partition where they differ."""
    factors = tuple(len(partition) for partition in replicas)
    return factors if len(set(factors)) > 1 else max(factors, default=0)


class ObservedTopic(Struct, frozen=True, omit_defaults=True, forbid_unknown_fields=True):
    """A live topic. `config` always has the explicitly set values, and effective values where asked for."""

    name: str
    id: str
    replicas: tuple[tuple[int, ...], ...]
    config: Mapping[str, ConfigValue] = field(default_factory=dict)

    @property
    def partitions(self) -> int:
        return len(self.replicas)

    @property
    def replication(self) -> int:
        """Returns the fewest replicas that any partition has."""
        return min((len(partition) for partition in self.replicas), default=0)

    @property
    def usual_replication(self) -> int:
        """Returns the replicas that most partitions have; the higher number if two are equally frequent."""
        factors = Counter(len(partition) for partition in self.replicas)
        return max(factors, key=lambda factor: (factors[factor], factor), default=0)

    @property
    def replication_factors(self) -> int | tuple[int, ...]:
        """The number of replicas, or that of each partition where they differ."""
        return replication_factors(self.replicas)


class ObservedBroker(Struct, frozen=True, omit_defaults=True, forbid_unknown_fields=True):
    """A live broker."""

    id: int
    host: str
    port: int
    rack: str | None = None


FRESH_MS = 10_000  # a heartbeat comes every second; an older one does not show that the job lives


class LiveJob(Struct, frozen=True, omit_defaults=True, forbid_unknown_fields=True):
    """A job as its destination's status topic shows it. `lag` is in records, by flow, as last reported.

    `live`: its heartbeat is fresh and its state is not "stopped". `spec` is None if the job never reported
    one, or only a newer release can read it. `ending` are the flows whose end, or the promotion of whose
    topics, is in the spec and not complete. `unreadable` says why this release can't read its heartbeat; then
    the driver, the state and the time are not known, and the topology only by the spec.
    """

    name: str
    cluster: str
    topology: str
    driver: str
    state: str
    at_ms: int
    live: bool
    spec: JobSpec | None = None
    where: str = ""
    lag: Mapping[str, int] = field(default_factory=dict)
    ending: tuple[str, ...] = ()
    unreadable: str = ""

    def flow(self, name: str) -> FlowSpec | None:
        """Returns the flow's part of the job's spec."""
        flows = self.spec.flows if self.spec is not None else ()
        return next((flow for flow in flows if flow.name == name), None)


class BrokerFeature(Struct, frozen=True, omit_defaults=True, forbid_unknown_fields=True):
    """A feature that came with a version of Kafka, and what a flow does without it.

    `as_source` and `as_destination` are empty where a flow from or to the cluster does not use it. Without a
    `required` feature the flow cannot run; `for_groups`: only flows that sync consumer groups use it.
    `otherwise` is what happens without a feature that no flow depends on. `broker` is one that lacks the
    feature, and `why` names the API with the versions offered and needed; both are empty where every broker
    that answers has it.
    """

    name: str
    since: str
    as_source: str = ""
    as_destination: str = ""
    required: bool = False
    for_groups: bool = False
    otherwise: str = ""
    broker: str = ""
    why: str = ""


class ObservedSubject(Struct, frozen=True, omit_defaults=True, forbid_unknown_fields=True):
    """A subject of a schema registry. A setting is "" where it has none of its own, or was not read."""

    versions: tuple[SchemaVersion, ...] = ()
    compatibility: str = ""
    mode: str = ""


class ObservedCluster(
    Struct,
    frozen=True,
    omit_defaults=True,
    forbid_unknown_fields=True,
    tag_field=KIND,
    tag=kind_name,
    dict=True,
):
    """A cluster that could be read.

    `acls` is None if there is no authorizer. `hidden` are topics that may not be described. `unreadable` says
    what could not be read and why: "acls", "defaults", "sizes", "groups", "quotas", "scram", "schemas", and
    "topic.<name>" for a topic whose configs are hidden (it is in `hidden` too, though it is listed).
    `defaults` are the cluster's values under the topic's names. `group_topics` and `sizes` (bytes by topic)
    are None until a plan needs them. `group_kinds` has the groups of kind SHARE and STREAMS, with the topics
    that each has a position in. `lacking` names one broker for each feature that any broker lacks.
    `scram_users` have the mechanisms of their secrets, `quotas` the limits by the name of their entity.
    `subjects` are those of the cluster's schema registry; `imports_schemas` is False if it has no mode for
    importing. `jobs` are all that ever reported here.
    `generations` are those of flows without an owner, or with a reverse flow.
    """

    name: str
    id: str
    brokers: tuple[ObservedBroker, ...]
    topics: Mapping[str, ObservedTopic]
    internal_topics: Mapping[str, ObservedTopic] = field(default_factory=dict)
    defaults: Mapping[str, str] = field(default_factory=dict)
    default_partitions: int | None = None
    default_replication: int | None = None
    acls: tuple[AclRule, ...] | None = None
    hidden: frozenset[str] = frozenset()
    unreadable: Mapping[str, str] = field(default_factory=dict)
    lacking: tuple[BrokerFeature, ...] = ()
    owned: tuple[RegistryEntry, ...] = ()
    sizes: Mapping[str, int] | None = None
    group_topics: Mapping[str, frozenset[str]] | None = None
    group_kinds: Mapping[str, Mapping[str, frozenset[str]]] = field(default_factory=dict)
    quotas: Mapping[str, Mapping[str, int | float]] = field(default_factory=dict)
    scram_users: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    subjects: Mapping[str, ObservedSubject] = field(default_factory=dict)
    imports_schemas: bool = True
    jobs: tuple[LiveJob, ...] = ()
    generations: Mapping[str, Generation] = field(default_factory=dict)

    @cached_property
    def acl_names(self) -> frozenset[str] | None:
        """Returns the names of the rules; None if there is no authorizer."""
        return None if self.acls is None else frozenset(rule.name for rule in self.acls)

    def why_hidden(self, topic: str) -> str:
        """Returns why a topic is not described."""
        why = self.unreadable.get(f"topic.{topic}")
        if why is None:
            return f"not authorized to describe {self.name}/{topic}"
        return f"the settings of {self.name}/{topic} could not be read: {why}"

    def lack(self, feature: str) -> BrokerFeature | None:
        """Returns one of the FEATURE_… with a broker that lacks it; None if all have it."""
        return next((lack for lack in self.lacking if lack.name == feature), None)

    def job(self, name: str) -> LiveJob | None:
        """Returns the job of this name; None if it never reported here."""
        return next((job for job in self.jobs if job.name == name), None)


# Features of a broker that this product uses, as ApiVersions shows them.
FEATURE_REASSIGN = "reassignment of replicas"
FEATURE_QUOTAS = "client quotas"
FEATURE_SHARE = "start offsets of share groups"

# Kinds of groups, as brokers list them.
SHARE, STREAMS = "share", "streams"


class Unreachable(
    Struct, frozen=True, omit_defaults=True, forbid_unknown_fields=True, tag_field=KIND, tag=kind_name
):
    """A cluster that could not be read: its part of the plan is unknown, never empty.

    It is not `silent` where it answered: it refused the login, or returned what this release can't decode.
    """

    name: str
    why: str
    hint: str = ""
    silent: bool = True

    @property
    def summary(self) -> str:
        return f"{self.name} unreachable" if self.silent else f"{self.name} could not be read"


class Observed(Struct, frozen=True, omit_defaults=True, forbid_unknown_fields=True, dict=True):
    """All clusters. `diagnostics` are about the clusters themselves, such as brokers that are too old."""

    clusters: Mapping[str, ObservedCluster | Unreachable]
    diagnostics: tuple[Diagnostic, ...] = ()

    @cached_property
    def live(self) -> Mapping[str, ObservedCluster]:
        """Returns the clusters that could be read, by name."""
        return {
            name: cluster for name, cluster in self.clusters.items() if isinstance(cluster, ObservedCluster)
        }

    @cached_property
    def owned(self) -> Mapping[Address, RegistryEntry]:
        """Returns the registry entries of all topologies by address, each from the cluster of its object.

        Flows and jobs are left out: two destinations may each have one of the same name.
        """
        return {
            entry.address: entry
            for name, cluster in self.live.items()
            for entry in cluster.owned
            if entry.address.cluster == name
        }

    def reachable(self, name: str) -> ObservedCluster | None:
        """Returns the cluster if it could be read, else None."""
        return self.live.get(name)


class ClusterDetailsRequest(Struct, frozen=True, omit_defaults=True, forbid_unknown_fields=True):
    """What to read of one cluster beside its topics' names, ids, partitions and replicas.

    `configs` names the settings whose effective values are read of each topic, None every setting. Topics are
    asked for by name, so that one without the right to describe it is `hidden` and does not count as absent.
    `explicit`: also all settings of the topics' own; without them, reading is far cheaper. `sizes` are topics
    whose bytes are read. `groups` are groups whose committed topics are read; `every_group` reads all groups,
    `denied_groups` those that the default denials keep out, and `group_kinds` share groups and streams
    groups. `schemas` are topics whose subjects are compared, each with how producers name these, and
    `subjects` are others that are compared; `subject_modes`: with their modes.
    """

    configs: Mapping[str, frozenset[str] | None] = field(default_factory=dict)
    explicit: bool = True
    acls: bool = False
    sizes: frozenset[str] = frozenset()
    groups: frozenset[str] = frozenset()
    every_group: bool = False
    quotas: bool = False
    scram_users: bool = False
    denied_groups: bool = False
    group_kinds: bool = False
    schemas: Mapping[str, SubjectNames] = field(default_factory=dict)
    subjects: frozenset[str] = frozenset()
    subject_modes: bool = False


Request = Mapping[str, ClusterDetailsRequest]


class BrokerReport(Struct, frozen=True, omit_defaults=True, forbid_unknown_fields=True):
    """One broker. `why` says why it does not answer; `release` is told from its API versions."""

    node: int
    address: str
    release: str = ""
    round_trip_ms: float | None = None
    versions: Mapping[int, tuple[int, int]] | None = None
    why: str = ""


class RightReport(Struct, frozen=True, omit_defaults=True, forbid_unknown_fields=True):
    """A right of the principal on the cluster; `allowed` is None where the broker does not tell."""

    operation: str
    allowed: bool | None
    used_to: str


class TopicRightsReport(Struct, frozen=True, omit_defaults=True, forbid_unknown_fields=True):
    """The rights of the principal on a topic that flows use.

    `missing` maps each operation that is not allowed to what it is needed for; it is None where the broker
    does not tell, and `why` says so.
    """

    topic: str
    uses: tuple[str, ...]
    missing: Mapping[str, str] | None
    why: str = ""


class ClusterReport(Struct, frozen=True, omit_defaults=True, forbid_unknown_fields=True):
    """A cluster as `repl doctor` shows it. The clock's offset is the cluster's time minus this machine's."""

    name: str
    cluster_id: str
    brokers: tuple[BrokerReport, ...]
    features: tuple[BrokerFeature, ...]
    rights: tuple[RightReport, ...]
    clock_offset_ms: float | None
    clock_why: str
    topic_rights: tuple[TopicRightsReport, ...] = ()
    service: ManagedService | None = None  # the managed service that its addresses belong to

    @property
    def can_be_source(self) -> bool:
        """Whether a flow can copy from the cluster."""
        return not any(feature.why and feature.required and feature.as_source for feature in self.features)

    @property
    def can_be_destination(self) -> bool:
        """Whether a flow can copy to the cluster."""
        return not any(
            feature.why and feature.required and feature.as_destination for feature in self.features
        )
