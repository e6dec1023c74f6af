"""The reasons why keys of MirrorMaker 2 have no counterpart."""

from planner.config.connect.reasons import CLIENT_REASONS, REPLICATION, Reason, first_reason

_OWN_TOPICS = "the product makes its own topics by itself; internal: says how many copies they have"
_EXACT = "the offset map is exact"
_WORKER = "there is no Connect worker: a job runs on Spark, jobs: says how"
_BATCHES = "whole record batches are copied as they are, so there is nothing to tune here"
_FOLLOW = "follow.every is the one interval for topics, settings and ACLs"
_WORKER_KEYS = (
    r"listeners.*|rest\..*|dedicated\..*|group\.id|plugin\..*|(key|value|header)\.converter.*|internal\..*"
    r"|connector\..*|scheduled\..*|task\..*|offset\.flush.*|worker\..*|rebalance\..*|session\..*|name"
)

# The keys are without cluster or flow.
_REASONS: tuple[Reason, ...] = (
    (r"replication\.factor", REPLICATION, True),
    (r"exactly\.once\..*|transaction\.boundary.*", "every flow copies exactly once", False),
    (r"offset-syncs\.topic\.location", "the offset map is kept at the destination", False),
    (
        r"(offset-syncs|heartbeats|checkpoints)\.topic\..*|(offset|config|status)\.storage\..*",
        _OWN_TOPICS,
        False,
    ),
    (r"offset\.lag\.max|emit\.offset-syncs.*|offset-syncs\..*", _EXACT, False),
    (r"sync\.topic\.(configs|acls)\.interval\.seconds", _FOLLOW, False),
    (r"refresh\.groups\..*", "groups are looked at every groups.every", False),
    (r"(heartbeats\.replication|replication\.policy\.internal).*", _OWN_TOPICS, False),
    (r"(topic|group|config\.property)\.filter\.class", "include and exclude choose; code can't", True),
    (
        r"forwarding\.admin\.class",
        "topics are made by repl apply and by the job, no class can be put in",
        True,
    ),
    (r"(.*\.)?producer\..*", _BATCHES, False),
    (r"(.*\.)?consumer\..*", "what the job reads by is chosen by itself", False),
    (r"(.*\.)?admin\..*", "--timeout and --lock-timeout are given with the command", False),
    (_WORKER_KEYS, _WORKER, False),
    *CLIENT_REASONS,
)


def reason_for(key: str) -> tuple[str, bool]:
    """Returns the reason for a key, given without its cluster or flow, and whether an effect is lost."""
    return first_reason(key, _REASONS)
