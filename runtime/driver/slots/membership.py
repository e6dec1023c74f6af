"""Assigns partitions to slots in two steps, so that no partition ever has two writers. It is pure.

A flow with a transform has slots of its own (`SlotLayout`). A partition that moves is first removed from its
slot's assignment. Only when that slot has acknowledged the assignment without it, or when its ids were
fenced, it goes into another slot's assignment (R3). All other partitions and slots stay unchanged. Partitions
are balanced by measured bytes.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Collection, Hashable, Iterable, Iterator, Mapping, Sequence
from functools import cache
from operator import attrgetter
from typing import Generic, NamedTuple, TypeVar

from msgspec import Struct, field
from msgspec.structs import replace

from runtime.contract.records.control import AssignedFlow, AssignedPartition, Assignment
from runtime.contract.records.job_status import PartitionStatus
from runtime.contract.records.ledger import PartitionKey
from runtime.contract.spec.jobspec import FlowSpec
from runtime.contract.spec.transform import TransformSpec

WITHOUT = ""  # stands for all flows without a transform


class SlotLayout(Struct, frozen=True):
    """A SlotLayout names, for each slot in order, the flow with a transform that it copies, or WITHOUT.

    It is fixed for the life of a job, because a slot evaluates one query for as long as it runs.
    """

    by_slot: tuple[str, ...]
    transforms: dict[str, TransformSpec]

    def transform(self, slot: int) -> TransformSpec | None:
        """Returns the transform that the slot evaluates."""
        return self.transforms.get(self.by_slot[slot])

    def slots_of(self, flow: str) -> list[int]:
        """Returns the slots that may copy the flow."""
        owner = flow if flow in self.transforms else WITHOUT
        return [slot for slot, name in enumerate(self.by_slot) if name == owner]


NO_SLOTS = SlotLayout((), {})  # of a job into files: its flows submit their tasks round by round


def slot_layout(flows: Sequence[FlowSpec], slots: int) -> SlotLayout:
    """Divides at least `slots` slots among the groups of flows: one for each group, and the others in turn.

    Where there are fewer slots than groups, there are as many as groups: those that get no core are shown as
    unscheduled.
    """
    transforms = {flow.name: flow.transform for flow in flows if flow.transform is not None}
    groups = [WITHOUT] if len(transforms) < len(flows) or not flows else []
    groups += sorted(transforms)
    total = max(slots, len(groups))
    return SlotLayout(tuple(sorted(groups[slot % len(groups)] for slot in range(total))), transforms)


K = TypeVar("K")

LIGHT = 0.1  # fraction of the mean load: a flow that weighs no more is placed in one slot
TOLERANCE = 0.3  # fraction of the mean load: a smaller gap does not justify an interruption
MIN_GAP = 100_000.0  # bytes a second: every slot copies much more, so a smaller gap is no reason either
MIN_WEIGHT = 1_000.0  # minimum weight of a partition, in bytes a second
MEASURED_MS = 20_000  # a shorter measurement tells nothing of a partition


def balance(
    weights: Mapping[K, float],
    slots: Sequence[int],
    homes: Mapping[K, int],
    *,
    flow_of: Callable[[K], Hashable] = lambda key: key,
    move: bool = True,
    min_gap: float = 0.0,
) -> dict[K, int]:
    """Returns a slot for every partition.

    A partition whose slot in `homes` is among `slots` keeps it, unless the loads are far apart and `move`
    allows levelling. `weights` and `min_gap` are bytes a second: a smaller gap between two slots stays.

    The partitions of a flow that weighs little are placed in one slot, because a slot has lanes and fetch
    sessions of its own for each of its flows. Levelling moves them together.
    """
    if not slots:
        return {}
    load = dict.fromkeys(slots, 0.0)
    placed: dict[K, int] = {}
    flows: defaultdict[Hashable, _FlowPlaces[K]] = defaultdict(_FlowPlaces)
    for key, weight in weights.items():
        flow = flows[flow_of(key)]
        flow.weight += max(weight, MIN_WEIGHT)
        home = homes.get(key)
        if home in load:
            placed[key] = home
            load[home] += max(weight, MIN_WEIGHT)
            flow.slots.add(home)
        else:
            flow.unplaced.append(key)
    light = LIGHT * sum(flow.weight for flow in flows.values()) / len(slots)
    for unit in _units(flows.values(), weights, light):
        highest = min(load.values()) + light - unit.weight
        preferred = [slot for slot in unit.preferred if load[slot] <= highest]
        slot = min(preferred or slots, key=lambda candidate: (load[candidate], candidate))
        placed.update(dict.fromkeys(unit.keys, slot))
        load[slot] += unit.weight
    if move:
        units: dict[int, list[_Unit[K]]] = {slot: [] for slot in slots}
        together: dict[tuple[int, Hashable], _Unit[K]] = {}  # of the flows that weigh little
        for key, slot in placed.items():
            weight, flow_key = max(weights[key], MIN_WEIGHT), flow_of(key)
            if flows[flow_key].weight > light:
                units[slot].append(_Unit([key], weight, ()))
                continue
            unit = together.get((slot, flow_key), _Unit([], 0.0, ()))
            unit.keys.append(key)
            together[slot, flow_key] = unit._replace(weight=unit.weight + weight)
        for (slot, _), unit in together.items():
            units[slot].append(unit)
        for moved, slot in _level(units, load, min_gap):
            placed.update(dict.fromkeys(moved, slot))
    return placed


class _FlowPlaces(Struct, Generic[K]):
    """The weight of a flow, the slots that have partitions of it, and its partitions without a slot."""

    weight: float = 0.0
    slots: set[int] = field(default_factory=set)
    unplaced: list[K] = field(default_factory=list)


class _Unit(NamedTuple, Generic[K]):
    """Partitions of one flow that are placed together, in a slot of `preferred` if the loads allow it."""

    keys: list[K]
    weight: float
    preferred: Collection[int]


def _units(flows: Iterable[_FlowPlaces[K]], weights: Mapping[K, float], light: float) -> list[_Unit[K]]:
    """Returns the units to place, the heaviest first.

    A flow that weighs at most `light` is one unit. Of a heavier flow, each partition is one.
    """
    units: list[_Unit[K]] = []
    for flow in flows:
        each = [_Unit([key], max(weights[key], MIN_WEIGHT), ()) for key in flow.unplaced]
        if flow.weight > light:
            units += each
        elif each:
            units.append(_Unit(flow.unplaced, sum(unit.weight for unit in each), flow.slots))
    return sorted(units, key=lambda unit: -unit.weight)


def _level(
    units: Mapping[int, list[_Unit[K]]], load: dict[int, float], min_gap: float
) -> Iterator[tuple[list[K], int]]:
    """Yields partitions that move from the most to the least loaded slot, each time with their new slot.

    It stops when their loads differ by no more than the tolerance. A slot whose load lies in units that no
    move would spread better keeps them all, and the others are levelled without it.
    """
    allowed = max(TOLERANCE * sum(load.values()) / len(load), min_gap)
    for some in units.values():
        some.sort(key=lambda unit: -unit.weight)
    open_slots = set(load)
    while open_slots:
        fullest = max(sorted(open_slots), key=lambda slot: load[slot])
        emptiest = min(sorted(open_slots), key=lambda slot: load[slot])
        gap = load[fullest] - load[emptiest]
        if gap <= allowed:
            return
        moving = _worth_moving(units[fullest], gap, allowed)
        if moving is None:
            open_slots.remove(fullest)
            continue
        units[fullest].remove(moving)
        units[emptiest].append(moving)
        units[emptiest].sort(key=lambda unit: -unit.weight)
        load[fullest] -= moving.weight
        load[emptiest] += moving.weight
        yield moving.keys, emptiest


def _worth_moving(units: Sequence[_Unit[K]], gap: float, allowed: float) -> _Unit[K] | None:
    """Returns the heaviest unit that weighs less than 90 % of the gap, or None.

    So each move narrows the gap, and the loop ends. None also where all such units together weigh less than
    `allowed`: many quiet partitions beside a busy one are not moved for nothing.
    """
    movable = [unit for unit in units if unit.weight < gap * 0.9]
    if sum(unit.weight for unit in movable) < allowed:
        return None
    return movable[0] if movable else None


class _Measurement:
    """Measures the rate of one partition, in bytes a second of the slot's clock; -1 before it is known."""

    def __init__(self, at_ms: int, total: int) -> None:
        self.rate = -1.0
        self._since_ms = at_ms
        self._total, self._copied = total, 0

    def add(self, at_ms: int, total: int) -> None:
        """Adds a report: `total` bytes until `at_ms`. Each long enough measurement counts half.

        A flow that starts over counts from zero.
        """
        self._copied += total - self._total if total >= self._total else total
        self._total = total
        took_ms = at_ms - self._since_ms
        if took_ms >= MEASURED_MS:
            rate = self._copied * 1000 / took_ms
            self.rate = (self.rate + rate) / 2 if self.rate >= 0 else rate
            self._since_ms, self._copied = at_ms, 0


class PartitionRates:
    """Holds the rate of each partition of a slot, in bytes a second.

    A rate is measured over many reports, because records come in bursts: no burst moves a partition. `known`
    has the rates of the last update, -1 for partitions that were not measured for long enough.
    """

    def __init__(self) -> None:
        self.known: Mapping[PartitionKey, int] = {}
        self._measured: dict[PartitionKey, _Measurement] = {}
        self._updated_ms = 0

    def update_if_due(self, at_ms: int, partitions: Sequence[PartitionStatus]) -> None:
        """Updates the rates for a report where partitions came or left, or a measurement may be complete."""
        if len(partitions) != len(self._measured) or at_ms - self._updated_ms >= MEASURED_MS:
            self.update(at_ms, partitions)

    def update(self, at_ms: int, partitions: Sequence[PartitionStatus]) -> None:
        """Takes a report of all partitions of the slot that measures."""
        measured = {}
        for partition in partitions:
            key = partition.key
            if (measurement := self._measured.get(key)) is None:
                measurement = _Measurement(at_ms, partition.bytes)
            else:
                measurement.add(at_ms, partition.bytes)
            measured[key] = measurement
        self._measured, self._updated_ms = measured, at_ms
        self.known = {key: round(measurement.rate) for key, measurement in measured.items()}


class _SlotEntry(Struct):
    """This entry holds the published assignment of one slot.

    `releasing` maps each removed partition to the version of the assignment that no longer has it.
    """

    published: Assignment
    releasing: dict[PartitionKey, int] = field(default_factory=dict)


class Membership:
    """Owns the assignment of each slot.

    It also records which slot may still write each partition.

    `slots_of` returns the slots that may copy a flow; without it, every slot may. `weights` are bytes a
    second of partitions, as they were measured before.
    """

    def __init__(
        self,
        slots: Sequence[int],
        slots_of: Callable[[str], Sequence[int]] | None = None,
        weights: Mapping[PartitionKey, float] | None = None,
    ) -> None:
        self._slots = {slot: _SlotEntry(Assignment(0)) for slot in slots}
        self._usable = list(slots)
        self._slots_of = slots_of or (lambda _: slots)
        self._flows: dict[str, AssignedFlow] = {}
        self._partitions: dict[PartitionKey, AssignedPartition] = {}
        self._weights: dict[PartitionKey, float] = dict(weights or {})
        self._homes: dict[PartitionKey, int] = {}
        self._by_home: dict[int, list[AssignedPartition]] = {}
        self._slots_by_flow: dict[str, set[int]] = {}
        self._held: dict[PartitionKey, int] = {}
        self._version = 0

    def set_wanted(
        self, flows: Mapping[str, AssignedFlow], partitions: Mapping[PartitionKey, AssignedPartition]
    ) -> None:
        """Sets the flows and partitions to copy from now on. A flow has the rate limit of all its slots."""
        self._flows = dict(flows)
        for left in self._partitions.keys() - partitions.keys():
            self._weights.pop(left, None)
        self._partitions = dict(partitions)
        self._assign_homes(move=False)

    def update_weights(self, weights: Mapping[PartitionKey, float]) -> None:
        """Updates the measured weights of wanted partitions, in bytes a second. A late report has others."""
        self._weights.update((key, weight) for key, weight in weights.items() if key in self._partitions)

    def rebalance(self) -> bool:
        """Moves partitions where the loads are far apart, and returns whether any moved.

        It waits while partitions that are not measured yet could weigh more than the tolerance.
        """
        unmeasured = sum(key not in self._weights for key in self._partitions)
        before = self._homes
        if unmeasured * len(self._usable) <= TOLERANCE * len(self._partitions):
            self._assign_homes(move=True, min_gap=MIN_GAP)
        return self._homes != before

    def set_usable(self, slots: Sequence[int]) -> bool:
        """Sets the slots that can run and returns whether they changed.

        Partitions of other slots move to them. If no slot of a flow can run, all of them stay in use.
        """
        usable = list(slots) or list(self._slots)
        if usable == self._usable:
            return False
        more = set(usable) - set(self._usable)
        self._usable = usable
        self._assign_homes(move=bool(more))
        return True

    def usable(self, slot: int) -> bool:
        """Returns whether partitions may be assigned to the slot."""
        return slot in self._usable

    def publish(self, slot: int) -> Assignment | None:
        """Publishes and returns the slot's new assignment, or None if it did not change."""
        entry = self._slots[slot]
        wanted = self._wanted(slot)
        flows = self._flows_of(slot, wanted)
        if wanted == entry.published.partitions and flows == entry.published.flows:
            return None
        self._version += 1
        kept = {partition.key for partition in wanted}
        for partition in entry.published.partitions:
            if partition.key not in kept:
                entry.releasing[partition.key] = self._version
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
        """Returns the flows of which the slot has not released everything.

        Call `release_fenced` once the slot's ids for them are fenced.
        """
        return {key.flow for key in self._slots[slot].releasing}

    def release_fenced(self, slot: int, flows: set[str]) -> None:
        """Frees the partitions of these flows that the slot did not release.

        The slot does not run, and its ids for them are fenced.
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

    def _assign_homes(self, move: bool, min_gap: float = 0.0) -> None:
        """Balances the partitions over the usable slots of their flows.

        A partition without a measurement gets the mean weight.
        """
        measured = [self._weights[key] for key in self._partitions if key in self._weights]
        usual = sum(measured) / len(measured) if measured else MIN_WEIGHT
        by_slots: dict[tuple[int, ...], dict[PartitionKey, float]] = {}
        usable_for = cache(self._usable_for)
        for key in self._partitions:
            by_slots.setdefault(usable_for(key.flow), {})[key] = self._weights.get(key, usual)
        homes: dict[PartitionKey, int] = {}
        for slots, weights in by_slots.items():
            homes |= balance(
                weights, slots, self._homes, flow_of=attrgetter("flow"), move=move, min_gap=min_gap
            )
        self._homes = homes
        self._by_home = {slot: [] for slot in self._slots}
        self._slots_by_flow = {}
        for key, partition in self._partitions.items():
            if (slot := homes.get(key)) is not None:
                self._by_home[slot].append(partition)
                self._slots_by_flow.setdefault(key.flow, set()).add(slot)

    def _usable_for(self, flow: str) -> tuple[int, ...]:
        """Returns the usable slots of a flow."""
        allowed = self._slots_of(flow)
        return tuple(slot for slot in allowed if slot in self._usable) or tuple(allowed)

    def _wanted(self, slot: int) -> list[AssignedPartition]:
        """Returns the partitions that the slot must copy.

        They have their home at this slot, and no other slot may still write them (R3).
        """
        releasing = self._slots[slot].releasing
        return [
            partition
            for partition in self._by_home.get(slot, ())
            if self._held.get(key := partition.key, slot) == slot
            and key.flow in self._flows
            and key not in releasing
        ]

    def _flows_of(self, slot: int, partitions: Sequence[AssignedPartition]) -> dict[str, AssignedFlow]:
        """Returns the flows of these partitions, each with this slot's share of the flow's rate limit."""
        names = {partition.flow for partition in partitions}
        flows = {}
        for name in sorted(names):
            flow = self._flows[name]
            if (limit := flow.spec.rate_limit) is not None:
                share = max(limit // max(len(self._slots_by_flow[name]), 1), 1)
                flow = replace(flow, spec=replace(flow.spec, rate_limit=share))
            flows[name] = flow
        return flows
