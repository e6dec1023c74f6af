"""The limits that a failback lifts while it copies records back, and what is restored afterwards. Pure.

The topics that records come back to keep their settings: a failback mirrors none. Only a limit that would
refuse a record, or change its timestamp, is lifted. The registry remembers the value before.
"""

from collections.abc import Collection, Mapping

from planner.graph.configs import PlannedTopicSettings
from runtime.contract.spec.mirror import BOUNDS, supported

LARGEST = "max.message.bytes"


def lifted(
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


def values_before(
    now: PlannedTopicSettings, keys: Collection[str], before: Mapping[str, str]
) -> dict[str, str]:
    """Returns what to restore of each lifted limit: "" where the topic has no value of its own."""
    return {key: before.get(key, now.explicit.get(key, "")) for key in keys}


def own_again(before: Mapping[str, str]) -> dict[str, str]:
    """Returns the values that the topic had itself; the other limits go back to the cluster's own value."""
    return {key: value for key, value in before.items() if value}
