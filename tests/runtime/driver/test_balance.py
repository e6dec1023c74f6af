"""Which slot copies what: everything has one home, little moves, loads come together."""

from operator import itemgetter

from hypothesis import given
from hypothesis import strategies as st

from runtime.driver.slots.membership import LIGHT, MIN_WEIGHT, TOLERANCE, balance

weights = st.dictionaries(st.integers(0, 60), st.floats(0, 1e8), max_size=40)
slots = st.integers(1, 6).map(range)


def loads(found: dict[int, int], given: dict[int, float], count: range) -> list[float]:
    return [sum(max(given[key], MIN_WEIGHT) for key, home in found.items() if home == slot) for slot in count]


@given(weights, slots)
def test_everything_has_one_home_and_the_largest_gap_is_one_partition(given, count):
    found = balance(given, count, {})
    assert found.keys() == given.keys()
    assert set(found.values()) <= set(count)
    if given:
        every = loads(found, given, count)
        mean = sum(every) / len(every)
        assert max(every) - min(every) <= max(TOLERANCE * mean, max(*given.values(), MIN_WEIGHT)) * 1.001


@given(weights, slots)
def test_what_is_level_stays(given, count):
    once = balance(given, count, {})
    assert balance(given, count, once) == once


@given(weights, slots, st.data())
def test_without_moves_everything_keeps_its_home(given, count, data):
    homes = {key: data.draw(st.sampled_from(count)) for key in given}
    assert balance(given, count, homes, move=False) == homes


@given(weights, st.integers(2, 6), st.data())
def test_a_slot_that_goes_takes_only_its_own_along(given, count, data):
    homes = {key: data.draw(st.integers(0, count - 1)) for key in given}
    gone = data.draw(st.integers(0, count - 1))
    rest = [slot for slot in range(count) if slot != gone]
    found = balance(given, rest, homes, move=False)
    assert all(found[key] == home for key, home in homes.items() if home != gone)
    assert gone not in found.values()


@given(weights, slots, st.data())
def test_moving_never_makes_the_fullest_fuller(given, count, data):
    homes = {key: data.draw(st.sampled_from(count)) for key in given}
    before, after = loads(homes, given, count), loads(balance(given, count, homes), given, count)
    assert max(after) <= max(before) * 1.000001


def test_a_heavy_one_among_idle_ones():
    assert balance({"heavy": 1e6, **{f"idle-{n}": 0.0 for n in range(4)}}, [0, 1], {}) == {
        "heavy": 0,
        **{f"idle-{n}": 1 for n in range(4)},
    }


def test_busy_ones_of_one_slot_are_spread_and_nothing_else_moves():
    quiet = {f"quiet-{n}": 20.0 for n in range(36)}
    homes = {**{f"busy-{n}": 0 for n in range(4)}, **{name: n % 4 for n, name in enumerate(quiet)}}
    found = balance({**{f"busy-{n}": 3e5 for n in range(4)}, **quiet}, range(4), homes)
    assert sorted(found[f"busy-{n}"] for n in range(4)) == [0, 1, 2, 3]
    assert sum(found[key] != home for key, home in homes.items()) == 3


def test_quiet_ones_stay_beside_busy_ones_that_no_move_would_relieve():
    quiet = {f"quiet-{n}": 20.0 for n in range(40)}
    homes = {"busy-0": 0, "busy-1": 1, "busy-2": 2, **{name: n % 4 for n, name in enumerate(quiet)}}
    assert balance({**{f"busy-{n}": 3e5 for n in range(3)}, **quiet}, range(4), homes) == homes


def test_the_others_are_levelled_beside_one_that_fills_its_slot():
    huge, *busy = range(5)
    given = {huge: 1e7, **dict.fromkeys(busy, 1e6)}
    homes = {huge: 0, **dict.fromkeys(busy, 1)}
    assert loads(balance(given, range(4), homes), given, range(4)) == [1e7, 2e6, 1e6, 1e6]


def test_a_gap_that_costs_no_slot_anything_stays():
    weights, homes = dict.fromkeys(range(8), 3e4), {key: 0 if key < 3 else key % 4 for key in range(8)}
    assert balance(weights, range(4), homes, min_gap=1e5) == homes
    assert balance(weights, range(4), homes) != homes


flows = st.dictionaries(st.integers(0, 20), st.integers(1, 10), min_size=1, max_size=20)


@given(flows, slots)
def test_a_flow_that_weighs_little_is_in_one_slot_and_the_loads_stay_level(given, count):
    keys = [(flow, number) for flow, partitions in given.items() for number in range(partitions)]
    found = balance(dict.fromkeys(keys, 1e6), count, {}, flow_of=itemgetter(0))
    mean = len(keys) / len(count)
    for flow, partitions in given.items():
        used = {found[flow, number] for number in range(partitions)}
        assert len(used) == 1 or partitions > LIGHT * mean
    every = [sum(home == slot for home in found.values()) for slot in count]
    assert max(every) - min(every) <= max(TOLERANCE * mean, 1)


def test_new_partitions_of_a_flow_that_weighs_little_join_the_others():
    keys = [(flow, number) for flow in range(40) for number in range(10)]
    homes = {key: key[0] % 2 for key in keys}
    found = balance(dict.fromkeys([*keys, (3, 10), (4, 10)], 1e6), range(2), homes, flow_of=itemgetter(0))
    assert found == {**homes, (3, 10): 1, (4, 10): 0}


def test_new_partitions_go_to_another_slot_where_theirs_has_much_more_to_copy():
    keys = [(flow, number) for flow in range(40) for number in range(10)]
    homes = {key: 0 if key[0] < 28 else 1 for key in keys}
    given = dict.fromkeys([*keys, (3, 10)], 1e6)
    assert balance(given, range(2), homes, flow_of=itemgetter(0), move=False)[3, 10] == 1


def test_a_flow_that_weighs_much_is_spread_evenly():
    keys = [("wide", number) for number in range(100)] + [("narrow", number) for number in range(2)]
    found = balance(dict.fromkeys(keys, 1e6), range(4), {}, flow_of=itemgetter(0))
    assert sorted(sum(home == slot for home in found.values()) for slot in range(4)) == [25, 25, 26, 26]
    assert len({found["narrow", number] for number in range(2)}) == 1


def test_no_slots():
    assert balance({1: 5.0}, [], {}) == {}
