"""Writes topics as few entries: common values become defaults, equal topics at several clusters join."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeVar

from planner.model.topology import Topic
from planner.render.yaml.text import Value
from planner.render.yaml.values import values_of


@dataclass(frozen=True, slots=True)
class TopicDefaults:
    partitions: int | None = None
    replication: int | None = None
    config: Mapping[str, str] = field(default_factory=dict)


def topic_defaults(topics: Sequence[Topic]) -> TopicDefaults:
    """Returns the most common values, if they occur at least twice.

    A setting becomes a default only if every topic has a value for it: no topic can take a default back.
    """
    if len(topics) < 2:
        return TopicDefaults()
    keys = set(topics[0].config)
    for topic in topics:
        keys &= topic.config.keys()
    return TopicDefaults(
        partitions=_most(topic.partitions for topic in topics),
        replication=_most(topic.replication for topic in topics),
        config={
            key: value
            for key in sorted(keys)
            if (value := _most(topic.config[key] for topic in topics)) is not None
        },
    )


Common = TypeVar("Common", int, str)


def _most(values: Iterable[Common | None]) -> Common | None:
    """Returns the most common value, the smallest of equals; None if a topic has none, or all differ."""
    counts: Counter[Common] = Counter()
    for one in values:
        if one is None:
            return None
        counts[one] += 1
    value, count = min(counts.items(), key=lambda pair: (-pair[1], str(pair[0])))
    return value if count > 1 else None


def defaults_value(defaults: TopicDefaults) -> dict[str, Value]:
    found = values_of(Topic("", "", defaults.partitions, defaults.replication, defaults.config))
    return {key: value for key, value in found.items() if key not in ("name", "cluster")}


def topic_values(topics: Iterable[Topic], defaults: TopicDefaults) -> list[dict[str, Value]]:
    """Returns the entries of topics by name, then by cluster."""
    alike: dict[tuple[object, ...], list[Topic]] = {}
    for topic in sorted(topics, key=lambda one: (one.name, one.cluster)):
        same = (
            topic.name,
            topic.partitions,
            topic.replication,
            tuple(sorted(topic.config.items())),
            topic.protect,
            topic.on_remove,
        )
        alike.setdefault(same, []).append(topic)
    return [_value(group, defaults) for group in alike.values()]


def _value(group: list[Topic], defaults: TopicDefaults) -> dict[str, Value]:
    topic = group[0]
    usual = Topic(topic.name, topic.cluster, defaults.partitions, defaults.replication, defaults.config)
    found = values_of(topic, usual)
    if len(group) > 1:
        found["cluster"] = [one.cluster for one in group]
    return found
