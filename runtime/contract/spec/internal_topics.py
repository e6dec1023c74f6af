"""Defines the partitions and settings of the product's own topics, so that start-up reads stay small."""

from collections.abc import Mapping
from dataclasses import dataclass

from runtime.contract.spec import naming
from runtime.contract.spec.jobspec import InternalSpec

_MINUTE_MS = 60_000
_DAY_MS = 24 * 60 * _MINUTE_MS
DEFAULT_RETENTION_MS = 30 * _DAY_MS


@dataclass(frozen=True, slots=True)
class InternalTopic:
    """Describes one of the product's own topics.

    `partitions` must not change afterwards where a record's partition depends on it (ledger and offset map).
    A `replication` of None means the replication factor of all internal topics.
    """

    name: str
    partitions: int
    config: Mapping[str, str]
    replication: int | None = None


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

    A group that does not commit for the topic's retention has no timestamps any longer.
    """
    kept = internal.timestamps
    retention = kept.retention_ms or internal.retention_ms or DEFAULT_RETENTION_MS
    config = _compacted(16 << 20, "0.3") | {
        "cleanup.policy": "compact,delete",
        "retention.ms": str(retention),
    }
    return InternalTopic(naming.TIMESTAMPS, kept.partitions, config, kept.replication)


def at_source(retention_ms: int | None = None) -> tuple[InternalTopic, ...]:
    """Returns the topics that a flow's heartbeats need at its source."""
    retention = retention_ms if retention_ms is not None else DEFAULT_RETENTION_MS
    return (InternalTopic(naming.HEARTBEATS, 1, _expiring(min(retention, _DAY_MS))),)
