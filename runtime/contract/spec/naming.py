"""Defines the names of the product's own topics, checks names for Kafka, and compares topic ids.

A topic at a broker that has no topic ids (Kafka before 2.8) gets a name id. A name id follows from the
topic's name, so it stays the same when the topic is deleted and created again. It takes the place of Kafka's
id in the runtime and in its records. Two different ids tell of a recreated topic only where both come from
Kafka: a cluster that was upgraded gives a topic its first id.
"""

import hashlib
import re
from typing import Annotated, NamedTuple

INTERNAL_PREFIX = "__repl."

# At every cluster that a topology writes to.
REGISTRY = INTERNAL_PREFIX + "registry"  # the resources that each topology owns
HISTORY = INTERNAL_PREFIX + "history"  # each apply: its user, its changes and its result
LEASE = INTERNAL_PREFIX + "lease"  # the holder of the lock while an apply runs

# At the destination of a flow.
LEDGER = INTERNAL_PREFIX + "ledger"  # progress: where each partition resumes
OFFSET_MAP = INTERNAL_PREFIX + "offset-map"  # source offset ↔ destination offset, exact
PRODUCERS = INTERNAL_PREFIX + "producers"  # the flow of each producer id
CHECKPOINTS = INTERNAL_PREFIX + "checkpoints"  # each translation of a group's offset, for audit
TIMESTAMPS = INTERNAL_PREFIX + "timestamps"  # group, topic, partition, offset, timestamp
STATUS = INTERNAL_PREFIX + "status"  # each job's newest report
CONTROL = INTERNAL_PREFIX + "control"  # commands to jobs, and messages from a driver to its slots

# Written at the source of a flow and copied by it: the only internal topic that is replicated.
HEARTBEATS = INTERNAL_PREFIX + "heartbeats"

MAX_LENGTH = 249
_ILLEGAL = re.compile(r"[^A-Za-z0-9._-]")


class TopicPartition(NamedTuple):
    """Names a partition of a topic; as text, the way Kafka does it."""

    topic: str
    partition: Annotated[int, "int32"]  # as runtime/kafka/protocol/layout writes it

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition}"


def is_internal(name: str) -> bool:
    """Returns whether the topic is the product's own: never selected by a flow, never listed as a user's."""
    return name.startswith(INTERNAL_PREFIX)


def illegal_because(name: str) -> str | None:
    """Returns why Kafka would refuse a topic of this name, or None."""
    if not name:
        return "a topic's name cannot be empty"
    if name in (".", ".."):
        return f"a topic cannot be named {name!r}"
    if len(name) > MAX_LENGTH:
        return f"a topic's name has at most {MAX_LENGTH} characters, {name[:20]!r}… has {len(name)}"
    if bad := illegal_character(name):
        return f"a topic's name holds only letters, digits, '.', '_' and '-', {name!r} holds {bad!r}"
    return None


def illegal_character(text: str) -> str | None:
    """Returns the first character that no topic's name can hold, or None."""
    match = _ILLEGAL.search(text)
    return match[0] if match else None


def metric_name(name: str) -> str:
    """Returns the form of a name that must be unique in a cluster: brokers refuse `a.b` beside `a_b`."""
    return name.replace(".", "_")


NO_TOPIC_ID = bytes(16)
_PREFIX = b"byname"


def name_id(topic: str) -> bytes:
    """Returns the name id of a topic."""
    digest = hashlib.sha256(topic.encode()).digest()
    return _PREFIX + digest[: len(NO_TOPIC_ID) - len(_PREFIX)]


def is_from_kafka(topic_id: bytes) -> bool:
    """Returns whether the id was given by Kafka, so that a recreated topic has another one."""
    return topic_id != NO_TOPIC_ID and not topic_id.startswith(_PREFIX)


def is_other_topic(recorded: bytes, current: bytes) -> bool:
    """Returns whether both ids come from Kafka and differ: the topic was deleted and created again."""
    return recorded != current and is_from_kafka(recorded) and is_from_kafka(current)


def newest_id(recorded: bytes, current: bytes) -> bytes:
    """Returns the id to go on with: the one from Kafka, if either is."""
    return current if is_from_kafka(current) and not is_from_kafka(recorded) else recorded
