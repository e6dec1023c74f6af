"""Flows: what is copied from where to where, and how."""

import dataclasses
from dataclasses import dataclass
from enum import StrEnum
from typing import Annotated, ClassVar

from planner.model.diagnostic import SourceLocation
from planner.model.shapes import (
    AlternativesShape,
    DurationShape,
    Inline,
    Key,
    ListShape,
    MapShape,
    RateShape,
    RecordKeyShape,
    RecordName,
    RecordShape,
    RegexShape,
    Section,
    TextShape,
    TopicNameShape,
)
from planner.model.topology.resources import CLUSTER_REFERENCE, NAME, REPLICATION, SOURCE_REFERENCE
from planner.model.topology.transforms import EARLIEST, START, OnBadRecord, Start, Transform
from runtime.contract.spec.rename import SAME_NAME, Match, Rename

REGEXES = ListShape(RegexShape(), lone=True)


@dataclass(frozen=True, slots=True)
class Selection:
    """Which topics a flow copies.

    The lists are whole-name regexes: include, less exclude, less the default denials where they are on.
    """

    record: ClassVar = RecordName("flow-topics", "the topics of a flow")

    include: Annotated[
        tuple[str, ...],
        Key(
            "Regexes for whole names: the source topics that are copied.",
            ListShape(RegexShape(), lone=True, least=1),
            example='[orders, "payments\\\\..*"]',
            required=True,
            unless="to",
        ),
    ] = ()
    exclude: Annotated[
        tuple[str, ...],
        Key(
            "Regexes for whole names that are left out; they win over `include`.",
            REGEXES,
            example='["payments\\\\.tmp.*"]',
        ),
    ] = ()
    default_exclude: Annotated[
        bool,
        Key(
            "Whether the default denials are on. They never hide a name that is written out literally.",
            example="true",
        ),
    ] = True
    to: Annotated[
        str | None,
        Key(
            "The topic that takes the lines or rows of files, in place of `include`. Only a flow from files"
            " has it.",
            TopicNameShape(),
            example="inbox",
        ),
    ] = None


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


RENAME = AlternativesShape(
    (
        TextShape("a template"),
        RecordShape(
            "rename-match",
            "a rename by regex",
            (
                RecordKeyShape(
                    "match",
                    RegexShape(),
                    "A regex for whole names.",
                    example='"a-(.*)"',
                    required=True,
                    field="match",
                ),
                RecordKeyShape(
                    "to",
                    TextShape("a replacement"),
                    "The replacement, with \\1 for the first group.",
                    example='"b-\\\\1"',
                    required=True,
                    field="to",
                ),
            ),
            declared_by=Match,
        ),
        MapShape(TopicNameShape(), TopicNameShape(), "topic", least=1),
    ),
    '"{topic}" with text around it, {match: …, to: …} or a map of names',
)


@dataclass(frozen=True, slots=True)
class Configs:
    """How a mirror topic's settings follow its source."""

    record: ClassVar = RecordName("flow-configs", "the configs of a flow")

    sync: Annotated[
        ConfigSync,
        Key(
            "`set` mirrors what is set explicitly at the source, `all` every effective value.",
            example="set",
        ),
    ] = ConfigSync.SET
    exclude: Annotated[
        tuple[str, ...],
        Key(
            "Settings, by name, that are never mirrored.",
            ListShape(TextShape("the name of a topic setting"), lone=True),
            example="[retention.ms]",
        ),
    ] = ()


@dataclass(frozen=True, slots=True)
class Groups:
    """The consumer groups that follow a flow to its destination."""

    record: ClassVar = RecordName("flow-groups", "the groups of a flow")

    select: Annotated[
        Selection,
        Inline(
            include=Key(
                "Regexes for whole names: the consumer groups whose offsets are translated.",
                REGEXES,
                example='[".*"]',
            ),
            without=("to",),
        ),
    ] = Selection(include=(".*",))
    sync: Annotated[bool, Key("Whether offsets are written at the destination.", example="true")] = True
    every_ms: Annotated[int, Key("How often they are translated.", DurationShape(), example="5s")] = 5_000
    mode: Annotated[
        GroupMode,
        Key(
            "`exact` goes by the offset map; `timestamp` by record time, for data older than the map.",
            example="exact",
        ),
    ] = GroupMode.EXACT


@dataclass(frozen=True, slots=True)
class OriginCommits:
    """Progress shown at the source, for Kafka's own lag tools."""

    record: ClassVar = RecordName("origin-commits", "origin_commits")

    group: Annotated[
        str,
        Key(
            "The flow's own group at the source; nothing ever resumes from it.",
            TextShape("the name of a consumer group", r"[^\s]{1,249}", "use a name without spaces"),
            default_doc="`repl.` and the flow's name",
            example="repl.dc1-to-dc2",
        ),
    ] = ""
    every_ms: Annotated[int, Key("How often the position is committed.", DurationShape(), example="5s")] = (
        5_000
    )


ACL_SYNC = Section(
    "acls",
    "Whether ACLs follow.",
    RecordName("flow-acls", "the acls of a flow", "Whether ACLs follow the topics."),
    example="{sync: false}",
    inherited=True,
)
QUOTA_SYNC = Section(
    "quotas",
    "Whether client quotas follow.",
    RecordName("flow-quotas", "the quotas of a flow", "Whether the client quotas of the source follow."),
    example="{sync: false}",
    inherited=True,
)
FOLLOW = Section(
    "follow",
    "Pick up new topics, partitions and settings while running.",
    RecordName("follow", "follow", "Following changes while running."),
    example="{every: 5s}",
    off=True,
    inherited=True,
)
HEARTBEATS = Section(
    "heartbeats",
    "Records that measure the link end to end.",
    RecordName("heartbeats", "heartbeats", "Records that measure the link."),
    example="{every: 1s}",
    off=True,
    inherited=True,
)
CHECKPOINTS = Section(
    "checkpoints",
    "Keep each translation of a group's offset.",
    RecordName("checkpoints", "checkpoints", "Translations of offsets, kept for audit."),
    example="{every: 60s}",
    off=True,
    inherited=True,
)


@dataclass(frozen=True, slots=True)
class Flow:
    """A directed copy: from one cluster to another.

    A duty that is off has None as its interval. `job` is the destination's name where none is given, and
    `origin_commits.group` is `repl.` and the flow's name.
    """

    record: ClassVar = RecordName("flow", "a flow")

    name: Annotated[str, Key("Its name: `flow.<name>` in plans.", NAME, example="dc1-to-dc2")]
    source_cluster: Annotated[
        str,
        Key(
            "The cluster or endpoint it copies from. Files may stand here: `{file: FOLDER, format: text}`.",
            SOURCE_REFERENCE,
            name="from",
            example="dc1",
        ),
    ]
    destination_cluster: Annotated[
        str, Key("The cluster or endpoint it copies to.", CLUSTER_REFERENCE, name="to", example="dc2")
    ]
    topics: Annotated[Selection, Key("Which topics it copies.", example="{include: [orders]}")]
    promoted: Annotated[
        tuple[str, ...],
        Key(
            "Regexes for topics of the flow that were promoted on their own;"
            " `repl promote --topics` writes it.",
            REGEXES,
            example='["payments\\\\.eu"]',
        ),
    ] = ()
    reverse_of: Annotated[
        str | None,
        Key(
            "The flow that this one reverses: it copies back after a failover. That flow's rename is undone.",
            TextShape("the name of a flow", placed=True),
            example="dc1-to-dc2",
        ),
    ] = None
    restart_from: Annotated[
        Start | None,
        Key(
            "Start over from here once, whatever the ledger knows; the plan shows what is copied again."
            " With offsets, partitions that are not named stay where they are.",
            START,
            example="earliest",
            converter="start",
        ),
    ] = None
    rename: Annotated[
        Rename,
        Key(
            "How a topic is named at the destination; it must have an inverse.",
            RENAME,
            default="{topic}",
            example='"{topic}.replica"',
            converter="rename",
            inherited=True,
        ),
    ] = SAME_NAME
    provenance: Annotated[
        Provenance,
        Key(
            "How records that came from the destination are recognized, so that they never return to it.",
            example="headers",
            inherited=True,
        ),
    ] = Provenance.AUTO
    start: Annotated[
        Start,
        Key(
            "Where a partition starts that was never copied.",
            START,
            default="earliest",
            example="latest",
            converter="start",
            inherited=True,
        ),
    ] = EARLIEST
    state: Annotated[
        FlowState,
        Key(
            "What the flow does. `repl pause`, `promote`, `failover` and `failback` write it.",
            example="paused",
            inherited=True,
        ),
    ] = FlowState.ACTIVE
    configs: Annotated[
        Configs, Key("How settings follow the source.", example="{sync: set}", inherited=True)
    ] = Configs()
    replication: Annotated[
        int | None,
        Key(
            "Copies of each partition of the mirror topics.",
            REPLICATION,
            default_doc="the destination's",
            example="3",
            inherited=True,
        ),
    ] = None
    groups: Annotated[
        Groups, Key("Which consumer groups follow.", example="{sync: true}", inherited=True)
    ] = Groups()
    acls_sync: Annotated[
        bool,
        Key(
            "Whether ACLs of the topics are mirrored, by a plan and by the running job within `follow` "
            "(ALLOW WRITE never; ALLOW ALL becomes READ and DESCRIBE).",
            name="sync",
            section=ACL_SYNC,
            example="true",
        ),
    ] = False
    quotas_sync: Annotated[
        bool,
        Key(
            "Whether the client quotas of the source are mirrored by a plan, where the destination has none "
            "for the same user, client id or address.",
            name="sync",
            section=QUOTA_SYNC,
            example="true",
        ),
    ] = False
    protect: Annotated[
        Protect,
        Key(
            "`acl` keeps foreign writers off the mirror topics, where the cluster has an authorizer.",
            example="acl",
            inherited=True,
        ),
    ] = Protect.OFF
    rpo_ms: Annotated[
        int | None,
        Key(
            "The acceptable lag: alerts use it, and no transaction lasts longer than half of it.",
            DurationShape(),
            example="5s",
            inherited=True,
        ),
    ] = None
    rate_limit: Annotated[
        int | None,
        Key("The most it copies, over all slots.", RateShape(), example="50MB/s", inherited=True),
    ] = None
    follow_every_ms: Annotated[
        int | None,
        Key("How often the source is checked.", DurationShape(), name="every", section=FOLLOW, example="5s"),
    ] = 5_000
    heartbeats_every_ms: Annotated[
        int | None,
        Key(
            "How often one is sent. A job with more than 20 flows from one source sends at most 20 a second.",
            DurationShape(),
            name="every",
            section=HEARTBEATS,
            example="1s",
        ),
    ] = 1_000
    checkpoints_every_ms: Annotated[
        int | None,
        Key("How often one is kept.", DurationShape(), name="every", section=CHECKPOINTS, example="60s"),
    ] = 60_000
    origin_commits: Annotated[
        OriginCommits | None,
        Key(
            "Show progress at the source. A denied commit warns and never stops the flow.",
            example="{group: repl.dc1-to-dc2, every: 5s}",
            inherited=True,
        ),
    ] = None
    on_source_delete: Annotated[
        OnSourceDelete,
        Key(
            "What a plan does with the mirror of a topic that was deleted at the source.",
            example="keep",
            inherited=True,
        ),
    ] = OnSourceDelete.KEEP
    on_data_loss: Annotated[
        OnDataLoss,
        Key(
            "What a partition does when records are gone at the source before they were copied.",
            example="stop",
            inherited=True,
        ),
    ] = OnDataLoss.STOP
    every_ms: Annotated[
        int | None,
        Key(
            "How often a flow into files writes them, or a flow from files looks at the folder. Other flows"
            " have no such key.",
            DurationShape(),
            default_doc="`60s` into files, `1s` from files",
            example="60s",
        ),
    ] = None
    transform: Annotated[
        Transform | None,
        Key(
            "Which records travel, and what of their values, in Spark SQL.",
            example="{value: {format: text}, where: \"value LIKE 'eu-%'\"}",
            unset=True,
        ),
    ] = None
    job: Annotated[
        str,
        Key(
            "The job that runs it.",
            TextShape("the name of a job", placed=True),
            default_doc="the destination's name; from files, the endpoint's name",
            example="dc2",
            inherited=True,
        ),
    ] = ""
    source: SourceLocation | None = None

    def __post_init__(self) -> None:
        if not self.job:
            named_after = self.source_cluster if self.from_files else self.destination_cluster
            object.__setattr__(self, "job", named_after)
        if self.origin_commits is not None and not self.origin_commits.group:
            named = dataclasses.replace(self.origin_commits, group=f"repl.{self.name}")
            object.__setattr__(self, "origin_commits", named)

    @property
    def from_files(self) -> bool:
        """Whether the flow reads files."""
        return self.topics.to is not None

    @property
    def quarantines(self) -> bool:
        """Whether bad records of the flow go to a quarantine topic beside their mirror."""
        return self.transform is not None and self.transform.on_bad_record is OnBadRecord.QUARANTINE
