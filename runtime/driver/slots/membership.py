"""This module assigns partitions to slots in two steps, so that no partition ever has two writers.

It is pure.

A partition that moves is first removed from its slot's assignment. Only when that slot has acknowledged the
assignment without it, or when its ids were fenced, it goes into another slot's assignment (R3). All other
partitions and slots stay unchanged.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field

from msgspec.structs import replace

from runtime.contract.records.ledger import PartitionKey
from runtime.contract.spec.assignment import AssignedFlow, AssignedPartition, Assignment
from runtime.driver.slots.balance import MIN_WEIGHT, balance


@dataclass(slots=True)
class _SlotEntry:
    """This entry holds the published assignment of one slot.

    `releasing` maps each removed partition to the version of the assignment that no longer has it.
    """

    published: Assignment
    releasing: dict[PartitionKey, int] = field(default_factory=dict)


class Membership:
    """A Membership owns the assignment of each slot and the record of which slot may still write each
    partition.
    """

    def __init__(self, slots: Sequence[int]) -> None:
        self._slots = {slot: _SlotEntry(Assignment(0)) for slot in slots}
        self._usable = list(slots)
        self._flows: dict[str, AssignedFlow] = {}
        self._rates: dict[str, int | None] = {}
        self._partitions: dict[PartitionKey, AssignedPartition] = {}
        self._weights: dict[PartitionKey, float] = {}
        self._homes: dict[PartitionKey, int] = {}
        self._held: dict[PartitionKey, int] = {}
        self._version = 0

    def set_wanted(
        self,
        flows: Mapping[str, AssignedFlow],
        rates: Mapping[str, int | None],
        partitions: Mapping[PartitionKey, AssignedPartition],
    ) -> None:
        """Sets the flows and partitions to copy from now on.

        `rates` are the limits of whole flows in bytes a second.
        """
        self._flows = dict(flows)
        self._rates = dict(rates)
        self._partitions = dict(partitions)
        self._assign_homes(move=False)

    def update_weights(self, weights: Mapping[PartitionKey, float]) -> None:
        """Updates the measured weights of partitions, in bytes a second."""
        self._weights.update(weights)

    def rebalance(self) -> None:
        """Moves partitions where the loads are far apart."""
        self._assign_homes(move=True)

    def set_usable(self, slots: Sequence[int]) -> bool:
        """Sets the slots that can run and returns whether they changed.

        Partitions of other slots move to them. If no slot can run, all slots stay in use.
        """
        usable = list(slots) or list(self._slots)
        if usable == self._usable:
            return False
        more = set(usable) - set(self._usable)
        self._usable = usable
        self._assign_homes(move=bool(more))
        return True

    def publish(self, slot: int) -> Assignment | None:
        """Publishes and returns the slot's new assignment, or None if it did not change."""
        entry = self._slots[slot]
        wanted = self._wanted(slot)
        flows = self._flows_of(slot, wanted)
        if wanted == entry.published.partitions and flows == entry.published.flows:
            return None
        self._version += 1
        kept = {one.key for one in wanted}
        for one in entry.published.partitions:
            if one.key not in kept:
                entry.releasing[one.key] = self._version
        for key in kept:
            self._held[key] = slot
        entry.published = Assignment(self._version, flows, wanted)
        return entry.published

    def published(self, slot: int) -> Assignment:
        """Returns the slot's published assignment."""
        return self._slots[slot].published

    def acknowledge(self, slot: int, version: int) -> bool:
        """Frees what the slot released by this version, which is in force there.

        Returns whether any partition became free.
        """
        entry = self._slots[slot]
        free = [key for key, taken_out in entry.releasing.items() if taken_out <= version]
        self._free(entry, free)
        return bool(free)

    def releasing(self, slot: int) -> set[str]:
        """Returns the flows of which the slot has not released everything; once its ids are fenced,
        `fenced` must be called.
        """
        return {key.flow for key in self._slots[slot].releasing}

    def release_fenced(self, slot: int, flows: set[str]) -> None:
        """Frees what the slot did not release of these flows: it does not run, and its ids for them are
        fenced.
        """
        entry = self._slots[slot]
        self._free(entry, [key for key in entry.releasing if key.flow in flows])

    def holds(self, flow: str, topics: Collection[str] | None = None) -> bool:
        """Returns whether any slot may still write for the flow, or for these topics of it."""
        return any(key.flow == flow and (topics is None or key.topic in topics) for key in self._held)

    def partitions_of(self, slot: int) -> int:
        """Returns how many partitions the slot's published assignment has."""
        return len(self._slots[slot].published.partitions)

    def busy(self, slot: int) -> bool:
        """Returns whether the slot has a partition to copy or to release."""
        entry = self._slots[slot]
        return bool(entry.published.partitions or entry.releasing)

    def _free(self, entry: _SlotEntry, keys: Sequence[PartitionKey]) -> None:
        for key in keys:
            del entry.releasing[key]
            self._held.pop(key, None)

    def _assign_homes(self, move: bool) -> None:
        """Balances the partitions over the usable slots.

        A partition without a measurement gets the mean weight.
        """
        known = [self._weights[key] for key in self._partitions if key in self._weights]
        usual = sum(known) / len(known) if known else MIN_WEIGHT
        weights = {key: self._weights.get(key, usual) for key in self._partitions}
        self._homes = balance(weights, self._usable, self._homes, move=move)

    def _wanted(self, slot: int) -> list[AssignedPartition]:
        """Returns the partitions that the slot must copy: those with their home there that no other slot
        may still write (R3).
        """
        found = []
        for key, one in self._partitions.items():
            mine = self._homes.get(key) == slot and self._held.get(key, slot) == slot
            if mine and key.flow in self._flows and key not in self._slots[slot].releasing:
                found.append(one)
        return found

    def _flows_of(self, slot: int, partitions: Sequence[AssignedPartition]) -> dict[str, AssignedFlow]:
        """Returns the flows of these partitions, each with this slot's share of the flow's rate limit."""
        names = {one.flow for one in partitions}
        found = {}
        for name in sorted(names):
            flow = self._flows[name]
            rate = self._rates.get(name)
            if rate is not None:
                slots = {self._homes[key] for key in self._partitions if key.flow == name}
                rate = max(rate // max(len(slots), 1), 1)
            found[name] = replace(flow, rate_limit=rate)
        return found
