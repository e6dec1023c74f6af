"""A slot is one process. It copies the partitions that the driver assigns to it, until it is told to end."""

from __future__ import annotations

import asyncio
import os
import socket
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import runtime.batch.headers  # noqa: F401 - numpy is loaded before the first batch comes
from runtime.contract.records.control import AssignedPartition, Assignment, SlotSpec, client_id
from runtime.contract.records.job_status import PartitionState, PartitionStatus, SlotReport
from runtime.contract.records.ledger import PartitionKey
from runtime.contract.spec import naming
from runtime.contract.spec.cluster import ClusterSpec
from runtime.kafka.cluster import KafkaCluster, WrongCluster, named, opened
from runtime.kafka.errors import BrokerError, ErrorCode, WireError
from runtime.kafka.timing import callback_failures, now_ms, wait_at_most
from runtime.ledger.ledger import Ledger, ProducerDirectory
from runtime.schemas.client import SchemaRegistry
from runtime.slot import log
from runtime.slot.budget import ByteBudget, SessionShares
from runtime.slot.context import SlotContext
from runtime.slot.errors import SlotEnd, SlotMustEnd
from runtime.slot.flow_run import FlowRun, SourceClusters
from runtime.slot.idle_session import IdleSessions

if TYPE_CHECKING:
    from runtime.sql.transformer import Transformer

_OPEN_PAUSE_S = 1.0

_NO_RATES: Mapping[PartitionKey, int] = {}


class Slot:
    """A slot owns the clients, flows and tasks of one process, starting with its first assignment.

    `run` copies until `stop`, or until the slot must end. All methods must be called in the event loop that
    runs it. There is one slot per process. Errors 47 and 90 end the process, because only a process that
    was submitted again may initialise its transactional ids again (R3).

    `read_commands` returns once every command that the driver had written before the call is carried out. It
    raises WireError, and SlotMustEnd where a command may be missing. A slot without a driver has none.
    """

    def __init__(
        self,
        spec: SlotSpec,
        first: Assignment,
        environ: Mapping[str, str] | None = None,
        transformer: Transformer | None = None,
        read_commands: Callable[[], Awaitable[None]] | None = None,
    ) -> None:
        self._spec = spec
        self._transformer = transformer
        self._read_commands = read_commands
        self._environ = os.environ if environ is None else environ
        self._assignment = first
        self._runs: dict[str, FlowRun] = {}
        self._destination: KafkaCluster | None = None
        self._sources = SourceClusters(self._cluster, spec.sources)
        self._registries = {
            name: SchemaRegistry(registry, self._environ) for name, registry in spec.registries.items()
        }
        self._budget = ByteBudget(spec.copy.buffer_bytes)
        self._tasks: set[asyncio.Task[None]] = set()
        self._context: SlotContext | None = None
        self._stopping = asyncio.Event()
        self._end: asyncio.Future[SlotEnd] | None = None

    async def run(self) -> SlotEnd:
        """Copies until the slot ends, and returns how it ended.

        Raises an unexpected exception, after which the process should also end.
        """
        self._end = asyncio.get_running_loop().create_future()
        spec = self._spec
        log.info("slot_started", job=spec.job, slot=spec.slot, destination=spec.destination)
        with callback_failures(self._failed):
            return await self._run(self._end)

    async def _run(self, end: asyncio.Future[SlotEnd]) -> SlotEnd:
        """Opens the destination, copies until the slot is stopped or `end` is set, then closes."""
        spec = self._spec
        try:
            if await self._open():
                self.assign(self._assignment)
                stopping: asyncio.Future[Any] = asyncio.ensure_future(self._stopping.wait())
                await asyncio.wait([stopping, end], return_when=asyncio.FIRST_COMPLETED)
                stopping.cancel()
                if not end.done():
                    await asyncio.gather(*(run.drain() for run in self._runs.values()))
            ended = end.result() if end.done() else SlotEnd("stopped")
            log.info("slot_ended", job=spec.job, slot=spec.slot, decision=ended.how, error=ended.why)
            return ended
        finally:
            await self._close()

    def assign(self, assignment: Assignment) -> None:
        """Replaces the assignment. Partitions that stay are not interrupted.

        `status` shows when the assignment is in force. An older version is ignored.
        """
        if assignment.version < self._assignment.version or self._stopping.is_set():
            return
        self._assignment = assignment
        log.info(
            "assignment",
            slot=self._spec.slot,
            version=assignment.version,
            flows=len(assignment.flows),
            partitions=len(assignment.partitions),
        )
        if self._context is None:
            return
        by_flow: dict[str, dict[PartitionKey, AssignedPartition]] = {}
        for partition in assignment.partitions:
            by_flow.setdefault(partition.flow, {})[partition.key] = partition
        for name in dict.fromkeys([*self._runs, *assignment.flows]):
            if name not in self._runs or self._runs[name].superseded:
                self._runs[name] = FlowRun(name, self._context, self._sources)
                self._spawn(self._runs[name].run())
            self._runs[name].set_assignment(
                assignment.version, assignment.flows.get(name), by_flow.get(name, {})
            )

    def stop(self) -> None:
        """Requests the end: open transactions end, then `run` returns."""
        self._stopping.set()

    @property
    def assignment_in_force(self) -> int:
        """The version of the assignment of which every partition that it takes away is released."""
        if self._context is None:
            return 0
        return min((run.version for run in self._runs.values()), default=self._assignment.version)

    def status(self, rates: Mapping[PartitionKey, int] = _NO_RATES) -> SlotReport:
        """Returns the status of the slot, its flows and its partitions. The sender adds the attempt.

        `rates` are bytes a second of partitions, as they were measured.
        """
        runs = list(self._runs.values())
        return SlotReport(
            slot=self._spec.slot,
            at_ms=now_ms(),
            assignment=self.assignment_in_force,
            process=os.getpid(),
            host=socket.gethostname(),
            rss_bytes=_resident_bytes(),
            buffered_bytes=self._budget.used,
            flows=[run.flow.stats() for run in runs if run.flow is not None],
            partitions=[status for run in runs for status in run.partitions(rates)] + self._starting(),
        )

    def _starting(self) -> list[PartitionStatus]:
        """Returns the status of the assigned partitions before the destination is open."""
        if self._context is not None:
            return []
        moment = now_ms()
        return [
            PartitionStatus(
                partition.flow, partition.topic, partition.partition, PartitionState.STARTING, moment
            )
            for partition in self._assignment.partitions
        ]

    async def _open(self) -> bool:
        """Opens the destination, with retries; returns False when the slot is stopped meanwhile."""
        while not self._stopping.is_set():
            try:
                if self._destination is None:
                    self._destination = await self._cluster(self._spec.destination, self._spec.cluster)
                destination = self._destination
                ledger = await Ledger.open(destination)
                topic = (await destination.topics([naming.OFFSET_MAP], fresh=True))[naming.OFFSET_MAP]
                if topic.error is not ErrorCode.NONE:
                    raise BrokerError(topic.error, naming.OFFSET_MAP)
                shares = SessionShares(self._budget)
                self._context = SlotContext(
                    spec=self._spec,
                    destination=destination,
                    ledger=ledger,
                    producers=ProducerDirectory(destination),
                    map_partitions=len(topic.partitions),
                    budget=self._budget,
                    shares=shares,
                    idle_sessions=IdleSessions(self._budget, shares, self._spawn),
                    spawn=self._spawn,
                    confirm=self._confirm,
                    transformer=self._transformer,
                    registries=self._registries,
                )
            except WrongCluster:
                raise
            except WireError as error:
                log.info("slot_waits", slot=self._spec.slot, error=str(error), decision="retry")
                await wait_at_most(self._stopping, _OPEN_PAUSE_S)
            else:
                return True
        return False

    async def _confirm(self) -> None:
        """Reads the driver's commands to their end. Raises SlotMustEnd where one of them stopped the slot."""
        if self._read_commands is not None:
            await self._read_commands()
        if self._stopping.is_set():
            raise SlotMustEnd("the slot was stopped or replaced before it copied anything of the flow")

    async def _cluster(self, name: str, spec: ClusterSpec) -> KafkaCluster:
        """Opens a client of a cluster, with the slot's client id."""
        return await opened(name, named(spec, client_id(self._spec.job, self._spec.slot)), self._environ)

    def _spawn(self, work: Coroutine[None, None, None]) -> asyncio.Task[None]:
        """Starts a task whose failure ends the slot."""
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._finished)
        return task

    def _failed(self, error: BaseException) -> None:
        """Ends the slot with an unexpected exception."""
        if self._end is not None and not self._end.done():
            self._end.set_exception(error)
            self._stopping.set()

    def _finished(self, task: asyncio.Task[None]) -> None:
        """Handles the end of a task: an exception ends the slot, and so does the last superseded flow."""
        self._tasks.discard(task)
        end = self._end
        error = None if task.cancelled() else task.exception()
        if end is None or end.done():
            return
        match error:
            case None:
                wanted = [run for run in self._runs.values() if run.wanted]
                if wanted and all(run.superseded for run in wanted):
                    end.set_result(SlotEnd("outdated", "; ".join(run.superseded for run in wanted)))
            case SlotMustEnd():
                end.set_result(SlotEnd("fenced", str(error)))
            case _:
                self._failed(error)

    async def _close(self) -> None:
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await self._sources.close()
        for registry in self._registries.values():
            registry.close()
        if self._destination is not None:
            await self._destination.close()
        if self._end is not None and self._end.done() and not self._end.cancelled():
            self._end.exception()


def _resident_bytes() -> int:
    """Returns the resident memory of the process in bytes; 0 where /proc does not tell it."""
    try:
        pages = int(Path("/proc/self/statm").read_text().split()[1])
    except (OSError, IndexError, ValueError):
        return 0
    return pages * os.sysconf("SC_PAGE_SIZE")
