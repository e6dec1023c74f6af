"""What the live clusters hold, as planner.observe read it: facts only."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum

from planner.model.diagnostic import Diagnostic
from planner.model.owned import RegistryEntry
from planner.model.topology import AclRule
from runtime.contract.records.ledger import Generation
from runtime.contract.spec.jobspec import FlowSpec, JobSpec


class ConfigSource(StrEnum):
    """Where a topic's effective value comes from. Only TOPIC is set on the topic itself."""

    TOPIC = "topic"
    BROKER = "broker"
    DEFAULT = "default"


@dataclass(frozen=True, slots=True)
class ConfigValue:
    """A setting's value, and where it comes from. A sensitive value is never readable."""

    value: str | None
    source: ConfigSource = ConfigSource.TOPIC
    sensitive: bool = False
    read_only: bool = False


def replication_factors(replicas: Sequence[Sequence[int]]) -> int | tuple[int, ...]:
    """Returns the number of replicas of a topic, or that of each partition where they differ."""
    factors = tuple(len(one) for one in replicas)
    return factors if len(set(factors)) > 1 else max(factors, default=0)


@dataclass(frozen=True, slots=True)
class ObservedTopic:
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
        return min((len(one) for one in self.replicas), default=0)

    @property
    def usual_replication(self) -> int:
        """Returns the replicas that most partitions have; the higher number if two are equally frequent."""
        factors = Counter(len(one) for one in self.replicas)
        return max(factors, key=lambda factor: (factors[factor], factor), default=0)

    @property
    def replication_factors(self) -> int | tuple[int, ...]:
        """The number of replicas, or that of each partition where they differ."""
        return replication_factors(self.replicas)


@dataclass(frozen=True, slots=True)
class ObservedBroker:
    """A live broker."""

    id: int
    host: str
    port: int
    rack: str | None = None


FRESH_MS = 10_000  # a heartbeat comes every second; an older one does not show that the job lives


@dataclass(frozen=True, slots=True)
class LiveJob:
    """A job as its destination's status topic shows it. `lag` is in records, by flow, as last reported.

    `live`: its heartbeat is fresh and its state is not "stopped". `spec` is None if the job never reported
    one, or only a newer release can read it.
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

    def flow(self, name: str) -> FlowSpec | None:
        """Returns the flow's part of the job's spec."""
        flows = self.spec.flows if self.spec is not None else ()
        return next((flow for flow in flows if flow.name == name), None)


@dataclass(frozen=True, slots=True)
class BrokerFeature:
    """A feature that came with a version of Kafka, and what a flow does without it.

    `as_source` and `as_destination` are empty where a flow from or to the cluster does not use it. Without a
    `required` feature the flow cannot run; `for_groups`: only flows that sync consumer groups use it.
    `otherwise` is what happens without a feature that no flow depends on.
    """

    name: str
    since: str
    as_source: str = ""
    as_destination: str = ""
    required: bool = False
    for_groups: bool = False
    otherwise: str = ""


@dataclass(frozen=True, slots=True)
class LackingFeature:
    """A feature that a broker lacks; `why` names the API with the versions offered and needed."""

    feature: BrokerFeature
    broker: str
    why: str


@dataclass(frozen=True, slots=True)
class ClientQuota:
    """The quotas of one entity, such as a user with a client id; a name of None is the default entity."""

    entity: tuple[tuple[str, str | None], ...]
    values: Mapping[str, float]

    @property
    def name(self) -> str:
        """Returns `client-id loader, user app`."""
        return ", ".join(f"{kind} {'(default)' if name is None else name}" for kind, name in self.entity)


@dataclass(frozen=True, slots=True)
class ScramUser:
    """A user that logs in with SCRAM, and the mechanisms of its secrets."""

    name: str
    mechanisms: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class ObservedCluster:
    """A cluster that could be read.

    `acls` is None if there is no authorizer. `hidden` are topics that may not be described. `unreadable` says
    what could not be read and why: "acls", "defaults", "sizes", "groups", "quotas", "scram", and
    "topic.<name>" for a topic whose configs are hidden (it is in `hidden` too, though it is listed).
    `defaults` are the cluster's values under the topic's names. `features` are the FEATURE_… that every
    broker has. `group_topics` and `sizes` (bytes by topic) are None until a plan needs them. `lacking` names
    one broker for each feature that any broker lacks. `jobs` are all that ever reported here. `generations`
    are those of flows without an owner, or with a reverse flow.
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
    features: frozenset[str] = frozenset()
    lacking: tuple[LackingFeature, ...] = ()
    owned: tuple[RegistryEntry, ...] = ()
    sizes: Mapping[str, int] | None = None
    group_topics: Mapping[str, frozenset[str]] | None = None
    quotas: tuple[ClientQuota, ...] = ()
    scram_users: tuple[ScramUser, ...] = ()
    jobs: tuple[LiveJob, ...] = ()
    generations: Mapping[str, Generation] = field(default_factory=dict)

    def job(self, name: str) -> LiveJob | None:
        """Returns the job of this name; None if it never reported here."""
        return next((one for one in self.jobs if one.name == name), None)


# Features of a broker that this product uses, as ApiVersions shows them.
FEATURE_RECORDS_V2 = "message format v2"
FEATURE_TRANSACTIONS = "transactions"
FEATURE_INCREMENTAL = "incremental config changes"
FEATURE_REASSIGN = "reassignment of replicas"
FEATURE_TOPIC_IDS = "topic ids"


@dataclass(frozen=True, slots=True)
class Unreachable:
    """A cluster that could not be read: its part of the plan is unknown, never empty."""

    name: str
    why: str
    way_out: str = ""


@dataclass(frozen=True, slots=True)
class Observed:
    """All clusters. `diagnostics` are about the clusters themselves, such as brokers that are too old."""

    clusters: Mapping[str, ObservedCluster | Unreachable]
    diagnostics: tuple[Diagnostic, ...] = ()

    def reachable(self, name: str) -> ObservedCluster | None:
        """Returns the cluster if it could be read, else None."""
        match self.clusters.get(name):
            case ObservedCluster() as cluster:
                return cluster
            case _:
                return None


@dataclass(frozen=True, slots=True)
class TopicConfigsRequest:
    """What to read of one topic: the effective values of `keys`; with `explicit`, also all values set on it.

    `effective` reads every value. Reading `keys` alone is far cheaper.
    """

    keys: frozenset[str] = frozenset()
    explicit: bool = False
    effective: bool = False


@dataclass(frozen=True, slots=True)
class ClusterDetailsRequest:
    """What to read of one cluster beside its topics' names, ids, partitions and replicas.

    `configs` by topic: each is asked for by name, so that a topic without the right to describe it is
    `hidden` and does not count as absent. `sizes` are topics whose bytes are read. `groups` are groups whose
    committed topics are read; `every_group` reads all groups, `denied_groups` those that the default denials
    keep out. `principals`: client quotas and SCRAM users.
    """

    configs: Mapping[str, TopicConfigsRequest] = field(default_factory=dict)
    acls: bool = False
    sizes: frozenset[str] = frozenset()
    groups: frozenset[str] = frozenset()
    every_group: bool = False
    principals: bool = False
    denied_groups: bool = False


Request = Mapping[str, ClusterDetailsRequest]
