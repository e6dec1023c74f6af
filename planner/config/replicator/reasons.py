"""Why a key of Confluent Replicator has no counterpart, by what it is about."""

from planner.config.connect.reasons import CLIENT_REASONS, Reason, first_reason

_WORKER = "there is no Connect worker: a job runs on Spark, jobs: says how"
_LEDGER = "the ledger at the destination is the flow's position, and it is exact"
_TIMESTAMPS = "internal.timestamps says how the topic of consumer timestamps is made"
_SCHEMAS = "schemas are not translated: copy the topic _schemas by a flow of its own"
_MONITORING = "no interceptor is needed: jobs.<name>.metrics and repl status show rate, lag and latency"
_BYTES = "records are copied byte for byte and never converted"

_REASONS: tuple[Reason, ...] = (
    (r"offset\.timestamps\.commit|offset\.storage.*|offsets\.storage.*|offset\.flush.*", _LEDGER, False),
    (
        r"offset\.translator\..*",
        "the driver translates every group of the flow, at groups.every",
        False,
    ),
    (r"(src\.kafka\.)?timestamps\..*", _TIMESTAMPS, False),
    (r"topic\.create\.backoff\.ms", "a topic that could not be made is tried again at follow.every", False),
    (r"schema\.(registry|subject)\..*", _SCHEMAS, True),
    (r"(src\.)?(key|value|header)\.converter(\..*)?", _BYTES, True),
    (r"transforms(\..*)?|predicates(\..*)?", f"{_BYTES}: there are no transforms", True),
    (r"topic\.creation\..*", "mirror topics have their source's settings; declare a topic to choose", True),
    (r"confluent\.(topic|license)(\..*)?", "there is no license", False),
    (r"(src|dest)\.zookeeper\..*", "brokers are asked, ZooKeeper never is", False),
    (r"(.*\.)?interceptor\.classes|(.*\.)?confluent\.monitoring\..*", _MONITORING, False),
    (r"errors\..*", "no record is left out: a partition that can't go on stops, and status says why", False),
    (r"exactly\.once\..*|transaction\.boundary.*", "every flow copies exactly once", False),
    (r"(src\.consumer|consumer\.override)\..*", "what the job reads by is chosen by itself", False),
    (
        r"producer\.(override\.)?.*",
        "whole record batches are copied as they are, so there is nothing to tune here",
        False,
    ),
    (r"admin\.override\..*", "--timeout and --lock-timeout are given with the command", False),
    (r"config\.action\.reload|task\..*|cluster\.id|cluster\.threads|plugin\..*", _WORKER, False),
    *CLIENT_REASONS,
    (
        r"(retries|(connections|metadata|default|retry|socket|security)\..*|client\.dns\.lookup)",
        "the product's own Kafka clients choose it",
        False,
    ),
)


def reason_for(key: str) -> tuple[str, bool]:
    """Returns why a key has no counterpart, and whether something that was wanted is not done.

    A client setting may stand below `src.kafka.` or `dest.kafka.`.
    """
    for prefix in ("src.kafka.", "dest.kafka."):
        if key.startswith(prefix) and not key.startswith("src.kafka.timestamps."):
            return first_reason(key.removeprefix(prefix), _REASONS)
    return first_reason(key, _REASONS)
