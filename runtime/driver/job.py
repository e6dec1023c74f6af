"""The job: everything the driver does, put together. One event loop; each duty is a task of its own."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import socket
import time
import uuid
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

from msgspec.structs import replace

from runtime.contract import control, job_status, naming
from runtime.contract.client_values import ClientSettingsError
from runtime.contract.exits import JobExit
from runtime.contract.job_status import JobState, JobStatus, SlotReport, SpecKey
from runtime.contract.jobspec import JobSpec
from runtime.copy.log import log_event
from runtime.copy.records import Record
from runtime.copy.wire.errors import WireError
from runtime.driver.application import Application
from runtime.driver.channel import Tail, end_of, pause, post
from runtime.driver.clusters import Clusters
from runtime.driver.destination import Destination, last_status, open_destination
from runtime.driver.fleet import Fleet
from runtime.driver.flow_duties import FlowDuties
from runtime.driver.flows import Flows
from runtime.driver.keeper import Surroundings
from runtime.driver.log import say
from runtime.driver.membership import Membership
from runtime.driver.metrics import JobMetrics, Replicas, flow_pictures
from runtime.driver.pulse import Pulse
from runtime.driver.takeover import Shared
from runtime.driver.tasks import Tasks
from runtime.driver.writer import DriverFenced, DriverWriter
from runtime.observe.picture import Picture

_PAUSE_S = 1.0
_GOODBYE_S = 10.0


class Job:
    """`run` until `stop`, a command, or a fence; it says how the process is to end."""

    def __init__(self, spec: JobSpec, environ: Mapping[str, str]) -> None:
        self.spec = spec
        self.driver = uuid.uuid4().hex
        self._clusters = Clusters(spec.job, spec.clusters, environ)
        self._state: JobState = "starting"
        self._started = time.time()
        self._heard = ""
        self._trouble = ""
        self._stopping = asyncio.Event()
        self._tasks = Tasks()
        self._application: Application | None = None
        self._pulse: Pulse | None = None
        self._flows: Flows | None = None
        self._fleet: Fleet | None = None
        self._metrics = JobMetrics(lambda: self.spec, self._picture)
        self._replicas = Replicas()
        self._duties = FlowDuties(lambda: self.spec, self._clusters, self._tasks, self._reports)

    def stop(self) -> None:
        self._stopping.set()

    async def run(self, application: asyncio.Future[Application]) -> JobExit:
        destination: Destination | None = None
        self._tasks.spawn(self._metrics.run(), "metrics")
        try:
            destination = await self._opened()
            if destination is None:
                return JobExit.STOPPED
            writer = await self._begun(destination)
            if writer is None:
                return JobExit.STOPPED
            spec = self.spec
            log_event(
                "driver_started",
                job=spec.job,
                driver=self.driver,
                destination=spec.destination,
                flows=len(spec.flows),
                host=socket.gethostname(),
                process=os.getpid(),
            )
            self._pulse = Pulse(writer, self.status)
            if not await self._insist(self._pulse.beat):
                return JobExit.STOPPED
            self._application = await application
            await self._start(destination, writer, self._pulse)
            stopping = asyncio.create_task(self._stopping.wait())
            waiting: list[asyncio.Future[Any]] = [stopping, self._tasks.failed]
            await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
            stopping.cancel()
            if self._tasks.failed.done():
                self._tasks.failed.result()
            await self._goodbye()
        except DriverFenced as error:
            return await self._fenced(error, destination)
        else:
            return JobExit.STOPPED
        finally:
            await self._tasks.end_all()
            await self._clusters.close()

    def status(self) -> JobStatus:
        application = self._application
        return JobStatus(
            job=self.spec.job,
            topology=self.spec.topology,
            driver=self.driver,
            state=self._state,
            at_ms=int(time.time() * 1000),
            started_ms=int(self._started * 1000),
            application=application.id if application is not None else "",
            master=application.master if application is not None else "",
            host=socket.gethostname(),
            process=os.getpid(),
            heard=self._heard,
            trouble=self._trouble or self._metrics.trouble,
            slots=self._fleet.views() if self._fleet is not None else [],
            flows=self._duties.noted(self._flows.views()) if self._flows is not None else [],
        )

    def _picture(self) -> Picture:
        status = self.status()
        return Picture(
            spec=self.spec,
            status=status,
            made_at=time.monotonic(),
            heartbeat_age_s=self._pulse.age_s if self._pulse is not None else float("inf"),
            reports=dict(self._fleet.reports) if self._fleet is not None else {},
            flows=flow_pictures(status, self._flows.all() if self._flows is not None else []),
            clusters=self._replicas.of(self._clusters.listed()),
            groups=self._duties.groups(),
        )

    def _reports(self) -> list[SlotReport]:
        return list(self._fleet.reports.values()) if self._fleet is not None else []

    async def _opened(self) -> Destination | None:
        """Waits for the destination as long as it takes; None when stopped meanwhile."""
        while not self._stopping.is_set():
            try:
                return await open_destination(self.spec, self._clusters)
            except WireError as error:
                say(f"waiting for {self.spec.destination}: {error}")
                await pause(_PAUSE_S, self._stopping)
        return None

    async def _begun(self, destination: Destination) -> DriverWriter | None:
        """From here on every older driver of the job is fenced (R10); None when stopped meanwhile."""
        while not self._stopping.is_set():
            try:
                return await DriverWriter.begin(destination.cluster, self.spec.job)
            except WireError as error:
                say(f"waiting for the coordinator at {self.spec.destination}: {error}")
                await pause(_PAUSE_S, self._stopping)
        return None

    async def _insist(self, duty: Callable[[], Awaitable[None]]) -> bool:
        """Until it is done; false when stopped meanwhile."""
        while not self._stopping.is_set():
            try:
                await duty()
            except WireError as error:
                self._trouble = str(error)
                await pause(_PAUSE_S, self._stopping)
            else:
                self._trouble = ""
                return True
        return False

    async def _start(self, destination: Destination, writer: DriverWriter, pulse: Pulse) -> None:
        assert self._application is not None
        spec, application = self.spec, self._application
        if not spec.slots:
            await asyncio.to_thread(application.await_executors)
        slots = spec.slots or application.cores()
        membership = Membership(range(slots))
        around = Surroundings(
            job=spec.job,
            driver=self.driver,
            destination=spec.destination,
            settings=spec.copy,
            reached=spec.clusters[spec.destination],
            cluster=destination.cluster,
            application=application,
            membership=membership,
            pulse=pulse,
            changed=self._changed,
        )
        shared = Shared(
            job=spec.job,
            driver=self.driver,
            slots=slots,
            generations=destination.generations,
            settings=spec.copy,
            clusters=self._clusters,
            destination=destination.cluster,
            ledger=destination.ledger,
            writer=writer,
            pulse=pulse,
            changed=self._changed,
            holds=membership.holds,
        )
        self._flows = Flows(shared, membership, self._tasks, self._duties.began)
        self._fleet = Fleet(slots, around, self._flows.all, self._tasks, self._metrics.heard)
        self._tasks.spawn(pulse.run(), "pulse")
        status_offset = await end_of(destination.cluster, naming.STATUS)
        control_offset = await end_of(destination.cluster, naming.CONTROL)
        self._flows.begin(spec)
        self._fleet.start(status_offset)
        await self._remember(destination)
        self._tasks.spawn(self._obey(destination, control_offset), "commands")
        self._state = "running"

    def _changed(self) -> None:
        if self._fleet is not None:
            self._fleet.changed()

    async def _remember(self, destination: Destination) -> None:
        record = Record(job_status.encode_key(SpecKey(self.spec.job)), job_status.encode(self.spec))
        assert self._pulse is not None
        await self._pulse.still()
        await post(destination.cluster, naming.STATUS, [record])

    async def _obey(self, destination: Destination, offset: int) -> None:
        """Commands, one after the other, each until it is carried out."""
        tail = Tail(destination.cluster, naming.CONTROL, offset)
        mine = control.command_key(self.spec.job)
        while True:
            try:
                found = await tail.read()
            except WireError:
                await asyncio.sleep(_PAUSE_S)
                continue
            for record in found:
                if record.key == mine and record.value is not None:
                    await self._carry_out(record.value, destination)

    async def _carry_out(self, value: bytes, destination: Destination) -> None:
        assert self._flows is not None
        try:
            command = control.decode_command(value)
        except control.UnreadableControl as error:
            self._trouble = str(error)
            log_event("command", error=self._trouble, decision="skipped")
            return
        while True:
            try:
                match command:
                    case control.StopJob():
                        self._stopping.set()
                    case control.AcceptLoss(flow=flow, partitions=partitions):
                        stopped = self._fleet.stopped() if self._fleet is not None else ()
                        self._flows.accept_loss(flow, stopped, partitions)
                    case control.Reconfigure(spec=spec):
                        await self._reconfigure(spec, destination)
            except WireError as error:
                self._trouble = str(error)
                log_event(
                    "command_retry", key=command.id, id=command.id, error=self._trouble, decision="retry"
                )
                await asyncio.sleep(_PAUSE_S)
                continue
            except ClientSettingsError as error:
                self._trouble = str(error)
            else:
                self._trouble = ""
            self._heard = command.id
            log_event(
                "command",
                key=command.id,
                job=self.spec.job,
                command=type(command).__name__,
                id=command.id,
                error=self._trouble,
                decision="refused" if self._trouble else "carried out",
            )
            return

    async def _reconfigure(self, spec: JobSpec, destination: Destination) -> None:
        assert self._flows is not None
        if (spec.job, spec.destination) != (self.spec.job, self.spec.destination):
            raise ClientSettingsError("job", f"{spec.job} into {spec.destination} is another job")
        # Everything here hangs on the destination: it is reached as it was at the start.
        kept = {spec.destination: self.spec.clusters[spec.destination]}
        self.spec = spec = replace(spec, clusters={**spec.clusters, **kept})
        self._clusters.know(spec.clusters)
        await self._flows.run_by(spec)
        self._duties.keep(self._flows.by_name)
        await self._clusters.forget_others(spec.clusters)
        await self._remember(destination)

    async def _goodbye(self) -> None:
        """Transactions end, the ledger says that nobody copies, the heartbeat says goodbye."""
        self._state = "stopping"
        log_event("driver_stopping", job=self.spec.job, driver=self.driver)
        assert self._fleet is not None
        assert self._flows is not None
        assert self._pulse is not None
        await self._fleet.stop()
        self._state = "stopped"
        with contextlib.suppress(TimeoutError, WireError):
            async with asyncio.timeout(_GOODBYE_S):
                await self._flows.goodbye()
                await self._pulse.beat()
        log_event("driver_stopped", job=self.spec.job, driver=self.driver)

    async def _fenced(self, error: DriverFenced, destination: Destination | None) -> JobExit:
        """Another driver has the job: for good. But the coordinator also fences who was silent for too long;
        then the last heartbeat is still ours, and the job is to be started again.
        """
        log_event(
            "driver_fenced",
            level=logging.WARNING,
            job=self.spec.job,
            driver=self.driver,
            error=str(error),
            decision="end",
        )
        with contextlib.suppress(WireError, TimeoutError):
            async with asyncio.timeout(_GOODBYE_S):
                last = await last_status(destination.cluster, self.spec.job) if destination else None
                if last is not None and last.driver == self.driver:
                    return JobExit.FAILED
        return JobExit.FENCED
