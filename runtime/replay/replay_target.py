"""Reads the topics that a replay writes to, and checks whether the salvaged records fit there."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from msgspec import Struct

from runtime.audit.partition_logs import open_spec, settings_of
from runtime.contract.results.records import SalvagedPartition
from runtime.contract.spec.cluster import ClusterSpec
from runtime.contract.spec.route import is_reserved
from runtime.contract.spec.transform import TransformSpec, quarantine_topic
from runtime.kafka.errors import ErrorCode
from runtime.replay.request import ReplayPartition, ReplayQuarantine


class ReplayTarget(Struct, frozen=True):
    """Describes a topic of the destination.

    `appends`: it replaces a record's timestamp by the broker's time.
    """

    partitions: int
    max_message_bytes: int
    appends: bool


async def targets(destination: ClusterSpec, name: str, topics: Sequence[str]) -> dict[str, ReplayTarget]:
    """Returns the topics that exist at the destination. Raises AuditFailure."""
    async with open_spec(destination, name) as cluster:
        known = await cluster.topics(topics, fresh=True)
        existing = {name: topic for name, topic in known.items() if topic.error is ErrorCode.NONE}
        settings = await settings_of(
            cluster, name, sorted(existing), ["max.message.bytes", "message.timestamp.type"]
        )
    return {
        name: ReplayTarget(
            len(topic.partitions),
            int(settings[name]["max.message.bytes"]),
            settings[name]["message.timestamp.type"] == "LogAppendTime",
        )
        for name, topic in existing.items()
    }


def quarantines_of(salvaged: Sequence[SalvagedPartition], transform: TransformSpec | None) -> list[str]:
    """Returns the quarantine topics that a replay may write to."""
    if transform is None or not transform.quarantines:
        return []
    return sorted({quarantine_topic(part.destination_topic) for part in salvaged})


def unfit(
    salvaged: Sequence[SalvagedPartition],
    to: str | None,
    known: Mapping[str, ReplayTarget],
    transform: TransformSpec | None = None,
) -> dict[str, str]:
    """Returns why the replay is impossible, with what to do about it; empty where it is possible."""
    problems: dict[str, str] = {
        f"there is no topic {topic}, which takes bad records": "create it, or declare it under topics"
        for topic in quarantines_of(salvaged, transform)
        if topic not in known
    }
    if to is not None and is_reserved(to):
        problems[f"{to} is not for records of a flow"] = "name a topic of your own"
    if to is not None and to in quarantines_of(salvaged, transform):
        problems[f"{to} takes the bad records of this replay"] = "name another topic with --to"
    for part in salvaged:
        into = to or part.destination_topic
        needed = [into] if part.begun else [into, part.destination_topic]
        for topic in dict.fromkeys(needed):
            target = known.get(topic)
            if target is None:
                problems[f"there is no topic {topic}"] = (
                    f"create it with {part.partition + 1} partitions or more"
                )
            elif target.partitions <= part.partition:
                has = f"{topic} has {target.partitions} partitions"
                what = f"{has}, and there is no {topic}-{part.partition} for {part.topic}-{part.partition}"
                problems[what] = "give it more, or name another with --to"
        if into in known and known[into].appends:
            problems[f"{into} would take the time of the replay for the records' own"] = (
                f"set message.timestamp.type=CreateTime for {into}, or name another with --to"
            )
    return problems


def parts(
    salvaged: Sequence[SalvagedPartition],
    to: str | None,
    known: Mapping[str, ReplayTarget],
    transform: TransformSpec | None = None,
) -> list[ReplayPartition]:
    """Returns the partitions to replay, with the topic that each is copied to."""
    quarantines = quarantines_of(salvaged, transform)

    def quarantine(part: SalvagedPartition) -> ReplayQuarantine | None:
        topic = quarantine_topic(part.destination_topic)
        if topic not in quarantines:
            return None
        partition = part.partition % known[topic].partitions
        return ReplayQuarantine(topic, partition, known[topic].max_message_bytes)

    return [
        ReplayPartition(
            topic=part.topic,
            partition=part.partition,
            mirror=part.destination_topic,
            into=to or part.destination_topic,
            max_message_bytes=known[to or part.destination_topic].max_message_bytes,
            begun=part.begun,
            quarantine=quarantine(part),
        )
        for part in salvaged
    ]
