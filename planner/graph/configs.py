"""Settings of mirror topics: mirrored from the source, given back, or lifted for a failback.

A failback mirrors no settings: the topics that it copies into keep their own. Only a limit that would refuse
a record, or change its timestamp, is lifted. The registry remembers the value before, and it is restored when
the failback has ended.
"""

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field

from planner.model.observed import ConfigSource, ObservedCluster, ObservedTopic
from planner.model.topology import Configs, ConfigSync, Provenance
from runtime.contract.spec.mirror import BOUNDS, MirrorRule, TopicSettings, supported


@dataclass(frozen=True, slots=True)
class PlannedTopicSettings:
    """A topic's settings after the plan: `explicit` ones over `inherited` ones over the
    cluster's `defaults`.
    """

    explicit: Mapping[str, str]
    inherited: Mapping[str, str] = field(default_factory=dict)
    defaults: Mapping[str, str] = field(default_factory=dict)

    def effective(self, key: str) -> str | None:
        """Returns the value that applies to the topic; None if it is unknown."""
        for values in (self.explicit, self.inherited, self.defaults):
            if key in values:
                return values[key]
        return None


def settings_of(live: ObservedTopic | None, cluster: ObservedCluster | None) -> PlannedTopicSettings:
    """Returns the settings as they are now. A topic that does not exist will inherit all of the cluster's."""
    defaults = cluster.defaults if cluster is not None else {}
    if live is None:
        return PlannedTopicSettings({}, defaults, defaults)
    explicit: dict[str, str] = {}
    inherited: dict[str, str] = {}
    for key, one in live.config.items():
        if one.value is not None:
            (explicit if one.source is ConfigSource.TOPIC else inherited)[key] = one.value
    return PlannedTopicSettings(explicit, inherited, defaults)


class ConfigRule:
    """The `configs` of a flow. The flow's job follows the same rule."""

    def __init__(self, configs: Configs, provenance: Provenance) -> None:
        self.sync = configs.sync
        self._rule = MirrorRule(
            configs.sync.value, list(configs.exclude), headers=provenance is Provenance.HEADERS
        )

    def mirrored(self, source: PlannedTopicSettings) -> dict[str, str]:
        """Returns what the flow sets on the mirror of a topic with these settings.

        The settings that every mirror has (BOUNDS) are not among them.
        """
        every = self.sync is ConfigSync.ALL
        inherited = source.inherited if every else {**source.defaults, **source.inherited}
        wanted = self._rule.wanted(TopicSettings(source.explicit, inherited))
        return {key: value for key, value in wanted.items() if key not in BOUNDS}

    def taken_back(self, explicit: Mapping[str, str], wanted: Mapping[str, str]) -> frozenset[str]:
        """Returns the settings of the mirror that its source no longer has.

        The caller handles declared settings.
        """
        if self.sync is ConfigSync.OFF:
            return frozenset()
        return frozenset(key for key in explicit if key not in wanted and self._rule.follows(key))


LARGEST = "max.message.bytes"


def limits_to_lift(
    now: PlannedTopicSettings, largest: int | None, before: Mapping[str, str], declared: Collection[str]
) -> dict[str, str]:
    """Returns the limits to lift, with their new values.

    `largest` is the largest record batch that the failback may bring. `before` are the values of limits that
    are lifted already. A declared limit stays as it is declared.
    """
    bounds = supported(BOUNDS, now.defaults)
    wanted = {key: value for key, value in bounds.items() if key in before or now.effective(key) != value}
    own = before.get(LARGEST) or (now.defaults.get(LARGEST) if LARGEST in before else now.effective(LARGEST))
    if largest is not None and own is not None and own.isdecimal() and largest > int(own):
        wanted[LARGEST] = str(largest)
    return {key: value for key, value in wanted.items() if key not in declared}


def values_to_restore(
    now: PlannedTopicSettings, keys: Collection[str], before: Mapping[str, str]
) -> dict[str, str]:
    """Returns the value to restore for each lifted limit: "" if the topic had no value of its own."""
    return {key: before.get(key, now.explicit.get(key, "")) for key in keys}


def own_values(before: Mapping[str, str]) -> dict[str, str]:
    """Returns the values that were set on the topic itself. The other limits go back to the
    cluster's value.
    """
    return {key: value for key, value in before.items() if value}
