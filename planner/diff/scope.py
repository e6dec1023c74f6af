"""What of a topic is compared: what is declared, mirrored, or was applied by us and is declared no more."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import assert_never

from planner.diff.compare import Path
from planner.diff.values import Normal, normal
from planner.model.desired import Declared, DesiredTopic, MirroredBy
from planner.model.observed import ConfigSource, ConfigValue, ObservedTopic
from planner.model.owned import RegistryEntry

PARTITIONS: Path = ("partitions",)
REPLICATION: Path = ("replication",)


@dataclass(frozen=True, slots=True)
class ComparedValues:
    """The two sides, by path, in the form in which they are equal when they mean the same."""

    wanted: Mapping[Path, Normal | int]
    live: Mapping[Path, Normal | int]


def config_path(key: str) -> Path:
    return ("config", key)


def given_back(topic: DesiredTopic, entry: RegistryEntry | None) -> frozenset[str]:
    """Keys that return to the cluster's own value.

    A mirror's come from its source. A declared topic's are those that were applied and left the YAML.
    """
    match topic.origin:
        case MirroredBy():
            return topic.unset - topic.config.keys() - topic.restored.keys()
        case Declared():
            applied = entry.config.keys() if entry is not None else frozenset()
            return (topic.unset | applied) - topic.config.keys() - topic.restored.keys()
        case _:
            assert_never(topic.origin)


def given_back_after(topic: DesiredTopic, entry: RegistryEntry | None) -> frozenset[str]:
    """The limits that a failback had lifted and that this plan restores."""
    before = entry.before.keys() if entry is not None else frozenset[str]()
    return frozenset(before) - (topic.lifted.before.keys() if topic.lifted is not None else frozenset())


def explicit(live: ObservedTopic, key: str) -> ConfigValue | None:
    """The value that is set on the topic itself, not what it inherits."""
    value = live.config.get(key)
    return value if value is not None and value.source is ConfigSource.TOPIC else None


def topic_scope(topic: DesiredTopic, live: ObservedTopic, entry: RegistryEntry | None) -> ComparedValues:
    wanted: dict[Path, Normal | int] = {}
    found: dict[Path, Normal | int] = {}
    if topic.partitions is not None:
        wanted[PARTITIONS] = _wanted_partitions(topic, topic.partitions, live)
        found[PARTITIONS] = live.partitions
    if topic.replication is not None:
        wanted[REPLICATION] = topic.replication
        found[REPLICATION] = live.replication_told
    for key, value in {**topic.restored, **topic.config}.items():
        path = config_path(key)
        wanted[path] = normal(key, value)
        found[path] = _live_config(key, live, entry)
    for key in given_back(topic, entry):
        path = config_path(key)
        wanted[path] = None
        found[path] = _live_config(key, live, entry)
    return ComparedValues(wanted, found)


def _wanted_partitions(topic: DesiredTopic, partitions: int, live: ObservedTopic) -> int:
    """A mirror may have more than its source; what is declared is meant exactly."""
    match topic.origin:
        case MirroredBy():
            return max(partitions, live.partitions)
        case Declared():
            return partitions
        case _:
            assert_never(topic.origin)


def _live_config(key: str, live: ObservedTopic, entry: RegistryEntry | None) -> Normal:
    value = explicit(live, key)
    if value is None:
        return None
    if value.sensitive and value.value is None:
        # The broker keeps it to itself: what was applied last is the nearest thing to the truth.
        return normal(key, entry.config.get(key, "") if entry is not None else "")
    return normal(key, value.value)
