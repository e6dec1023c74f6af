"""A flow run reconciles one flow of a slot with its assignment, with the client of the flow's source.

The flows of a slot share one client per source cluster; it closes when the last flow leaves.
"""

from __future__ import annotations

import asyncio
from collections import Counter, defaultdict
from collections.abc import Awaitable, Callable, Mapping

from msgspec import Struct
from msgspec.structs import replace

from runtime.contract.client.settings import ClientSettingsError
from runtime.contract.records.control import AssignedFlow, AssignedPartition
from runtime.contract.records.job_status import PartitionState as State
from runtime.contract.records.job_status import PartitionStatus
from runtime.contract.records.ledger import PartitionKey
from runtime.contract.spec.cluster import ClusterSpec
from runtime.kafka.cluster import KafkaCluster, UnknownCluster
from runtime.kafka.errors import WireError
from runtime.kafka.timing import now_ms, wait_at_most
from runtime.ledger.ledger import ProducerDirectory
from runtime.ledger.records import READ_FAILURES
from runtime.slot import log
from runtime.slot.context import SlotContext
from runtime.slot.flow import FlowCopy
from runtime.slot.write.flow_ledger import Superseded

Opening = Callable[[str, ClusterSpec], Awaitable[KafkaCluster]]


class SourceCluster(Struct, frozen=True, eq=False):
    """An open source cluster, with its producer directory."""

    name: str
    cluster: KafkaCluster
    directory: ProducerDirectory


class SourceClusters:
    """The sources that the slot may connect to, by name.

    An assignment can't add a source or change its settings. Each `take` is followed by one `leave`. `opening`
    raises WireError, ClientSettingsError.
    """

    def __init__(self, opening: Opening, specs: Mapping[str, ClusterSpec]) -> None:
        self._opening = opening
        self._specs = dict(specs)
        self._open: dict[str, SourceCluster] = {}
        self._users: Counter[str] = Counter()
        self._opening_locks: defaultdict[str, asyncio.Lock] = defaultdict(asyncio.Lock)

    async def take(self, name: str) -> SourceCluster:
        """Returns the open source of a name, and opens it where it is not open.

        Raises UnknownCluster for a name that the slot was not started with, and the errors of `opening`.
        """
        spec = self._specs.get(name)
        if spec is None:
            raise UnknownCluster(name)
        async with self._opening_locks[name]:  # Concurrent callers wait while the source is being opened.
            if name not in self._open:
                cluster = await self._opening(name, spec)
                self._open[name] = SourceCluster(name, cluster, ProducerDirectory(cluster))
            self._users[name] += 1
            return self._open[name]

    async def leave(self, source: SourceCluster) -> None:
        """Ends one use of a source, and closes it after the last one."""
        self._users[source.name] -= 1
        if not self._users[source.name]:
            del self._open[source.name]
            await source.cluster.close()

    async def close(self) -> None:
        """Closes all sources, whether they are in use or not."""
        for source in self._open.values():
            await source.cluster.close()


_MAX_PAUSE_S = 5.0
_UNDECIDED = "an open transaction has written its progress; waiting for its marker"


class FlowRun:
    """A flow run owns one flow of a slot and reconciles it with the newest assignment.

    A flow that can't begin, for example because its source does not answer, retries and disturbs no other
    flow (R7). `version` is the version of the assignment that is in force: every partition that it removes is
    released. While the flow does not run, a new assignment is in force at once, even if the source does not
    answer. Otherwise `_reconcile` sets it.
    """

    def __init__(self, name: str, context: SlotContext, sources: SourceClusters) -> None:
        self.name = name
        self.flow: FlowCopy | None = None
        self.version = 0
        self.superseded = ""
        self._context = context
        self._sources = sources
        self._source: SourceCluster | None = None
        self._wanted: AssignedFlow | None = None
        self._partitions: dict[PartitionKey, AssignedPartition] = {}
        self._newest = 0
        self._changed = asyncio.Event()
        self._why = ""
        self._unreadable = False
        self._failure: Exception | None = None
        self._reconciling: asyncio.Task[None] | None = None
        self._draining = False
        self._since_ms = now_ms()

    def set_assignment(
        self, version: int, flow: AssignedFlow | None, partitions: dict[PartitionKey, AssignedPartition]
    ) -> None:
        """Sets what is assigned: the flow, or None where it is not assigned any more, and its partitions."""
        self._newest = version
        if self.flow is None:
            self.version = version
        self._wanted = flow
        self._partitions = partitions if flow is not None else {}
        self._changed.set()

    async def run(self) -> None:
        """Reconciles after every assignment, with retries, until the flow is superseded or drained."""
        failures = 0
        while not self._draining:
            self._changed.clear()
            version = self._newest
            try:
                await self._reconcile_unless_failed(version)
            except Superseded as outdated:
                log.info(
                    "flow_superseded", key=self.name, flow=self.name, error=str(outdated), decision="end"
                )
                await self._end_flow()
                if self._newest == version:
                    self.superseded = str(outdated)
                    await self._leave_source()
                    return
            except (WireError, ClientSettingsError, *READ_FAILURES) as error:
                self._why, self._unreadable = str(error), isinstance(error, READ_FAILURES)
                failures += 1
                pause = min(0.2 * 2 ** min(failures, 10), _MAX_PAUSE_S)
                log.info(
                    "flow_retry",
                    key=self.name,
                    flow=self.name,
                    error=self._why,
                    failures=failures,
                    decision="retry",
                    pause_s=pause,
                )
                await wait_at_most(self._changed, pause)
            else:
                failures = 0
                self._why, self._unreadable = "", False
                self.version = max(self.version, version)
                await self._changed.wait()

    @property
    def wanted(self) -> bool:
        """Whether the flow is assigned to the slot."""
        return self._wanted is not None

    async def drain(self) -> None:
        """Ends the flow's open transactions and stops it; a flow that is about to begin does not."""
        self._draining = True
        self._changed.set()
        if self._reconciling is not None:
            self._reconciling.cancel()
            await asyncio.wait([self._reconciling])
        await self._end_flow()

    def partitions(self, rates: Mapping[PartitionKey, int]) -> list[PartitionStatus]:
        """Returns the status of every assigned partition, also of those that are not copied yet."""
        flow = self.flow
        copies = flow.copies if flow is not None else {}
        missing = flow.missing() if flow is not None else {}
        undecided = flow.undecided() if flow is not None else {}
        statuses = []
        for key, assigned in self._partitions.items():
            if (copy := copies.get(key)) is not None:
                statuses.append(copy.status(rates.get(key, -1)))
                continue
            if (lost := missing.get(key)) is not None and lost[0] == assigned:
                state, why = State.LEDGER_MISSING, lost[1]
            elif undecided.get(key) == assigned:
                state, why = State.STARTING, _UNDECIDED
            else:
                state, why = self._waits()
            statuses.append(PartitionStatus(*key, state, self._since_ms, why))
        return statuses

    def _waits(self) -> tuple[State, str]:
        """Returns the state of partitions that wait for the flow, with the reason."""
        if self.superseded:
            return State.PAUSED, self.superseded
        if self._unreadable:
            return State.LEDGER_MISSING, f"the ledger can't be read: {self._why}"
        return (State.RETRYING if self._why else State.STARTING), self._why

    async def _reconcile(self, version: int) -> None:
        """Begins or ends the flow, and releases and admits partitions, until it matches the assignment."""
        if self._failure is not None:
            await self._end_flow()
            failure, self._failure = self._failure, None
            raise failure
        wanted = self._wanted
        before = self.flow.assigned if self.flow is not None else None
        if before is not None and (
            # Any change but one of the rate affects the flow's lanes.
            wanted is None
            or replace(before, spec=replace(before.spec, rate_limit=wanted.spec.rate_limit)) != wanted
        ):
            await self._end_flow()
        if self._source is not None and (wanted is None or wanted.spec.source != self._source.name):
            await self._leave_source()
        if wanted is None:
            return
        if self.flow is None:
            self.flow = await self._begin(wanted)
        self.flow.set_assigned(wanted)
        have = {key: copy.assigned for key, copy in self.flow.copies.items()}
        have.update((key, assigned) for key, (assigned, _) in self.flow.missing().items())
        have.update(self.flow.undecided())
        stale = [key for key, assigned in have.items() if self._partitions.get(key) != assigned]
        await self.flow.release(stale)
        self.version = max(self.version, version)  # A failing admission delays no other slot (R7).
        await self.flow.admit(
            assigned for key, assigned in self._partitions.items() if key in stale or key not in have
        )

    async def _begin(self, wanted: AssignedFlow) -> FlowCopy:
        """Opens the flow's source and begins the flow.

        Raises WireError, also where the slot evaluates another transform or lacks a schema registry.
        """
        transformer = self._context.transformer
        if wanted.spec.transform != (transformer.transform if transformer is not None else None):
            raise WireError("this slot does not evaluate its transform; the job must be restarted")
        schemas, spec = wanted.spec.schemas.sync, wanted.spec
        for name in (spec.source, spec.destination) if schemas else ():
            if name not in self._context.registries:
                raise WireError(f"this slot has no schema registry of {name}; the job must be restarted")
        if self._source is None:
            self._source = await self._sources.take(wanted.spec.source)
        source = self._source
        batch = wanted.spec.provenance == "batch" or (
            wanted.spec.native_only and wanted.spec.provenance != "headers"
        )
        directory = source.directory if batch else None
        flow = FlowCopy(wanted, source.cluster, directory, self._context, self.fail)
        try:
            await flow.begin()
        except BaseException:
            await flow.drain()
            raise
        return flow

    async def _reconcile_unless_failed(self, version: int) -> None:
        """Reconciles; where the flow fails meanwhile, the wait for its partitions' release is cancelled.

        A failed flow does not release partitions any more.
        """
        self._reconciling = asyncio.create_task(self._reconcile(version))
        try:
            await self._reconciling
        except asyncio.CancelledError:
            task = asyncio.current_task()
            if self._failure is None or (task is not None and task.cancelling()):
                raise
            await self._reconcile(version)

    def fail(self, failure: Exception) -> None:
        """Ends the flow because the ledger can't be read; it begins again until the ledger is readable."""
        self._failure = failure
        self._changed.set()
        if self._reconciling is not None:
            self._reconciling.cancel()

    async def _end_flow(self) -> None:
        """Drains the flow, after which the newest assignment is in force."""
        flow = self.flow
        if flow is not None:
            await flow.drain()
            self.flow = None
            self.version = self._newest

    async def _leave_source(self) -> None:
        """Releases the source, from which the flow does not read any more."""
        source, self._source = self._source, None
        if source is not None:
            await self._sources.leave(source)
