"""Defines the request and the outcome of the replay application, and checks the requested topics."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import msgspec

from runtime.audit.partition_logs import open_spec, settings_of
from runtime.contract.records.ledger import PartitionKey
from runtime.contract.results.records import ReplayedPartition, SalvagedPartition
from runtime.contract.spec.cluster import ClusterSpec
from runtime.contract.spec.jobspec import FlowSpec
from runtime.contract.spec.route import is_reserved
from runtime.contract.spec.transform import TransformSpec, quarantine_topic
from runtime.kafka.errors import ErrorCode


class ReplayQuarantine(msgspec.Struct, frozen=True):
    """Describes the partition of a quarantine topic that takes the bad records of one partition."""

    topic: str
    partition: int
    max_message_bytes: int


class ReplayPartition(msgspec.Struct, frozen=True):
    """Describes a partition of the source that has orphans.

    `mirror` is the flow's name of its topic at the destination, `into` the topic that the records are copied
    to. `quarantine` takes the bad records of a flow that quarantines.
    """

    topic: str
    partition: int
    mirror: str
    into: str
    max_message_bytes: int
    begun: bool
    quarantine: ReplayQuarantine | None = None

    def key(self, flow: str) -> PartitionKey:
        return PartitionKey(flow, self.topic, self.partition)


class ReplayRequest(msgspec.Struct, frozen=True, kw_only=True):
    """Describes a replay. It holds no secret: clusters hold references, as in a job's spec.

    `bytes` is the approximate size of one transaction, in bytes at the source.
    """

    flow: FlowSpec
    source: ClusterSpec
    destination: ClusterSpec
    parts: list[ReplayPartition]
    bytes: int = 2 << 20
    within_s: float = 10.0


class ReplayOutcome(msgspec.Struct, frozen=True, kw_only=True):
    """Reports the copied partitions, or the cluster that could not be used, or why the replay was refused."""

    parts: list[ReplayedPartition] = []
    cluster: str = ""
    why: str = ""
    refused: str = ""


encode_request = msgspec.json.encode
encode_outcome = msgspec.json.encode
encode_part = msgspec.msgpack.encode
encode_replayed = msgspec.msgpack.encode
decode_request = msgspec.json.Decoder(ReplayRequest).decode
decode_outcome = msgspec.json.Decoder(ReplayOutcome).decode
decode_part = msgspec.msgpack.Decoder(ReplayPartition).decode
decode_replayed = msgspec.msgpack.Decoder(ReplayedPartition).decode
decode_replays = msgspec.msgpack.Decoder(list[ReplayedPartition]).decode


@dataclass(frozen=True, slots=True)
class ReplayTarget:
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
        existing = {topic: one for topic, one in known.items() if one.error is ErrorCode.NONE}
        settings = await settings_of(
            cluster, name, sorted(existing), ["max.message.bytes", "message.timestamp.type"]
        )
    return {
        topic: ReplayTarget(
            len(one.partitions),
            int(settings[topic]["max.message.bytes"]),
            settings[topic]["message.timestamp.type"] == "LogAppendTime",
        )
        for topic, one in existing.items()
    }


def quarantines_of(found: Sequence[SalvagedPartition], transform: TransformSpec | None) -> list[str]:
    """Returns the quarantine topics that a replay may write to."""
    if transform is None or not transform.quarantines:
        return []
    return sorted({quarantine_topic(one.destination_topic) for one in found})


def unfit(
    found: Sequence[SalvagedPartition],
    to: str | None,
    known: Mapping[str, ReplayTarget],
    transform: TransformSpec | None = None,
) -> dict[str, str]:
    """Returns why the replay is impossible, with what to do about it; empty where it is possible."""
    problems: dict[str, str] = {
        f"there is no topic {topic}, which takes bad records": "create it, or declare it under topics"
        for topic in quarantines_of(found, transform)
        if topic not in known
    }
    if to is not None and is_reserved(to):
        problems[f"{to} is not for records of a flow"] = "name a topic of your own"
    if to is not None and to in quarantines_of(found, transform):
        problems[f"{to} takes the bad records of this replay"] = "name another topic with --to"
    for one in found:
        into = to or one.destination_topic
        needed = [into] if one.begun else [into, one.destination_topic]
        for topic in dict.fromkeys(needed):
            target = known.get(topic)
            if target is None:
                problems[f"there is no topic {topic}"] = (
                    f"create it with {one.partition + 1} partitions or more"
                )
            elif target.partitions <= one.partition:
                has = f"{topic} has {target.partitions} partitions"
                what = f"{has}, and there is no {topic}-{one.partition} for {one.topic}-{one.partition}"
                problems[what] = "give it more, or name another with --to"
        if into in known and known[into].appends:
            problems[f"{into} would take the time of the replay for the records' own"] = (
                f"set message.timestamp.type=CreateTime for {into}, or name another with --to"
            )
    return problems


def parts(
    found: Sequence[SalvagedPartition],
    to: str | None,
    known: Mapping[str, ReplayTarget],
    transform: TransformSpec | None = None,
) -> list[ReplayPartition]:
    """Returns the partitions to replay, with the topic that each is copied to."""
    quarantines = {topic: known[topic] for topic in quarantines_of(found, transform)}
    return [
        ReplayPartition(
            topic=one.topic,
            partition=one.partition,
            mirror=one.destination_topic,
            into=to or one.destination_topic,
            max_message_bytes=known[to or one.destination_topic].max_message_bytes,
            begun=one.begun,
            quarantine=_quarantine(one, quarantines),
        )
        for one in found
    ]


def _quarantine(one: SalvagedPartition, quarantines: Mapping[str, ReplayTarget]) -> ReplayQuarantine | None:
    topic = quarantine_topic(one.destination_topic)
    if topic not in quarantines:
        return None
    target = quarantines[topic]
    return ReplayQuarantine(topic, one.partition % target.partitions, target.max_message_bytes)
