"""Clusters, topics and ACLs."""

from planner.config.language.flow_parts import CLUSTER_REFERENCE
from planner.config.language.shapes import (
    BooleanShape,
    ChoiceShape,
    IntegerShape,
    ListShape,
    RecordKeyShape,
    RecordShape,
    SettingsShape,
    Shape,
    TextShape,
    TopicNameShape,
)

OPERATIONS = (
    "ALL",
    "READ",
    "WRITE",
    "CREATE",
    "DELETE",
    "ALTER",
    "DESCRIBE",
    "CLUSTER_ACTION",
    "DESCRIBE_CONFIGS",
    "ALTER_CONFIGS",
    "IDEMPOTENT_WRITE",
    "CREATE_TOKENS",
    "DESCRIBE_TOKENS",
)
HOST_PORT = r"(?:[A-Za-z0-9._-]+|\[[0-9A-Fa-f:.]+\]):\d{1,5}"
BOOTSTRAP: Shape = ListShape(
    TextShape(
        "a broker's host:port",
        rf"\s*{HOST_PORT}\s*(?:,\s*{HOST_PORT}\s*)*",
        "write it as kafka1.example.org:9092",
    ),
    lone=True,
    least=1,
)
REPLICATION = IntegerShape(1, 32_767)
CLUSTERS_OF: Shape = ListShape(CLUSTER_REFERENCE, lone=True, least=1)

CLUSTER = RecordShape(
    "cluster",
    "a cluster",
    (
        RecordKeyShape(
            "bootstrap",
            BOOTSTRAP,
            "Brokers to ask first, `host:port`, parted by commas.",
            example="127.0.0.1:19092",
            required=True,
        ),
        RecordKeyShape(
            "id",
            TextShape("a cluster id"),
            "Pins the cluster: any other one is refused.",
            default_doc="unset",
            example="5L6g3nShT-eMCtK--X86sw",
        ),
        RecordKeyShape(
            "client",
            SettingsShape(client=True, expected="a map of librdkafka's settings"),
            "How to connect, by librdkafka's names; [operations.md](operations.md) lists which are taken. "
            "Credentials may be `{env: VARIABLE}` or `{file: path}`.",
            default_doc="empty",
            example="{security.protocol: SASL_SSL, sasl.password: {env: DC1_PASSWORD}}",
        ),
    ),
    "One Kafka cluster.",
)
TOPIC_SHARED = (
    RecordKeyShape(
        "partitions",
        IntegerShape(1, 1_000_000),
        "How many; it can grow, never shrink.",
        default_doc="the broker's",
        example="12",
    ),
    RecordKeyShape(
        "replication", REPLICATION, "Copies of each partition.", default_doc="the broker's", example="3"
    ),
    RecordKeyShape(
        "config",
        SettingsShape(),
        "Topic settings by Kafka's names. Only what stands here is managed.",
        default_doc="empty",
        example="{retention.ms: 7d}",
    ),
    RecordKeyShape(
        "protect",
        BooleanShape(),
        "Never delete it. Remembered at the cluster, also when the block is gone.",
        default=False,
        example="true",
    ),
    RecordKeyShape(
        "on_remove",
        ChoiceShape(("keep", "delete")),
        "What a plan does when the topic leaves the topology.",
        default="keep",
        example="delete",
    ),
)
TOPIC = RecordShape(
    "topic",
    "a topic",
    (
        RecordKeyShape("name", TopicNameShape(), "Its name.", example="orders", required=True),
        RecordKeyShape(
            "cluster",
            CLUSTERS_OF,
            "Where it is; a list makes one at each.",
            example="[dc1, dc2]",
            required=True,
        ),
        *TOPIC_SHARED,
    ),
    "A topic that this topology manages.",
)
TOPIC_DEFAULTS = RecordShape(
    "topic-defaults",
    "the defaults of topics",
    TOPIC_SHARED,
    "What every declared topic has unless it says otherwise.",
)
RESOURCE_NAMES: Shape = ListShape(TextShape("a name, or *"), lone=True, least=1)
ACL = RecordShape(
    "acl",
    "an ACL",
    (
        RecordKeyShape("cluster", CLUSTERS_OF, "Where it holds.", example="dc1", required=True),
        RecordKeyShape(
            "principal",
            TextShape("a principal", r"[A-Za-z]+:.+", 'write its type too, for example "User:app"'),
            "Who it is about.",
            example='"User:app"',
            required=True,
        ),
        RecordKeyShape(
            "allow",
            ListShape(ChoiceShape(OPERATIONS, any_case=True), lone=True, least=1),
            "Operations that are allowed.",
            default_doc="none",
            example="[READ, DESCRIBE]",
        ),
        RecordKeyShape(
            "deny",
            ListShape(ChoiceShape(OPERATIONS, any_case=True), lone=True, least=1),
            "Operations that are denied.",
            default_doc="none",
            example="[WRITE]",
        ),
        RecordKeyShape("topic", RESOURCE_NAMES, "On these topics.", default_doc="none", example="orders"),
        RecordKeyShape(
            "group", RESOURCE_NAMES, "On these consumer groups.", default_doc="none", example="billing"
        ),
        RecordKeyShape(
            "transactional_id",
            RESOURCE_NAMES,
            "On these transactional ids.",
            default_doc="none",
            example="billing-",
        ),
        RecordKeyShape(
            "delegation_token",
            RESOURCE_NAMES,
            "On these delegation tokens.",
            default_doc="none",
            example='"*"',
        ),
        RecordKeyShape(
            "user",
            RESOURCE_NAMES,
            "On these users (for their tokens).",
            default_doc="none",
            example='"User:app"',
        ),
        RecordKeyShape(
            "whole_cluster", BooleanShape(), "On the cluster itself.", default=False, example="true"
        ),
        RecordKeyShape(
            "prefixed", BooleanShape(), "Whether the names are prefixes.", default=False, example="true"
        ),
        RecordKeyShape("host", TextShape("a host, or *"), "From where.", default="*", example='"10.0.0.7"'),
    ),
    "One or more ACL bindings: each operation on each name at each cluster.",
)
