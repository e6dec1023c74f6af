"""The maps inside a flow, and the names that everything shares."""

from planner.declare.shapes import (
    Choice,
    Duration,
    Either,
    Flag,
    Key,
    Listing,
    Moment,
    Record,
    Regex,
    Shape,
    Table,
    Text,
    TopicName,
    Whole,
)

NAME = Text(
    "a name of letters, digits, dots, _ and -",
    r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}",
    "begin it with a letter or digit, then letters, digits, dots, _ and -, at most 100",
)
CLUSTER_NAME = Text(
    "a cluster's name",
    r"[A-Za-z0-9][A-Za-z0-9_-]{0,99}",
    "use letters, digits, _ and -, without dots: topics and addresses are named after it",
)
CLUSTER_REFERENCE = Text("the name of a cluster", placed=True)


def every(default: str, doc: str) -> Key:
    return Key("every", Duration(), doc, default=default, example=default)


SELECTION = (
    Key(
        "exclude",
        Listing(Regex(), lone=True),
        "Regexes for whole names that are left out; they win over `include`.",
        default=(),
        example='["payments\\\\.tmp.*"]',
    ),
    Key(
        "default_exclude",
        Flag(),
        "Whether the default denials are on. They never hide a name that is written out literally.",
        default=True,
        example="true",
    ),
)
TOPICS = Record(
    "flow-topics",
    "the topics of a flow",
    (
        Key(
            "include",
            Listing(Regex(), lone=True, least=1),
            "Regexes for whole names: the source topics that are copied.",
            example='[orders, "payments\\\\..*"]',
            required=True,
        ),
        *SELECTION,
    ),
    "Which topics a flow copies.",
)
GROUPS = Record(
    "flow-groups",
    "the groups of a flow",
    (
        Key(
            "include",
            Listing(Regex(), lone=True),
            "Regexes for whole names: the consumer groups whose offsets are translated.",
            default=(".*",),
            example='[".*"]',
        ),
        *SELECTION,
        Key("sync", Flag(), "Whether offsets are written at the destination.", default=True, example="true"),
        every("5s", "How often they are translated."),
        Key(
            "mode",
            Choice(("exact", "timestamp")),
            "`exact` goes by the offset map; `timestamp` by record time, for data older than the map.",
            default="exact",
            example="exact",
        ),
    ),
    "The consumer groups that follow a flow to its destination.",
)
CONFIGS = Record(
    "flow-configs",
    "the configs of a flow",
    (
        Key(
            "sync",
            Choice(("off", "set", "all")),
            "`set` mirrors what is set explicitly at the source, `all` every effective value.",
            default="set",
            example="set",
        ),
        Key(
            "exclude",
            Listing(Text("the name of a topic setting"), lone=True),
            "Settings, by name, that are never mirrored.",
            default=(),
            example="[retention.ms]",
        ),
    ),
    "How a mirror topic's settings follow its source.",
)
ACL_SYNC = Record(
    "flow-acls",
    "the acls of a flow",
    (
        Key(
            "sync",
            Flag(),
            "Whether ACLs are mirrored (ALLOW WRITE never; ALLOW ALL becomes READ and DESCRIBE).",
            default=False,
            example="true",
        ),
    ),
    "Whether ACLs follow the topics.",
)
FOLLOW = Record(
    "follow",
    "follow",
    (every("5s", "How often the source is looked at."),),
    "Following changes while running.",
)
HEARTBEATS = Record(
    "heartbeats", "heartbeats", (every("1s", "How often one is sent."),), "Records that measure the link."
)
CHECKPOINTS = Record(
    "checkpoints",
    "checkpoints",
    (every("60s", "How often one is kept."),),
    "Translations of offsets, kept for audit.",
)
ORIGIN_COMMITS = Record(
    "origin-commits",
    "origin_commits",
    (
        Key(
            "group",
            Text("the name of a consumer group", r"[^\s]{1,249}", "use a name without spaces"),
            "The flow's own group at the source; nothing ever resumes from it.",
            default_doc="`repl.` and the flow's name",
            example="repl.dc1-to-dc2",
        ),
        every("5s", "How often the position is committed."),
    ),
    "Progress shown at the source, for Kafka's own lag tools.",
)
START_MOMENT = Record(
    "start-timestamp",
    "a start by time",
    (
        Key(
            "timestamp",
            Moment(),
            "The first record at or after this time.",
            example="2026-01-01T00:00:00Z",
            required=True,
        ),
    ),
)
OFFSETS = Table(Whole(quoted=True), Whole(0, 2**63 - 1), "partition", least=1)
START_OFFSETS = Record(
    "start-offsets",
    "a start by offsets",
    (
        Key(
            "offsets",
            Table(TopicName(), OFFSETS, "topic", least=1),
            "By source topic and partition, which may stand in quotes; what is not named starts at earliest,"
            " and with `restart_from` stays where it is.",
            example="{orders: {0: 42}}",
            required=True,
        ),
    ),
)
START: Shape = Either(
    (Choice(("earliest", "latest")), START_MOMENT, START_OFFSETS),
    "earliest, latest, {timestamp: …} or {offsets: …}",
)
RENAME_MATCH = Record(
    "rename-match",
    "a rename by regex",
    (
        Key("match", Regex(), "A regex for whole names.", example='"a-(.*)"', required=True),
        Key(
            "to",
            Text("a replacement"),
            "The replacement, with \\1 for the first group.",
            example='"b-\\\\1"',
            required=True,
        ),
    ),
)
RENAME: Shape = Either(
    (Text("a template"), RENAME_MATCH, Table(TopicName(), TopicName(), "topic", least=1)),
    '"{topic}" with text around it, {match: …, to: …} or a map of names',
)
