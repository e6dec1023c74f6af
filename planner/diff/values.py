"""Kafka's topic settings: how the broker parses their values, and how people read durations and sizes."""

from decimal import Decimal, InvalidOperation
from functools import lru_cache

Normal = str | Decimal | bool | tuple[str, ...] | None

LISTS = frozenset(
    {"cleanup.policy", "leader.replication.throttled.replicas", "follower.replication.throttled.replicas"}
)
BOOLEANS = frozenset(
    {
        "preallocate",
        "unclean.leader.election.enable",
        "message.downconversion.enable",
        "remote.storage.enable",
        "remote.log.copy.disable",
        "remote.log.delete.on.disable",
    }
)
NUMBERS = frozenset(
    {
        "compression.gzip.level",
        "compression.lz4.level",
        "compression.zstd.level",
        "delete.retention.ms",
        "file.delete.delay.ms",
        "flush.messages",
        "flush.ms",
        "index.interval.bytes",
        "local.retention.bytes",
        "local.retention.ms",
        "max.compaction.lag.ms",
        "max.message.bytes",
        "message.timestamp.after.max.ms",
        "message.timestamp.before.max.ms",
        "message.timestamp.difference.max.ms",
        "min.cleanable.dirty.ratio",
        "min.compaction.lag.ms",
        "min.insync.replicas",
        "retention.bytes",
        "retention.ms",
        "segment.bytes",
        "segment.index.bytes",
        "segment.jitter.ms",
        "segment.ms",
    }
)
OTHERS = frozenset({"compression.type", "message.format.version", "message.timestamp.type"})
TOPIC_SETTINGS = LISTS | BOOLEANS | NUMBERS | OTHERS  # Kafka's own, of all versions


@lru_cache(maxsize=65_536)
def normal(key: str, value: str | None) -> Normal:
    """Returns the value as the broker parses it, so that equal results need no change.

    A setting that is not Kafka's own, such as a vendor's, is compared letter by letter.
    """
    if value is None:
        return None
    text = value.strip()
    if key in LISTS:
        return tuple(sorted({part.strip() for part in text.split(",") if part.strip()}))
    if key in BOOLEANS:
        return text.lower() == "true" if text.lower() in ("true", "false") else text
    if key in NUMBERS:
        try:
            return Decimal(text)
        except InvalidOperation:
            return text
    return value


def same_value(key: str, one: str | None, other: str | None) -> bool:
    """Returns whether two values of a setting mean the same to the broker."""
    return normal(key, one) == normal(key, other)


FOREVER = str(2**63 - 1)
DURATIONS = (("d", 86_400_000), ("h", 3_600_000), ("m", 60_000), ("s", 1_000))
SIZES = (("GiB", 1 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10), ("GB", 10**9), ("MB", 10**6), ("KB", 10**3))


def readable(key: str, value: str) -> str:
    """Returns the value with its unit, or `no limit` for the largest number."""
    return "no limit" if value == FOREVER else in_units(key, value)


def in_units(key: str, value: str) -> str:
    """Returns `7d` for 604800000 milliseconds. A value without a whole unit stays as it is."""
    units = DURATIONS if key.endswith(".ms") else SIZES if key.endswith(".bytes") else ()
    if not value.isdecimal() or value == "0":
        return value
    number = int(value)
    return next((f"{number // size}{unit}" for unit, size in units if number % size == 0), value)


def bytes_as_text(size: int) -> str:
    """Returns a size with one digit after the point, as in `1.2 GB`."""
    for unit, step in (("TB", 10**12), ("GB", 10**9), ("MB", 10**6), ("KB", 10**3)):
        if size >= step:
            return f"{size / step:.1f} {unit}"
    return f"{size} bytes"
