"""The maps inside a flow, and the names that everything shares."""

from planner.config.language.shapes import (
    AlternativesShape,
    BooleanShape,
    ChoiceShape,
    DurationShape,
    IntegerShape,
    ListShape,
    MapShape,
    RecordKeyShape,
    RecordShape,
    RegexShape,
    Shape,
    TextShape,
    TimestampShape,
    TopicNameShape,
)

NAME = TextShape(
    "a name of letters, digits, dots, _ and -",
    r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}",
    "begin it with a letter or digit, then letters, digits, dots, _ and -, at most 100",
)
CLUSTER_NAME = TextShape(
    "a cluster's name",
    r"[A-Za-z0-9][A-Za-z0-9_-]{0,99}",
    "use letters, digits, _ and -, without dots: topics and addresses are named after it",
)
CLUSTER_REFERENCE = TextShape("the name of a cluster", placed=True)


def every(default: str, doc: str) -> RecordKeyShape:
    return RecordKeyShape("every", DurationShape(), doc, default=default, example=default)


SELECTION = (
    RecordKeyShape(
        "exclude",
        ListShape(RegexShape(), lone=True),
        "Regexes for whole names that are left out; they win over `include`.",
        default=(),
        example='["payments\\\\.tmp.*"]',
    ),
    RecordKeyShape(
        "default_exclude",
        BooleanShape(),
        "Whether the default denials are on. They never hide a name that is written out literally.",
        default=True,
        example="true",
    ),
)
TOPICS = RecordShape(
    "flow-topics",
    "the topics of a flow",
    (
        RecordKeyShape(
            "include",
            ListShape(RegexShape(), lone=True, least=1),
            "Regexes for whole names: the source topics that are copied.",
            example='[orders, "payments\\\\..*"]',
            required=True,
        ),
        *SELECTION,
    ),
    "Which topics a flow copies.",
)
GROUPS = RecordShape(
    "flow-groups",
    "the groups of a flow",
    (
        RecordKeyShape(
            "include",
            ListShape(RegexShape(), lone=True),
            "Regexes for whole names: the consumer groups whose offsets are translated.",
            default=(".*",),
            example='[".*"]',
        ),
        *SELECTION,
        RecordKeyShape(
            "sync",
            BooleanShape(),
            "Whether offsets are written at the destination.",
            default=True,
            example="true",
        ),
        every("5s", "How often they are translated."),
        RecordKeyShape(
            "mode",
            ChoiceShape(("exact", "timestamp")),
            "`exact` goes by the offset map; `timestamp` by record time, for data older than the map.",
            default="exact",
            example="exact",
        ),
    ),
    "The consumer groups that follow a flow to its destination.",
)
CONFIGS = RecordShape(
    "flow-configs",
    "the configs of a flow",
    (
        RecordKeyShape(
            "sync",
            ChoiceShape(("off", "set", "all")),
            "`set` mirrors what is set explicitly at the source, `all` every effective value.",
            default="set",
            example="set",
        ),
        RecordKeyShape(
            "exclude",
            ListShape(TextShape("the name of a topic setting"), lone=True),
            "Settings, by name, that are never mirrored.",
            default=(),
            example="[retention.ms]",
        ),
    ),
    "How a mirror topic's settings follow its source.",
)
ACL_SYNC = RecordShape(
    "flow-acls",
    "the acls of a flow",
    (
        RecordKeyShape(
            "sync",
            BooleanShape(),
            "Whether ACLs are mirrored (ALLOW WRITE never; ALLOW ALL becomes READ and DESCRIBE).",
            default=False,
            example="true",
        ),
    ),
    "Whether ACLs follow the topics.",
)
FOLLOW = RecordShape(
    "follow",
    "follow",
    (every("5s", "How often the source is looked at."),),
    "Following changes while running.",
)
HEARTBEATS = RecordShape(
    "heartbeats", "heartbeats", (every("1s", "How often one is sent."),), "Records that measure the link."
)
CHECKPOINTS = RecordShape(
    "checkpoints",
    "checkpoints",
    (every("60s", "How often one is kept."),),
    "Translations of offsets, kept for audit.",
)
ORIGIN_COMMITS = RecordShape(
    "origin-commits",
    "origin_commits",
    (
        RecordKeyShape(
            "group",
            TextShape("the name of a consumer group", r"[^\s]{1,249}", "use a name without spaces"),
            "The flow's own group at the source; nothing ever resumes from it.",
            default_doc="`repl.` and the flow's name",
            example="repl.dc1-to-dc2",
        ),
        every("5s", "How often the position is committed."),
    ),
    "Progress shown at the source, for Kafka's own lag tools.",
)
START_MOMENT = RecordShape(
    "start-timestamp",
    "a start by time",
    (
        RecordKeyShape(
            "timestamp",
            TimestampShape(),
            "The first record at or after this time.",
            example="2026-01-01T00:00:00Z",
            required=True,
        ),
    ),
)
OFFSETS = MapShape(IntegerShape(quoted=True), IntegerShape(0, 2**63 - 1), "partition", least=1)
START_OFFSETS = RecordShape(
    "start-offsets",
    "a start by offsets",
    (
        RecordKeyShape(
            "offsets",
            MapShape(TopicNameShape(), OFFSETS, "topic", least=1),
            "By source topic and partition, which may stand in quotes; what is not named starts at earliest,"
            " and with `restart_from` stays where it is.",
            example="{orders: {0: 42}}",
            required=True,
        ),
    ),
)
START: Shape = AlternativesShape(
    (ChoiceShape(("earliest", "latest")), START_MOMENT, START_OFFSETS),
    "earliest, latest, {timestamp: …} or {offsets: …}",
)
RENAME_MATCH = RecordShape(
    "rename-match",
    "a rename by regex",
    (
        RecordKeyShape("match", RegexShape(), "A regex for whole names.", example='"a-(.*)"', required=True),
        RecordKeyShape(
            "to",
            TextShape("a replacement"),
            "The replacement, with \\1 for the first group.",
            example='"b-\\\\1"',
            required=True,
        ),
    ),
)
RENAME: Shape = AlternativesShape(
    (TextShape("a template"), RENAME_MATCH, MapShape(TopicNameShape(), TopicNameShape(), "topic", least=1)),
    '"{topic}" with text around it, {match: …, to: …} or a map of names',
)
