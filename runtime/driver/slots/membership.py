"""Who copies what: assignments by slot, changed in two steps so that no partition ever has two writers. Pure.

A partition that moves is first taken out of its slot's assignment; only when that slot has said that the
assignment without it is in force, or when its ids were fenced, it goes into another's (R3). All other
partitions and slots are left alone.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field

from msgspec.structs import replace

from runtime.contract.records.ledger import PartitionKey
from runtime.contract.spec.assignment import AssignedFlow, AssignedPartition, Assignment
from runtime.driver.slots.balance import LEAST, balance


@dataclass(slots=True)
class _Place:
    """`releasing`: taken out, with the version of the assignment that no longer has it."""

    published: Assignment
    releasing: dict[PartitionKey, int] = field(default_factory=dict)


class Membership:
    def __init__(self, slots: Sequence[int]) -> None:
        self._places = {slot: _Place(Assignment(0)) for slot in slots}
        self._usable = list(slots)
        self._flows: dict[str, AssignedFlow] = {}
        self._rates: dict[str, int | None] = {}
        self._partitions: dict[PartitionKey, AssignedPartition] = {}
        self._weights: dict[PartitionKey, float] = {}
        self._homes: dict[PartitionKey, int] = {}
        self._held: dict[PartitionKey, int] = {}
        self._version = 0

    def want(
        self,
        flows: Mapping[str, AssignedFlow],
        rates: Mapping[str, int | None],
        partitions: Mapping[PartitionKey, AssignedPartition],
    ) -> None:
        """All that is to be copied from now on. `rates` are whole flows' limits in bytes a second."""
        self._flows = dict(flows)
        self._rates = dict(rates)
        self._partitions = dict(partitions)
        self._settle_homes(move=False)

    def measured(self, weights: Mapping[PartitionKey, float]) -> None:
        self._weights.update(weights)

    def level(self) -> None:
        """Moves partitions where the loads are far apart."""
        self._settle_homes(move=True)

    def use(self, slots: Sequence[int]) -> bool:
        """The slots that can run; homes elsewhere are given up, unless none can. True: a change."""
        usable = list(slots) or list(self._places)
        if usable == self._usable:
            return False
        more = set(usable) - set(self._usable)
        self._usable = usable
        self._settle_homes(move=bool(more))
        return True

    def next(self, slot: int) -> Assignment | None:
        """The slot's new assignment, if it is another than before."""
        place = self._places[slot]
        wanted = self._wanted(slot)
        flows = self._flows_of(slot, wanted)
        if wanted == place.published.partitions and flows == place.published.flows:
            return None
        self._version += 1
        kept = {one.key for one in wanted}
        for one in place.published.partitions:
            if one.key not in kept:
                place.releasing[one.key] = self._version
        for key in kept:
            self._held[key] = slot
        place.published = Assignment(self._version, flows, wanted)
        return place.published

    def published(self, slot: int) -> Assignment:
        return self._places[slot].published

    def confirmed(self, slot: int, version: int) -> bool:
        """The slot works by this version: what it let go of is free. Whether anything became free."""
        place = self._places[slot]
        free = [key for key, taken_out in place.releasing.items() if taken_out <= version]
        self._free(place, free)
        return bool(free)

    def releasing(self, slot: int) -> set[str]:
        """The flows of which the slot has not let go everything yet: fence its ids, then say `fenced`."""
        return {key.flow for key in self._places[slot].releasing}

    def fenced(self, slot: int, flows: set[str]) -> None:
        """The slot's ids of these flows are fenced, and nobody runs it: it writes none of them any more."""
        place = self._places[slot]
        self._free(place, [key for key in place.releasing if key.flow in flows])

    def holds(self, flow: str, topics: Collection[str] | None = None) -> bool:
        """Whether any slot may still write for the flow, or for these topics of it."""
        return any(key.flow == flow and (topics is None or key.topic in topics) for key in self._held)

    def partitions_of(self, slot: int) -> int:
        return len(self._places[slot].published.partitions)

    def busy(self, slot: int) -> bool:
        """Whether there is anything to run the slot for."""
        place = self._places[slot]
        return bool(place.published.partitions or place.releasing)

    def _free(self, place: _Place, keys: Sequence[PartitionKey]) -> None:
        for key in keys:
            del place.releasing[key]
            self._held.pop(key, None)

    def _settle_homes(self, move: bool) -> None:
        known = [self._weights[key] for key in self._partitions if key in self._weights]
        usual = sum(known) / len(known) if known else LEAST
        weights = {key: self._weights.get(key, usual) for key in self._partitions}
        self._homes = balance(weights, self._usable, self._homes, move=move)

    def _wanted(self, slot: int) -> list[AssignedPartition]:
        found = []
        for key, one in self._partitions.items():
            mine = self._homes.get(key) == slot and self._held.get(key, slot) == slot
            if mine and key.flow in self._flows and key not in self._places[slot].releasing:
                found.append(one)
        return found

    def _flows_of(self, slot: int, partitions: Sequence[AssignedPartition]) -> dict[str, AssignedFlow]:
        """Each with this slot's share of the flow's rate."""
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
