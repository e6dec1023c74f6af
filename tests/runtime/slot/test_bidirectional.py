"""R5: clusters copy one topic to each other; nothing returns, and nothing goes round when all is still."""

import asyncio
import time
from collections.abc import Callable, Mapping
from contextlib import AsyncExitStack
from itertools import chain, pairwise

import pytest

from runtime.contract.spec.jobspec import ProvenanceMode
from runtime.slot.slot import Slot
from tests.conftest import MakeLab
from tests.labs import spec
from tests.runtime.conftest import sides_of
from tests.runtime.slot.workload import mixed
from tests.runtime.slot.world import Driver, Side, assigned, flow_spec

pytestmark = pytest.mark.integration
Fresh = Callable[[str], str]
Ends = dict[str, list[int]]  # by cluster and partition
Counts = dict[str, tuple[int, int]]  # commits and dropped records, by cluster


@pytest.mark.parametrize("mode", ["batch", "headers"])
def test_active_active_under_one_name(sides: dict[str, Side], fresh: Fresh, mode: ProvenanceMode) -> None:
    _copied_round({name: sides[name] for name in ("dc1", "dc2")}, fresh, mode)


@pytest.mark.long
def test_a_ring_of_three_under_one_name(own_lab: MakeLab, fresh: Fresh) -> None:
    _copied_round(sides_of(own_lab(spec("dc1"), spec("dc2"), spec("dc3"))), fresh, "headers")


def _copied_round(sides: dict[str, Side], fresh: Fresh, mode: ProvenanceMode) -> None:
    """Each cluster copies to the next one, the last to the first: all hold the same in the end."""
    topic = fresh("shared")
    following = dict(pairwise((*sides, next(iter(sides)))))
    flows = {
        here: flow_spec(fresh("way"), here, there, provenance=mode, shared=True)
        for here, there in following.items()
    }
    for number, side in enumerate(sides.values()):
        side.create(topic, 2)
        mixed(side, topic, 2, seed=number, count=150)
    born = {name: sorted(_numbers(side, topic)) for name, side in sides.items()}

    async def copy() -> Counts:
        async with AsyncExitStack() as running:
            ways: dict[str, Slot] = {}
            for here, flow in flows.items():
                driver = Driver(sides, following[here], fresh("job"))
                assignment = await driver.take_over(flow, assigned(flow.name, topic, 2))
                ways[here] = await running.enter_async_context(driver.running(assignment))
            return await _all_is_still(ways, sides, topic)

    counted = asyncio.run(copy())
    assert all(commits for commits, _ in counted.values())
    assert {here: dropped for here, (_, dropped) in counted.items()} == {
        here: len(born[there]) for here, there in following.items()
    }
    everything = sorted(chain(*born.values()))
    assert {name: sorted(_numbers(side, topic)) for name, side in sides.items()} == dict.fromkeys(
        sides, everything
    )


def _counted(ways: Mapping[str, Slot]) -> Counts:
    """Commits and dropped records of each way's only flow, by its source; a flow may not have begun yet."""
    return {name: (flow.commits, flow.dropped) for name, slot in ways.items() for flow in slot.status().flows}


async def _all_is_still(ways: Mapping[str, Slot], sides: dict[str, Side], topic: str) -> Counts:
    """Waits until each way has committed up to the end of its source, and nobody commits for two seconds.

    A transaction that partitions joined ahead of a batch ends within a second without one, and leaves a
    marker. The next way passes it, and joins no transaction ahead for it. If markers went round, this would
    not end.
    """
    deadline = time.monotonic() + 120
    still_since, before = time.monotonic(), None
    while True:
        ends = await asyncio.to_thread(_written, sides, topic)
        through = {
            name: {one.partition: one.position for one in slot.status().partitions}
            for name, slot in ways.items()
        }
        committed = {name: await asyncio.to_thread(side.ends, topic, 2) for name, side in sides.items()}
        seen = ends, through, committed, _counted(ways)
        if seen != before:
            still_since, before = time.monotonic(), seen
        copied = through == {name: dict(enumerate(each)) for name, each in ends.items()}
        decided = committed == {name: [(0, end) for end in each] for name, each in ends.items()}
        if copied and decided and time.monotonic() - still_since > 2:
            return _counted(ways)
        assert time.monotonic() < deadline, seen
        await asyncio.sleep(0.1)


def _written(sides: dict[str, Side], topic: str) -> Ends:
    return {name: [end for _, end in side.ends(topic, 2, committed=False)] for name, side in sides.items()}


def _numbers(side: Side, topic: str) -> list[tuple[bytes, int]]:
    return [
        (next(value for name, value in row.headers if name == "n") or b"", row.timestamp)
        for rows in side.read(topic, 2)
        for row in rows
    ]
