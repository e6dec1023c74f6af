"""Reads the topics that a replay or a restore writes to."""

from __future__ import annotations

from collections.abc import Collection

from msgspec import Struct

from runtime.audit.ledger import AuditFailure
from runtime.audit.partition_logs import open_spec, settings_of
from runtime.contract.spec.cluster import ClusterSpec
from runtime.kafka.cluster import KafkaCluster
from runtime.kafka.errors import ErrorCode


class TargetTopic(Struct, frozen=True, kw_only=True):
    """Describes a topic of the destination. `appends`: it replaces a record's timestamp by the broker's time.

    Where a restore is planned, `foreign` names a partition that holds records which no restore of this backup
    wrote, and `restored` says whether a restore of it has begun.
    """

    id: bytes
    partitions: int
    max_message_bytes: int
    appends: bool
    foreign: str = ""
    restored: bool = False


async def target_topics(
    destination: ClusterSpec, name: str, topics: Collection[str]
) -> dict[str, TargetTopic]:
    """Returns the topics that exist at the destination. Raises AuditFailure."""
    async with open_spec(destination, name) as cluster:
        return await existing_topics(cluster, name, topics)


async def existing_topics(
    cluster: KafkaCluster, name: str, topics: Collection[str]
) -> dict[str, TargetTopic]:
    """Returns the topics that exist at an open cluster.

    Raises WireError, and AuditFailure for a topic of which the cluster does not say whether it exists.
    """
    metadata = await cluster.topics(topics, fresh=True)
    existing = {}
    for topic, listed in sorted(metadata.items()):
        if listed.error is ErrorCode.NONE:
            existing[topic] = listed
        elif listed.error is not ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
            why = f"the topic {topic} can't be described: {listed.error.name}"
            raise AuditFailure(name, why, "check the rights of this principal: it needs DESCRIBE")
    keys = ["max.message.bytes", "message.timestamp.type"]
    settings = await settings_of(cluster, name, list(existing), keys)
    return {
        topic: TargetTopic(
            id=listed.id,
            partitions=len(listed.partitions),
            max_message_bytes=int(settings[topic]["max.message.bytes"]),
            appends=settings[topic]["message.timestamp.type"] == "LogAppendTime",
        )
        for topic, listed in existing.items()
    }
