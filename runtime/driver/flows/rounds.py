"""This module copies a flow in rounds of Spark tasks, between one source and one sink.

A round looks at the source, commits the positions that must move before anything is read (R1, R4), copies
what lies behind them, and notes the state of each partition. What a source and a sink are is defined here; a
round knows nothing more of them.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
from abc import ABC, abstractmethod
from collections.abc import Collection, Coroutine, Iterable, Mapping, Sequence
from typing import Any, Final, Generic, Literal, NamedTuple, TypeVar

from msgspec import Struct, field
from msgspec.structs import replace

from runtime.contract.records.control import AssignedPartition
from runtime.contract.records.job_status import (
    FlowStats,
    PartitionState,
    PartitionStatus,
    SlotReport,
    SlotView,
)
from runtime.contract.records.ledger import PartitionKey, Progress
from runtime.contract.records.manifest import FilePosition
from runtime.contract.spec.transform import TransformSpec
from runtime.driver.application import RoundWork, SparkSlotRunner, TasksFailed
from runtime.driver.flows.flow import Copier, DriverFlow
from runtime.driver.process import JvmSilent
from runtime.kafka.cluster import KafkaCluster
from runtime.kafka.timing import now_ms
from runtime.slot.log import log_event

_CANCEL_S, _CANCEL_AGAIN_S = 30.0, 1.0
ROUND_S: Final = 30.0  # the longest round: under a backlog, files become visible that often
S = PartitionState


# How far a partition was copied, as the sink keeps it: in the ledger, or in a manifest.
P = TypeVar("P", bound=Progress | FilePosition)


class SourceRange(NamedTuple):
    """The offsets, bytes or rows `start … end-1` that the source holds of a partition, and its state.

    `end` is -1 where the source does not answer for it.
    """

    start: int
    end: int
    state: PartitionState
    why: str = ""


class Look(Struct, Generic[P]):
    """One look at a source.

    `moved`: positions that the sink commits before anything is read; None forgets one. `continued`: the
    partitions whose loss was accepted, and that continue by these positions. `read`: what the tasks of this
    round copy. `again`: the next look is to follow at once.
    """

    shown: dict[PartitionKey, SourceRange] = field(default_factory=dict)
    moved: dict[PartitionKey, P | None] | None = None
    continued: set[PartitionKey] = field(default_factory=set)
    read: list[Any] = field(default_factory=list)
    again: bool = False
    notes: list[str] = field(default_factory=list)
    at_ms: int = field(default_factory=now_ms)  # before the source was asked

    def move(self, key: PartitionKey, position: P | None) -> None:
        """Notes a position that the sink must commit before anything is read."""
        if self.moved is None:
            self.moved = {}
        self.moved[key] = position


class Copied(NamedTuple, Generic[P]):
    """What the tasks of a round returned, the positions now, and the failure of a task that had results."""

    results: Sequence[Any]
    positions: Mapping[PartitionKey, P]
    failure: Exception | None = None


class RecordSource(ABC, Generic[P]):
    """What a flow reads in rounds: topics, or files.

    A partition in a state of `tried_again` keeps it while the source has no other reason, until it moves on.
    """

    tried_again: frozenset[PartitionState] = frozenset()

    @abstractmethod
    async def look(self, cluster: KafkaCluster, positions: Mapping[PartitionKey, P]) -> Look[P]:
        """Compares what the source holds with the positions (R4). Raises what a flow retries."""

    @abstractmethod
    def take(self, look: Look[P], results: Sequence[Any], positions: Mapping[PartitionKey, P]) -> bool:
        """Updates what a look shows by the results of its tasks. Returns whether more waits to be read."""

    @abstractmethod
    def selected(self, topics: Iterable[str]) -> dict[str, str]:
        """Returns the topics that are read, with their names at the destination."""

    def inherit(self, before: RecordSource[Any]) -> None:
        """Continues from what an older version of the flow has seen."""

    def forget(self) -> None:
        """Discards what was seen: everything is compared again."""


class RecordSink(ABC, Generic[P]):
    """Where a flow writes in rounds: files, or a topic. It keeps positions beside the records (R1).

    `stats` are its counts since the driver started.
    """

    stats: FlowStats

    @abstractmethod
    async def positions(self, cluster: KafkaCluster) -> Mapping[PartitionKey, P]:
        """Returns the position of each partition. No other writer commits any more (R3)."""

    @abstractmethod
    async def commit(self, moved: Mapping[PartitionKey, P | None]) -> None:
        """Commits positions without records."""

    @abstractmethod
    async def copy(self, read: Sequence[Any], tasks: RoundTasks) -> Copied[P]:
        """Copies and commits what a look says. Raises what a flow retries, where no task has a result."""

    @abstractmethod
    def committed(self, status: PartitionStatus, position: P | None) -> PartitionStatus:
        """Returns the status with the times and the end at the sink of a position."""

    async def fence(self) -> None:
        """Fences the tasks of earlier rounds that may still commit (fencing 5)."""

    def notes(self) -> Sequence[str]:
        """Returns what the flow's status says of the sink."""
        return ()

    async def tidy(self, tasks: RoundTasks) -> bool:
        """Does what is due between rounds. Returns whether the next round is to follow at once."""
        return False

    def forget(self) -> None:
        """Discards the positions: they are read again, for the last commit may have been written."""


class RoundTasks:
    """Runs the Spark tasks of a flow's rounds: one Spark job group, cancelled with the flow."""

    def __init__(self, application: SparkSlotRunner, group: str, slots: int) -> None:
        self.rounds = 0
        self.since_ms = now_ms()  # when the last round began or ended
        self.worker = ("", 0)
        self._application, self._group, self._slots = application, group, slots

    async def count(self) -> int:
        """Returns how many tasks a round has at most. Raises TasksFailed."""
        try:
            return self._slots or await self._application.cores()
        except JvmSilent as error:
            raise TasksFailed(str(error)) from error

    async def run(self, work: RoundWork, tickets: Sequence[bytes]) -> list[bytes]:
        """Runs a round, a task for each ticket, and returns their results. Raises TasksFailed."""
        return await self._ended(self._application.submit_round(self._group, work, tickets))

    async def run_sql(
        self, transform: TransformSpec, form: Literal["json", "parquet"], tickets: Sequence[bytes]
    ) -> list[bytes]:
        """Runs a round of a flow with a transform, as `run` does. Raises TasksFailed."""
        return await self._ended(self._application.submit_sql_export(self._group, transform, form, tickets))

    async def _ended(self, running: asyncio.Future[list[bytes]]) -> list[bytes]:
        """Returns the results of a round that was submitted; a round of a stopped flow is cancelled."""
        self.since_ms = now_ms()
        try:
            texts = await asyncio.shield(running)
        except asyncio.CancelledError:
            await self._cancel(running)
            raise
        finally:
            self.since_ms = now_ms()
        self.rounds += 1
        return texts

    async def _cancel(self, running: asyncio.Future[list[bytes]]) -> None:
        """Cancels a round and waits for its end, also while Spark's JVM is silent, for a bounded time.

        A task that outlives that is fenced before the next round commits.
        """
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_CANCEL_S):
                while not running.done():
                    with contextlib.suppress(JvmSilent):
                        await self._application.cancel(self._group)
                    await asyncio.wait([running], timeout=_CANCEL_AGAIN_S)
        if not running.done():
            log_event("round_not_cancelled", key=self._group, group=self._group, decision="go on")


class RoundCopier(Copier, Generic[P]):
    """Copies in rounds, at least one every interval.

    Its status and its statistics stand in the place of a slot's.
    """

    def __init__(self, flow: DriverFlow, source: RecordSource[P], sink: RecordSink[P], every_ms: int) -> None:
        self._flow, self._source, self._sink, self._every_ms = flow, source, sink, every_ms
        self._tasks = RoundTasks(flow.shared.application, f"{flow.job.job} {flow.name}", flow.job.slots)
        self._states: dict[PartitionKey, PartitionStatus] = {}
        self._notes: Collection[str] = ()

    def inherit(self, before: Copier) -> None:
        if not isinstance(before, RoundCopier) or type(before._source) is not type(self._source):
            return  # the flow copies from another kind of source, and begins anew
        if before._flow.spec.folder == self._flow.spec.folder:
            self._states, self._sink.stats = before._states, before._sink.stats
            self._tasks.rounds = before._tasks.rounds
            self._source.inherit(before._source)

    def selected(self, topics: Iterable[str]) -> dict[str, str]:
        return self._source.selected(topics)

    def notes(self) -> Iterable[str]:
        return (*self._sink.notes(), *self._notes)

    def pause_s(self, took_s: float) -> float:
        return max(self._every_ms / 1000 - took_s, 0.0)

    async def copy_once(self) -> bool:
        """Copies once, and returns whether there is more to copy at once."""
        flow = self._flow
        cluster = await flow.source()
        await flow.shared.leadership.ensure()
        await self._sink.fence()
        await flow.shared.ledger.decided(flow.name)
        flow.own_generation()
        positions = await self._sink.positions(cluster)
        look = await self._source.look(cluster, positions)
        if look.moved is not None:
            await finished(self._sink.commit(look.moved))
            self._source.forget()
            flow.clear_accepted_loss(look.continued)
            return True
        self._note(look, positions, self._source.tried_again)
        flow.started()
        behind = look.again
        if look.read:
            copied = await self._sink.copy(look.read, self._tasks)
            behind = self._source.take(look, copied.results, copied.positions)
            self._note(look, copied.positions)
            if copied.failure is not None:
                raise copied.failure
        return await self._sink.tidy(self._tasks) or behind

    def fail(self, why: str, *, lost: bool) -> None:
        self._sink.forget()
        self._source.forget()
        for key, status in self._states.items():
            if lost or not status.state.needs_decision:
                state = S.LEDGER_MISSING if lost else S.RETRYING
                self._states[key] = entered(status, state, why)

    def _note(
        self,
        look: Look[P],
        positions: Mapping[PartitionKey, P],
        kept: Collection[PartitionState] = (),
    ) -> None:
        """Notes the states of all partitions that a look shows. One in a state of `kept` keeps it for now."""
        states: dict[PartitionKey, PartitionStatus] = {}
        for key, shown in look.shown.items():
            before = self._states.get(key) or PartitionStatus(*key, S.STARTING, look.at_ms)
            state, why, position = shown.state, shown.why, positions.get(key)
            at = position.position if position is not None else 0
            if state is S.COPYING and before.state in kept and before.position == at:
                state, why = before.state, before.why  # it is tried again, and nothing has changed so far
            status = replace(
                entered(before, state, why),
                position=at,
                source_start=shown.start,
                source_end=shown.end,
                source_high_watermark=shown.end,
                last_fetch_ms=look.at_ms if shown.end >= 0 else before.last_fetch_ms,
            )
            if position is not None:
                status = replace(
                    status,
                    last_timestamp=position.last_timestamp,
                    records=position.records,
                    bytes=position.bytes,
                    dropped=position.dropped,
                    tombstones=position.tombstones,
                )
            states[key] = self._sink.committed(status, position)
        self._states, self._notes = states, look.notes
        # The partitions as the flow's status and the metrics count them, by their keys alone.
        self._flow.partitions = {key: AssignedPartition(*key, destination_topic=key.topic) for key in states}

    def report(self, driver: str, number: int) -> SlotReport:
        """Returns the status of the flow's partitions, as the report of a slot."""
        host, process = self._tasks.worker
        return SlotReport(
            slot=number,
            at_ms=now_ms(),
            assignment=0,
            driver=driver,
            attempt=self._tasks.rounds,
            process=process,
            host=host or socket.gethostname(),
            flows=[self._sink.stats],
            partitions=list(self._states.values()),
        )

    def view(self, number: int) -> SlotView:
        """Returns the status of the flow as that of a slot."""
        flow = self._flow
        return SlotView(
            slot=number,
            state="waiting" if flow.why else "running" if flow.active else "idle",
            since_ms=self._tasks.since_ms,
            attempts=self._tasks.rounds,
            partitions=len(flow.partitions),
            why=flow.why,
        )


def entered(status: PartitionStatus, state: PartitionState, why: str) -> PartitionStatus:
    """Returns the status with a state; `since_ms` changes with it."""
    return replace(
        status,
        state=state,
        why=why,
        since_ms=status.since_ms if status.state is state else now_ms(),
        caught_up_since_ms=(status.caught_up_since_ms or now_ms())
        if state is PartitionState.CAUGHT_UP
        else 0,
    )


async def finished(work: Coroutine[Any, Any, None]) -> None:
    """Finishes work even if the flow is stopped meanwhile: its threads can't be stopped, and the flow's next
    version must not begin before they are done.
    """
    task = asyncio.ensure_future(work)
    try:
        await asyncio.shield(task)
    except asyncio.CancelledError:
        await asyncio.wait([task])
        raise
