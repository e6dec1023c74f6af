"""The typed values of a topic by path: what is declared or mirrored, or was applied and is not declared now.

Only these are compared. What a topology does not say of a topic is left to the cluster.
"""

from typing import assert_never

from planner.diff.compare import Leaf, Secret, Tree
from planner.model.change import SENSITIVE, Path, Value
from planner.model.desired import Declared, DesiredTopic, MirroredBy
from planner.model.observed import ConfigSource, ConfigValue, ObservedTopic
from planner.model.owned import RegistryEntry
from planner.model.topology import looks_secret

PARTITIONS: Path = ("partitions",)
REPLICATION: Path = ("replication",)


def config_path(key: str) -> Path:
    return ("config", key)


def given_back(topic: DesiredTopic, entry: RegistryEntry | None) -> frozenset[str]:
    """Returns the settings that return to the cluster's own value.

    Those of a mirror come from its source. Those of a declared topic were applied and left the YAML.
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
    """Returns the limits that a failback had lifted and that this plan restores."""
    before = entry.before.keys() if entry is not None else frozenset[str]()
    return frozenset(before) - (topic.lifted.before.keys() if topic.lifted is not None else frozenset())


def explicit(live: ObservedTopic, key: str) -> ConfigValue | None:
    """Returns the value that is set on the topic itself; None where it inherits the cluster's."""
    value = live.config.get(key)
    return value if value is not None and value.source is ConfigSource.TOPIC else None


def is_sensitive(live: ObservedTopic, key: str) -> bool:
    """Returns whether the broker keeps the value of this setting to itself."""
    known = live.config.get(key)
    return known is not None and known.sensitive


def recorded_config(entry: RegistryEntry, live: ObservedTopic | None) -> dict[str, Value]:
    """Returns the settings that were applied, by name and without secrets.

    Of a topic that is gone no broker tells what is sensitive: then the name of the setting decides.
    """
    return {
        key: SENSITIVE if (looks_secret(key) if live is None else is_sensitive(live, key)) else value
        for key, value in sorted(entry.config.items())
    }


def topic_trees(topic: DesiredTopic, live: ObservedTopic, entry: RegistryEntry | None) -> tuple[Tree, Tree]:
    """Returns the live and the desired values: partitions, replication, then the settings by name."""
    old: dict[Path, Leaf] = {}
    new: dict[Path, Leaf] = {}
    if topic.partitions is not None:
        old[PARTITIONS], new[PARTITIONS] = live.partitions, _partitions(topic, topic.partitions, live)
    if topic.replication is not None:
        old[REPLICATION], new[REPLICATION] = live.replication_factors, topic.replication
    wanted: dict[str, str | None] = {**topic.restored, **topic.config}
    wanted |= dict.fromkeys(given_back(topic, entry))
    for key in sorted(wanted):
        path = config_path(key)
        old[path], new[path] = _setting(key, wanted[key], live, entry)
    return old, new


def _partitions(topic: DesiredTopic, partitions: int, live: ObservedTopic) -> int:
    """A mirror may have more partitions than its source. What is declared is meant exactly."""
    match topic.origin:
        case MirroredBy():
            return max(partitions, live.partitions)
        case Declared():
            return partitions
        case _:
            assert_never(topic.origin)


def _setting(
    key: str, wanted: str | None, live: ObservedTopic, entry: RegistryEntry | None
) -> tuple[Leaf, Leaf]:
    """Returns the live and the desired value. A setting that the broker calls sensitive is a secret."""
    value = explicit(live, key)
    if not is_sensitive(live, key):
        return None if value is None else value.value, wanted
    new = None if wanted is None else Secret(wanted)
    if value is None:
        return None, new
    # The broker does not tell it: the value that was applied last is the best that is known.
    applied = entry.config.get(key, "") if entry is not None else ""
    return Secret(applied if value.value is None else value.value), new
