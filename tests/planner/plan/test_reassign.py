"""Which brokers hold which partition after a change of the replication factor."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from planner.model.observed import ObservedBroker
from planner.plan.steps import wanted_replicas


def brokers(*racks: str | None) -> list[ObservedBroker]:
    return [ObservedBroker(number, "host", 9092, rack) for number, rack in enumerate(racks, start=1)]


@pytest.mark.parametrize(
    ("replicas", "replication", "at", "expected"),
    [
        (((1,), (2,), (3,)), 2, brokers(None, None, None), ((1, 2), (2, 1), (3, 1))),
        (((1, 2, 3), (2, 3, 1)), 2, brokers(None, None, None), ((1, 2), (2, 3))),
        (
            ((1,), (1,)),
            2,
            brokers("a", "a", "b"),
            ((1, 3), (1, 3)),
        ),  # the other rack before the emptier broker
        (((9,), (1,)), 1, brokers(None, None), ((2,), (1,))),  # a broker that is gone is replaced
        (((1,),), 3, brokers(None, None), None),
        (((1,),), 0, brokers(None, None), None),
    ],
)
def test_as_little_moves_as_can_be(replicas, replication, at, expected) -> None:
    assert wanted_replicas(replicas, replication, at) == expected


@given(st.data())
def test_every_partition_has_that_many_different_brokers_and_keeps_what_it_can(data: st.DataObject) -> None:
    count = data.draw(st.integers(1, 6))
    at = brokers(*data.draw(st.lists(st.sampled_from([None, "a", "b"]), min_size=count, max_size=count)))
    ids = [one.id for one in at]
    partition = st.lists(st.sampled_from(ids), min_size=1, max_size=count, unique=True).map(tuple)
    replicas = data.draw(st.lists(partition, min_size=1, max_size=8))
    replication = data.draw(st.integers(1, count))

    found = wanted_replicas(replicas, replication, at)

    assert found is not None
    for before, after in zip(replicas, found, strict=True):
        assert len(after) == len(set(after)) == replication
        assert after[0] == before[0]
        assert after[: len(before)] == before[:replication]
