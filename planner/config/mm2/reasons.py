"""The reasons why keys of MirrorMaker 2 have no counterpart."""

import re

_OWN_TOPICS = "the product makes its own topics by itself; internal: says how many copies they have"
_EXACT = "the offset map is exact"
_WORKER = "there is no Connect worker: a job runs on Spark, jobs: says how"
_BATCHES = "whole record batches are copied as they are, so there is nothing to tune here"
_FOLLOW = "follow.every is the one interval for topics, settings and ACLs"
_WORKER_KEYS = (
    r"listeners.*|rest\..*|dedicated\..*|group\.id|plugin\..*|(key|value|header)\.converter.*|internal\..*"
    r"|connector\..*|scheduled\..*|task\..*|offset\.flush.*|worker\..*|rebalance\..*|session\..*|name"
)

# (regex for the key without cluster or flow, reason, whether something that was wanted is not done)
_REASONS: tuple[tuple[str, str, bool], ...] = (
    (
        r"replication\.factor",
        "mirror topics have the replication that is the destination's default; declare a topic to choose it",
        True,
    ),
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
    (r"(.*\.)?sasl\.kerberos\..*", "Kerberos is not supported: PLAIN, SCRAM and OAUTHBEARER are", True),
    (r"config\.providers.*", "a secret is {env: VARIABLE} or {file: path}", False),
    (r"metric.*|metrics\..*|auto\.include\.jmx.*", "jobs.<name>.metrics is the Prometheus endpoint", False),
    (_WORKER_KEYS, _WORKER, False),
    (
        r"ssl\.(protocol|provider|enabled\.protocols|cipher\.suites|.*manager.*|secure.*|engine.*)",
        "what OpenSSL chooses is used; ssl.cipher.suites takes OpenSSL's names",
        True,
    ),
    (r"sasl\..*", "it has no counterpart among librdkafka's settings that are used here", True),
)


def reason_for(key: str) -> tuple[str, bool]:
    """Returns the reason for a key, given without its cluster or flow, and whether an effect is lost."""
    for pattern, reason, loss in _REASONS:
        if re.fullmatch(pattern, key):
            return reason, loss
    return "it has no counterpart", True
