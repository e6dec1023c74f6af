"""The flows of a job through edits and through lives of its driver, on real brokers and without a slot."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping

import pytest
from msgspec.structs import replace

from runtime.contract.records.ledger import GenerationKey, PartitionKey, Progress, encode_key, partition_of
from runtime.contract.spec import naming
from runtime.contract.spec.flow import AtOffsets, Earliest, Latest
from runtime.contract.spec.jobspec import FlowSpec
from runtime.contract.spec.selection import SelectionSpec
from runtime.kafka.errors import Disconnected
from runtime.kafka.protocol.metadata import MetadataRequest
from tests.fakes.transactions import LateMarkers
from tests.records import PATIENCE_S, read
from tests.runtime.audit.ended import end_flow
from tests.runtime.driver.lives import life
from tests.runtime.slot.world import Driver, Side, assigned, copy_through, flow_spec

pytestmark = pytest.mark.integration
Fresh = Callable[[str], str]


def flow_of(fresh: Fresh, base: str) -> FlowSpec:
    """What is there when it comes is old to it."""
    flow = flow_spec(fresh("flow"), start=Latest(), follow_every_ms=200, heartbeats_every_ms=None)
    return replace(flow, topics=SelectionSpec(include=(rf"{base}\..*",)))


def written(sides: Mapping[str, Side], topic: str) -> str:
    sides["dc1"].create(topic)
    sides["dc1"].write(topic, [{"value": b"%d" % one} for one in range(3)])
    return topic


async def test_a_flow_begins_at_its_start_once_whatever_came_in_between(
    sides: dict[str, Side], fresh: Fresh
) -> None:
    base = fresh("shop")
    orders, later, edited = f"{base}.orders", f"{base}.later", fresh("edited")
    flow = flow_of(fresh, base)
    paused = replace(flow, state="paused")
    written(sides, orders)

    async with life(sides, paused) as driver:
        await driver.until(lambda work: work.generation > 0)
    async with life(sides, paused) as driver:
        await driver.edit(flow)
        await driver.edit(replace(flow, rpo_ms=9_000))
        await driver.assigned(orders)
        assert await driver.positions() == {orders: 3}
    written(sides, later)
    async with life(sides, flow) as driver:
        await driver.assigned(orders, later)
        assert await driver.positions() == {orders: 3, later: 0}
        written(sides, edited)
        await driver.edit(replace(flow, topics=SelectionSpec(include=(rf"{base}\..*", edited))))
        await driver.assigned(orders, later, edited)
        assert await driver.positions() == {orders: 3, later: 0, edited: 3}


async def test_a_flow_that_found_nothing_has_begun(sides: dict[str, Side], fresh: Fresh) -> None:
    base = fresh("shop")
    flow = flow_of(fresh, base)

    async with life(sides, flow) as driver:
        async with asyncio.timeout(PATIENCE_S):
            while not (driver.work.generation and (await driver.generation()).begun):
                await asyncio.sleep(0.05)
    orders = written(sides, f"{base}.orders")
    async with life(sides, flow) as driver:
        await driver.assigned(orders)
        assert await driver.positions() == {orders: 0}


async def test_a_lost_ledger_stays_lost_through_edits_until_one_says_where_to_start(
    sides: dict[str, Side], fresh: Fresh
) -> None:
    """Neither where it was told to start over once, nor because losses are accepted."""
    base = fresh("shop")
    orders, pay, later = f"{base}.orders", f"{base}.pay", f"{base}.later"
    flow = replace(flow_of(fresh, base), restart_from=Earliest())

    async with life(sides, flow, generations={flow.name: 3}) as driver:
        await driver.assigned(written(sides, orders))
        driver.work.accept_loss(driver.work.partitions)
        await driver.edit(replace(flow, rpo_ms=9_000))
        await driver.assigned(orders, written(sides, pay))
        assert await driver.positions() == {}

        there = AtOffsets(offsets={orders: {0: 2}})
        await driver.edit(replace(flow, rpo_ms=9_000, restart_from=there))
        async with asyncio.timeout(PATIENCE_S):
            while await driver.positions() != {orders: 2, pay: 0}:
                await asyncio.sleep(0.05)
        await driver.assigned(orders, pay, written(sides, later))
        assert await driver.positions() == {orders: 2, pay: 0, later: 0}


def test_a_flow_begins_where_its_opposite_ended_however_late_its_generation_can_be_read(
    sides: dict[str, Side], fresh: Fresh
) -> None:
    base = fresh("shop")
    there = replace(flow_of(fresh, base), start=Earliest())
    orders = written(sides, f"{base}.orders")
    sides["dc2"].create(orders)
    driver = Driver(sides, "dc2", fresh("job"))
    copy_through(driver, there, assigned(there.name, orders))
    end_flow(driver, there.name)
    copied = read(sides["dc2"].client, orders)[-1].offset + 1
    sides["dc2"].write(orders, [{"value": b"new"}] * 2)
    back = replace(there, name=fresh("back"), source="dc2", destination="dc1", reverse_of=there.name)

    async def scenario() -> None:
        async with life(sides, back, writer_cluster=LateMarkers) as driver:
            await driver.assigned(orders)
            assert await driver.positions() == {orders: copied}
            assert not (await driver.generation()).turning

    asyncio.run(scenario())


async def test_a_flow_that_starts_over_stays_its_driver_s_however_late_its_generation_can_be_read(
    sides: dict[str, Side], fresh: Fresh
) -> None:
    base = fresh("shop")
    flow = flow_of(fresh, base)
    orders = written(sides, f"{base}.orders")

    async with life(sides, flow) as driver:
        await driver.assigned(orders)
        assert await driver.positions() == {orders: 3}
    async with life(sides, replace(flow, restart_from=Earliest()), writer_cluster=LateMarkers) as driver:
        await driver.assigned(orders)
        assert await driver.positions() == {orders: 0}
        assert (await driver.generation()).number == driver.work.generation


async def test_only_what_offsets_name_starts_over_and_again_when_it_is_written_again(
    sides: dict[str, Side], fresh: Fresh
) -> None:
    base = fresh("shop")
    flow, topic = flow_of(fresh, base), f"{base}.orders"
    sides["dc1"].create(topic, 2)
    sides["dc1"].write(topic, [{"value": b"x", "partition": number % 2} for number in range(20)])
    sides["dc2"].create(topic, 2)
    driver = Driver(sides, "dc2", fresh("job"))
    await asyncio.to_thread(copy_through, driver, flow, assigned(flow.name, topic, 2))
    over = replace(flow, restart_from=AtOffsets(offsets={topic: {0: 3}}))

    async def restarted(flow: FlowSpec) -> tuple[Progress, Progress]:
        """The progress of both partitions, once a driver has carried out what the spec says."""
        async with life(sides, flow) as driver:
            await driver.assigned(topic)
            async with asyncio.timeout(PATIENCE_S):
                while bool((await driver.generation()).restarted) != (flow.restart_from is not None):
                    await asyncio.sleep(0.05)
            await driver.positions()
            progress = driver.ledger.all_progress(flow.name)
            return progress[PartitionKey(flow.name, topic, 0)], progress[PartitionKey(flow.name, topic, 1)]

    first, other = await restarted(over)
    assert (first.position, other.position) == (3, 10)
    carried_out, _ = await restarted(over)
    await restarted(flow)
    again, other_again = await restarted(over)
    lives = [progress.incarnation for progress in (carried_out, again)]
    assert lives == [first.incarnation, first.incarnation + 1]
    assert other_again == other


async def test_a_flow_comes_from_another_cluster_of_the_start_and_goes(
    sides: dict[str, Side], fresh: Fresh
) -> None:
    """What no flow uses any more is closed, and is opened again for a flow that comes back."""
    base = fresh("shop")
    flow, orders = flow_of(fresh, base), written(sides, f"{base}.orders")
    other = replace(flow, name=fresh("other"), source="dc3")

    async with life({**sides, "dc3": sides["dc1"]}, flow) as driver:
        await driver.assigned(orders)
        before = await driver.clusters.cluster("dc1")
        await driver.edit(other)
        await driver.assigned(orders)
        assert "dc1" not in driver.clusters.listed()
        with pytest.raises(Disconnected, match="closed by this client"):
            await before.call(next(iter(before.brokers)), MetadataRequest(()))
        await driver.edit(flow)
        await driver.assigned(orders)
        assert "dc3" not in driver.clusters.listed()


async def test_a_driver_goes_on_with_other_flows_while_the_ledger_of_one_cannot_be_read(
    sides: dict[str, Side], fresh: Fresh
) -> None:
    base = fresh("shop")
    flow = flow_of(fresh, base)
    other = replace(flow, name=fresh("other"))
    orders = written(sides, f"{base}.orders")

    def poison() -> None:
        partitions = len(sides["dc2"].admin().list_topics(naming.LEDGER).topics[naming.LEDGER].partitions)
        row = {"key": encode_key(GenerationKey(flow.name)), "value": b"\x02newer"}
        sides["dc2"].write(naming.LEDGER, [{**row, "partition": partition_of(flow.name, partitions)}])

    async with life(sides, flow) as driver:
        await driver.assigned(orders)
        await asyncio.to_thread(poison)
        await driver.said("ledger_missing: ledger: value of version 02")
        await driver.edit(other)  # what can't be read is not ended, and holds up nothing
        await driver.assigned(orders)
