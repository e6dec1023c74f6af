"""Assignments change in two steps, so that no partition ever has two writers (R3); loads come together."""

from collections.abc import Iterable, Mapping, Sequence
from operator import itemgetter
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule
from msgspec.structs import replace

from runtime.contract.records.control import AssignedFlow, AssignedPartition, Assignment
from runtime.contract.records.job_status import PartitionState, PartitionStatus
from runtime.contract.records.ledger import PartitionKey
from runtime.contract.spec.cluster import ClusterSpec
from runtime.contract.spec.files import FilesSpec, LinesSpec
from runtime.contract.spec.jobspec import FlowSpec, JobSpec
from runtime.contract.spec.restarts import regrouped
from runtime.contract.spec.transform import TransformSpec
from runtime.driver.slots.membership import (
    LIGHT,
    MEASURED_MS,
    MIN_WEIGHT,
    TOLERANCE,
    Membership,
    PartitionRates,
    balance,
    slot_layout,
)
from tests.runtime.slot.world import flow_spec

SLOTS = range(3)


def partitions(*numbers: int, of: str = "f", topic: str = "t") -> dict[PartitionKey, AssignedPartition]:
    made = [AssignedPartition(of, topic, number, destination_topic=topic) for number in numbers]
    return {one.key: one for one in made}


def numbers(assignment: Assignment | None) -> list[int]:
    assert assignment is not None
    return sorted(one.partition for one in assignment.partitions)


def want(membership: Membership, *some: Mapping[PartitionKey, AssignedPartition], rate: int = 0) -> None:
    wanted = {key: one for each in some for key, one in each.items()}
    flows = {key.flow: AssignedFlow(flow_spec(key.flow, rate_limit=rate or None), 1) for key in wanted}
    membership.set_wanted(flows, wanted)


def made(*wanted: int, slots: int = 2) -> Membership:
    membership = Membership(range(slots))
    want(membership, partitions(*wanted))
    return membership


def test_a_topic_or_a_flow_is_held_until_its_slot_let_it_go() -> None:
    membership, other = Membership([0]), partitions(0, topic="u")
    want(membership, partitions(0), other)
    membership.publish(0)
    for wanted, held in (([other], {"u"}), ([], set[str]())):
        want(membership, *wanted)
        without = membership.publish(0)
        assert without is not None
        assert membership.holds("f", {"t"} if held else {"u"})
        membership.acknowledge(0, without.version)
        assert {topic for topic in ("t", "u") if membership.holds("f", {topic})} == held
        assert membership.holds("f") is bool(held)
        assert bool(without.flows) is bool(held)


def test_a_partition_that_moves_has_no_slot_until_it_was_let_go() -> None:
    membership = made(0, 1)
    assert [numbers(membership.publish(slot)) for slot in (0, 1)] == [[0], [1]]
    membership.set_usable([1])
    without = membership.publish(0)
    assert without is not None
    assert numbers(without) == []
    assert membership.publish(1) is None
    assert not membership.acknowledge(0, without.version - 1)
    assert membership.publish(1) is None
    assert membership.acknowledge(0, without.version)
    assert numbers(membership.publish(1)) == [0, 1]


def test_a_new_flow_disturbs_only_the_slots_that_get_some_of_it() -> None:
    membership = made(0, 1)
    assert all(membership.publish(slot) for slot in (0, 1))
    want(membership, partitions(0, 1), partitions(0, of="g"))
    (changed,) = [one for one in (membership.publish(0), membership.publish(1)) if one is not None]
    assert {one.flow for one in changed.partitions} == {"f", "g"}


def test_a_rate_is_shared_by_the_slots_that_copy_the_flow() -> None:
    membership = Membership(range(2))
    want(membership, partitions(0, 1), rate=1000)
    given = membership.publish(0)
    assert given is not None
    assert given.flows["f"].spec.rate_limit == 500


def test_rebalancing_waits_until_nearly_all_partitions_are_measured() -> None:
    membership = made(0, 1, 2, 3)
    assert [numbers(membership.publish(slot)) for slot in (0, 1)] == [[0, 2], [1, 3]]
    membership.update_weights(dict.fromkeys(partitions(0, 2), 1e6))
    assert not membership.rebalance()
    assert membership.publish(0) is None
    membership.update_weights(dict.fromkeys(partitions(1, 3), 0.0))
    assert membership.rebalance()
    assert not membership.rebalance()
    assert numbers(membership.publish(0)) == [2]


def test_the_slots_of_a_flow_are_found_once_for_all_its_partitions() -> None:
    asked: list[str] = []

    def slots_of(flow: str) -> Sequence[int]:
        asked.append(flow)
        return range(2)

    want(Membership(range(2), slots_of), partitions(*range(50)))
    assert asked == ["f"]


def test_the_weights_of_partitions_that_left_are_forgotten_also_after_a_late_report() -> None:
    weights = {0: 1e6, 1: 1.0, 2: 1e6, 3: 1.0}
    membership = made(0, 1, 2, 3)
    measured = {key: weights[key.partition] for key in partitions(*weights)}
    membership.update_weights(measured)
    want(membership)
    membership.update_weights(measured)
    want(membership, partitions(0, 1, 2, 3))
    membership.rebalance()
    assert [numbers(membership.publish(slot)) for slot in (0, 1)] == [[0, 2], [1, 3]]


class Slots(RuleBasedStateMachine):
    """Slots obey late, die and come back; partitions come, go and move. All that may write are counted."""

    def __init__(self) -> None:
        super().__init__()
        self.membership = Membership(SLOTS)
        self.working: dict[int, Assignment | None] = dict.fromkeys(SLOTS)
        self.told: dict[int, Assignment] = {}

    @rule(some=st.sets(st.integers(0, 7)))
    def want(self, some: set[int]) -> None:
        want(self.membership, partitions(*sorted(some)))

    @rule(some=st.sets(st.sampled_from(SLOTS)))
    def use(self, some: set[int]) -> None:
        self.membership.set_usable(sorted(some))

    @rule(weights=st.lists(st.floats(0, 1e7), min_size=8, max_size=8))
    def level(self, weights: list[float]) -> None:
        self.membership.update_weights({key: weights[key.partition] for key in partitions(*range(8))})
        self.membership.rebalance()

    @rule()
    def spread(self) -> None:
        for slot in SLOTS:
            given = self.membership.publish(slot)
            if given is not None and self.working[slot] is not None:
                self.told[slot] = given

    @rule(slot=st.sampled_from(SLOTS))
    def obey(self, slot: int) -> None:
        given = self.told.pop(slot, None)
        if given is not None:
            self.working[slot] = given
            self.membership.acknowledge(slot, given.version)

    @rule(slot=st.sampled_from(SLOTS))
    def die(self, slot: int) -> None:
        self.working[slot] = None
        self.told.pop(slot, None)

    @rule(slot=st.sampled_from(SLOTS))
    def begin(self, slot: int) -> None:
        if self.working[slot] is None:
            self.membership.release_fenced(slot, self.membership.releasing(slot))
            self.working[slot] = self.membership.published(slot)

    @invariant()
    def no_partition_has_two_writers(self) -> None:
        given = (one for one in self.working.values() if one is not None)
        writers = [partition.key for one in given for partition in one.partitions]
        assert len(writers) == len(set(writers))


TestSlots = Slots.TestCase
TestSlots.settings = settings(max_examples=40, stateful_step_count=30, deadline=None)

# Which slot copies what: everything has one home, little moves, loads come together

loads_of = st.dictionaries(st.integers(0, 60), st.floats(0, 1e8), max_size=40)


@given(loads_of, st.integers(2, 6), st.data())
def test_every_partition_has_one_slot_and_few_move(
    weights: dict[int, float], count: int, data: st.DataObject
) -> None:
    slots = range(count)
    homes = {key: data.draw(st.sampled_from(slots)) for key in weights}
    gone = data.draw(st.sampled_from(slots))

    def loads(found: dict[int, int]) -> list[float]:
        heavy = {key: max(weights[key], MIN_WEIGHT) for key in found}
        return [sum(heavy[key] for key, home in found.items() if home == slot) for slot in slots]

    fresh = balance(weights, slots, {})
    assert fresh.keys() == weights.keys()
    if weights:
        every = loads(fresh)
        largest = max(*weights.values(), MIN_WEIGHT)
        assert max(every) - min(every) <= max(TOLERANCE * sum(every) / count, largest) * 1.001
    assert balance(weights, slots, fresh) == fresh  # what is level stays
    assert balance(weights, slots, homes, move=False) == homes
    assert max(loads(balance(weights, slots, homes))) <= max(loads(homes)) * 1.000001
    rest = balance(weights, [slot for slot in slots if slot != gone], homes, move=False)
    assert all(rest[key] == home for key, home in homes.items() if home != gone)
    assert gone not in rest.values()


def placed(**loads: tuple[int, float, int]) -> tuple[dict[str, float], dict[str, int]]:
    """Partitions by a word: how many, their weight, and their slot (-1: all in turn)."""
    weights, homes = dict[str, float](), dict[str, int]()
    for word, (count, weight, home) in loads.items():
        for number in range(count):
            weights[f"{word}-{number}"] = weight
            homes[f"{word}-{number}"] = number % 4 if home < 0 else home
    return weights, homes


@pytest.mark.parametrize(
    ("weights", "homes", "loads", "moved"),
    [
        (*placed(busy=(4, 3e5, 0), quiet=(36, 20.0, -1)), [300_180.0] * 4, 3),
        # Quiet ones stay beside busy ones that no move would relieve.
        (
            {**placed(busy=(3, 3e5, 0), quiet=(40, 20.0, -1))[0]},
            {**placed(quiet=(40, 20.0, -1))[1], "busy-0": 0, "busy-1": 1, "busy-2": 2},
            None,
            0,
        ),
        # The others are levelled beside one that fills its slot.
        (*placed(huge=(1, 1e7, 0), busy=(4, 1e6, 1)), [1e7, 2e6, 1e6, 1e6], 2),
    ],
)
def test_partitions_are_spread_and_nothing_else_moves(
    weights: dict[str, float], homes: dict[str, int], loads: list[float] | None, moved: int
) -> None:
    found = balance(weights, range(4), homes)
    assert sum(found[key] != home for key, home in homes.items()) == moved
    if loads is not None:
        every = [sum(weights[key] for key in found if found[key] == slot) for slot in range(4)]
        assert every == pytest.approx(loads, rel=1e-3)


def test_edges_of_balance() -> None:
    idle = {f"idle-{number}": 0.0 for number in range(4)}
    assert balance({"heavy": 1e6, **idle}, [0, 1], {}) == {"heavy": 0, **dict.fromkeys(idle, 1)}
    assert balance({1: 5.0}, [], {}) == {}
    # A gap that costs no slot anything stays.
    weights, homes = dict.fromkeys(range(8), 3e4), {key: 0 if key < 3 else key % 4 for key in range(8)}
    assert balance(weights, range(4), homes, min_gap=1e5) == homes
    assert balance(weights, range(4), homes) != homes


@given(st.dictionaries(st.integers(0, 20), st.integers(1, 10), min_size=1, max_size=20), st.integers(1, 6))
def test_a_flow_that_weighs_little_is_in_one_slot_and_the_loads_stay_level(
    sizes: dict[int, int], count: int
) -> None:
    keys = [(flow, number) for flow, size in sizes.items() for number in range(size)]
    found = balance(dict.fromkeys(keys, 1e6), range(count), {}, flow_of=itemgetter(0))
    mean = len(keys) / count
    for flow, size in sizes.items():
        used = {found[flow, number] for number in range(size)}
        assert len(used) == 1 or size > LIGHT * mean
    every = [sum(home == slot for home in found.values()) for slot in range(count)]
    assert max(every) - min(every) <= max(TOLERANCE * mean, 1)


def test_no_slot_begins_with_most_of_the_bytes() -> None:
    """The weights are those of the last reports before the driver started."""
    some = partitions(*range(8))
    busy = {key: 1e6 if key.partition in (0, 2, 4) else 1e3 for key in some}
    membership = Membership(range(2), weights=busy)
    want(membership, some)
    loads = [
        sum(busy[one.key] for one in given.partitions)
        for slot in range(2)
        if (given := membership.publish(slot)) is not None
    ]
    assert sorted(round(load / 1e6) for load in loads) == [1, 2]


@given(
    st.dictionaries(st.integers(0, 30), st.lists(st.floats(0, 1e7), min_size=1, max_size=6), max_size=30),
    st.integers(2, 6),
    st.data(),
)
def test_levelling_never_splits_a_flow_that_weighs_little(
    flows: dict[int, list[float]], count: int, data: st.DataObject
) -> None:
    """Nor does the loss of a slot, or its return."""
    weights = {(flow, number): weight for flow, some in flows.items() for number, weight in enumerate(some)}
    home = {flow: data.draw(st.sampled_from(range(count))) for flow in flows}
    lost = data.draw(st.sampled_from(range(count)))
    heavy = {flow: sum(max(weight, MIN_WEIGHT) for weight in some) for flow, some in flows.items()}
    homes = {key: home[key[0]] for key in weights}
    for slots in (list(range(count)), [slot for slot in range(count) if slot != lost], list(range(count))):
        homes = balance(weights, slots, homes, **BY_FLOW)
        light = LIGHT * sum(heavy.values()) / count
        split = {flow for flow in flows if len({homes[key] for key in weights if key[0] == flow}) > 1}
        assert all(heavy[flow] > light for flow in split)


NARROW = [(flow, number) for flow in range(40) for number in range(10)]
BY_FLOW: dict[str, Any] = {"flow_of": itemgetter(0)}


def test_new_partitions_join_their_flow_unless_its_slot_has_much_more_to_copy() -> None:
    level = {key: key[0] % 2 for key in NARROW}
    found = balance(dict.fromkeys([*NARROW, (3, 10), (4, 10)], 1e6), range(2), level, **BY_FLOW)
    assert found == {**level, (3, 10): 1, (4, 10): 0}
    uneven = {key: 0 if key[0] < 28 else 1 for key in NARROW}
    weights = dict.fromkeys([*NARROW, (3, 10)], 1e6)
    assert balance(weights, range(2), uneven, move=False, **BY_FLOW)[3, 10] == 1


# Bytes a second by partition, from what slots report


@pytest.mark.parametrize(
    ("reports", "rate"),
    [
        ([(MEASURED_MS, 500)], -1),  # one report tells nothing
        ([(0, 0), (MEASURED_MS - 1, 20_000)], -1),
        ([(0, 0), (MEASURED_MS - 1, 20_000), (2 * MEASURED_MS, 40_000)], 1000.0),
        ([(0, 0), (1000, 20_000), (MEASURED_MS, 20_000)], 1000.0),  # a burst
        ([(0, 0), (MEASURED_MS, 20_000), (2 * MEASURED_MS, 20_000)], 500.0),  # the older one counts half
        ([(0, 5000), (1000, 6000), (2000, 500), (MEASURED_MS, 19_000)], 1000.0),  # from zero again
    ],
)
def test_a_rate_is_measured_over_the_whole_interval(reports: list[tuple[int, int]], rate: float) -> None:
    assert measured(PartitionRates(), *reports) == {KEY: rate}


KEY = PartitionKey("f", "t", 0)


def measured(rates: PartitionRates, *reports: tuple[int, int]) -> Mapping[PartitionKey, float]:
    """Each report is a time in ms, and the bytes of the partition until then."""
    for at_ms, count in reports:
        rates.update(at_ms, [PartitionStatus(*KEY, PartitionState.COPYING, 0, bytes=count)])
    return rates.known


def test_the_rates_of_partitions_that_left_the_slot_are_forgotten() -> None:
    rates = PartitionRates()
    measured(rates, (0, 0), (MEASURED_MS, 20_000))
    rates.update(MEASURED_MS, [])
    assert rates.known == {}
    assert measured(rates, (2 * MEASURED_MS, 20_000)) == {KEY: -1}


class CountedRates(PartitionRates):
    updates = 0

    def update(self, at_ms: int, partitions: Sequence[PartitionStatus]) -> None:
        self.updates += 1
        super().update(at_ms, partitions)


def test_rates_are_updated_when_partitions_come_or_leave_and_when_they_are_measured() -> None:
    """A report each second looks at no partition in between."""
    rates = CountedRates()
    two = [PartitionStatus("f", "t", number, PartitionState.COPYING, 0, bytes=0) for number in range(2)]
    updates = []
    for second, partitions in [(0, two), (1, two), (19, two), (20, two), (21, two[:1]), (39, two[:1])]:
        rates.update_if_due(second * 1000, partitions)
        updates.append(rates.updates)
    assert updates == [1, 1, 1, 2, 3, 3]


# A flow with a transform has slots of its own; the others share the rest

FILTER, OTHER_FILTER = TransformSpec(where="true"), TransformSpec(where="false")


def flows(**transforms: TransformSpec | None) -> list[FlowSpec]:
    return [flow_spec(name, transform=transform) for name, transform in transforms.items()]


@pytest.mark.parametrize(
    ("some", "slots", "by_slot"),
    [
        (flows(x=None, y=None), 3, ("", "", "")),
        ([], 2, ("", "")),
        (flows(x=None, y=FILTER, z=OTHER_FILTER), 4, ("", "", "y", "z")),
        (flows(x=None, y=FILTER), 1, ("", "y")),  # at least as many slots as groups
        (flows(y=FILTER), 2, ("y", "y")),
    ],
)
def test_slots_are_grouped_by_transform(
    some: Sequence[FlowSpec], slots: int, by_slot: tuple[str, ...]
) -> None:
    layout = slot_layout(some, slots)
    assert layout.by_slot == by_slot
    specs = {flow.name: flow.transform for flow in some}
    assert [layout.transform(slot) for slot in range(len(by_slot))] == [specs.get(name) for name in by_slot]
    for name in (*specs, "new"):
        group = name if name in by_slot else ""
        assert layout.slots_of(name) == [slot for slot, of in enumerate(by_slot) if of == group]


def test_partitions_stay_within_the_slots_of_their_flow() -> None:
    membership = Membership(range(4), slot_layout(flows(x=None, y=FILTER), 4).slots_of)
    want(membership, partitions(*range(6), of="x"), partitions(*range(6), of="y"))
    for usable in ([0, 1, 2, 3], [0, 2], [0, 1]):  # without a usable slot, the flow keeps its own
        membership.set_usable(usable)
        for slot in range(4):
            published = membership.publish(slot) or membership.published(slot)
            assert set(published.flows) <= {"x" if slot < 2 else "y"}
            membership.acknowledge(slot, published.version)


FILES = FilesSpec(endpoint="lake", folder="/lake", format="json")
FLAT = LinesSpec(endpoint="in", folder="/in", format="text", topic="t")
X, Y = flows(x=None, y=FILTER)
TO_FILES, FROM_FILES = replace(X, files=FILES), replace(X, lines=FLAT)
DEEP = replace(X, lines=replace(FLAT, recursive=True))


@pytest.mark.parametrize(
    ("before", "after", "restarted"),
    [
        ([X, Y], [X, Y], []),
        ([X, Y], [X], []),
        ([X, Y], [X, Y, *flows(new=None)], []),
        ([X, Y], [X, *flows(y=OTHER_FILTER)], ["y"]),
        ([X, Y], flows(x=FILTER), ["x"]),
        ([X, Y], flows(y=None), ["y"]),
        ([X, Y], flows(new=FILTER), ["new"]),
        ([Y], [Y, *flows(raw=None)], ["raw"]),
        # No record decides what a job reads of a record or a folder, or which registry it asks.
        ([replace(TO_FILES, transform=FILTER)], [replace(TO_FILES, transform=FILTER)], []),
        ([TO_FILES], [replace(TO_FILES, transform=FILTER)], ["x"]),
        ([replace(TO_FILES, transform=FILTER)], [TO_FILES], ["x"]),
        ([DEEP], [DEEP], []),
        ([FROM_FILES], [DEEP], ["x"]),
        ([DEEP], [FROM_FILES], ["x"]),
    ],
)
def test_only_a_new_or_changed_transform_or_folder_needs_a_restart(
    before: Iterable[FlowSpec], after: Iterable[FlowSpec], restarted: list[str]
) -> None:
    one, other = (
        JobSpec(
            job="j",
            topology="t",
            destination="dc2",
            clusters={"dc2": ClusterSpec(bootstrap="h:1")},
            flows=list(some),
        )
        for some in (before, after)
    )
    assert regrouped(one, other) == restarted
