"""A flow that can't begin: nobody waits for it (R7)."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from runtime.contract.client.settings import WireSettings
from runtime.contract.records.control import AssignedFlow, AssignedPartition
from runtime.contract.records.job_status import PartitionState as State
from runtime.contract.records.ledger import PartitionKey, UnreadableRecord
from runtime.contract.spec.cluster import ClusterSpec
from runtime.kafka.cluster import KafkaCluster
from runtime.kafka.errors import Disconnected
from runtime.ledger.ledger import Ledger
from runtime.slot.flow import FlowCounters
from runtime.slot.flow_run import FlowRun, Opening, SourceClusters
from runtime.slot.partition import PartitionCopy
from runtime.slot.write.events import Committed
from runtime.slot.write.flow_ledger import Superseded
from tests.runtime.slot.world import assigned, flow_spec, slot_context
from tests.waiting import until

THERE = ClusterSpec(bootstrap="there:1")
FLOW = AssignedFlow(flow_spec("flow"), 1)
PARTITIONS = {one.key: one for one in assigned("flow", "orders")}


def new_run(opening: Opening) -> FlowRun:
    """Its first assignment is version 1; nobody connects to anything."""
    destination = KafkaCluster(WireSettings((("127.0.0.1", 9),)))
    around = slot_context(destination, Ledger(destination, 1))
    run = FlowRun("flow", around, SourceClusters(opening, {"dc1": THERE}))
    run.set_assignment(1, FLOW, PARTITIONS)
    return run


@asynccontextmanager
async def running(opening: Opening) -> AsyncIterator[FlowRun]:
    run = new_run(opening)
    task = asyncio.create_task(run.run())
    try:
        yield run
    finally:
        task.cancel()


async def refuses(name: str, _: ClusterSpec) -> KafkaCluster:
    raise Disconnected(name, "refused", sent=False)


async def keeps_silent(_name: str, _spec: ClusterSpec) -> KafkaCluster:
    await asyncio.Event().wait()
    raise AssertionError


@pytest.mark.parametrize("opening", [refuses, keeps_silent])
async def test_partitions_of_a_flow_that_cannot_begin_are_released_at_once(opening: Opening) -> None:
    async with running(opening) as run:
        await asyncio.sleep(0)
        run.set_assignment(2, FLOW, {})
        assert (run.version, run.partitions({})) == (2, [])


async def test_a_flow_that_is_about_to_begin_when_the_slot_stops_does_not_begin() -> None:
    """Other flows may take seconds to end, and it would copy meanwhile, until it is cancelled."""
    asked, cancelled = asyncio.Event(), asyncio.Event()

    async def slow(_name: str, _spec: ClusterSpec) -> KafkaCluster:
        asked.set()
        try:
            await asyncio.Event().wait()
        finally:
            cancelled.set()
        raise AssertionError

    async with running(slow) as run:
        await asked.wait()
        await asyncio.wait_for(run.drain(), 20)
        assert cancelled.is_set()


async def test_a_flow_that_waits_for_its_next_attempt_when_the_slot_stops_makes_none() -> None:
    run = new_run(refuses)
    task = asyncio.create_task(run.run())
    await until(lambda: bool(run.partitions({})[0].why))
    await run.drain()
    await asyncio.wait_for(task, 20)


async def test_a_newer_generation_that_arrives_while_an_older_one_begins_is_tried() -> None:
    runs: list[FlowRun] = []
    asked: list[str] = []

    async def outdated(name: str, _: ClusterSpec) -> KafkaCluster:
        asked.append(name)
        if len(asked) == 1:
            runs[0].set_assignment(2, FLOW, PARTITIONS)
        raise Superseded("older")

    async with running(outdated) as run:
        runs.append(run)
        await until(lambda: bool(run.superseded))
    assert len(asked) == 2


async def test_a_source_is_reached_as_the_slot_was_started_and_no_assignment_adds_one() -> None:
    asked: list[ClusterSpec] = []

    async def notes(name: str, spec: ClusterSpec) -> KafkaCluster:
        asked.append(spec)
        raise Disconnected(name, "refused", sent=False)

    async with running(notes) as run:
        await until(lambda: asked == [THERE])
        run.set_assignment(2, AssignedFlow(flow_spec("flow", source="elsewhere"), 1), PARTITIONS)
        await until(lambda: "not in the spec" in run.partitions({})[0].why)
        (status,) = run.partitions({})
        assert (status.state, run.version) == (State.RETRYING, 2)
        assert set(map(id, asked)) == {id(THERE)}


class Stuck:
    """A flow whose lane died: it lets go of nothing any more."""

    def __init__(self) -> None:
        self.assigned = FLOW
        self.copies: dict[PartitionKey, PartitionCopy] = {}
        self.releasing = asyncio.Event()
        self.drained = asyncio.Event()

    def missing(self) -> dict[PartitionKey, tuple[AssignedPartition, str]]:
        return {}

    def undecided(self) -> dict[PartitionKey, AssignedPartition]:
        return PARTITIONS

    def set_assigned(self, assigned: AssignedFlow) -> None: ...

    async def release(self, keys: object) -> None:
        self.releasing.set()
        await asyncio.Event().wait()

    async def drain(self) -> None:
        self.drained.set()


async def test_a_flow_whose_ledger_cannot_be_read_ends_with_a_named_state_and_begins_again() -> None:
    begun: list[str] = []

    async def notes(name: str, _: ClusterSpec) -> KafkaCluster:
        begun.append(name)
        raise UnreadableRecord("value of version 02")

    async with running(notes) as run:
        stuck = Stuck()
        run.flow = stuck  # type: ignore[assignment]
        run.set_assignment(2, FLOW, {})
        await asyncio.wait_for(stuck.releasing.wait(), 20)
        run.fail(UnreadableRecord("value of version 02"))
        run.set_assignment(3, FLOW, PARTITIONS)
        await asyncio.wait_for(stuck.drained.wait(), 20)
        await until(lambda: len(begun) > 1)
        (status,) = run.partitions({})
        assert (status.state, run.version) == (State.LEDGER_MISSING, 3)
        assert "value of version 02" in status.why


def test_a_record_without_a_timestamp_has_no_latency() -> None:
    """Its timestamp is -1: it would add the time since 1970."""
    counters = FlowCounters()
    counters.committed(Committed([], [], [("orders", -1, 3), ("orders", 900, 2), ("audit", -1, 1)]), 1_000)
    stats = counters.stats("flow", 0, 0, [], 1_000)
    assert (sum(stats.latency_counts), stats.latency_sum_ms) == (2, 200)
    assert [(one.topic, one.records, one.max_ms) for one in stats.latencies] == [("orders", 2, 100)]
