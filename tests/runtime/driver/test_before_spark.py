"""Commands that arrive while a driver leads and Spark has not started, on real brokers and without Spark."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, cast

import pytest
from msgspec.structs import replace

from runtime.contract.records import control
from runtime.contract.records.control import Command, Reconfigure, StopJobCommand
from runtime.contract.records.job_status import JobStatus
from runtime.contract.spec import jobspec, naming
from runtime.contract.spec.jobspec import JobExit, JobSpec
from runtime.driver.application import SparkSlotRunner
from runtime.driver.clusters import read_reported
from runtime.driver.job import JobRunner
from runtime.driver.process import SpecFile
from runtime.driver.slots.channel import post
from runtime.kafka.cluster import opened
from runtime.kafka.records import InternalRecord
from tests.records import PATIENCE_S
from tests.runtime.driver.slot_processes import SlotProcesses
from tests.runtime.slot.world import Side, flow_spec

pytestmark = pytest.mark.integration
Fresh = Callable[[str], str]


class Waiting:
    """A driver that leads and waits for Spark, which `spark` completes."""

    def __init__(self, spec: JobSpec, folder: Path) -> None:
        self.spec = spec
        file = folder / "spec.json"
        file.write_bytes(jobspec.encode(spec))
        self.runner = JobRunner(spec, os.environ, SpecFile(file))
        self.spark: asyncio.Future[SparkSlotRunner] = asyncio.get_running_loop().create_future()
        self.running = asyncio.ensure_future(self.runner.run(self.spark))

    async def send(self, command: Command) -> None:
        record = InternalRecord(control.command_key(self.spec.job), control.encode(command))
        async with await opened("dc2", self.spec.clusters["dc2"], os.environ) as cluster:
            await post(cluster, naming.CONTROL, [record])

    async def last_status(self) -> JobStatus | None:
        async with await opened("dc2", self.spec.clusters["dc2"], os.environ) as cluster:
            return (await read_reported(cluster)).jobs.get(self.spec.job)


@asynccontextmanager
async def waiting(sides: Mapping[str, Side], fresh: Fresh, folder: Path) -> AsyncIterator[Waiting]:
    spec = JobSpec(
        job=fresh("early"),
        topology="early",
        destination="dc2",
        clusters={name: sides[name].spec() for name in ("dc1", "dc2")},
        flows=[replace(flow_spec(fresh("flow"), heartbeats_every_ms=None), state="paused")],
        slots=1,
        metrics=None,
    )
    driver = Waiting(spec, folder)
    try:
        async with asyncio.timeout(PATIENCE_S):
            await driver.runner.leading.wait()
            yield driver
    finally:
        driver.running.cancel()
        await asyncio.gather(driver.running, return_exceptions=True)  # its connections are closed


async def test_a_job_is_stopped_before_spark_has_started(
    sides: dict[str, Side], fresh: Fresh, tmp_path: Path
) -> None:
    async with waiting(sides, fresh, tmp_path) as driver:
        await driver.send(StopJobCommand("stop"))
        assert await driver.running is JobExit.STOPPED
        last = await driver.last_status()
        assert last is not None
        assert (last.state, last.stop_requested, last.answers) == ("stopped", True, {"stop": ""})


async def test_a_spec_that_arrives_before_spark_has_started_is_applied_then(
    sides: dict[str, Side], fresh: Fresh, tmp_path: Path
) -> None:
    async with waiting(sides, fresh, tmp_path) as driver:
        edited = replace(driver.spec, flows=[replace(driver.spec.flows[0], rpo_ms=9_000)])
        await driver.send(Reconfigure("edit", edited))
        slots = SlotProcesses()
        driver.spark.set_result(cast(Any, slots))
        try:
            while "edit" not in driver.runner.status().answers:
                assert not driver.running.done(), driver.running
                await asyncio.sleep(0.05)
            assert driver.runner.status().answers["edit"] == ""
            assert driver.runner.spec == edited
            driver.runner.stop()
            assert await driver.running is JobExit.STOPPED
        finally:
            slots.end()
