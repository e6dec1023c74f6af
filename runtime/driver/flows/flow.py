"""This module runs one flow in the driver: its takeover, passes, pauses and retries.

A copier does the passes. It is the only part of a flow that depends on what is read and what is written.
"""

from __future__ import annotations

import asyncio
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Iterable, Mapping
from itertools import islice
from typing import Any, ClassVar

from msgspec import Struct, field

from runtime.contract.client.settings import ClientSettingsError
from runtime.contract.records.control import AssignedPartition
from runtime.contract.records.failback import opposite_of
from runtime.contract.records.job_status import FlowView, PartitionState
from runtime.contract.records.ledger import PartitionKey
from runtime.contract.spec import naming
from runtime.contract.spec.flow import FlowState
from runtime.contract.spec.jobspec import FlowSpec, JobSpec
from runtime.contract.spec.selection import NamePatterns
from runtime.driver.application import TasksFailed
from runtime.driver.flows.start import LEDGER_LOST, DriverContext, FlowWaits, take_over
from runtime.driver.slots.channel import pause
from runtime.files.manifest import EndpointUnavailable, ManifestProblem, ManifestTaken
from runtime.kafka.cluster import KafkaCluster
from runtime.kafka.errors import WireError
from runtime.kafka.protocol.fetch import Isolation
from runtime.kafka.protocol.offsets import LATEST
from runtime.kafka.queries import offsets_of
from runtime.ledger.records import READ_FAILURES
from runtime.slot.log import log_event


class PositionsLost(Exception):
    """The ledger lost the positions of the flow: reading from the beginning would double its records."""


# Someone must decide after these; a flow that fails with another one goes on by itself.
_LOST = (*READ_FAILURES, ManifestProblem, PositionsLost)
_FAILURES = (WireError, ClientSettingsError, EndpointUnavailable, ManifestTaken, TasksFailed, *_LOST)


class DrainingTopics(Struct):
    """A DrainingTopics names the topics of a flow that are promoted on their own and still copied.

    The consumer groups of `topics` are still synced. One task at a time commits the flow's groups, under the
    lock.
    """

    topics: frozenset[str] = frozenset()
    group_sync_lock: asyncio.Lock = field(default_factory=asyncio.Lock)


def topics_to_drain(
    spec: FlowSpec, shared: DriverContext, patterns: Collection[str], closed: Iterable[str]
) -> frozenset[str]:
    """Returns the topics that match these patterns and that the flow has copied before.

    A topic that was never copied is not started: it matches a promoted pattern. Topics that match `closed`
    patterns are promoted already.
    """
    wanted, done = NamePatterns(patterns), NamePatterns(closed)
    known = {key.topic for key in shared.ledger.all_progress(spec.name)}
    return frozenset(topic for topic in known if wanted.match(topic) and not done.match(topic))


async def count_uncopied(
    spec: FlowSpec, shared: DriverContext, source: KafkaCluster, keys: Collection[PartitionKey]
) -> int:
    """Returns how many records are not copied yet, up to the last stable offsets; heartbeats are not counted.

    A partition without progress counts as one record. Raises WireError.
    """
    await shared.ledger.refresh(spec.name)
    keys = [key for key in keys if key.topic != naming.HEARTBEATS]
    asked = dict.fromkeys((key.at for key in keys), LATEST)
    ends = await offsets_of(source, asked, Isolation.READ_COMMITTED)
    progress = shared.ledger.all_progress(spec.name)
    behind = 0
    for key in keys:
        end = ends[key.at]
        behind += max(end - progress[key].position, 0) if key in progress else 1
    return behind


_RETRY_S, _MAX_RETRY_S = 0.3, 10.0
_STARTING_RETRY_S, _STARTING_RETRIES = 2.0, 30
_DRAIN_POLL_S = 0.3


def retry_pause(failures: int, *, starting: bool) -> float:
    """Returns the seconds between two attempts of a flow, after so many failures in a row.

    An apply waits for a flow that starts, and gives up some seconds after its first failure. So a flow that
    starts is tried again often: what it says is not older than what it lacks, such as a restarting cluster.
    """
    most_s = _STARTING_RETRY_S if starting and failures <= _STARTING_RETRIES else _MAX_RETRY_S
    return min(_RETRY_S * 2.0 ** min(failures, 8), most_s)


class Copier(ABC):
    """A Copier does the passes of one flow: it knows the flow's source and sink."""

    mirrors: ClassVar[bool] = False  # whether the sink mirrors topics, with their groups and rules

    @abstractmethod
    async def copy_once(self) -> bool:
        """Does one pass, and returns whether the next one is to follow at once."""

    @abstractmethod
    def pause_s(self, took_s: float) -> float:
        """Returns the seconds until the next pass, after one that took so long."""

    @abstractmethod
    def selected(self, topics: Iterable[str]) -> dict[str, str]:
        """Returns the topics that the flow selects now, with their names at the destination."""

    @abstractmethod
    def inherit(self, before: Copier) -> None:
        """Continues from the state of the copier of an older version of the flow."""

    @property
    def is_incomplete(self) -> bool:
        """Whether the last pass left out topics whose mirrors could not be made: they are tried again."""
        return False

    def look_again(self) -> None:  # noqa: B027 - most passes compare everything
        """Makes the next pass compare everything: an operator's command has changed what is copied."""

    def fail(self, why: str, *, lost: bool) -> None:  # noqa: B027 - slots report failures themselves
        """Notes that a pass failed. What was not committed is copied again, or its commit is read later."""

    def notes(self) -> Iterable[str]:
        """Returns what the flow's status says of its topics or files."""
        return ()

    @property
    def actions(self) -> Mapping[str, int]:
        """How many mirror topics were created, grown and changed, by kind of action, for the metrics."""
        return {}


class DriverFlow:
    """A DriverFlow runs one flow until cancelled.

    The driver takes it over, which sets `generation` (R3). Then its copier does passes until another job has
    the flow; a pass that fails is repeated, and stops no other flow (R7). `partitions` are those that are
    copied now. `copier_of` makes the copier.
    """

    def __init__(
        self, spec: FlowSpec, job: JobSpec, shared: DriverContext, copier_of: Callable[[DriverFlow], Copier]
    ) -> None:
        self.spec = spec
        self.job = job
        self.shared = shared
        self.generation: int | None = None
        self.partitions: dict[PartitionKey, AssignedPartition] = {}
        self.accepted: frozenset[PartitionKey] = frozenset()
        self.draining = DrainingTopics()
        self.ledger_lost = False
        self._cluster_ids = ("", "")
        self._source_answers = False
        self._woken = asyncio.Event()
        self._superseded = ""
        self._why = ""
        self._attempts = 1  # to start
        self._behind = 0  # records of topics that are drained
        self._group_notes: tuple[str, ...] = ()  # of the last sync of the groups of topics that ended
        self.copier = copier_of(self)

    def inherit(self, before: DriverFlow) -> None:
        """Continues from the state of an older version of the same flow.

        So the flow is not taken over again.
        """
        self.generation = before.generation
        self.partitions = before.partitions
        self.accepted = before.accepted
        self.draining = before.draining
        self._cluster_ids = before._cluster_ids
        self.ledger_lost, self._superseded = before.ledger_lost, before._superseded
        self.copier.inherit(before.copier)

    @property
    def name(self) -> str:
        """The name of the flow."""
        return self.spec.name

    @property
    def copies(self) -> bool:
        """Whether the flow is copied once this driver has taken it over."""
        return self.spec.state == "active"

    @property
    def ended(self) -> bool:
        """Whether every step that ends the flow is complete."""
        return False

    @property
    def promoted(self) -> Collection[PartitionKey]:
        """The partitions of topics that were promoted on their own."""
        return ()

    @property
    def active(self) -> bool:
        """Whether the flow is copied now."""
        return self.copies and self.generation is not None and not self._superseded

    @property
    def why(self) -> str:
        """Why the flow does not copy now; empty where it does."""
        return self._why or self._superseded

    def selected(self, topics: Iterable[str]) -> dict[str, str]:
        """Returns the topics that the flow selects now, with their names at the destination."""
        return self.copier.selected(topics)

    def view(self) -> FlowView:
        """Returns the flow's part of the job status."""
        return FlowView(
            flow=self.name,
            state=self.spec.state,
            generation=self.generation or 0,
            source_cluster_id=self._cluster_ids[0],
            destination_cluster_id=self._cluster_ids[1],
            source_answers=self._source_answers,
            topics=len({key.topic for key in self.partitions}),
            partitions=len(self.partitions),
            why=self.why,
            notes=[*islice(self.copier.notes(), 50), *self._group_notes],
            ended=self.ended,
            attempts=self._attempts if self.copies and not self._superseded else 0,
        )

    def accept_loss(self, stopped: Iterable[PartitionKey]) -> None:
        """Accepts data loss (R4) for these partitions, by an operator's command, so that they continue.

        Once they continue, the next loss stops them again. What was accepted before stays accepted.
        """
        self.accepted = self.accepted.union(stopped)
        self._woken.set()

    def clear_accepted_loss(self, keys: Iterable[PartitionKey]) -> None:
        """Withdraws the accepted loss of these partitions, because they are copied again."""
        left = self.accepted.difference(keys)
        if left != self.accepted:
            self.accepted = left
            self._woken.set()

    async def run(self) -> None:
        """Takes the flow over and copies, pass after pass, until cancelled."""
        if self.generation is None:
            await self._retry_until_done(self._take_over)
        while self.copies and not self._superseded:
            began = time.monotonic()
            behind = await self._retry_until_done(self.copier.copy_once)
            if self.copier.is_incomplete:
                self._note_failed_start()
            else:
                self.started()
            if not behind:
                await self._pause(self.copier.pause_s(time.monotonic() - began))

    def started(self) -> None:
        """Notes that the flow has started: what fails from now on is no failure to start."""
        if self._attempts:
            self._attempts = 0
            self.shared.changed()

    def _note_failed_start(self, error: Exception | None = None) -> None:
        """Counts a failure to start. Waiting for another flow or driver is none."""
        if self._attempts:
            self._attempts = 1 if isinstance(error, FlowWaits) else self._attempts + 1

    async def _pause(self, seconds: float) -> None:
        """Waits until the next pass, or until an operator's command changes what is copied."""
        await pause(seconds, self._woken)
        if self._woken.is_set():
            self._woken.clear()
            self.copier.look_again()

    async def _retry_until_done(self, duty: Callable[[], Any]) -> Any:
        """Retries a duty until it succeeds, so that one flow's failure does not stop another flow (R7).

        Returns the duty's result. DriverFenced ends it.
        """
        failures = 0
        while True:
            try:
                result = duty()
                if asyncio.iscoroutine(result):
                    result = await result
            except _FAILURES as error:
                lost = isinstance(error, _LOST)
                self._why = f"{PartitionState.LEDGER_MISSING}: {error}" if lost else str(error)
                self.copier.fail(str(error), lost=lost)
                self._note_failed_start(error)
                failures += 1
                pause_s = retry_pause(failures, starting=self._attempts > 0)
                log_event(
                    "flow_retry",
                    key=self.name,
                    flow=self.name,
                    error=self._why,
                    failures=failures,
                    decision="retry",
                    pause_s=pause_s,
                )
                await self._pause(pause_s)
            else:
                self._why = ""
                return result

    async def _drain(self, topics: Collection[str] | None = None) -> Collection[PartitionKey]:
        """Copies until the source holds no uncopied record of these topics, or of any.

        Returns their partitions. Records that arrive meanwhile are copied first.
        """
        while True:
            await self._retry_until_done(self.copier.copy_once)
            keys = {key for key in self.partitions if topics is None or key.topic in topics}
            await self._retry_until_done(lambda: self._count_behind(keys))  # noqa: B023 - it ends before
            if not self._behind or self._superseded:
                return keys
            await asyncio.sleep(_DRAIN_POLL_S)

    async def _await_release(self, topics: Collection[str] | None = None) -> None:
        """Waits until no slot holds these topics, or any; a slot that hangs is replaced."""
        self.shared.changed()
        while self.shared.membership.holds(self.name, topics):
            self._why = "a slot has not released its partitions yet: their transactions end first"
            await asyncio.sleep(_DRAIN_POLL_S)
        self._why = ""

    async def _count_behind(self, keys: Collection[PartitionKey]) -> None:
        self._behind = await count_uncopied(self.spec, self.shared, await self.source(), keys)

    async def source(self) -> KafkaCluster:
        """Opens the cluster of the source; of a flow from files, that of its job.

        A flow that is paused or failed over is taken over without it. Raises WireError.
        """
        try:
            cluster = await self.shared.clusters.cluster(self.spec.source)
        except WireError:
            self._source_answers = False
            raise
        self._source_answers = True
        return cluster

    async def _take_over(self) -> None:
        source_id = (await self.source()).cluster_id if self.copies else ""
        await self._take("active" if self.copies else self.spec.state, source_id)

    async def _take(self, state: FlowState, source_id: str = "", note: str = "") -> None:
        """Writes the generation and fences its predecessors, with the reason of a wait in the flow's status.

        Raises WireError.
        """

        taken = await take_over(
            self.spec,
            self.shared,
            source_id,
            self._wait_for,
            state=state,
            note=note,
            opposite=opposite_of(self.job, self.spec),
        )
        self._cluster_ids = (taken.source_cluster_id, self.shared.destination.cluster_id)
        self.ledger_lost = taken.note == LEDGER_LOST
        self.generation = taken.number
        log_event(
            "flow_taken_over",
            key=self.name,
            flow=self.name,
            generation=taken.number,
            state=state,
            ledger_lost=self.ledger_lost or None,
        )
        self.shared.changed()

    def _wait_for(self, why: str) -> None:
        """Notes what a step waits for that is tried again: in the flow's status, and in the log."""
        self._why, self._attempts = why, 1
        log_event("flow_waits", key=self.name, flow=self.name, error=why, decision="retry")

    def is_superseded(self) -> bool:
        """Returns whether another job has taken the flow over.

        Raises WireError when the ledger lost the generation.
        """
        generation = self.shared.ledger.generation(self.name)
        if generation is None or generation.number < (self.generation or 0):
            raise WireError(f"the ledger no longer has generation {self.generation} of it")
        if generation.number == self.generation:
            return False
        self._superseded = f"job {generation.job} has it now, as generation {generation.number}"
        log_event("flow_superseded", key=self.name, flow=self.name, error=self._superseded, decision="end")
        self.partitions = {}
        self.shared.changed()
        return True
