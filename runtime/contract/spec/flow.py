"""What a flow's YAML says and its job needs unchanged: each key is declared here, once.

The topology's `Flow` and the job's `FlowSpec` extend FlowSettings. A duty that is off has
None as its interval.
"""

from collections.abc import Mapping
from typing import Annotated, ClassVar, Final, Literal

from msgspec import Meta

from runtime.contract.spec.rename import RENAME, SAME_NAME, Rename
from runtime.contract.spec.schemas import SchemaSync
from runtime.contract.spec.selection import GROUP_DENIALS, SelectionSpec, Selector
from runtime.contract.spec.shapes import (
    AlternativesShape,
    ChoiceShape,
    Duration,
    IntegerShape,
    Interval,
    Key,
    MapShape,
    Offset,
    Rate,
    RecordName,
    Regex,
    Replication,
    Section,
    SpecStruct,
    TextShape,
    Timestamp,
    ValueShape,
    record_of,
)
from runtime.contract.spec.transform import TransformSpec


class Earliest(SpecStruct, frozen=True, kw_only=True, tag="earliest"):
    """A start at the first record."""


class Latest(SpecStruct, frozen=True, kw_only=True, tag="latest"):
    """A start behind the last record."""


class AtTimestamp(SpecStruct, frozen=True, tag="timestamp"):
    """A start at the first record that is as late as a time."""

    record: ClassVar = RecordName("start-timestamp", "a start by time")

    timestamp_ms: Annotated[
        Timestamp, Key("The first record at or after this time.", example="2026-01-01T00:00:00Z")
    ]


PartitionNumber = Annotated[int, Meta(ge=0, le=2**31 - 1)]


class AtOffsets(SpecStruct, frozen=True, tag="offsets"):
    """A start at an offset of each partition.

    What is not named starts at earliest; with restart_from it stays where it is.
    """

    record: ClassVar = RecordName("start-offsets", "a start by offsets")

    offsets: Annotated[
        Mapping[str, Mapping[PartitionNumber, Offset]],
        Key(
            "By source topic and partition, which may stand in quotes; what is not named starts at earliest,"
            " and with `restart_from` stays where it is.",
            MapShape(
                ValueShape.TOPIC_NAME,
                MapShape(IntegerShape(quoted=True), IntegerShape(0, 2**63 - 1), "partition", least=1),
                "topic",
                least=1,
            ),
            example="{orders: {0: 42}}",
        ),
    ]


Start = Earliest | Latest | AtTimestamp | AtOffsets
START: Final = AlternativesShape(
    (ChoiceShape(("earliest", "latest")), record_of(AtTimestamp), record_of(AtOffsets)),
    "earliest, latest, {timestamp: …} or {offsets: …}",
)

FlowState = Literal["active", "paused", "promoted", "failed_over"]
RUNNING: Final = frozenset[FlowState]({"active", "paused"})  # a job has the flow
ENDED: Final = frozenset[FlowState]({"promoted", "failed_over"})


class ConfigsSpec(SpecStruct, frozen=True):
    """How a mirror topic's settings follow its source."""

    record: ClassVar = RecordName("flow-configs", "the configs of a flow")

    sync: Annotated[
        Literal["off", "set", "all"],
        Key(
            "`set` mirrors what is set explicitly at the source, `all` every effective value.",
            example="set",
        ),
    ] = "set"
    exclude: Annotated[
        tuple[Annotated[Regex, TextShape("the name of a topic setting")], ...],
        Key("Settings, by name, that are never mirrored.", example="[retention.ms]"),
    ] = ()


class GroupsSpec(SelectionSpec, frozen=True):
    """The consumer groups that follow a flow to its destination."""

    record: ClassVar = RecordName("flow-groups", "the groups of a flow")

    include: Annotated[
        tuple[Regex, ...],
        Key(
            "Regexes for whole names: the consumer groups whose offsets are translated.",
            example='[".*"]',
        ),
    ] = (".*",)
    sync: Annotated[bool, Key("Whether offsets are written at the destination.", example="true")] = True
    every_ms: Annotated[Interval, Key("How often they are translated.", example="5s")] = 5_000
    mode: Annotated[
        Literal["exact", "timestamp"],
        Key(
            "`exact` goes by the offset map; `timestamp` by record time, for data older than the map.",
            example="exact",
        ),
    ] = "exact"

    @property
    def selector(self) -> Selector:
        """Returns the rules by which the flow selects consumer groups."""
        return Selector(self, GROUP_DENIALS)


class OriginCommitsSpec(SpecStruct, frozen=True):
    """Progress shown at the source, for Kafka's own lag tools.

    R9: nothing ever resumes from it.
    """

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
    every_ms: Annotated[Interval, Key("How often the position is committed.", example="5s")] = 5_000


ACL_SYNC: Final = Section(
    "acls",
    "Whether ACLs follow.",
    RecordName("flow-acls", "the acls of a flow", "Whether ACLs follow the topics."),
    example="{sync: false}",
    inherited=True,
)
FOLLOW: Final = Section(
    "follow",
    "Pick up new topics, partitions and settings while running.",
    RecordName("follow", "follow", "Following changes while running."),
    example="{every: 5s}",
    off=True,
    inherited=True,
)
HEARTBEATS: Final = Section(
    "heartbeats",
    "Records that measure the link end to end.",
    RecordName("heartbeats", "heartbeats", "Records that measure the link."),
    example="{every: 1s}",
    off=True,
    inherited=True,
)
CHECKPOINTS: Final = Section(
    "checkpoints",
    "Keep each translation of a group's offset.",
    RecordName("checkpoints", "checkpoints", "Translations of offsets, kept for audit."),
    example="{every: 60s}",
    off=True,
    inherited=True,
)


class FlowSettings(SpecStruct, frozen=True, kw_only=True):
    """The keys of a flow that its job needs as they are.

    The group of `origin_commits` is `repl.` and the flow's name where none is given.
    """

    promoted: Annotated[
        tuple[Regex, ...],
        Key(
            "Regexes for topics of the flow that were promoted on their own;"
            " `repl promote --topics` writes it.",
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
    ] = Earliest()
    state: Annotated[
        FlowState,
        Key(
            "What the flow does. `repl pause`, `promote`, `failover` and `failback` write it.",
            example="paused",
            inherited=True,
        ),
    ] = "active"
    configs: Annotated[
        ConfigsSpec, Key("How settings follow the source.", example="{sync: set}", inherited=True)
    ] = ConfigsSpec()
    replication: Annotated[
        Replication | None,
        Key(
            "Copies of each partition of the mirror topics.",
            default_doc="the destination's",
            example="3",
            inherited=True,
        ),
    ] = None
    groups: Annotated[
        GroupsSpec, Key("Which consumer groups follow.", example="{sync: true}", inherited=True)
    ] = GroupsSpec()
    schemas: Annotated[
        SchemaSync,
        Key(
            "Whether schemas follow, from the schema registry of the source to that of the destination"
            " (`registries`).",
            example="{sync: true, subjects: topic_name, ids: keep}",
            inherited=True,
        ),
    ] = SchemaSync()
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
    protect: Annotated[
        Literal["off", "acl"],
        Key(
            "`acl` keeps foreign writers off the mirror topics, where the cluster has an authorizer.",
            example="acl",
            inherited=True,
        ),
    ] = "off"
    rpo_ms: Annotated[
        Duration | None,
        Key(
            "The acceptable lag: alerts use it, and no transaction lasts longer than half of it.",
            example="5s",
            inherited=True,
        ),
    ] = None
    rate_limit: Annotated[
        Rate | None,
        Key("The most it copies, over all slots.", example="50MB/s", inherited=True),
    ] = None
    follow_every_ms: Annotated[
        Interval | None,
        Key("How often the source is checked.", name="every", section=FOLLOW, example="5s"),
    ] = 5_000
    heartbeats_every_ms: Annotated[
        Interval | None,
        Key(
            "How often one is sent. A job with more than 20 flows from one source sends at most 20 a second.",
            name="every",
            section=HEARTBEATS,
            example="1s",
        ),
    ] = 1_000
    checkpoints_every_ms: Annotated[
        Interval | None,
        Key("How often one is kept.", name="every", section=CHECKPOINTS, example="60s"),
    ] = 60_000
    origin_commits: Annotated[
        OriginCommitsSpec | None,
        Key(
            "Show progress at the source. A denied commit warns and never stops the flow.",
            example="{group: repl.dc1-to-dc2, every: 5s}",
            inherited=True,
        ),
    ] = None
    on_source_delete: Annotated[
        Literal["keep", "delete"],
        Key(
            "What a plan does with the mirror of a topic that was deleted at the source.",
            example="keep",
            inherited=True,
        ),
    ] = "keep"
    on_data_loss: Annotated[
        Literal["stop", "skip"],
        Key(
            "What a partition does when records are gone at the source before they were copied.",
            example="stop",
            inherited=True,
        ),
    ] = "stop"
    transform: Annotated[
        TransformSpec | None,
        Key(
            "Which records are copied, and how their values are changed, in Spark SQL.",
            example="{value: {format: text}, where: \"value LIKE 'eu-%'\"}",
            unset=True,
        ),
    ] = None

    @property
    def runs(self) -> bool:
        """Whether a job has the flow: it is active or paused."""
        return self.state in RUNNING
