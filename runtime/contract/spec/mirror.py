"""What a mirror topic takes from its source and what it gives back. Plan and job follow these rules."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from runtime.contract.spec.selection import Names

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
class TopicSettings:
    """`explicit` is set on the topic itself, `inherited` is what else is in force."""

    explicit: Mapping[str, str] = field(default_factory=dict)
    inherited: Mapping[str, str] = field(default_factory=dict)

    def effective(self, key: str) -> str | None:
        return self.explicit.get(key, self.inherited.get(key))


@dataclass(frozen=True, slots=True)
class Edit:
    """What is to be set on a topic, and what is to be unset."""

    set: Mapping[str, str] = field(default_factory=dict)
    unset: frozenset[str] = frozenset()

    def __bool__(self) -> bool:
        return bool(self.set or self.unset)


class MirrorRule:
    """The `configs` of a flow. `declared` keys are the topology's own at the destination."""

    def __init__(self, sync: Literal["off", "set", "all"], exclude: list[str], headers: bool) -> None:
        self._sync = sync
        self._excluded = Names(exclude)
        self._slack = HEADER_BYTES if headers else 0
        self._follows: dict[str, bool] = {}

    def follows(self, key: str) -> bool:
        known = self._follows.get(key)
        if known is None:
            known = self._follows[key] = key not in NEVER and not self._excluded.match(key)
        return known

    def wanted(self, source: TopicSettings) -> dict[str, str]:
        """What the flow sets on the mirror of a topic with these settings."""
        match self._sync:
            case "off":
                return dict(BOUNDS)
            case "set":
                values = dict(source.explicit)
                for key in ALWAYS:
                    effective = source.effective(key)
                    if effective is not None:
                        values[key] = effective
            case "all":
                values = {**source.inherited, **source.explicit}
        values = {key: value for key, value in values.items() if self.follows(key)}
        largest = values.get("max.message.bytes", "")
        if self._slack and largest.isdecimal():
            values["max.message.bytes"] = str(int(largest) + self._slack)
        return {**values, **BOUNDS}

    def edit(self, source: TopicSettings, mirror: TopicSettings, declared: frozenset[str]) -> Edit:
        """What must change at a mirror that is there."""
        wanted = {key: value for key, value in self.wanted(source).items() if key not in declared}
        changed = {key: value for key, value in wanted.items() if mirror.explicit.get(key) != value}
        if self._sync == "off":
            return Edit(changed)
        stale = frozenset(
            key for key in mirror.explicit if key not in wanted and key not in declared and self.follows(key)
        )
        return Edit(changed, stale)
