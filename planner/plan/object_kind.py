"""A kind of object, such as topic or quota: which steps follow from a change, and what makes a plan stale."""

from abc import ABC, abstractmethod
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Any

from planner.model.address import Address
from planner.model.change import Change
from planner.model.observed import ObservedCluster, RegistryEntry
from planner.model.step import Step


@dataclass(frozen=True, slots=True)
class SeenObject:
    """An object in what was read of its cluster, with its registry entry there."""

    address: Address
    cluster: ObservedCluster
    entry: RegistryEntry | None
    acls: frozenset[str]  # the names of the cluster's rules, for one of them

    @property
    def owner(self) -> str | None:
        """Returns the topology that owns the object."""
        return None if self.entry is None else self.entry.topology


class ObjectKind(ABC):
    """What is particular to one kind of object. A kind overrides these defaults."""

    def steps(
        self,
        change: Change,
        desired: Any,
        cluster: ObservedCluster,
        entry: RegistryEntry | None,
        topology: str,
    ) -> list[Step]:
        """Returns the steps of a desired object's change, in the order of their needs."""
        return []

    def removal(self, change: Change, entry: RegistryEntry, cluster: ObservedCluster) -> list[Step]:
        """Returns the steps about an object that leaves the topology, without that of its registry entry."""
        return []

    def keys(self, change: Change) -> frozenset[str]:
        """Returns the settings by which the object was compared."""
        return frozenset()

    @abstractmethod
    def difference(
        self, then: SeenObject, now: SeenObject, keys: Collection[str], steps: Sequence[Step]
    ) -> str:
        """Returns why the plan's steps about the object are stale, as one clause; "" if they are not.

        Only `keys` of its settings are compared: a setting that the plan never read may change.
        """


def other_owner(then: SeenObject, now: SeenObject) -> str:
    """Returns that the owner is another one; "" if it is not."""
    if then.owner == now.owner:
        return ""
    return f"owned by {_topology(now)} now, by {_topology(then)} when the plan was made"


def _topology(seen: SeenObject) -> str:
    return "no topology" if seen.owner is None else f"topology {seen.owner!r}"


def appeared(then: object, now: object) -> str:
    """Returns that the object was created or deleted; "" if neither is so."""
    if bool(then) == bool(now):
        return ""
    return "was created since the plan was made" if now else "was deleted since the plan was made"


def applied_differently(then: SeenObject, now: SeenObject) -> str:
    """Returns that the registry remembers something else; "" if it does not."""
    if then.entry is None or (now.entry is not None and then.entry.spec == now.entry.spec):
        return ""
    return "was applied differently since the plan was made"


def other_value(key: str, then: object, now: object) -> str:
    """Returns that a setting has another value, each as it is shown."""
    return f"{key} is {now} now, {then} when the plan was made"
