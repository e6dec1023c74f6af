"""A kind of object, such as topic or quota: which steps follow from a change, and the facts of an object.

What a plan read of an object, what its steps leave of it, and what is read again later are the same facts,
which one function compares. A fact whose value is None is false or not set.
"""

from abc import ABC, abstractmethod
from collections.abc import Collection, Iterator, Sequence
from typing import Any

from planner.diff.compare import same
from planner.diff.fields import NOT_SET, displayed
from planner.diff.values import readable
from planner.model.change import Change, Facts, Path
from planner.model.observed import ObservedCluster, RegistryEntry
from planner.model.step import Step

OWNER = ("owner",)
EXISTS = ("exists",)
RUNS = ("runs",)
UNREAD = object()  # a fact that the cluster does not return: it equals every value
# Facts whose values are not shown: what happened where they differ.
_EVENTS = {
    "id": "was deleted and created again",
    "replicas": "its replicas moved",
    "driver": "was started again",
    "spec": "was reconfigured",
    "origin": "was applied differently",
    "recorded": "was applied differently",
    "versions": "got or lost versions",
    "version": "one of its versions was deleted",
}


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
    def facts(
        self,
        name: str,
        cluster: ObservedCluster,
        entry: RegistryEntry | None,
        keys: Collection[str],
        steps: Sequence[Step],
    ) -> Facts:
        """Returns what is known of an object, in the order in which differences are reported.

        Of its settings only `keys`: a setting that the plan never read may change. With `steps`, which a plan
        has about the object, only what these depend on.
        """


def owner(entry: RegistryEntry | None) -> Facts:
    """Returns the topology that owns an object."""
    return {OWNER: None if entry is None else entry.topology}


def recorded(entry: RegistryEntry | None) -> Facts:
    """Returns all that the registry remembers of an object."""
    if entry is None:
        return owner(entry)
    return {
        **owner(entry),
        ("managed", entry.topology): True,
        **removal(entry),
        ("origin",): entry.origin,
        **{("recorded", key): value for key, value in entry.spec.items()},
    }


def removal(entry: RegistryEntry | None) -> Facts:
    """Returns what the registry says about removing an object: `keep`, `delete` or `protected`."""
    if entry is None:
        return {}
    return {("on_remove",): "protected" if entry.protect else entry.on_remove.value}


def differences(then: Facts, now: Facts, *, left: bool = False) -> Iterator[str]:
    """Yields each fact that is another one now, as a clause about the object.

    `then` is what a plan read, or what a step `left`.
    """
    for path, value in then.items():
        present = now.get(path)
        if UNREAD not in (value, present) and not same(path, value, present):
            yield _clause(path, value, present, left)


def _clause(path: Path, then: object, now: object, left: bool) -> str:
    since = "since" if left else "since the plan was made"
    match path:
        case ("exists",):
            return f"{('was created again' if left else 'was created') if now else 'was deleted'} {since}"
        case ("runs",) if now:
            return "runs again" if left else "runs now, and did not run when the plan was made"
        case ("runs",):
            return "does not run any more"
        case ("managed", _):
            return "is managed again"
        case ("owner",) if left:
            return "is not managed any more" if now is None else f"owned by {_topology(now)} now"
        case ("owner",):
            return f"owned by {_topology(now)} now, by {_topology(then)} when the plan was made"
        case ("partitions",):
            before = f"the plan has {then}" if left else f"{then} when the plan was made"
            return f"has {now} partitions now, {before}"
    if path[0] in _EVENTS:
        return f"{_EVENTS[path[0]]} {since}"
    was, is_now = _shown(path, then), _shown(path, now)
    return f"{path[-1]} is {is_now} now, " + (
        f"the plan has {was}" if left else f"{was} when the plan was made"
    )


def _topology(name: object) -> str:
    return "no topology" if name is None else f"topology {name!r}"


def _shown(path: Path, value: object) -> object:
    if path[0] == "config" and isinstance(value, str):
        return readable(path[-1], value)
    shown = displayed(path, value)
    return NOT_SET if shown is None else shown
