"""A slot whose heartbeats stop is replaced at once, on real brokers; one that was only slow doubles nothing.

The slots are processes, and no Spark is there: what it would notice half a minute later must not matter.
"""

from __future__ import annotations

import asyncio
import os
import signal
import time
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import cast

import pytest
from msgspec.structs import replace

from runtime.contract.spec import jobspec
from runtime.contract.spec.jobspec import JobSpec
from runtime.contract.spec.selection import SelectionSpec
from runtime.driver.application import SparkSlotRunner
from runtime.driver.job import JobRunner
from runtime.driver.process import SpecFile
from tests import checker
from tests.records import PATIENCE_S
from tests.runtime.driver.slot_processes import SlotProcesses
from tests.runtime.slot.world import FAST, Side, flow_spec
from tests.spark.arrivals import Arrivals
from tests.waiting import until

pytestmark = pytest.mark.integration
Fresh = Callable[[str], str]
SLOTS, PARTITIONS = 3, 6
LOAD = checker.Spec(records=10**9, rate=300, large_every=0)


class Job:
    """A driver that runs, its slots, and what a reader at the destination sees."""

    def __init__(self, runner: JobRunner, slots: SlotProcesses, arrivals: Arrivals) -> None:
        self.slots = slots
        self.arrivals = arrivals
        self._runner = runner

    def placed(self) -> dict[int, int]:
        """The slot of each partition, as the slots of the driver report."""
        slots = self._runner._slots
        reports = slots.reports.values() if slots is not None else ()
        return {one.partition: report.slot for report in reports for one in report.partitions}

    async def all_arrive(self) -> None:
        """Returns when each partition has brought a record that comes from now on."""
        began = time.monotonic()
        await until(lambda: not self.arrivals.silent_since(began))

    async def level(self) -> None:
        """Returns when each slot runs and copies partitions."""
        slots = self._runner._slots
        assert slots is not None
        await until(lambda: {view.state for view in slots.views()} == {"running"})
        await until(lambda: set(self.placed().values()) == set(range(SLOTS)))
        await until(lambda: len(self.placed()) == PARTITIONS)


@asynccontextmanager
async def job_of(sides: Mapping[str, Side], topic: str, name: str, folder: Path) -> AsyncIterator[Job]:
    """A job that copies the topic while it is written."""
    flow = flow_spec(f"{name}-flow", heartbeats_every_ms=None)
    spec = JobSpec(
        job=name,
        topology="lost",
        destination="dc2",
        clusters={side: sides[side].spec() for side in ("dc1", "dc2")},
        flows=[replace(flow, topics=SelectionSpec(include=(topic,)))],
        slots=SLOTS,
        copy=FAST,
    )
    file = folder / "spec.json"
    file.write_bytes(jobspec.encode(spec))
    slots = SlotProcesses()
    runner = JobRunner(spec, os.environ, SpecFile(file))
    started: asyncio.Future[SparkSlotRunner] = asyncio.get_running_loop().create_future()
    started.set_result(cast("SparkSlotRunner", slots))
    running = asyncio.ensure_future(runner.run(started))
    client = dict(sides["dc2"].client)
    try:
        async with asyncio.timeout(PATIENCE_S):
            while topic not in await asyncio.to_thread(
                lambda: sides["dc2"].admin().list_topics(timeout=30).topics
            ):
                assert not running.done(), running
                await asyncio.sleep(0.2)
        with Arrivals(client, topic) as arrivals:
            job = Job(runner, slots, arrivals)
            await job.level()
            await job.all_arrive()
            yield job
            runner.stop()
            await running
    finally:
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)  # its connections are closed
        slots.end()


async def lose(job: Job, slot: int) -> None:
    """A machine is cut off and comes back. Spark notices it when others copy already."""
    process = job.slots.process(slot)
    hit = {partition for partition, placed in job.placed().items() if placed == slot}
    job.slots.lost.add(slot)
    job.arrivals.begin()
    process.send_signal(signal.SIGSTOP)  # nothing closes its connections
    await until(lambda: slot not in job.placed().values() and len(job.placed()) == PARTITIONS)
    await job.all_arrive()
    again, others = job.arrivals.longest(hit), job.arrivals.longest(set(range(PARTITIONS)) - hit)
    process.send_signal(signal.SIGCONT)
    await until(lambda: process.poll() is not None)
    job.slots.give_up(slot)
    await job.level()
    print(f"slot {slot}: {len(hit)} partitions copied again after {again:.1f} s, others {others:.1f} s")


async def test_a_slot_that_was_only_slow_is_fenced_and_comes_back(
    sides: dict[str, Side], fresh: Fresh, tmp_path: Path
) -> None:
    topic = fresh("slow")
    sides["dc1"].create(topic, PARTITIONS, max_message_bytes="10485760")
    with checker.writing(dict(sides["dc1"].client), topic, LOAD) as writer:
        async with job_of(sides, topic, fresh("job"), tmp_path) as job:
            await lose(job, 1)
            assert job.slots.attempts == {0: 1, 1: 2, 2: 1}
            written = await asyncio.to_thread(lambda: writer.written)
            await exact(sides, topic, written)


async def exact(sides: Mapping[str, Side], topic: str, written: checker.Written) -> None:
    """Each record is there once, in order."""
    source, there = (dict(sides[name].client) for name in ("dc1", "dc2"))
    report = await asyncio.to_thread(
        lambda: checker.compare(source, there, topic, written=written, patience=PATIENCE_S)
    )
    assert report.clean, report
