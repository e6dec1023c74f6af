"""Defines the settings of the topics that the product makes: mirror topics and its own internal topics.

A mirror topic takes settings from its source topic; plan and job follow the same rules. The partitions and
settings of the internal topics keep the reads at the start of a job small.
"""

from collections.abc import Collection, Iterable, Mapping
from typing import Annotated, ClassVar, Final, Literal

from msgspec import Meta, Struct, field

from runtime.contract.spec import naming
from runtime.contract.spec.selection import NamePatterns
from runtime.contract.spec.shapes import Duration, Key, RecordName, Replication, SpecStruct

MAX_MESSAGE_BYTES: Final = "max.message.bytes"
DEFAULT_MAX_MESSAGE_BYTES: Final = 1_048_588  # of Kafka

# Mirrored even where they are inherited: with another value the destination would store records differently.
ALWAYS = ("cleanup.policy", "compression.type", MAX_MESSAGE_BYTES, "segment.bytes")

# These belong to each cluster alone: never mirrored, and never unset.
NEVER = frozenset(
    {
        "min.insync.replicas",
        "unclean.leader.election.enable",
        "message.timestamp.type",
        "message.timestamp.before.max.ms",
        "message.timestamp.after.max.ms",
        "message.timestamp.difference.max.ms",
        "leader.replication.throttled.replicas",
        "follower.replication.throttled.replicas",
    }
)

# A mirror accepts the timestamps of its source's records, however old or wrong they are.
FOREVER_MS = str(2**63 - 1)
BOUNDS = {
    "message.timestamp.type": "CreateTime",
    "message.timestamp.before.max.ms": FOREVER_MS,
    "message.timestamp.after.max.ms": FOREVER_MS,
}

# Kafka before 3.6 has one bound for both directions.
_BEFORE, _OLD_BOUND = "message.timestamp.before.max.ms", "message.timestamp.difference.max.ms"

# What a failback may lift, and restores.
LIFTED = frozenset({*BOUNDS, _OLD_BOUND, MAX_MESSAGE_BYTES})

# Settings that some versions of Kafka lack: newer ones, and those that Kafka 4.0 removed.
VERSIONED = frozenset(
    {
        "compression.gzip.level",
        "compression.lz4.level",
        "compression.zstd.level",
        "local.retention.bytes",
        "local.retention.ms",
        "message.downconversion.enable",
        "message.format.version",
        "message.timestamp.after.max.ms",
        _BEFORE,
        _OLD_BOUND,
    }
)

# The size of a hop's provenance header: its key, two names of at most 255 bytes each, numbers, and a reserve.
HEADER_BYTES = 1024


def lacks(known_settings: Collection[str], key: str) -> bool:
    """Returns whether a cluster that knows these settings lacks one.

    Every version has one of the bounds for timestamps: where neither is known, the cluster is not known.
    """
    described = _BEFORE in known_settings or _OLD_BOUND in known_settings
    return described and key in VERSIONED and key not in known_settings


def supported(settings: Mapping[str, str], known_settings: Collection[str]) -> dict[str, str]:
    """Returns the settings without those that the cluster lacks, and with its own bound for timestamps."""
    kept = {key: value for key, value in settings.items() if not lacks(known_settings, key)}
    if _BEFORE in settings and lacks(known_settings, _BEFORE) and _OLD_BOUND in known_settings:
        kept[_OLD_BOUND] = settings[_BEFORE]
    return kept


class TopicSettings(Struct, frozen=True):
    """Holds a topic's settings: `explicit` are set on the topic itself, `inherited` are the others."""

    explicit: Mapping[str, str] = field(default_factory=dict)
    inherited: Mapping[str, str] = field(default_factory=dict)

    def effective(self, key: str) -> str | None:
        """Returns the value in force; None where it is unknown."""
        return self.explicit.get(key, self.inherited.get(key))

    @property
    def max_message_bytes(self) -> int:
        """Returns the largest batch that the topic takes; Kafka's default where that is unknown."""
        return int(self.effective(MAX_MESSAGE_BYTES) or DEFAULT_MAX_MESSAGE_BYTES)


class ConfigUpdate(Struct, frozen=True):
    """Lists the settings that must be set on a topic, and those that must be unset."""

    set: Mapping[str, str] = field(default_factory=dict)
    unset: frozenset[str] = frozenset()

    def __bool__(self) -> bool:
        return bool(self.set or self.unset)


class MirrorRule:
    """Applies the `configs` of a flow to a mirror topic.

    `declared` keys are set by the topology itself at the destination; the flow never changes them.
    """

    def __init__(self, sync: Literal["off", "set", "all"], exclude: Iterable[str], headers: bool) -> None:
        self._sync = sync
        self._excluded = NamePatterns(exclude)
        self._slack = HEADER_BYTES if headers else 0
        self._follows: dict[str, bool] = {}

    def follows(self, key: str) -> bool:
        """Returns whether the mirror takes this setting from its source."""
        follows = self._follows.get(key)
        if follows is None:
            follows = self._follows[key] = key not in NEVER and not self._excluded.match(key)
        return follows

    def wanted(self, source: TopicSettings) -> dict[str, str]:
        """Returns the settings that the flow sets on the mirror of a topic with these settings."""
        match self._sync:
            case "off":
                return dict(BOUNDS)
            case "set":
                values = dict(source.explicit)
                for key in ALWAYS:
                    effective = source.effective(key)
                    if effective is not None:
                        values[key] = effective
            case "all":
                values = {**source.inherited, **source.explicit}
        values = {key: value for key, value in values.items() if self.follows(key)}
        largest = values.get(MAX_MESSAGE_BYTES, "")
        if self._slack and largest.isdecimal():
            values[MAX_MESSAGE_BYTES] = str(int(largest) + self._slack)
        return {**values, **BOUNDS}

    def edit(self, source: TopicSettings, mirror: TopicSettings, declared: frozenset[str]) -> ConfigUpdate:
        """Returns the changes that an existing mirror topic needs.

        Its settings are all that its cluster knows.
        """
        known_settings = {*mirror.explicit, *mirror.inherited}
        possible = supported(self.wanted(source), known_settings)
        wanted = {key: value for key, value in possible.items() if key not in declared}
        changed = {key: value for key, value in wanted.items() if mirror.explicit.get(key) != value}
        return ConfigUpdate(changed, self.stale(mirror.explicit, wanted) - declared)

    def stale(self, explicit: Iterable[str], wanted: Collection[str]) -> frozenset[str]:
        """Returns which of the mirror's own settings its source does not have any more."""
        if self._sync == "off":
            return frozenset()
        return frozenset(key for key in explicit if key not in wanted and self.follows(key))


_MINUTE_MS = 60_000
_DAY_MS = 24 * 60 * _MINUTE_MS


class TimestampsSpec(SpecStruct, frozen=True, kw_only=True):
    """The topic of consumer timestamps. Keys about the topic itself apply when it is created.

    None stands for the value of the other internal topics.
    """

    record: ClassVar = RecordName("timestamps", "timestamps")

    retention_ms: Annotated[
        Duration | None,
        Key(
            "How long a group that is gone from the source is kept.",
            default_doc="that of internal",
            example="90d",
        ),
    ] = None
    replication: Annotated[
        Replication | None,
        Key("Copies of each of its partitions.", default_doc="that of internal", example="3"),
    ] = None
    partitions: Annotated[
        Annotated[int, Meta(ge=1, le=1_000)],
        Key("Its partitions.", example="8"),
    ] = 1
    max_per_partition: Annotated[
        Annotated[int, Meta(ge=1, le=10_000)],
        Key("How many commits of one group are kept for each partition it reads.", example="10"),
    ] = 10
    retry_ms: Annotated[
        Duration | None,
        Key(
            "After how long a commit is looked up again whose record was not found at the source.",
            default_doc="`5m`",
            example="5m",
        ),
    ] = None
    expiry_ms: Annotated[
        Duration | None,
        Key(
            "How long such a commit is looked up. Afterwards it is not, until the group commits again.",
            default_doc="as long as the commit stands",
            example="1d",
        ),
    ] = None


class InternalSpec(SpecStruct, frozen=True, kw_only=True):
    """The internal topics of repl. New ones are created like this; existing ones stay as they are.

    Without a replication, each topic has 3 copies, or as many as the cluster can hold.
    """

    record: ClassVar = RecordName("internal", "internal")

    replication: Annotated[
        Replication | None,
        Key("Copies of each internal partition.", default_doc="3, or what the cluster can", example="3"),
    ] = None
    retention_ms: Annotated[
        Duration,
        Key("How long the journal of applies and consumer timestamps are kept.", example="90d"),
    ] = 30 * _DAY_MS
    timestamps: Annotated[
        TimestampsSpec,
        Key("Consumer timestamps, for flows whose groups go by record time.", example="{retention: 90d}"),
    ] = TimestampsSpec()


class InternalTopic(Struct, frozen=True):
    """Describes one of the product's own topics.

    `partitions` must not change afterwards where a record's partition depends on it (ledger and offset map).
    A `replication` of None means the replication factor of all internal topics.
    """

    name: str
    partitions: int
    config: Mapping[str, str]
    replication: int | None = None

    def durable(self, internal: InternalSpec, brokers: int) -> tuple[int, dict[str, str]]:
        """Returns the replication and the settings of a new topic, as durable as so many brokers allow."""
        replicas = self.replication or internal.replication or min(_REPLICAS, max(brokers, 1))
        return replicas, {**self.config, "min.insync.replicas": str(max(1, replicas - 1))}


_REPLICAS = 3


def _compacted(segment_bytes: int, dirty_ratio: str) -> dict[str, str]:
    """Returns the settings of a compacted internal topic.

    Unclean leader elections are off, whatever the cluster's default: a truncated ledger would make a flow
    copy records a second time (R1).
    """
    return {
        "cleanup.policy": "compact",
        "unclean.leader.election.enable": "false",
        "segment.bytes": str(segment_bytes),
        "segment.ms": str(10 * _MINUTE_MS),
        "min.cleanable.dirty.ratio": dirty_ratio,
        "delete.retention.ms": str(_MINUTE_MS),
        "compression.type": "producer",
        "message.timestamp.type": "CreateTime",
    }


def _expiring(retention_ms: int) -> dict[str, str]:
    """Returns the settings of an internal topic whose records expire after `retention_ms`."""
    return {
        "cleanup.policy": "delete",
        "retention.ms": str(retention_ms),
        "segment.bytes": str(16 << 20),
        "compression.type": "producer",
        "message.timestamp.type": "CreateTime",
    }


def at_destination() -> tuple[InternalTopic, ...]:
    """Returns the topics that must exist before a job copies into a cluster."""
    return (
        InternalTopic(naming.LEDGER, 8, _compacted(1 << 20, "0.05")),
        InternalTopic(naming.OFFSET_MAP, 8, _compacted(16 << 20, "0.3")),
        InternalTopic(naming.PRODUCERS, 1, _compacted(1 << 20, "0.1")),
        InternalTopic(naming.STATUS, 1, _compacted(1 << 20, "0.1")),
        InternalTopic(naming.CONTROL, 1, _expiring(_DAY_MS)),
        InternalTopic(naming.CHECKPOINTS, 1, _compacted(4 << 20, "0.1")),
    )


def timestamps(internal: InternalSpec) -> InternalTopic:
    """Returns the topic of consumer timestamps, for flows whose groups are translated by record time.

    The timestamps of a group expire if it does not commit within the topic's retention.
    """
    kept = internal.timestamps
    retention = kept.retention_ms or internal.retention_ms
    config = _compacted(16 << 20, "0.3") | {
        "cleanup.policy": "compact,delete",
        "retention.ms": str(retention),
    }
    return InternalTopic(naming.TIMESTAMPS, kept.partitions, config, kept.replication)


def of_plans(internal: InternalSpec) -> tuple[InternalTopic, ...]:
    """Returns the topics in which the planner keeps its leases, what it owns, and its history."""
    registry = {
        "cleanup.policy": "compact",
        "segment.bytes": str(16 << 20),
        "min.cleanable.dirty.ratio": "0.1",
        "delete.retention.ms": str(_DAY_MS),
    }
    lease = {
        "cleanup.policy": "delete",
        "retention.ms": str(_DAY_MS),
        "segment.bytes": str(1 << 20),
        "message.timestamp.type": "LogAppendTime",
    }
    history = {"cleanup.policy": "delete", "retention.ms": str(internal.retention_ms)}
    return (
        InternalTopic(naming.REGISTRY, 1, registry),
        InternalTopic(naming.LEASE, 1, lease),
        InternalTopic(naming.HISTORY, 1, history),
    )


def at_source() -> tuple[InternalTopic, ...]:
    """Returns the topics that a flow's heartbeats need at its source."""
    return (InternalTopic(naming.HEARTBEATS, 1, _expiring(_DAY_MS)),)
