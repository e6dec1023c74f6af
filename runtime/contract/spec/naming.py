"""Names of topics: which ones Kafka takes, and which ones are the product's own."""

import re

INTERNAL_PREFIX = "__repl."

# At every cluster that a topology writes to.
REGISTRY = INTERNAL_PREFIX + "registry"  # what which topology owns
HISTORY = INTERNAL_PREFIX + "history"  # who applied what, and how it ended
LEASE = INTERNAL_PREFIX + "lease"  # who is applying now

# At the destination of a flow.
LEDGER = INTERNAL_PREFIX + "ledger"  # progress: where each partition resumes
OFFSET_MAP = INTERNAL_PREFIX + "offset-map"  # source offset ↔ destination offset, exact
PRODUCERS = INTERNAL_PREFIX + "producers"  # which producer ids belong to which flow
CHECKPOINTS = INTERNAL_PREFIX + "checkpoints"  # each translation of a group's offset, for audit
TIMESTAMPS = INTERNAL_PREFIX + "timestamps"  # group, topic, partition, offset, timestamp
STATUS = INTERNAL_PREFIX + "status"  # what each job last said of itself
CONTROL = INTERNAL_PREFIX + "control"  # what a job is told

# Written at the source of a flow and copied by it: the one internal topic that crosses.
HEARTBEATS = INTERNAL_PREFIX + "heartbeats"

MAX_LENGTH = 249
_ILLEGAL = re.compile(r"[^A-Za-z0-9._-]")


def is_internal(name: str) -> bool:
    """Whether the topic is the product's own: never selected by a flow, never listed as a user's."""
    return name.startswith(INTERNAL_PREFIX)


def illegal_because(name: str) -> str | None:
    """Why Kafka would refuse a topic of this name, or None."""
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
    """The first character that no topic's name can hold, or None."""
    found = _ILLEGAL.search(text)
    return found[0] if found else None


def metric_name(name: str) -> str:
    """What two names must not share at one cluster: brokers refuse `a.b` beside `a_b`."""
    return name.replace(".", "_")
