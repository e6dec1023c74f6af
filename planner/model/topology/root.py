"""The topology as a whole: its parts, the defaults, the internal topics and the policies."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Annotated, Any, ClassVar, Literal

from planner.model.diagnostic import SourceLocation
from planner.model.topology.cutovers import Cutover
from planner.model.topology.endpoints import FileEndpoint, at_home
from planner.model.topology.flows import Flow
from planner.model.topology.jobs import Job
from planner.model.topology.quotas import Quota
from planner.model.topology.resources import CLUSTER_NAME, NAME, Acl, AclEntry, Cluster, Registry, Topic
from runtime.contract.spec.shapes import (
    IntegerShape,
    Interval,
    Key,
    ListShape,
    MapShape,
    RecordName,
    TextShape,
    ValueShape,
    defaults_of,
    record_of,
)
from runtime.contract.spec.topic_settings import InternalSpec

KAFKA_VERSION = TextShape(
    "a version of Kafka from 2.4.0 on",
    r"(?:2\.(?:[4-9]|\d\d)|[3-9]\.\d{1,2})\.\d{1,2}",
    "write three numbers, as 3.9.1",
)

API_VERSION = "repl/v1"


@dataclass(frozen=True, slots=True)
class Requirement:
    """`replication: ">=3"`: a comparison every managed topic must pass."""

    subject: str
    operator: Literal[">=", "<=", ">", "<", "==", "!="]
    value: str
    source: SourceLocation | None = None


EXPRESSION = TextShape("an expression in CEL", placed=True)


@dataclass(frozen=True, slots=True)
class Rule:
    """A rule in the Common Expression Language (CEL) over the plan; `deny` or `warn` says when it is broken.

    `source` is the place of the expression.
    """

    record: ClassVar = RecordName("rule", "a rule", "When a plan is refused, or has a warning.")

    name: Annotated[str, Key("What the rule is called in messages.", NAME, example="no-deletes-on-fridays")]
    message: Annotated[
        str, Key("What people read of a plan that breaks it.", example='"nothing is deleted on a Friday"')
    ]
    deny: Annotated[
        str | None,
        Key(
            "The plan is refused where this expression is true ([policies.md](policies.md)).",
            EXPRESSION,
            example="now.getDayOfWeek() == 5 && plan.summary.destroy > 0",
        ),
    ] = None
    warn: Annotated[
        str | None,
        Key(
            "The plan has a warning where this expression is true.",
            EXPRESSION,
            example="plan.summary.destroy > 0",
        ),
    ] = None
    source: SourceLocation | None = None

    @property
    def expression(self) -> str:
        return self.deny if self.deny is not None else self.warn or ""


@dataclass(frozen=True, slots=True)
class OperatorPolicy:
    """The file that `--policy` names: rules of the operator, which no change of the topology can change."""

    record: ClassVar = RecordName("operator-policy", "a policy file")

    rules: Annotated[
        tuple[Rule, ...], Key("The rules.", ListShape(record_of(Rule)), example="[]", converter="rules")
    ]


@dataclass(frozen=True, slots=True)
class Policies:
    """Checked at plan and at apply."""

    record: ClassVar = RecordName("policies", "policies")

    max_deletes: Annotated[int, Key("A plan that deletes more is refused.", IntegerShape(), example="0")] = 5
    require: Annotated[
        tuple[Requirement, ...],
        Key(
            "What every managed topic must have: `partitions`, `replication` or a setting, compared.",
            MapShape(
                TextShape("partitions, replication or the name of a topic setting"),
                TextShape(
                    "a comparison", r"\s*(>=|<=|==|!=|>|<)?\s*[^\s<>=!].*", 'write it as ">=3"', placed=True
                ),
                "requirement",
            ),
            default_doc="unset",
            example='{replication: ">=3"}',
            converter="requirements",
        ),
    ] = ()
    rules: Annotated[
        tuple[Rule, ...],
        Key(
            "Rules in CEL over the plan's JSON: [policies.md](policies.md).",
            ListShape(record_of(Rule)),
            default_doc="none",
            example="[{name: no-deletes, deny: plan.summary.destroy > 0, message: ask the platform team}]",
            converter="rules",
        ),
    ] = ()


@dataclass(frozen=True, slots=True)
class DrillSample:
    """Recorded records that a drill writes to topics. `topics` is a name or a regex.

    The path of `file` is relative to the file of the topology that names it, which `source` is in.
    """

    topics: str
    file: str
    source: SourceLocation | None = None


class JobRightsMode(StrEnum):
    DECLARED = "declared"
    DOCUMENTED = "documented"


@dataclass(frozen=True, slots=True)
class Drill:
    """What `repl drill` must show, and how often it must succeed."""

    record: ClassVar = RecordName("drill", "drill")

    every_ms: Annotated[
        Interval | None,
        Key(
            "How often a drill must succeed; its metrics carry it for the alert.",
            default_doc="unset",
            example="7d",
        ),
    ] = None
    max_rto_ms: Annotated[
        Interval | None,
        Key(
            "The longest time from the loss of a cluster until consumers read on.",
            default_doc="no limit",
            example="60s",
        ),
    ] = None
    max_rpo: Annotated[
        int | None,
        Key(
            "The most records that may be missing at the destinations after a loss.",
            IntegerShape(0, 2**63 - 1),
            default_doc="no limit",
            example="100",
        ),
    ] = None
    load_ms: Annotated[
        Interval,
        Key(
            "How long producers write, in the standard drill, before a cluster is killed.",
            example="30s",
        ),
    ] = 10_000
    canaries: Annotated[
        bool,
        Key(
            "Whether `repl drill --against live --canaries` may write canary records to scratch topics.",
            example="true",
        ),
    ] = False
    samples: Annotated[
        tuple[DrillSample, ...],
        Key(
            "Recorded records that a drill on lab clusters writes, by topic or regex: files that"
            " `repl read --export` made, in the folder of the file that names them, or below.",
            MapShape(ValueShape.REGEX, TextShape("a path", placed=True), "topic"),
            default_doc="unset",
            example="{orders: samples/orders.jsonl}",
            converter="samples",
        ),
    ] = ()
    versions: Annotated[
        Mapping[str, str],
        Key(
            "The version of Kafka that a cluster's copy runs in a drill on lab clusters, from 2.4.0 on. Other"
            " copies run the lab's own version.",
            MapShape(CLUSTER_NAME, KAFKA_VERSION, "cluster"),
            default_doc="unset",
            example="{dc1: 3.9.1}",
        ),
    ] = field(default_factory=dict)
    brokers: Annotated[
        int,
        Key(
            "Brokers of each cluster's copy in a drill on lab clusters. Replicas are scaled down to it.",
            IntegerShape(1, 9),
            example="3",
        ),
    ] = 1
    job_rights: Annotated[
        JobRightsMode,
        Key(
            "The rights of jobs in a drill on lab clusters. `declared`: where `acls` name their principal,"
            " only what these allow. `documented`: those that [operations.md](operations.md#the-least-rights)"
            " lists, because the rules are managed elsewhere.",
            example="documented",
        ),
    ] = JobRightsMode.DECLARED


@dataclass(frozen=True, slots=True)
class Defaults:
    """What topics and flows inherit."""

    record: ClassVar = RecordName("defaults", "defaults")

    topic: Annotated[
        Topic | None,
        Key(
            "For declared topics; `config` is merged setting by setting.",
            defaults_of(
                Topic,
                RecordName(
                    "topic-defaults",
                    "the defaults of topics",
                    "What every declared topic has unless it says otherwise.",
                ),
            ),
            example="{replication: 3}",
        ),
    ] = None
    flow: Annotated[
        Flow | None,
        Key(
            "For flows; maps are merged key by key.",
            defaults_of(
                Flow,
                RecordName(
                    "flow-defaults", "the defaults of flows", "What every flow has unless it says otherwise."
                ),
            ),
            example="{start: latest}",
        ),
    ] = None


@dataclass(frozen=True, slots=True)
class Topology:
    """The whole topology: one file, or a folder of files that are merged.

    A key that is a class variable is used up by the loader. `flows` go from cluster to cluster; those into or
    from an endpoint are in `file_flows`, although they stand under the same key.
    """

    record: ClassVar = RecordName("topology", "a topology")

    api_version: ClassVar[
        Annotated[
            str,
            Key(
                "The version of the language.",
                TextShape("the version of the language"),
                name="apiVersion",
                example=API_VERSION,
            ),
        ]
    ]
    name: Annotated[
        str,
        Key("The topology's name; what it creates is owned under it.", NAME, example="active-active"),
    ]
    vars: ClassVar[
        Annotated[
            Mapping[str, Any],
            Key(
                "Variables for `{{ … }}`; without a value they must come from --var-file.",
                MapShape(TextShape("a variable"), ValueShape.ANY, "variable"),
                default_doc="empty",
                example="{retention: 7d}",
            ),
        ]
    ]
    clusters: Annotated[
        Mapping[str, Cluster],
        Key(
            "The clusters, by name.",
            MapShape(CLUSTER_NAME, record_of(Cluster), "cluster", least=1),
            example="{dc1: {bootstrap: 127.0.0.1:19092}}",
        ),
    ]
    defaults: ClassVar[
        Annotated[
            Defaults,
            Key("What topics and flows inherit.", default_doc="empty", example="{topic: {replication: 3}}"),
        ]
    ]
    topics: Annotated[
        tuple[Topic, ...],
        Key("Topics that this topology manages.", example="[{name: orders, cluster: dc1}]"),
    ] = ()
    acls: Annotated[
        tuple[Acl, ...],
        Key(
            "ACLs that this topology manages.",
            ListShape(record_of(AclEntry)),
            example='[{cluster: dc1, principal: "User:app", allow: READ, topic: orders}]',
        ),
    ] = ()
    quotas: Annotated[
        tuple[Quota, ...],
        Key(
            "Client quotas that this topology manages.",
            example="[{cluster: dc1, user: app, producer_byte_rate: 10MB/s}]",
        ),
    ] = ()
    flows: Annotated[
        Mapping[str, Flow],
        Key(
            "What is copied where.",
            ListShape(record_of(Flow)),
            default=(),
            example="[{name: dc1-to-dc2, from: dc1, to: dc2, topics: {include: orders}}]",
        ),
    ] = field(default_factory=dict)
    cutovers: Annotated[
        tuple[Cutover, ...],
        Key(
            "How clients leave a cluster for good, wave by wave.",
            ListShape(record_of(Cutover)),
            default=(),
            example="[{name: to-cloud, flows: [dc1-to-dc2], waves: [{name: billing, topics: [orders.eu]}]}]",
        ),
    ] = ()
    endpoints: Annotated[
        Mapping[str, FileEndpoint],
        Key(
            "Folders that flows write files to or read them from, by name.",
            MapShape(CLUSTER_NAME, record_of(FileEndpoint), "endpoint"),
            default_doc="none",
            example="{lake: {file: /data/lake, format: parquet}}",
        ),
    ] = field(default_factory=dict)
    registries: Annotated[
        Mapping[str, Registry],
        Key(
            "The schema registry of each cluster, by the cluster's name. Flows with `schemas` use them.",
            MapShape(CLUSTER_NAME, record_of(Registry), "cluster"),
            default_doc="none",
            example='{dc1: {url: "https://schemas.dc1.example.org"}}',
        ),
    ] = field(default_factory=dict)
    jobs: Annotated[
        Mapping[str, Job],
        Key(
            "The Spark applications, by name.",
            MapShape(NAME, record_of(Job), "job"),
            default_doc="one for each destination",
            example="{dc2: {slots: 4}}",
        ),
    ] = field(default_factory=dict)
    internal: Annotated[
        InternalSpec, Key("The internal topics of repl, `__repl.…`.", example="{replication: 3}")
    ] = field(default_factory=InternalSpec)
    policies: Annotated[Policies, Key("Limits that a plan must keep.", example="{max_deletes: 0}")] = (
        Policies()
    )
    drill: Annotated[
        Drill,
        Key("The limits of rehearsals with `repl drill`, and what they may do.", example="{max_rto: 60s}"),
    ] = Drill()
    file_flows: Mapping[str, Flow] = field(default_factory=dict)
    digest: str = ""

    def declaring_nothing(self) -> "Topology":
        """Returns the topology without its objects, as a destroy plans it."""
        return replace(self, topics=(), acls=(), quotas=(), flows={}, cutovers=(), file_flows={}, jobs={})

    def job(self, name: str) -> Job:
        """Returns the job of this name; one that is not declared has the defaults."""
        return self.jobs.get(name) or Job(name)

    @property
    def own_groups(self) -> frozenset[str]:
        """The groups in which flows commit their own progress: no consumer belongs to them."""
        named = {flow.origin_commits.group for flow in self.flows.values() if flow.origin_commits}
        return frozenset(named | {f"repl.{name}" for name in self.flows})

    @property
    def job_flows(self) -> dict[str, Flow]:
        """All flows as jobs run them: one with an endpoint has the home cluster of its job at both ends."""
        return {**self.flows, **{name: at_home(flow) for name, flow in self.file_flows.items()}}
