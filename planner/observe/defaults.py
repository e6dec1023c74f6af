"""Pure: the values that a topic inherits from a broker's settings, under the topic's names."""

from collections.abc import Mapping
from dataclasses import dataclass

from planner.model.observed import ConfigValue

_HOUR, _MINUTE = 3_600_000, 60_000

# topic key → (broker key, milliseconds of its unit), the first that is set wins; as Kafka's LogConfig does it
_BROKER_KEYS: Mapping[str, tuple[tuple[str, int], ...]] = {
    "cleanup.policy": (("log.cleanup.policy", 1),),
    "compression.gzip.level": (("compression.gzip.level", 1),),
    "compression.lz4.level": (("compression.lz4.level", 1),),
    "compression.type": (("compression.type", 1),),
    "compression.zstd.level": (("compression.zstd.level", 1),),
    "delete.retention.ms": (("log.cleaner.delete.retention.ms", 1),),
    "file.delete.delay.ms": (("log.segment.delete.delay.ms", 1),),
    "flush.messages": (("log.flush.interval.messages", 1),),
    "flush.ms": (("log.flush.interval.ms", 1), ("log.flush.scheduler.interval.ms", 1)),
    "index.interval.bytes": (("log.index.interval.bytes", 1),),
    "local.retention.bytes": (("log.local.retention.bytes", 1),),
    "local.retention.ms": (("log.local.retention.ms", 1),),
    "max.compaction.lag.ms": (("log.cleaner.max.compaction.lag.ms", 1),),
    "max.message.bytes": (("message.max.bytes", 1),),
    "message.timestamp.after.max.ms": (("log.message.timestamp.after.max.ms", 1),),
    "message.timestamp.before.max.ms": (("log.message.timestamp.before.max.ms", 1),),
    "message.downconversion.enable": (("log.message.downconversion.enable", 1),),
    "message.format.version": (("log.message.format.version", 1),),
    "message.timestamp.difference.max.ms": (("log.message.timestamp.difference.max.ms", 1),),
    "message.timestamp.type": (("log.message.timestamp.type", 1),),
    "min.cleanable.dirty.ratio": (("log.cleaner.min.cleanable.ratio", 1),),
    "min.compaction.lag.ms": (("log.cleaner.min.compaction.lag.ms", 1),),
    "min.insync.replicas": (("min.insync.replicas", 1),),
    "preallocate": (("log.preallocate", 1),),
    "retention.bytes": (("log.retention.bytes", 1),),
    "retention.ms": (
        ("log.retention.ms", 1),
        ("log.retention.minutes", _MINUTE),
        ("log.retention.hours", _HOUR),
    ),
    "segment.bytes": (("log.segment.bytes", 1),),
    "segment.index.bytes": (("log.index.size.max.bytes", 1),),
    "segment.jitter.ms": (("log.roll.jitter.ms", 1), ("log.roll.jitter.hours", _HOUR)),
    "segment.ms": (("log.roll.ms", 1), ("log.roll.hours", _HOUR)),
    "unclean.leader.election.enable": (("unclean.leader.election.enable", 1),),
}


@dataclass(frozen=True, slots=True)
class BrokerDefaults:
    """The inherited topic settings, and the default numbers of partitions and replicas."""

    config: Mapping[str, str]
    partitions: int | None
    replication: int | None


def defaults_of(broker: Mapping[str, ConfigValue]) -> BrokerDefaults:
    """Returns the defaults that a broker's settings mean for topics."""
    config = {}
    for key, sources in _BROKER_KEYS.items():
        value = next((found for one in sources if (found := _value(broker, *one)) is not None), None)
        if value is not None:
            config[key] = value
    return BrokerDefaults(
        config, _number(broker, "num.partitions"), _number(broker, "default.replication.factor")
    )


def _value(broker: Mapping[str, ConfigValue], key: str, unit: int) -> str | None:
    setting = broker.get(key)
    if setting is None or setting.value is None:
        return None
    if unit == 1:
        return setting.value
    # -1 hours means no limit and stays -1 in milliseconds.
    number = int(setting.value)
    return str(number * unit if number > 0 else number)


def _number(broker: Mapping[str, ConfigValue], key: str) -> int | None:
    setting = broker.get(key)
    return None if setting is None or setting.value is None else int(setting.value)
