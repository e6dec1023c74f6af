"""Compares the objects of one kind: their fields, the text of a change, and their drift."""

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import ClassVar

from msgspec import Struct

from planner.model.address import Address
from planner.model.change import Action, Change, FieldChange
from planner.model.desired import Desired, DesiredFlow
from planner.model.observed import Observed, ObservedCluster, RegistryEntry, Unreachable
from planner.model.topology import OnRemove

OUTSIDE = "changed outside the topology"
DELETED = "deleted outside the topology"
NOT_DECLARED = "no longer declared"
ADOPTED = "exists, will be managed"
AS_APPLIED = "as applied"
GONE = "already gone from the cluster"
NEVER_MADE = "never made: an apply was cut short"
WAS_THERE = "leaves the topology; it was there before and stays"
NOT_FENCED = "its wave is not fenced any more"
REMEMBERED = "only what is remembered of it changes"
CUT_SHORT = f"made by an apply that was cut short; {REMEMBERED}"
CUT_SHORT_FIELDS = (
    FieldChange(("recorded", "spec"), "announced", "as it is", note="remembered at the cluster"),
)

Applied = tuple[RegistryEntry, ObservedCluster]  # what was applied, and the cluster as it is now


class Leaving(Struct, frozen=True):
    """What decides over the objects that leave the topology."""

    observed: Observed
    flows: Mapping[str, DesiredFlow]
    entries: Mapping[Address, RegistryEntry]
    on_remove: Mapping[Address, OnRemove]

    def flow_of(self, entry: RegistryEntry) -> DesiredFlow | None:
        """Returns the flow that made the object; None where none did, or it left the topology too."""
        return self.flows.get(entry.flow or "")

    def stays_unknown(self, entry: RegistryEntry) -> bool:
        """Returns whether the source of the object's flow does not answer."""
        flow = self.flow_of(entry)
        return flow is not None and not flow.selection_known

    def unknown(self, entry: RegistryEntry) -> Change | None:
        """Returns the change while the source does not answer; None for a flow that has ended."""
        flow = self.flow_of(entry)
        if flow is None or not flow.flow.runs:
            return None
        return unreachable(entry.address, flow.flow.source_cluster, self.observed)


class ComparedKind(ABC):
    """What is particular to one kind of object.

    `parts` are the keys of ObservedCluster.unreadable without which no object of the kind is known.
    """

    parts: ClassVar[tuple[str, ...]] = ()

    @abstractmethod
    def changes(self, desired: Desired, observed: Observed) -> list[Change]:
        """Returns one change for each desired object."""

    def removed(self, entry: RegistryEntry, cluster: ObservedCluster, leaving: Leaving) -> Change | None:
        """Returns the change of an object that the topology owns and no longer desires."""
        return None

    def drifted(self, applied: Sequence[Applied], desired: Desired, observed: Observed) -> list[Change]:
        """Returns one change for each object: `old` is what was applied, `new` is what is there."""
        changes = (
            unreadable(entry.address, cluster, *self.parts) or self.drift(entry, cluster)
            for entry, cluster in applied
        )
        return [change for change in changes if change is not None]

    def drift(self, entry: RegistryEntry, cluster: ObservedCluster) -> Change | None:
        """Returns the change of one object, whose cluster could be read."""
        return None


def unknown(address: Address, why: str, cluster: str | None = None) -> Change:
    """Returns the change of an object that could not be read, or whose `cluster` could not."""
    return Change(address, Action.UNKNOWN, f"(unknown: {why})", unknown=why, silent=cluster)


def unreachable(address: Address, cluster: str, observed: Observed) -> Change:
    """Returns the change of an object that is unknown because this cluster could not be read."""
    read = observed.clusters.get(cluster)
    why = read.summary if isinstance(read, Unreachable) else f"{cluster} unreachable"
    return unknown(address, why, cluster)


def unreadable(address: Address, cluster: ObservedCluster, *parts: str) -> Change | None:
    """Returns the change of an object that could not be read; None where all of these parts could."""
    why = next((cluster.unreadable[part] for part in parts if part in cluster.unreadable), None)
    return unknown(address, why) if why is not None else None


def not_planned(address: Address, observed: Observed, topology: str, *parts: str) -> Change | None:
    """Returns the change of an object that can't be read, or that another topology owns.

    `parts` are those of its cluster that it is one of.
    """
    if isinstance(observed.clusters.get(address.cluster or ""), Unreachable):
        return unreachable(address, address.cluster or "", observed)
    entry = observed.owned.get(address)
    if entry is not None and entry.topology != topology:
        return Change(address, Action.NO_OP, f"owned by topology {entry.topology!r}")
    cluster = observed.reachable(address.cluster or "")
    return None if cluster is None else unreadable(address, cluster, *parts)


def reason_to_create(reason: str, entry: RegistryEntry | None) -> str:
    """Returns why an object is created. One that was made before was deleted by someone else."""
    made = entry is not None and not entry.is_announced
    return f"{reason}; it was {DELETED}" if made else reason


def not_deleted(entry: RegistryEntry, *, exists: bool) -> Change | None:
    """Returns the change of a rule or a quota that leaves the topology and is forgotten; else None."""
    if not exists:
        return Change(entry.address, Action.FORGET, NEVER_MADE if entry.is_announced else GONE)
    return None if entry.created else Change(entry.address, Action.FORGET, WAS_THERE)


def reason_to_delete(entry: RegistryEntry) -> str:
    """Returns why a rule or a quota that leaves the topology is deleted."""
    if entry.is_fence:
        return NOT_FENCED
    if entry.is_protection:
        return "what it protected is no mirror any more, or was promoted"
    return "leaves the topology" if entry.flow is None else f"no longer mirrored by flow.{entry.flow}"
