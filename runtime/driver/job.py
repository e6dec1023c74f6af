"""This module assembles the driver of one job. One event loop runs all duties, each as a task of its own."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import socket
import time
import uuid
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, TypeVar

from runtime.contract.records import control, job_status
from runtime.contract.records.job_status import JobState, JobStatus, JobStatusTable, StatusKey
from runtime.contract.records.ledger import PartitionKey
from runtime.contract.records.record_values import UnreadableValue
from runtime.contract.spec import naming
from runtime.contract.spec.jobspec import JobExit, JobSpec
from runtime.contract.spec.restarts import not_started_with, regrouped
from runtime.driver.application import SparkSlotRunner
from runtime.driver.clusters import (
    DriverClusters,
    exit_after_restart,
    last_rates,
    open_destination,
    read_reported,
)
from runtime.driver.commands import CommandHandler, RefusedCommand
from runtime.driver.duties.flow_duties import FlowDuties
from runtime.driver.flows.flows import FlowManager
from runtime.driver.flows.start import DriverContext
from runtime.driver.kubernetes import KubernetesExecutors
from runtime.driver.leadership import DriverFenced, Leadership
from runtime.driver.metrics import JobMetrics, ReplicaCounts, flow_snapshots
from runtime.driver.process import JvmSilent, SpecFile
from runtime.driver.slots.channel import (
    COMMANDS_WAIT_MS,
    TopicTail,
    UnreadableRecordCounter,
    end_of,
    pause,
    post,
)
from runtime.driver.slots.manager import SlotManager, partitions_in_loss
from runtime.driver.slots.membership import NO_SLOTS, Membership, slot_layout
from runtime.driver.slots.round_reports import RoundReports
from runtime.driver.yarn import YarnApplications
from runtime.kafka.cluster import KafkaCluster
from runtime.kafka.errors import WireError
from runtime.kafka.records import InternalRecord
from runtime.kafka.timing import BackgroundTasks, callback_failures, now_ms
from runtime.ledger.ledger import Ledger
from runtime.metrics.snapshot import JobSnapshot
from runtime.slot.log import log_driver_message, log_event

_PAUSE_S = 1.0
_STOP_TIMEOUT_S = 10.0
_NAMES_SHOWN, _NAME_LENGTH = 5, 100  # limits of the error text of a refused edit


T = TypeVar("T")
SparkCluster = YarnApplications | KubernetesExecutors


class StoppedMeanwhile(Exception):
    """The job was stopped before it had started."""


class JobRunner:
    """Runs until `stop`, a stop command or a fence, and returns how the process must exit.

    The clusters that it reaches, and how it reaches them, are those of the spec that it was started with. No
    record adds a cluster or changes how one is reached, and none changes that part of the spec's `file`.
    `restarted`: a supervisor started it again, so it gives way to a driver that took over meanwhile.
    """

    def __init__(
        self, spec: JobSpec, environ: Mapping[str, str], file: SpecFile, *, restarted: bool = False
    ) -> None:
        self.spec = spec
        self._started_with = spec
        self._file = file
        self._restarted = restarted
        self._stop_requested = False
        self.driver = uuid.uuid4().hex
        self._clusters = DriverClusters(spec.job, spec.clusters, environ, spec.registries)
        self._state: JobState = "starting"
        self._started = time.time()
        self._trouble = ""
        self._shipped = 0
        self._skipped = UnreadableRecordCounter(naming.CONTROL)
        self._stopping = asyncio.Event()
        self.leading = asyncio.Event()  # set once every older driver is fenced
        self._tasks = BackgroundTasks()
        self._application: SparkSlotRunner | None = None
        self._leadership: Leadership | None = None
        self._destination: KafkaCluster | None = None
        self._commands = CommandHandler(
            self._stop_by_command, self._accept_loss, self._reconfigure, self._request_heartbeat
        )
        self._editing: asyncio.Task[None] | None = None
        self._flows: FlowManager | None = None
        self._slots: SlotManager | None = None  # none of a job that copies in rounds
        self._reporting: SlotManager | RoundReports | None = None
        self._metrics = JobMetrics(lambda: self.spec, self._snapshot)
        self._replicas = ReplicaCounts()
        self._duties = FlowDuties(
            lambda: self.spec,
            self._clusters,
            self._tasks,
            lambda: self._reporting.reports.values() if self._reporting is not None else (),
        )

    def stop(self) -> None:
        """Requests a graceful stop."""
        self._stopping.set()

    def _stop_by_command(self) -> None:
        self._stop_requested = True  # no standby starts the job again
        self.stop()

    def _request_heartbeat(self) -> None:
        if self._leadership is not None:
            self._leadership.request_heartbeat()

    async def run(
        self, application: asyncio.Future[SparkSlotRunner], cluster: SparkCluster | None = None
    ) -> JobExit:
        """Runs the job to its end and returns the exit code.

        `cluster` says why the application does not run yet.
        """
        with callback_failures(self._tasks.fail):
            return await self._run(application, cluster)

    async def _run(
        self, application: asyncio.Future[SparkSlotRunner], spark_cluster: SparkCluster | None
    ) -> JobExit:
        """Runs the job until it stops, fails or is fenced.

        It opens the destination, fences older drivers, and starts the job.
        """
        self._tasks.spawn(self._metrics.run(), "metrics")
        try:
            spec, name = self.spec, self.spec.destination
            cluster = self._destination = await self._until_done(
                lambda: open_destination(spec, self._clusters), name
            )
            if self._restarted:
                ended = await self._until_done(lambda: exit_after_restart(cluster, spec.job), name)
                if ended is not None:
                    return ended
            # The driver's transactional id fences every older driver of the job (R10).
            leadership = await self._until_done(
                lambda: Leadership.open(cluster, spec.job, self.status), f"the coordinator at {name}"
            )
            log_event(
                "driver_started",
                job=spec.job,
                driver=self.driver,
                destination=spec.destination,
                flows=len(spec.flows),
                host=socket.gethostname(),
                process=os.getpid(),
            )
            before = await self._until_done(lambda: read_reported(cluster), name)
            # A command after the first heartbeat is for this driver, however long Spark takes to start.
            control_offset = await self._until_done(lambda: end_of(cluster, naming.CONTROL), name)
            self._leadership = leadership
            await self._until_done(leadership.send_heartbeat, name)
            log_event("driver_leading", job=spec.job, driver=self.driver)
            self.leading.set()
            # Spark takes seconds to start, in which a standby must not take the job over.
            self._tasks.spawn(leadership.run(), "leadership")
            # A stop takes effect at once, a new spec once the flows have started.
            self._tasks.spawn(self._read_commands(cluster, control_offset), "commands")
            self._application = await self._unless_ended(self._await_spark(application, spark_cluster))
            await self._start(cluster, before, leadership)
            self._editing = self._tasks.spawn(self._commands.run(), "edits")
            await self._until_ended()
            await self._stop_gracefully()
        except DriverFenced as error:
            return await self._fenced(error)
        except StoppedMeanwhile:  # before the job had started
            self._state = "stopped"
            if self._leadership is not None:
                await self._try_to_end(self._leadership.send_heartbeat)
            return JobExit.STOPPED
        finally:
            try:
                await self._tasks.end_all()
            finally:  # a second cancellation must not leave connections open, for which the loop would wait
                await self._clusters.close()
        return JobExit.STOPPED

    def status(self) -> JobStatus:
        """Returns the job's status, as the heartbeat carries it."""
        application = self._application
        return JobStatus(
            job=self.spec.job,
            topology=self.spec.topology,
            driver=self.driver,
            state=self._state,
            at_ms=now_ms(),
            started_ms=int(self._started * 1000),
            application=application.id if application is not None else "",
            master=application.master if application is not None else "",
            host=socket.gethostname(),
            process=os.getpid(),
            answers=dict(self._commands.answers),
            stop_requested=self._stop_requested,
            # The most important present failure:
            trouble=self._trouble
            or self._commands.trouble
            or self._skipped.note
            or (self._slots.trouble if self._slots is not None else "")
            or self._metrics.trouble,
            shipped=self._shipped,
            metrics=self._metrics.address,
            metrics_taken=self._metrics.taken,
            slots=self._reporting.views() if self._reporting is not None else [],
            flows=self._duties.with_notes(self._flows.views()) if self._flows is not None else [],
        )

    def _snapshot(self) -> JobSnapshot:
        """Returns the snapshot from which the metrics are made."""
        status = self.status()
        return JobSnapshot(
            spec=self.spec,
            status=status,
            made_at=time.monotonic(),
            heartbeat_age_s=self._leadership.age_s if self._leadership is not None else float("inf"),
            reports=dict(self._reporting.reports) if self._reporting is not None else {},
            flows=flow_snapshots(
                status, self._flows.all() if self._flows is not None else [], self._duties.schema_actions
            ),
            clusters=self._replicas.of(self._clusters.listed()),
            groups=self._duties.groups(),
        )

    async def _until_done(self, duty: Callable[[], Awaitable[T]], what: str) -> T:
        """Retries a duty until it succeeds. Raises StoppedMeanwhile, or the failure of the job."""
        while not self._stopping.is_set():
            if self._tasks.failed.done():
                self._tasks.failed.result()
            try:
                result = await duty()
            except WireError as error:
                self._trouble = str(error)
                log_driver_message(f"waiting for {what}: {error}")
                await pause(_PAUSE_S, self._stopping)
            else:
                self._trouble = ""
                return result
        raise StoppedMeanwhile

    async def _unless_ended(self, duty: Awaitable[T]) -> T:
        """Returns the result of a duty, which is cancelled where the job is stopped or fails meanwhile.

        Raises StoppedMeanwhile, or the failure.
        """
        work = asyncio.ensure_future(duty)
        try:
            await self._until_ended(work)
            if not work.done():
                raise StoppedMeanwhile
            return work.result()
        finally:
            work.cancel()

    async def _until_ended(self, *work: asyncio.Future[Any]) -> None:
        """Waits until the job is stopped, or one of `work` is done. Raises the failure of the job."""
        stopping = asyncio.create_task(self._stopping.wait())
        try:
            waiting: list[asyncio.Future[Any]] = [stopping, self._tasks.failed, *work]
            await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
            if self._tasks.failed.done():
                self._tasks.failed.result()
        finally:
            stopping.cancel()

    async def _await_spark(
        self, application: asyncio.Future[SparkSlotRunner], cluster: SparkCluster | None
    ) -> SparkSlotRunner:
        """Waits until Spark runs; the status says meanwhile what the cluster waits for."""
        while cluster is not None and not application.done():
            await asyncio.wait([application], timeout=_PAUSE_S)
            asking = asyncio.ensure_future(asyncio.to_thread(cluster.waits_for))
            waiting: list[asyncio.Future[Any]] = [application, asking]
            await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
            self._trouble = asking.result() if asking.done() else ""
            self._shipped = cluster.shipped
        result = await asyncio.shield(application)
        self._trouble = ""
        return result

    async def _start(self, destination: KafkaCluster, before: JobStatusTable, leadership: Leadership) -> None:
        """Starts the flows and the slots. `before` is what the driver before this one reported.

        The end offset of the status topic is read before the flows start, so that no report is missed.
        """
        assert self._application is not None
        spec, application = self.spec, self._application
        cores = spec.slots or await self._unless_ended(self._cores(application))
        layout = NO_SLOTS if spec.in_rounds else slot_layout(spec.flows, cores)
        slots = len(layout.by_slot)
        membership = Membership(range(slots), layout.slots_of, last_rates(before, spec.job))
        last = before.jobs.get(spec.job)
        context = DriverContext(
            spec=self._started_with,
            driver=self.driver,
            clusters=self._clusters,
            destination=destination,
            ledger=await self._until_done(lambda: Ledger.open(destination), spec.destination),
            leadership=leadership,
            application=application,
            changed=self._changed,
            generations={flow.flow: flow.generation for flow in last.flows} if last is not None else {},
            layout=layout,
            membership=membership,
        )
        self._flows = FlowManager(context, self._tasks, self._duties.restart)
        flows, record_report = self._flows.all, self._metrics.record_report
        rounds = RoundReports(context, flows, record_report) if spec.in_rounds else None
        if rounds is None:
            self._slots = SlotManager(slots, context, flows, self._tasks, record_report)
        self._reporting = rounds or self._slots
        status_offset = await self._until_done(lambda: end_of(destination, naming.STATUS), spec.destination)
        await self._until_done(self._publish_spec, spec.destination)
        self._flows.start(spec)
        if rounds is not None:
            self._tasks.spawn(rounds.run(), "report")
        if self._slots is not None:
            self._slots.start(status_offset)
        self._state = "running"

    async def _cores(self, application: SparkSlotRunner) -> int:
        """Waits for the executors and returns the number of cores.

        It retries while the JVM does not answer.
        """
        while True:
            try:
                await application.await_executors()
                return await application.cores()
            except JvmSilent as error:
                log_driver_message(str(error))

    def _changed(self) -> None:
        if self._slots is not None:
            self._slots.changed()
        self._request_heartbeat()

    async def _publish_spec(self) -> None:
        """Writes the spec that the job runs by to the status topic (R10)."""
        record = InternalRecord(
            job_status.encode_key(StatusKey("spec", self.spec.job)), job_status.encode(self.spec)
        )
        assert self._leadership is not None
        assert self._destination is not None
        await self._leadership.ensure()
        await post(self._destination, naming.STATUS, [record])

    async def _read_commands(self, destination: KafkaCluster, offset: int) -> None:
        """Reads the control topic and passes the commands for this job on, until cancelled."""
        tail = TopicTail(destination, naming.CONTROL, offset, self._skipped, COMMANDS_WAIT_MS)
        mine = control.command_key(self.spec.job)
        async for record in tail.records():
            if record.key == mine and record.value is not None:
                try:
                    command = control.decode_command(record.value)
                except UnreadableValue as error:
                    self._skipped.add(record.offset, str(error))
                    continue
                self._commands.accept(command)

    def _accept_loss(self, command: control.AcceptLoss) -> None:
        """Accepts the loss of partitions that stopped over one. Raises RefusedCommand for the others."""
        stopped = partitions_in_loss(self._reporting.reports.values()) if self._reporting is not None else ()
        accepted: frozenset[PartitionKey] = frozenset()
        if self._flows is not None:
            accepted = self._flows.accept_loss(command.flow, stopped, command.partitions)
        others = sorted({tuple(place) for place in command.partitions} - {tuple(key.at) for key in accepted})
        if others:
            topic, partition = others[0]
            more = f" and {len(others) - 1} more" if len(others) > 1 else ""
            raise RefusedCommand(
                f"{topic}-{partition}{more} of flow.{command.flow} had not stopped over lost records when the"
                " command arrived, and nothing was accepted for them. See repl status, and repeat the command"
                " if they stop"
            )

    async def _reconfigure(self, spec: JobSpec) -> None:
        """Applies another spec, after it was written to the file that a restart goes by.

        An end of a flow is in the ledger before all of the spec is applied: a driver that is started again
        then completes it. What the job refuses does not reach the file. What is in the file can be applied:
        a failure of a cluster is retried until it succeeds, or a newer spec arrives.

        Raises RefusedCommand for another job, or for clusters that the job was not started with.
        """
        assert self._flows is not None
        if (spec.job, spec.destination) != (self.spec.job, self.spec.destination):
            raise RefusedCommand(
                f"an edit was refused: {spec.job!r} into {spec.destination!r} is another job"
            )
        if unexpected := not_started_with(self._started_with.clusters, spec):
            raise RefusedCommand(_refusal(unexpected))
        if other := regrouped(self._started_with, spec):
            raise RefusedCommand(_refusal_of_transforms(other))
        await asyncio.to_thread(self._file.keep, spec, self._started_with)
        self.spec = spec
        await self._flows.apply_spec(spec)
        self._duties.retain_only(self._flows.by_name)
        await self._clusters.close_others(spec.clusters)
        await self._publish_spec()

    async def _stop_gracefully(self) -> None:
        """Stops the job after its transactions have ended.

        The ledger then records that the flows stopped, and a last heartbeat is sent.
        """
        self._state = "stopping"
        log_event("driver_stopping", job=self.spec.job, driver=self.driver)
        assert self._flows is not None
        assert self._leadership is not None
        if self._editing is not None:  # an edit must not start a flow any more
            await self._tasks.end(self._editing)
        if self._slots is not None:  # a round ends with its flow: what it has not committed is not visible
            await self._slots.stop()
        self._state = "stopped"
        # A flow that can't be stopped in the ledger does not keep the job from saying that it was stopped.
        for last in (self._flows.stop_all, self._leadership.send_heartbeat):
            await self._try_to_end(last)
        log_event("driver_stopped", job=self.spec.job, driver=self.driver)

    async def _try_to_end(self, last: Callable[[], Awaitable[None]]) -> None:
        """Does one of the last things of the job, for a bounded time: where it fails, the job ends too."""
        with contextlib.suppress(TimeoutError, WireError):
            async with asyncio.timeout(_STOP_TIMEOUT_S):
                await last()

    async def _fenced(self, error: DriverFenced) -> JobExit:
        """Returns FENCED when another driver runs the job, so that the job is not started again.

        The coordinator also fences a driver that was silent for too long. Then the last heartbeat is still
        this driver's, and FAILED is returned, so that the job is started again.
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
            async with asyncio.timeout(_STOP_TIMEOUT_S):
                destination = self._destination
                if destination is not None:
                    last = (await read_reported(destination)).jobs.get(self.spec.job)
                    if last is not None and last.driver == self.driver:
                        return JobExit.FAILED
        return JobExit.FENCED


def _refusal_of_transforms(flows: Sequence[str]) -> str:
    named = ", ".join(flows[:_NAMES_SHOWN])
    return (
        "an edit was refused: this job was not started with the transforms, the folders or the schema"
        f" registries of {named}."
        " Run repl plan and repl apply: they restart the job"
    )


def _refusal(unexpected: Sequence[str]) -> str:
    named = [repr(name)[1:-1][:_NAME_LENGTH] for name in unexpected[:_NAMES_SHOWN]]
    more = f" and {len(unexpected) - _NAMES_SHOWN} more" if len(unexpected) > _NAMES_SHOWN else ""
    return (
        f"an edit was refused: {', '.join(named)}{more} differ from the spec that this job was started with. "
        "No control record changes which clusters are reached, or how. "
        "Run repl plan and repl apply: they restart the job"
    )
