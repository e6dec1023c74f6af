"""The language, defined once: for the loader, for `repl schema` and for docs/topology.md."""

from planner.config.language.flow_parts import CLUSTER_NAME, NAME
from planner.config.language.flows import FLOW, FLOW_DEFAULTS
from planner.config.language.objects import ACL, CLUSTER, REPLICATION, TOPIC, TOPIC_DEFAULTS
from planner.config.language.shapes import (
    AlternativesShape,
    AnyShape,
    ChoiceShape,
    DurationShape,
    IntegerShape,
    ListShape,
    MapShape,
    OffOrShape,
    RecordKeyShape,
    RecordShape,
    SettingsShape,
    TextShape,
)
from planner.model.topology import API_VERSION

LAUNCHERS = ("local", "standalone", "yarn", "kubernetes")

DEFAULTS = RecordShape(
    "defaults",
    "defaults",
    (
        RecordKeyShape(
            "topic",
            TOPIC_DEFAULTS,
            "For declared topics; `config` is merged setting by setting.",
            example="{replication: 3}",
        ),
        RecordKeyShape(
            "flow", FLOW_DEFAULTS, "For flows; maps are merged key by key.", example="{start: latest}"
        ),
    ),
    "What topics and flows inherit.",
)
METRICS = RecordShape(
    "metrics",
    "metrics",
    (
        RecordKeyShape(
            "port",
            IntegerShape(1, 65_535),
            "The port of the Prometheus endpoint.",
            default=9404,
            example="9404",
        ),
        RecordKeyShape(
            "host",
            TextShape("an address to listen at"),
            "The address it listens at.",
            default="127.0.0.1",
            example='"0.0.0.0"',
        ),
        RecordKeyShape(
            "partitions",
            IntegerShape(0, 1_000_000),
            "With more partitions than this, metrics are summed by topic.",
            default=2_000,
            example="10000",
        ),
    ),
    "The job's Prometheus endpoint.",
)
JOB = RecordShape(
    "job",
    "a job",
    (
        RecordKeyShape(
            "launcher",
            ChoiceShape(LAUNCHERS),
            "What starts it and looks after it.",
            default="local",
            example="standalone",
        ),
        RecordKeyShape(
            "master",
            TextShape(
                "a Spark master",
                r"local(\[(\d+|\*)(,\d+)?\])?|spark://.+|yarn|k8s://.+",
                "write local[2], spark://host:7077, yarn or k8s://https://host:443",
            ),
            "Spark's master.",
            default_doc="`local[2]`; `yarn` for that launcher",
            example="spark://spark.example.org:7077",
        ),
        RecordKeyShape(
            "slots",
            AlternativesShape(
                (ChoiceShape(("auto",)), IntegerShape(1, 10_000)), "auto, or a whole number from 1"
            ),
            "Spark tasks that copy.",
            default="auto",
            example="4",
        ),
        RecordKeyShape(
            "memory",
            TextShape("a size as Spark writes it", r"\d+[kmgtKMGT][bB]?", "write it as 1g or 512m"),
            "Memory of a slot's Python process, as Spark writes it. YARN and Kubernetes hold it to that.",
            default="1g",
            example="2g",
        ),
        RecordKeyShape("metrics", OffOrShape(METRICS), "The Prometheus endpoint.", example="{port: 9404}"),
        RecordKeyShape(
            "conf",
            SettingsShape(public=True, prefix="spark.", expected="a map of Spark's settings"),
            "Spark's own settings.",
            default_doc="empty",
            example="{spark.ui.port: 4050}",
        ),
        RecordKeyShape(
            "options",
            MapShape(TextShape("an option of the launcher"), TextShape(), "option"),
            "What only this launcher knows: a queue, a namespace, an image.",
            default_doc="empty",
            example="{namespace: replication}",
        ),
    ),
    "One Spark application.",
)
TIMESTAMPS = RecordShape(
    "timestamps",
    "timestamps",
    (
        RecordKeyShape(
            "retention",
            DurationShape(),
            "How long a group is remembered that is gone from the source.",
            default_doc="that of internal",
            example="90d",
        ),
        RecordKeyShape(
            "replication",
            REPLICATION,
            "Copies of each of its partitions.",
            default_doc="that of internal",
            example="3",
        ),
        RecordKeyShape("partitions", IntegerShape(1, 1_000), "Its partitions.", default=1, example="8"),
        RecordKeyShape(
            "max_per_partition",
            IntegerShape(1, 10_000),
            "How many commits of one group are remembered of each partition it reads.",
            default=10,
            example="10",
        ),
    ),
    "The topic of consumer timestamps. What concerns the topic itself is meant for when it is made.",
)
INTERNAL = RecordShape(
    "internal",
    "internal",
    (
        RecordKeyShape(
            "replication",
            REPLICATION,
            "Copies of each internal partition.",
            default_doc="3, or what the cluster can",
            example="3",
        ),
        RecordKeyShape(
            "retention",
            DurationShape(),
            "How long the journal of applies and consumer timestamps are kept.",
            default="30d",
            example="90d",
        ),
        RecordKeyShape(
            "timestamps",
            TIMESTAMPS,
            "Consumer timestamps, for flows whose groups go by record time.",
            example="{retention: 90d}",
        ),
    ),
    "The product's own topics. They are made like this; those that are there already stay as they are.",
)
POLICIES = RecordShape(
    "policies",
    "policies",
    (
        RecordKeyShape(
            "max_deletes", IntegerShape(), "A plan that deletes more is refused.", default=5, example="0"
        ),
        RecordKeyShape(
            "require",
            MapShape(
                TextShape("partitions, replication or the name of a topic setting"),
                TextShape(
                    "a comparison", r"\s*(>=|<=|==|!=|>|<)?\s*[^\s<>=!].*", 'write it as ">=3"', placed=True
                ),
                "requirement",
            ),
            "What every managed topic must have: `partitions`, `replication` or a setting, compared.",
            default_doc="unset",
            example='{replication: ">=3"}',
        ),
    ),
    "Checked at plan and at apply.",
)
TOPOLOGY = RecordShape(
    "topology",
    "a topology",
    (
        RecordKeyShape(
            "apiVersion",
            TextShape("the version of the language"),
            "The version of the language.",
            example=API_VERSION,
            required=True,
        ),
        RecordKeyShape(
            "name",
            NAME,
            "The topology's name; what it creates is owned under it.",
            example="active-active",
            required=True,
        ),
        RecordKeyShape(
            "vars",
            MapShape(TextShape("a variable"), AnyShape(), "variable"),
            "Variables for `{{ … }}`; without a value they must come from --var-file.",
            default_doc="empty",
            example="{retention: 7d}",
        ),
        RecordKeyShape(
            "clusters",
            MapShape(CLUSTER_NAME, CLUSTER, "cluster", least=1),
            "The clusters, by name.",
            example="{dc1: {bootstrap: 127.0.0.1:19092}}",
            required=True,
        ),
        RecordKeyShape(
            "defaults",
            DEFAULTS,
            "What topics and flows inherit.",
            default_doc="empty",
            example="{topic: {replication: 3}}",
        ),
        RecordKeyShape(
            "topics",
            ListShape(TOPIC),
            "Topics that this topology manages.",
            default=(),
            example="[{name: orders, cluster: dc1}]",
        ),
        RecordKeyShape(
            "acls",
            ListShape(ACL),
            "ACLs that this topology manages.",
            default=(),
            example='[{cluster: dc1, principal: "User:app", allow: READ, topic: orders}]',
        ),
        RecordKeyShape(
            "flows",
            ListShape(FLOW),
            "What is copied where.",
            default=(),
            example="[{name: dc1-to-dc2, from: dc1, to: dc2, topics: {include: orders}}]",
        ),
        RecordKeyShape(
            "jobs",
            MapShape(NAME, JOB, "job"),
            "The Spark applications, by name.",
            default_doc="one for each destination",
            example="{dc2: {slots: 4}}",
        ),
        RecordKeyShape("internal", INTERNAL, "The product's own topics.", example="{replication: 3}"),
        RecordKeyShape("policies", POLICIES, "Limits that a plan must keep.", example="{max_deletes: 0}"),
    ),
    "The whole of it: one file, or a folder of files that are merged.",
)
