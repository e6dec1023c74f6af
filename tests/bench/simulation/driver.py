"""The process of a driver that is measured: the whole driver of a job, with a stand-in for Spark.

python -m tests.bench.simulation.driver SPEC [--without-duties]

After each line of input it prints what its duties have cost so far, as JSON. It ends with its input.
With `--without-duties` it measures only the process: each step of a duty reads the clock of the thread twice,
which costs an idle driver up to an eighth of its CPU.
"""

from __future__ import annotations

import asyncio
import base64
import os
import sys
import time
from pathlib import Path
from typing import Any, cast

import msgspec
import uvloop

from runtime.contract.spec.jobspec import JobExit, decode
from runtime.driver.application import SparkSlotRunner
from runtime.driver.clusters import DriverClusters
from runtime.driver.duties.acl_sync import AclSync
from runtime.driver.duties.group_sync import GroupSync
from runtime.driver.duties.heartbeats import FlowHeartbeats
from runtime.driver.flows.flow import DriverFlow
from runtime.driver.flows.mirroring import MirrorCopier
from runtime.driver.job import JobRunner
from runtime.driver.leadership import Leadership
from runtime.driver.metrics import JobMetrics
from runtime.driver.process import SpecFile, collect_rarely
from runtime.driver.slots.manager import SlotManager
from runtime.driver.slots.membership import Membership
from runtime.driver.slots.supervisor import SlotSupervisor
from runtime.driver.slots.ticket import SlotStartRequest, encode
from runtime.driver.topics.mirrors import MirrorTopicManager
from runtime.kafka.connection import Connection
from runtime.ledger.ledger import Ledger
from runtime.slot import log
from runtime.slot.errors import SlotEnd
from tests.bench.simulation.meter import DriverCost, DutyMeter

_WITHOUT_DUTIES = "--without-duties"
# Each duty with the functions that belong to it.
DUTIES: dict[str, list[tuple[object, str]]] = {
    "listing": [(DriverClusters, "_listing")],
    "take over": [(DriverFlow, "_take_over")],
    "ledger": [
        (Ledger, "refresh"),
        (Ledger, "decided"),
        (Ledger, "all_progress"),
        (Ledger, "progress"),
    ],
    "start positions": [(MirrorCopier, "_begin_new_partitions"), (MirrorCopier, "_commit_begun")],
    "mirrors": [(MirrorTopicManager, "update")],
    "following": [(MirrorCopier, "copy_once")],
    "assignment": [
        (Membership, "set_wanted"),
        (Membership, "publish"),
        (Membership, "rebalance"),
        (SlotSupervisor, "send_assignment"),
    ],
    "reports": [(SlotManager, "_read_report")],
    "groups": [(GroupSync, "sync_once")],
    "ACLs": [(AclSync, "_sync")],
    "status": [(Leadership, "send_heartbeat"), (JobRunner, "status")],
    "heartbeats": [(FlowHeartbeats, "_write")],
    "metrics": [(JobMetrics, "_refresh")],
    "answers": [(Connection, "buffer_updated")],
}


class StandInApplication:
    """Starts the process of the slots in the place of Spark, and gives it each slot that is submitted."""

    id = "simulated"
    master = "local[*]"

    def __init__(self) -> None:
        self.assigned = 0
        self._process: asyncio.subprocess.Process | None = None
        self._lines: asyncio.Task[None] | None = None

    async def start(self) -> None:
        """Starts the process of the slots."""
        self._process = await asyncio.create_subprocess_exec(
            sys.executable,
            "-m",
            "tests.bench.simulation.slots",
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
        )
        self._lines = asyncio.create_task(self._read())

    async def _read(self) -> None:
        assert self._process is not None
        assert self._process.stdout is not None
        while line := await self._process.stdout.readline():
            self.assigned = int(line)

    async def await_executors(self) -> None:
        """Returns: there are no executors to wait for."""

    async def cores(self) -> int:
        """Returns the number of cores, which the spec's number of slots replaces."""
        return 1

    async def waits_for(self, _group: str) -> None:
        """Returns that every slot has a core."""

    async def cancel(self, _group: str) -> None:
        """Does nothing: no slot of a measurement hangs."""

    async def stop(self) -> None:
        """Ends the slots."""
        if self._process is not None and self._process.stdin is not None:
            self._process.stdin.close()

    def submit(self, _group: str, request: SlotStartRequest) -> asyncio.Future[SlotEnd]:
        """Starts a slot. It runs as long as the driver."""
        assert self._process is not None
        assert self._process.stdin is not None
        self._process.stdin.write(base64.b64encode(encode(request)) + b"\n")
        return asyncio.get_running_loop().create_future()


def _peak_mb() -> float:
    """Returns the peak of this process's memory, without that of the process which started it."""
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith("VmHWM:"):
            return int(line.split()[1]) / 1024
    raise SystemExit("/proc/self/status has no VmHWM")


async def _serve(meter: DutyMeter, application: StandInApplication) -> None:
    """Answers each line of input, and returns at its end."""
    lines = asyncio.StreamReader()
    await asyncio.get_running_loop().connect_read_pipe(lambda: asyncio.StreamReaderProtocol(lines), sys.stdin)
    while await lines.readline():
        cost = DriverCost(
            duties=meter.costs,
            loop_s=time.thread_time(),
            cpu_s=time.process_time(),
            peak_mb=_peak_mb(),
            assigned=application.assigned,
        )
        print(msgspec.json.encode(cost).decode(), flush=True)


async def _run(file: Path, *, with_duties: bool) -> JobExit:
    meter = DutyMeter()
    loop = asyncio.get_running_loop()
    if with_duties:
        for duty, functions in DUTIES.items():
            for owner, name in functions:
                meter.measure(owner, name, duty)
        loop.set_task_factory(cast("Any", meter.task_factory))
    application = StandInApplication()
    await application.start()
    job = JobRunner(decode(file.read_bytes()), os.environ, SpecFile(file))
    started: asyncio.Future[SparkSlotRunner] = loop.create_future()
    started.set_result(cast("SparkSlotRunner", application))
    running = asyncio.ensure_future(job.run(started))
    serving = asyncio.ensure_future(_serve(meter, application))
    await asyncio.wait([running, serving], return_when=asyncio.FIRST_COMPLETED)
    if running.done():
        return running.result()
    return JobExit.STOPPED


def main() -> int:
    log.start(os.environ)
    collect_rarely()  # as the driver of a job does
    file, *options = sys.argv[1:]
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        code = runner.run(_run(Path(file), with_duties=_WITHOUT_DUTIES not in options))
    return int(code)


if __name__ == "__main__":
    code = main()
    sys.stdout.flush()
    os._exit(code)  # threads that wait for brokers must not delay the exit
