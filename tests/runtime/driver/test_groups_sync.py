"""Group sync on real brokers: the slot copies, the duty looks, Kafka's own clients say where groups stand."""

import asyncio
from collections.abc import Callable, Mapping
from typing import Any

import pytest
from msgspec.structs import replace

from runtime.contract.spec.flow import GroupsSpec, Latest
from runtime.contract.spec.jobspec import FlowSpec
from runtime.contract.spec.rename import Template
from runtime.contract.spec.selection import SelectionSpec
from tests.records import recreate_topic
from tests.runtime.driver.groups_world import commit, committed, last_look, look, member
from tests.runtime.slot.workload import mixed
from tests.runtime.slot.world import Driver, Side, assigned, at_end, copy_through, flow_spec, until

pytestmark = pytest.mark.integration
Fresh = Callable[[str], str]
WAVE = 10  # records that each side writes before the other has them


def flow_of(fresh: Fresh, topic: str, source: str = "dc1", destination: str = "dc2", **more: Any) -> FlowSpec:
    """Of one topic; groups of other tests are not its matter."""
    groups = GroupsSpec(include=(f"{topic}.*", "shown-.*"))
    changes = {"rename": Template(text="copy.{topic}"), "groups": groups, **more}
    flow = flow_spec(fresh("flow"), source, destination, **changes)
    return replace(flow, topics=SelectionSpec(include=(topic,)))


def copied(sides: Mapping[str, Side], fresh: Fresh, flow: FlowSpec, partitions: int = 1, **more: Any) -> None:
    """The flow's topic, as far as its source has it now."""
    (topic,) = flow.topics.include
    there = topic if flow.rename == Template(text="{topic}") else f"copy.{topic}"
    driver = Driver(sides, flow.destination, fresh("job"))
    copy_through(driver, flow, assigned(flow.name, topic, partitions, destination_topic=there), **more)


def numbered(count: int, start: int = 0) -> list[dict[str, Any]]:
    return [{"value": b"%d" % one} for one in range(start, start + count)]


def test_every_offset_of_a_group_finds_its_record(sides: dict[str, Side], fresh: Fresh) -> None:
    """R6 as a group sees it: markers, aborted data and dropped records lie between."""
    topic = fresh("orders")
    flow = flow_of(fresh, topic)
    sides["dc1"].create(topic, 3)
    sides["dc2"].create(f"copy.{topic}", 3)
    mixed(sides["dc1"], topic, 2, count=200)
    copied(sides, fresh, flow, 3)
    here, there = sides["dc1"].read(topic, 3), sides["dc2"].read(f"copy.{topic}", 3)
    ends = [end for _, end in sides["dc1"].ends(topic, 3)]
    groups = {f"{topic}-g{at}": at * max(ends[:2]) // 20 for at in range(21)}
    for group, offset in groups.items():
        wanted = {(topic, one): min(offset, ends[one]) for one in range(2)}
        commit(sides["dc1"], group, {**wanted, (topic, 2): 0}, metadata="kept")
    looked = look(sides, flow)
    assert (len(looked.groups), looked.states, looked.written) == (21, {"translated": 63}, 63)
    for group, offset in groups.items():
        stands = committed(sides["dc2"], group)
        for partition in range(3):
            left = [row for row in here[partition] if row.offset >= min(offset, ends[partition])]
            place = stands[f"copy.{topic}", partition]
            assert [row for row in there[partition] if row.offset >= place] == left


def test_forward_only_unless_rewound_at_the_source(sides: dict[str, Side], fresh: Fresh) -> None:
    topic = fresh("orders")
    flow = flow_of(fresh, topic)
    there = (f"copy.{topic}", 0)
    sides["dc1"].create(topic)
    sides["dc2"].create(there[0])
    sides["dc1"].write(topic, numbered(20))
    copied(sides, fresh, flow)
    group, native = f"{topic}-g", f"{topic}-native"
    commit(sides["dc1"], group, {(topic, 0): 12})
    commit(sides["dc1"], native, {(topic, 0): 5})
    commit(sides["dc2"], native, {there: 9})  # it was here before us, and further
    assert look(sides, flow).states == {"translated": 1, "ahead": 1}
    assert committed(sides["dc2"], native) == {there: 9}
    assert committed(sides["dc2"], group) == {there: 12}

    commit(sides["dc1"], group, {(topic, 0): 3})  # another driver follows: it knows from the checkpoints
    look(sides, flow)
    assert committed(sides["dc2"], group) == {there: 3}

    commit(sides["dc2"], group, {there: 18})  # read on there, then rewound here: what was read stays read
    commit(sides["dc1"], group, {(topic, 0): 1})
    assert look(sides, flow).states == {"ahead": 2}
    assert committed(sides["dc2"], group) == {there: 18}


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_a_connected_member_is_not_touched(sides: dict[str, Side], fresh: Fresh, protocol: str) -> None:
    topic = fresh("orders")
    flow = flow_of(fresh, topic)
    group, there = f"{topic}-g", (f"copy.{topic}", 0)
    sides["dc1"].create(topic)
    sides["dc2"].create(there[0])
    sides["dc1"].write(topic, numbered(20))
    copied(sides, fresh, flow)
    commit(sides["dc1"], group, {(topic, 0): 7})
    commit(sides["dc2"], group, {there: 2})
    connected = member(sides["dc2"], group, [there[0]], group_protocol=protocol)
    try:
        looked = look(sides, flow, times=2)
        assert (looked.states, looked.written) == ({"refused": 1}, 0)
        assert looked.groups[0].refused == 2
        assert committed(sides["dc2"], group) == {there: 2}
    finally:
        connected.close()
    looked = look(sides, flow)
    assert (looked.states, looked.written) == ({"translated": 1}, 1)
    assert committed(sides["dc2"], group) == {there: 7}


def test_what_is_deleted_is_clamped_and_what_was_never_copied_is_unmapped(
    sides: dict[str, Side], fresh: Fresh
) -> None:
    topic = fresh("orders")
    flow = flow_of(fresh, topic)
    there = (f"copy.{topic}", 0)
    sides["dc1"].create(topic)
    sides["dc2"].create(there[0])
    sides["dc1"].write(topic, numbered(10))
    copied(sides, fresh, flow, start=Latest())
    sides["dc1"].write(topic, numbered(20, 10))
    copied(sides, fresh, flow)
    sides["dc2"].forget(there[0], 6)
    for name, offset in (("old", 4), ("behind", 12), ("near", 20)):
        commit(sides["dc1"], f"{topic}-{name}", {(topic, 0): offset})
    looked = look(sides, flow)
    assert looked.states == {"unmapped": 1, "translated": 2}
    assert sum(group.clamped for group in looked.groups) == 1
    assert committed(sides["dc2"], f"{topic}-old") == {}
    assert committed(sides["dc2"], f"{topic}-behind") == {there: 6}
    assert committed(sides["dc2"], f"{topic}-near") == {there: 10}


def test_a_topic_made_anew_at_the_source_waits(sides: dict[str, Side], fresh: Fresh) -> None:
    """Its offsets mean other records now."""
    topic = fresh("orders")
    flow = flow_of(fresh, topic)
    sides["dc1"].create(topic)
    sides["dc2"].create(f"copy.{topic}")
    sides["dc1"].write(topic, numbered(20))
    copied(sides, fresh, flow)
    recreate_topic(sides["dc1"].client, topic)
    sides["dc1"].write(topic, numbered(5))
    commit(sides["dc1"], f"{topic}-g", {(topic, 0): 5})
    looked = look(sides, flow)
    assert (looked.states, looked.written) == ({"pending": 1}, 0)
    assert committed(sides["dc2"], f"{topic}-g") == {}


def test_two_ways_do_not_feed_each_other(sides: dict[str, Side], fresh: Fresh) -> None:
    """One topic at both sides: nothing is skipped, and what was written for a group is not its own commit."""
    topic, group = fresh("shared"), fresh("g")
    same = Template(text="{topic}")
    groups = GroupsSpec(include=(group,))
    more = {"rename": same, "groups": groups, "provenance": "batch", "shared": True}
    there = flow_of(fresh, topic, "dc1", "dc2", **more)
    back = flow_of(fresh, topic, "dc2", "dc1", **more)
    for name, side in sides.items():
        side.create(topic)
        side.write(topic, _wave(name, 0))

    async def copy() -> None:
        one, two = Driver(sides, "dc2", fresh("job")), Driver(sides, "dc1", fresh("job"))
        first = await one.take_over(there, assigned(there.name, topic))
        second = await two.take_over(back, assigned(back.name, topic))
        async with one.running(first) as slot, two.running(second) as other:
            for wave in range(1, 6):
                for name, side in sides.items():
                    await asyncio.to_thread(side.write, topic, _wave(name, wave))
                for running, side in ((slot, sides["dc1"]), (other, sides["dc2"])):
                    (end,) = await asyncio.to_thread(side.ends, topic)
                    await until(running, at_end([end[1]]))

    asyncio.run(copy())
    here = sides["dc1"].read(topic)[0]
    middle = here[len(here) // 2].offset
    commit(sides["dc1"], group, {(topic, 0): middle})
    look(sides, there, back)
    place = committed(sides["dc2"], group)[topic, 0]
    done = {row.value for row in here if row.offset < middle}
    rest = [row.value for row in sides["dc2"].read(topic)[0] if row.offset >= place]
    assert done | set(rest) == {row.value for row in here}  # none is skipped
    again = [value for value in rest if value in done]
    assert len(again) <= 2 * WAVE, f"{len(again)} of {len(done)} records are read again"
    assert len(rest) == len(set(rest))

    looked = look(sides, back, there, times=2)
    assert (len(looked.groups), looked.written) == (1, 0)
    assert committed(sides["dc1"], group) == {(topic, 0): middle}

    # The group reads to the end at dc2 and returns to dc1. A slot may have ended a transaction after another
    # had stopped, and its coordinator writes the marker later still: both flows read to the ends first.
    before = None
    while (now := [side.ends(topic) for side in sides.values()]) != before:
        copy_through(Driver(sides, "dc2", fresh("job")), there, assigned(there.name, topic))
        copy_through(Driver(sides, "dc1", fresh("job")), back, assigned(back.name, topic))
        before = now
    ((_, ends),) = sides["dc2"].ends(topic)
    commit(sides["dc2"], group, {(topic, 0): ends})
    look(sides, back, there)
    home = committed(sides["dc1"], group)[topic, 0]
    assert not [row for row in here if row.offset >= home]
    look(sides, there, back)
    assert committed(sides["dc2"], group) == {(topic, 0): ends}


def test_one_side_of_a_merge_is_lost(sides: dict[str, Side], fresh: Fresh) -> None:
    """topic1 of the demo, and dc1 is dead: the smallest position over the origins, none skipped. What the
    other origin's map told is remembered, so groups that had read further than what arrived go on, too.
    """
    topic = fresh("topic1")
    group, ahead = f"{topic}-g", f"{topic}-ahead"
    more = {"rename": Template(text="{topic}"), "provenance": "batch", "shared": True}
    there = flow_of(fresh, topic, "dc1", "dc2", **more)
    back = flow_of(fresh, topic, "dc2", "dc1", **more)
    for name, side in sides.items():
        side.create(topic)
        for number in range(3):
            side.write(topic, _wave(name, number))
    copied(sides, fresh, back)
    copied(sides, fresh, there)
    sides["dc1"].write(topic, _wave("dc1", 3))  # never arrives
    here = sides["dc1"].read(topic)[0]
    late = [row.offset for row in here if row.value == b"dc1-3-4"]
    commit(sides["dc1"], group, {(topic, 0): here[len(here) // 2].offset})
    commit(sides["dc1"], ahead, {(topic, 0): late[0]})
    assert look(sides, there, back).states == {"translated": 1, "pending": 1}
    assert committed(sides["dc2"], ahead) == {}

    assert asyncio.run(last_look(sides, there, back, lost="dc1")) == ()
    stands = sides["dc2"].read(topic)[0]
    arrived = {row.value for row in stands}
    for one in (group, ahead):
        read = {row.value for row in here if row.offset < committed(sides["dc1"], one)[topic, 0]}
        place = committed(sides["dc2"], one)[topic, 0]
        rest = [row.value for row in stands if row.offset >= place]
        assert arrived - read <= set(rest)  # none is skipped
        again = len(read.intersection(rest))
        assert again <= 3 * WAVE, f"{again} of {len(read)} records are read again"


def _wave(name: str, number: int) -> list[dict[str, Any]]:
    return [{"value": f"{name}-{number}-{at}".encode()} for at in range(WAVE)]
