"""Assignments change in two steps, so that no partition ever has two writers (R3)."""

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from runtime.contract.records.control import AssignedFlow, AssignedPartition, Assignment
from runtime.contract.records.ledger import PartitionKey
from runtime.contract.spec.jobspec import FlowSpec, SelectionSpec
from runtime.driver.slots.membership import Membership

SLOTS = range(3)


def flow(name: str) -> AssignedFlow:
    spec = FlowSpec(name=name, source="a", destination="b", topics=SelectionSpec(include=["t"]))
    return AssignedFlow(spec, generation=1)


def partitions(*numbers: int, of: str = "f") -> dict[PartitionKey, AssignedPartition]:
    made = [
        AssignedPartition(flow=of, topic="t", partition=number, destination_topic="t") for number in numbers
    ]
    return {one.key: one for one in made}


def numbers(assignment: Assignment | None) -> list[int]:
    assert assignment is not None
    return sorted(one.partition for one in assignment.partitions)


def made(*wanted: int, slots: int = 2) -> Membership:
    membership = Membership(range(slots))
    membership.set_wanted({"f": flow("f")}, {}, partitions(*wanted))
    return membership


def test_partitions_are_shared_out_and_nothing_is_said_twice():
    membership = made(0, 1, 2, 3)
    first, second = membership.publish(0), membership.publish(1)
    assert sorted(numbers(first) + numbers(second)) == [0, 1, 2, 3]
    assert membership.publish(0) is None
    assert membership.publish(1) is None


def test_topics_are_let_go_of_on_their_own():
    membership = Membership([0])
    other = AssignedPartition(flow="f", topic="u", partition=0, destination_topic="u")
    membership.set_wanted({"f": flow("f")}, {}, {**partitions(0), other.key: other})
    membership.publish(0)
    membership.set_wanted({"f": flow("f")}, {}, {other.key: other})
    without = membership.publish(0)
    assert without is not None
    assert membership.holds("f", {"t"})
    membership.acknowledge(0, without.version)
    assert not membership.holds("f", {"t"})
    assert membership.holds("f", {"u"})
    assert membership.holds("f")


def test_a_partition_that_moves_is_nobodys_until_it_was_let_go():
    membership = made(0, 1)
    assert numbers(membership.publish(0)) == [0]
    assert numbers(membership.publish(1)) == [1]
    membership.set_usable([1])
    without = membership.publish(0)
    assert numbers(without) == []
    assert without is not None
    assert membership.publish(1) is None
    assert not membership.acknowledge(0, without.version - 1)
    assert membership.publish(1) is None
    assert membership.acknowledge(0, without.version)
    assert numbers(membership.publish(1)) == [0, 1]


def test_what_a_dead_slot_held_is_free_once_it_is_fenced():
    membership = made(0, 1)
    membership.publish(0)
    membership.publish(1)
    membership.set_usable([1])
    membership.publish(0)
    assert membership.releasing(0) == {"f"}
    membership.release_fenced(0, {"f"})
    assert numbers(membership.publish(1)) == [0, 1]


def test_a_new_flow_disturbs_only_the_slots_that_get_some_of_it():
    membership = made(0, 1)
    before = [membership.publish(slot) for slot in (0, 1)]
    membership.set_wanted({"f": flow("f"), "g": flow("g")}, {}, {**partitions(0, 1), **partitions(0, of="g")})
    after = [membership.publish(slot) for slot in (0, 1)]
    assert [one is None for one in after].count(True) == 1
    changed = next(one for one in after if one is not None)
    assert {one.flow for one in changed.partitions} == {"f", "g"}
    assert all(one is not None for one in before)


def test_a_rate_is_shared_by_the_slots_that_copy_the_flow():
    membership = Membership(range(2))
    membership.set_wanted({"f": flow("f")}, {"f": 1000}, partitions(0, 1))
    given = membership.publish(0)
    assert given is not None
    assert given.flows["f"].rate_limit == 500


def test_a_flow_that_goes_is_held_until_its_slot_let_go():
    membership = made(0, slots=1)
    membership.publish(0)
    membership.set_wanted({}, {}, {})
    given = membership.publish(0)
    assert given is not None
    assert given.flows == {}
    assert membership.holds("f")
    membership.acknowledge(0, given.version)
    assert not membership.holds("f")


def test_levelling_waits_until_nearly_all_partitions_are_measured():
    membership = made(0, 1, 2, 3)
    assert [numbers(membership.publish(slot)) for slot in (0, 1)] == [[0, 2], [1, 3]]
    measured = dict.fromkeys(partitions(0, 2), 1e6)
    membership.update_weights(measured)
    membership.rebalance()
    assert membership.publish(0) is None
    membership.update_weights(dict.fromkeys(partitions(1, 3), 0.0))
    membership.rebalance()
    assert numbers(membership.publish(0)) == [2]


class Slots(RuleBasedStateMachine):
    """Slots obey late, die and come back; partitions come, go and move. Whoever may write is counted."""

    def __init__(self) -> None:
        super().__init__()
        self.membership = Membership(SLOTS)
        self.working: dict[int, Assignment | None] = dict.fromkeys(SLOTS)
        self.told: dict[int, Assignment] = {}

    @rule(some=st.sets(st.integers(0, 7)))
    def want(self, some: set[int]) -> None:
        self.membership.set_wanted({"f": flow("f")}, {}, partitions(*sorted(some)))

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
    def nobody_writes_beside_another(self) -> None:
        writers = [
            one.key for given in self.working.values() if given is not None for one in given.partitions
        ]
        assert len(writers) == len(set(writers))


TestSlots = Slots.TestCase
TestSlots.settings = settings(max_examples=60, stateful_step_count=40, deadline=None)
