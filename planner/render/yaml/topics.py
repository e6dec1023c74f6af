"""Topics as few lines as say it all: what most have is a default, equal ones at several clusters join."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeVar

from planner.diff.values import in_units
from planner.model.topology import OnRemove, Topic
from planner.render.yaml.text import UnquotedText, Value, setting


@dataclass(frozen=True, slots=True)
class TopicDefaults:
    partitions: int | None = None
    replication: int | None = None
    config: Mapping[str, str] = field(default_factory=dict)


def topic_defaults(topics: Sequence[Topic]) -> TopicDefaults:
    """What is said at least twice and most often. A setting only where every topic has some value for it:
    a default can't be taken back for one that has none.
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


Said = TypeVar("Said", int, str)


def _most(values: Iterable[Said | None]) -> Said | None:
    """The commonest, the smallest of equals; None where any has none, or nothing comes twice."""
    counts: Counter[Said] = Counter()
    for one in values:
        if one is None:
            return None
        counts[one] += 1
    value, count = min(counts.items(), key=lambda pair: (-pair[1], str(pair[0])))
    return value if count > 1 else None


def defaults_value(defaults: TopicDefaults) -> dict[str, Value]:
    found: dict[str, Value] = {}
    if defaults.partitions is not None:
        found["partitions"] = defaults.partitions
    if defaults.replication is not None:
        found["replication"] = defaults.replication
    if defaults.config:
        found["config"] = config_value(defaults.config)
    return found


def topic_values(topics: Iterable[Topic], defaults: TopicDefaults) -> list[dict[str, Value]]:
    """By name, then by cluster."""
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
    clusters = [one.cluster for one in group]
    found: dict[str, Value] = {"name": topic.name, "cluster": clusters if len(clusters) > 1 else clusters[0]}
    if topic.partitions is not None and topic.partitions != defaults.partitions:
        found["partitions"] = topic.partitions
    if topic.replication is not None and topic.replication != defaults.replication:
        found["replication"] = topic.replication
    own = {key: value for key, value in topic.config.items() if defaults.config.get(key) != value}
    if own:
        found["config"] = config_value(own)
    if topic.protect:
        found["protect"] = True
    if topic.on_remove is not OnRemove.KEEP:
        found["on_remove"] = topic.on_remove.value
    return found


def config_value(config: Mapping[str, str]) -> dict[str, str | UnquotedText]:
    return {key: setting(in_units(key, value)) for key, value in sorted(config.items())}
