"""Brokers that die, hang and come back, leaders that move, replicas that are missing (fencing 4, R7)."""

import asyncio
from collections.abc import Callable, Iterator

import pytest
from msgspec import structs

from runtime.audit.status.facts import StatusRequest
from runtime.audit.status.reader import read_status
from runtime.contract.client.endpoint import ClusterEndpoint
from runtime.contract.records.job_status import PartitionState as State
from runtime.contract.records.job_status import PartitionStatus
from runtime.contract.results.status import PartitionHealth
from runtime.contract.spec.jobspec import FlowSpec, Route
from runtime.contract.spec.route import Router
from runtime.contract.spec.selection import SelectionSpec
from runtime.lab.lab import Lab
from tests.labs import running_lab, spec
from tests.records import all_in_sync
from tests.runtime.conftest import sides_of
from tests.runtime.slot.brokers import await_in_sync, by_hand, place
from tests.runtime.slot.world import FAST, Side, assigned, at_end, copying, in_state, until

pytestmark = pytest.mark.integration

Fresh = Callable[[str], str]
_MENDED_S = 180  # brokers come back and elect leaders meanwhile


@pytest.fixture(scope="module")
def replicated(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Lab, dict[str, Side]]]:
    """dc1 has one broker, dc2 three."""
    clusters = (spec("dc1"), spec("dc2", brokers=3))
    with running_lab(tmp_path_factory.mktemp("replicated"), *clusters) as lab:
        yield lab, sides_of(lab)


@pytest.fixture
def breakable(replicated: tuple[Lab, dict[str, Side]]) -> tuple[Lab, dict[str, Side]]:
    """Every broker runs and every replica is in sync, whatever the test before has left."""
    lab, sides = replicated
    for name, cluster in lab.clusters.items():
        lab.start(name)
        all_in_sync(cluster.client)
    return lab, sides


async def test_leaders_move_at_both_sides(breakable: tuple[Lab, dict[str, Side]], fresh: Fresh) -> None:
    lab, sides = breakable
    orders = copying(sides, fresh, 3, create=False, min_in_sync=2)
    orders.source.create(orders.topic, 3)
    orders.destination.create(orders.topic, 3, min_insync_replicas="2")
    async with orders.running() as slot:
        for node in (1, 2, 3):
            await by_hand(lab.kill, f"dc2:{node}")
            await orders.write({"value": b"%d" % number, "partition": number % 3} for number in range(300))
            await asyncio.sleep(1)
            await by_hand(lab.start, f"dc2:{node}")
            await until(slot, at_end([100 * node] * 3), _MENDED_S)
    await asyncio.to_thread(orders.assert_equal)


async def test_a_source_leader_that_hangs_stalls_its_partitions_for_seconds(
    breakable: tuple[Lab, dict[str, Side]], fresh: Fresh
) -> None:
    """A fetch waits a minute for its answer; the metadata name the new leader long before."""
    lab, sides = breakable
    orders = copying({"dc1": sides["dc2"], "dc2": sides["dc1"]}, fresh, 3)
    rows = [{"value": b"%d" % number, "partition": number % 3} for number in range(300)]
    async with orders.running() as slot:
        await orders.write(rows)
        await until(slot, at_end([100] * 3), _MENDED_S)
        await by_hand(lab.pause, "dc2:1")
        try:
            await orders.write(rows)  # acknowledged by the new leaders
            await until(slot, at_end([200] * 3), 20)
        finally:
            await by_hand(lab.unpause, "dc2:1")
    await asyncio.to_thread(orders.assert_equal)


async def test_a_partition_without_its_replicas_waits_and_its_neighbours_go_on(
    breakable: tuple[Lab, dict[str, Side]], fresh: Fresh
) -> None:
    """Fencing 4: a marker that can't be written holds one lane, not the flow: its neighbours leave the
    lane.
    """
    lab, sides = breakable
    keeper, victim = 1, 3
    orders, lonely = copying(sides, fresh, 3, create=False), fresh("lonely")
    topic = orders.topic
    orders.source.create(topic, 3)
    orders.source.create(lonely)
    place(orders.destination, topic, [[keeper]] * 3)
    place(orders.destination, lonely, [[keeper, victim]], **{"min.insync.replicas": "2"})
    orders.partitions.extend(assigned(orders.flow.name, lonely, min_in_sync=2))

    async def feed(name: str, partitions: int) -> None:
        await orders.write(({"value": b"x" * 100, "partition": at % partitions} for at in range(30)), name)

    def positions(of_topic: int, of_lonely: int | None) -> Callable[[PartitionStatus], bool]:
        wanted = {topic: of_topic, lonely: of_lonely}
        return lambda one: wanted[one.topic] in (None, one.position)

    # It is seen that replicas are missing before anything is written: no lane gets stuck at all.
    await by_hand(lab.kill, f"dc2:{victim}")
    await asyncio.to_thread(await_in_sync, orders.destination, lonely, [keeper])
    async with orders.running() as slot:
        await asyncio.gather(feed(topic, 3), feed(lonely, 1))
        seen = await until(slot, lambda one: one.position == 10 or "1 of 2 in-sync replicas" in one.why)
        assert [one.position for one in seen if one.topic == lonely] == [0]
        assert not slot.status().flows[0].stuck_lanes
        await by_hand(lab.start, f"dc2:{victim}")
        await until(slot, positions(10, 30), _MENDED_S)

    async with orders.running() as slot:
        killing = asyncio.create_task(by_hand(lab.kill, f"dc2:{victim}"))
        for _ in range(20):  # while it dies: some transaction is open then, with both topics in it
            await asyncio.gather(feed(topic, 3), feed(lonely, 1))
        await killing
        await feed(lonely, 1)  # whatever came through before: this can't
        await until(slot, positions(210, None), _MENDED_S)
        await until(slot, lambda one: one.topic == topic or in_state(State.RETRYING)(one), _MENDED_S)
        await feed(topic, 3)
        await until(slot, positions(220, None), _MENDED_S)
        await by_hand(lab.start, f"dc2:{victim}")
        await until(slot, positions(220, 660), _MENDED_S)
    for name, partitions in ((topic, 3), (lonely, 1)):
        here, there = [await asyncio.to_thread(side.read, name, partitions) for side in sides.values()]
        assert there == here


@pytest.mark.parametrize("others_write", [False, pytest.param(True, marks=pytest.mark.long)])
async def test_an_unclean_election_at_the_destination_stops_the_partition(
    breakable: tuple[Lab, dict[str, Side]], fresh: Fresh, others_write: bool
) -> None:
    """R4: what was copied and is gone again at one side is said, not papered over, not even where others have
    written so much since that the log is longer than before. Where the mirror is shorter, `repl status` says
    so too, from the ledger.
    """
    lab, sides = breakable
    # The open transaction has no coordinator until a broker has started: that may take longer than 10 s.
    orders = copying(
        sides, fresh, create=False, settings=structs.replace(FAST, transaction_timeout_ms=120_000)
    )
    orders.source.create(orders.topic)
    unclean = {"unclean.leader.election.enable": "true", "min.insync.replicas": "1"}
    place(orders.destination, orders.topic, [[1, 2]], **unclean)
    async with orders.running() as slot:
        await orders.write([{"value": b"x"}] * 100)
        await until(slot, at_end([100]), _MENDED_S)
        await by_hand(lab.kill, "dc2:2")
        await orders.write([{"value": b"x"}] * 100)
        await until(slot, at_end([200]), _MENDED_S)
        await by_hand(lab.kill, "dc2:1")
        await by_hand(lab.start, "dc2:2")  # it never had the second hundred
        if others_write:
            theirs = [{"value": b"theirs"}] * 150
            await asyncio.to_thread(orders.destination.write, orders.topic, theirs)
            await by_hand(lab.start, "dc2:1")  # it answers, and leads no more
        await orders.write([{"value": b"x"}] * 150)
        await until(slot, in_state(State.DIVERGED), _MENDED_S)
    for every_offset in () if others_write else (False, True):
        partition = await _status(sides, orders.flow.name, orders.topic, every_offset=every_offset)
        assert partition.state == State.DIVERGED
        assert partition.why.startswith("dc2 ends at ")
        assert (partition.destination_start == 0) is every_offset
        assert (partition.source_high_watermark == 350) is every_offset


async def _status(sides: dict[str, Side], flow: str, topic: str, *, every_offset: bool) -> PartitionHealth:
    """Returns the status of a topic's only partition."""
    asked = StatusRequest(
        topology="truncated",
        clusters={name: ClusterEndpoint(name, side.bootstrap) for name, side in sides.items()},
        flows=[FlowSpec(name=flow, source="dc1", destination="dc2", topics=SelectionSpec((topic,)))],
        router=Router([Route(flow, "dc1", "dc2", SelectionSpec((topic,)))]),
        jobs={flow: "copy"},
    )
    status = await read_status(asked, 0.0, every_offset=every_offset)
    ((partition,),) = [one.partitions for one in status.flows[0].topics]
    return partition
