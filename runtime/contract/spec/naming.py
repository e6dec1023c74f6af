"""Defines the names of the product's own topics and checks whether Kafka accepts a name."""

import re

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
    found = _ILLEGAL.search(text)
    return found[0] if found else None


def metric_name(name: str) -> str:
    """Returns the form of a name that must be unique in a cluster: brokers refuse `a.b` beside `a_b`."""
    return name.replace(".", "_")
