"""The keys of a flow."""

from planner.config.language.flow_parts import (
    ACL_SYNC,
    CHECKPOINTS,
    CLUSTER_REFERENCE,
    CONFIGS,
    FOLLOW,
    GROUPS,
    HEARTBEATS,
    NAME,
    ORIGIN_COMMITS,
    RENAME,
    START,
    TOPICS,
)
from planner.config.language.shapes import (
    ChoiceShape,
    DurationShape,
    ListShape,
    OffOrShape,
    RateShape,
    RecordKeyShape,
    RecordShape,
    RegexShape,
    TextShape,
)

# What one flow alone can say; everything else may also stand under defaults.
OWN_KEYS = (
    RecordKeyShape("name", NAME, "Its name: `flow.<name>` in plans.", example="dc1-to-dc2", required=True),
    RecordKeyShape("from", CLUSTER_REFERENCE, "The cluster it copies from.", example="dc1", required=True),
    RecordKeyShape("to", CLUSTER_REFERENCE, "The cluster it copies to.", example="dc2", required=True),
    RecordKeyShape("topics", TOPICS, "Which topics it copies.", example="{include: [orders]}", required=True),
    RecordKeyShape(
        "promoted",
        ListShape(RegexShape(), lone=True),
        "Regexes for topics of the flow that were promoted on their own; `repl promote --topics` writes it.",
        default=(),
        example='["payments\\\\.eu"]',
    ),
    RecordKeyShape(
        "reverse_of",
        TextShape("the name of a flow", placed=True),
        "The flow that this one reverses: it copies back after a failover. That flow's rename is undone.",
        default_doc="unset",
        example="dc1-to-dc2",
    ),
    RecordKeyShape(
        "restart_from",
        START,
        "Start over from here once, whatever the ledger knows; the plan shows what is copied again."
        " With offsets, partitions that are not named stay where they are.",
        default_doc="unset",
        example="earliest",
    ),
)
SHARED_KEYS = (
    RecordKeyShape(
        "rename",
        RENAME,
        "How a topic is named at the destination; it must have an inverse.",
        "{topic}",
        example='"{topic}.replica"',
    ),
    RecordKeyShape(
        "provenance",
        ChoiceShape(("off", "batch", "headers", "auto")),
        "How records that came from the destination are known, so that they never return to it.",
        default="auto",
        example="headers",
    ),
    RecordKeyShape(
        "start",
        START,
        "Where a partition starts that was never copied.",
        default="earliest",
        example="latest",
    ),
    RecordKeyShape(
        "state",
        ChoiceShape(("active", "paused", "promoted", "failed_over")),
        "What the flow does. `repl pause`, `promote`, `failover` and `failback` write it.",
        default="active",
        example="paused",
    ),
    RecordKeyShape("configs", CONFIGS, "How settings follow the source.", example="{sync: set}"),
    RecordKeyShape("groups", GROUPS, "Which consumer groups follow.", example="{sync: true}"),
    RecordKeyShape("acls", ACL_SYNC, "Whether ACLs follow.", example="{sync: false}"),
    RecordKeyShape(
        "protect",
        ChoiceShape(("off", "acl")),
        "`acl` keeps foreign writers off the mirror topics, where the cluster has an authorizer.",
        default="off",
        example="acl",
    ),
    RecordKeyShape(
        "rpo",
        DurationShape(),
        "The lag that is acceptable: alerts go by it, and no transaction lasts longer than half of it.",
        default_doc="unset",
        example="5s",
    ),
    RecordKeyShape(
        "rate_limit",
        RateShape(),
        "The most it copies, over all slots.",
        default_doc="unset",
        example="50MB/s",
    ),
    RecordKeyShape(
        "follow",
        OffOrShape(FOLLOW),
        "Pick up new topics, partitions and settings while running.",
        example="{every: 5s}",
    ),
    RecordKeyShape(
        "heartbeats",
        OffOrShape(HEARTBEATS),
        "Records that measure the link end to end.",
        example="{every: 1s}",
    ),
    RecordKeyShape(
        "checkpoints",
        OffOrShape(CHECKPOINTS),
        "Keep each translation of a group's offset.",
        example="{every: 60s}",
    ),
    RecordKeyShape(
        "origin_commits",
        OffOrShape(ORIGIN_COMMITS),
        "Show progress at the source. A denied commit warns and never stops the flow.",
        example="{group: repl.dc1-to-dc2, every: 5s}",
    ),
    RecordKeyShape(
        "on_source_delete",
        ChoiceShape(("keep", "delete")),
        "What a plan does with the mirror of a topic that was deleted at the source.",
        default="keep",
        example="keep",
    ),
    RecordKeyShape(
        "on_data_loss",
        ChoiceShape(("stop", "skip")),
        "What a partition does when records are gone at the source before they were copied.",
        default="stop",
        example="stop",
    ),
    RecordKeyShape(
        "job",
        TextShape("the name of a job", placed=True),
        "The job that runs it.",
        default_doc="the destination's name",
        example="dc2",
    ),
)
FLOW = RecordShape("flow", "a flow", OWN_KEYS + SHARED_KEYS, "A directed copy: from one cluster to another.")
FLOW_DEFAULTS = RecordShape(
    "flow-defaults", "the defaults of flows", SHARED_KEYS, "What every flow has unless it says otherwise."
)
