"""Which settings a mirror topic takes from its source, and which it gives back."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import assert_never

from planner.model.observed import ConfigSource, ObservedCluster, ObservedTopic
from planner.model.topology import Configs, ConfigSync, Provenance
from runtime.contract.selection import Names

# Mirrored whatever set them: with another value the records themselves would be kept otherwise.
ALWAYS = ("cleanup.policy", "compression.type", "max.message.bytes", "segment.bytes")

# Each cluster's own matter: never mirrored, and never taken back.
NEVER = frozenset(
    {
        "min.insync.replicas",
        "unclean.leader.election.enable",
        "message.timestamp.type",
        "message.timestamp.before.max.ms",
        "message.timestamp.after.max.ms",
        "message.timestamp.difference.max.ms",
        "leader.replication.throttled.replicas",
        "follower.replication.throttled.replicas",
    }
)

# A mirror keeps the timestamps that its records come with, however old or wrong they are.
FOREVER_MS = str(2**63 - 1)
BOUNDS = {
    "message.timestamp.type": "CreateTime",
    "message.timestamp.before.max.ms": FOREVER_MS,
    "message.timestamp.after.max.ms": FOREVER_MS,
}

# Each hop's provenance header: its name, two names of at most 255 bytes each, numbers, and room to spare.
HEADER_BYTES = 1024


@dataclass(frozen=True, slots=True)
class Settings:
    """A topic's settings once the plan is done: what is set on it, over what it inherits."""

    explicit: Mapping[str, str]
    inherited: Mapping[str, str] = field(default_factory=dict)
    defaults: Mapping[str, str] = field(default_factory=dict)

    def effective(self, key: str) -> str | None:
        for values in (self.explicit, self.inherited, self.defaults):
            if key in values:
                return values[key]
        return None

    def every_effective(self) -> dict[str, str]:
        return {**self.inherited, **self.explicit}


def settings_of(live: ObservedTopic | None, cluster: ObservedCluster | None) -> Settings:
    """As they are now. A topic that is not there yet will inherit all that the cluster has."""
    defaults = cluster.defaults if cluster is not None else {}
    if live is None:
        return Settings({}, defaults, defaults)
    explicit: dict[str, str] = {}
    inherited: dict[str, str] = {}
    for key, one in live.config.items():
        if one.value is not None:
            (explicit if one.source is ConfigSource.TOPIC else inherited)[key] = one.value
    return Settings(explicit, inherited, defaults)


class ConfigRule:
    """The `configs` of a flow."""

    def __init__(self, configs: Configs, provenance: Provenance) -> None:
        self.sync = configs.sync
        self._excluded = Names(configs.exclude)
        self._follows: dict[str, bool] = {}
        self._slack = HEADER_BYTES if provenance is Provenance.HEADERS else 0

    def follows(self, key: str) -> bool:
        known = self._follows.get(key)
        if known is None:
            known = self._follows[key] = key not in NEVER and not self._excluded.match(key)
        return known

    def mirrored(self, source: Settings) -> dict[str, str]:
        """What the flow sets on the mirror of a topic with these settings."""
        match self.sync:
            case ConfigSync.OFF:
                return {}
            case ConfigSync.SET:
                values = dict(source.explicit)
                for key in ALWAYS:
                    effective = source.effective(key)
                    if effective is not None:
                        values[key] = effective
            case ConfigSync.ALL:
                values = source.every_effective()
            case _:
                assert_never(self.sync)
        values = {key: value for key, value in values.items() if self.follows(key)}
        largest = values.get("max.message.bytes", "")
        if self._slack and largest.isdecimal():
            values["max.message.bytes"] = str(int(largest) + self._slack)
        return values

    def taken_back(self, explicit: Mapping[str, str], wanted: Mapping[str, str]) -> frozenset[str]:
        """What is set on the mirror and no longer at the source. A declared value is not asked about here."""
        if self.sync is ConfigSync.OFF:
            return frozenset()
        return frozenset(key for key in explicit if key not in wanted and self.follows(key))
