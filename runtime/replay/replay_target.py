"""Checks whether salvaged records fit the topics that a replay writes to, and makes its partitions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from runtime.contract.records.control import AssignedPartition, LimitedTopic
from runtime.contract.results.records import SalvagedPartition
from runtime.contract.spec.jobspec import FlowSpec
from runtime.contract.spec.route import is_reserved
from runtime.contract.spec.transform import TransformSpec, quarantine_topic
from runtime.replay.target import TargetTopic


def quarantines_of(salvaged: Sequence[SalvagedPartition], transform: TransformSpec | None) -> list[str]:
    """Returns the quarantine topics that a replay may write to."""
    if transform is None or not transform.quarantines:
        return []
    return sorted({quarantine_topic(part.destination_topic) for part in salvaged})


def unfit(
    salvaged: Sequence[SalvagedPartition],
    to: str | None,
    target_topics: Mapping[str, TargetTopic],
    transform: TransformSpec | None = None,
) -> dict[str, str]:
    """Returns why the replay is impossible, with what to do about it; empty where it is possible."""
    problems: dict[str, str] = {
        f"there is no topic {topic}, which takes bad records": "create it, or declare it under topics"
        for topic in quarantines_of(salvaged, transform)
        if topic not in target_topics
    }
    if to is not None and is_reserved(to):
        problems[f"{to} is not for records of a flow"] = "name a topic of your own"
    if to is not None and to in quarantines_of(salvaged, transform):
        problems[f"{to} takes the bad records of this replay"] = "name another topic with --to"
    for part in salvaged:
        into = to or part.destination_topic
        needed = [into] if part.begun else [into, part.destination_topic]
        for topic in dict.fromkeys(needed):
            target = target_topics.get(topic)
            if target is None:
                problems[f"there is no topic {topic}"] = (
                    f"create it with {part.partition + 1} partitions or more"
                )
            elif target.partitions <= part.partition:
                has = f"{topic} has {target.partitions} partitions"
                what = f"{has}, and there is no {topic}-{part.partition} for {part.topic}-{part.partition}"
                problems[what] = "give it more, or name another with --to"
        if into in target_topics and target_topics[into].appends:
            problems[f"{into} would take the time of the replay for the records' own"] = (
                f"set message.timestamp.type=CreateTime for {into}, or name another with --to"
            )
    return problems


def parts(
    salvaged: Sequence[SalvagedPartition],
    to: str | None,
    target_topics: Mapping[str, TargetTopic],
    flow: FlowSpec,
) -> list[AssignedPartition]:
    """Returns the partitions to replay, as a slot of the flow would copy them."""
    quarantines = quarantines_of(salvaged, flow.transform)
    limits = {topic: target_topics[topic].max_message_bytes for topic in target_topics}
    assigned = []
    for part in salvaged:
        bad = quarantine_topic(part.destination_topic)
        assigned.append(
            AssignedPartition(
                flow.name,
                part.topic,
                part.partition,
                part.destination_topic,
                max_message_bytes=limits[to or part.destination_topic],
                quarantine=LimitedTopic(bad, limits[bad]) if bad in quarantines else None,
            )
        )
    return assigned
