"""This module runs one flow in the driver: its takeover, passes, pauses, retries and end.

A copier does the passes. It is the only part of a flow that depends on what is read and what is written.

A flow ends, or a topic of it on its own, by a promotion or a failover. The topics of a promotion are copied
until the source holds no uncopied record and no slot holds them. Then their groups are committed a last time.
A failover stops with what has arrived.

Each step of an end stands in the generation record before the next one begins. A driver that succeeds one
that died in between completes the remaining steps. A later driver does not repeat them, so groups that
continued at the destination meanwhile are not moved.
"""

from __future__ import annotations

import asyncio
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Coroutine, Iterable, Iterator, Mapping
from enum import Enum
from itertools import islice
from typing import Any, ClassVar, Final, TypeVar

from msgspec.structs import replace

from runtime.contract.client.settings import ClientSettingsError
from runtime.contract.records.control import AssignedPartition
from runtime.contract.records.failback import opposite_of
from runtime.contract.records.job_status import FlowView, PartitionState
from runtime.contract.records.ledger import Generation, GenerationKey, PartitionKey
from runtime.contract.spec import naming
from runtime.contract.spec.flow import ENDED, FlowState
from runtime.contract.spec.jobspec import FlowSpec, JobSpec
from runtime.contract.spec.selection import NamePatterns
from runtime.driver.application import TasksFailed
from runtime.driver.duties.group_sync import DrainingTopics, FinalGroupSync
from runtime.driver.flows.start import DriverContext, FlowWaits, is_ledger_lost, take_over
from runtime.driver.slots.channel import pause
from runtime.files.manifest import EndpointUnavailable, ManifestProblem, ManifestTaken
from runtime.kafka.cluster import KafkaCluster
from runtime.kafka.errors import BrokerError, ErrorCode, WireError
from runtime.kafka.protocol.fetch import Isolation
from runtime.kafka.protocol.metadata import TopicMetadata
from runtime.kafka.protocol.offsets import LATEST, ListedOffset
from runtime.kafka.queries import list_offsets
from runtime.kafka.timing import now_ms
from runtime.ledger.records import READ_FAILURES
from runtime.slot.log import log_event

T = TypeVar("T")


class PositionsLost(Exception):
    """The ledger lost the positions of the flow: reading from the beginning would double its records."""


class FlowSuperseded(Exception):
    """Another job has taken the flow over."""


# Someone must decide after these; a flow that fails with another one goes on by itself.
_LOST = (*READ_FAILURES, ManifestProblem, PositionsLost)
_FAILURES = (WireError, ClientSettingsError, EndpointUnavailable, ManifestTaken, TasksFailed, *_LOST)
_RETRY_S, _MAX_RETRY_S = 0.3, 10.0
_STARTING_RETRY_S, _STARTING_RETRIES = 2.0, 30
_DRAIN_POLL_S = 0.3
_GROUPS_LEFT: Final = "its groups are translated a last time"  # note of a generation whose end is incomplete


class FlowPhase(Enum):
    """A phase says how far this driver is with a flow; `NEXT_PHASES` says which phase may follow.

    TAKING_OVER: its generation is not written yet, or earlier writers are not fenced. STARTING: no pass has
    succeeded yet. DRAINING: it is copied, or some of its topics are, until the source holds no uncopied
    record. ENDING: the generation has ended, or ends next; then the groups are moved. SUPERSEDED: another job
    has taken it over. RELEASED: it is removed, or its next version takes it over anew.

    Slots copy the flow in STARTING, COPYING and DRAINING, and in no other phase.
    """

    TAKING_OVER = "taking_over"
    STARTING = "starting"
    COPYING = "copying"
    DRAINING = "draining"
    ENDING = "ending"
    PAUSED = "paused"
    ENDED = "ended"
    SUPERSEDED = "superseded"
    RELEASED = "released"


_P = FlowPhase
NEXT_PHASES: Final[dict[FlowPhase, set[FlowPhase]]] = {
    _P.TAKING_OVER: {_P.STARTING, _P.DRAINING, _P.ENDING, _P.PAUSED, _P.ENDED, _P.SUPERSEDED, _P.RELEASED},
    _P.STARTING: {_P.COPYING, _P.SUPERSEDED, _P.RELEASED},
    _P.COPYING: {_P.SUPERSEDED, _P.RELEASED},
    _P.DRAINING: {_P.STARTING, _P.ENDING, _P.SUPERSEDED, _P.RELEASED},
    _P.ENDING: {_P.TAKING_OVER, _P.ENDED, _P.SUPERSEDED, _P.RELEASED},
    _P.PAUSED: {_P.RELEASED},
    _P.ENDED: {_P.RELEASED},
    _P.SUPERSEDED: {_P.RELEASED},
    _P.RELEASED: set(),
}
_COPIED = frozenset({_P.STARTING, _P.COPYING, _P.DRAINING})
_BEGINS = frozenset({_P.TAKING_OVER, _P.STARTING, _P.DRAINING})
_UNTIL_ENDED = frozenset({_P.TAKING_OVER, _P.DRAINING, _P.ENDING})


def topics_to_drain(
    spec: FlowSpec, shared: DriverContext, patterns: Collection[str], closed: Iterable[str]
) -> frozenset[str]:
    """Returns the topics that match these patterns and that the flow has copied before.

    A topic that was never copied is not started: it matches a promoted pattern. Topics that match `closed`
    patterns are promoted already.
    """
    wanted, done = NamePatterns(patterns), NamePatterns(closed)
    copied = {key.topic for key in shared.ledger.all_progress(spec.name)}
    return frozenset(topic for topic in copied if wanted.match(topic) and not done.match(topic))


def _is_gone(key: PartitionKey, listed: TopicMetadata | None) -> bool:
    """Returns whether a listing shows that the source no longer has the partition."""
    return listed is None or (listed.error is ErrorCode.NONE and key.partition not in listed.partitions)


def retry_pause(failures: int, *, starting: bool) -> float:
    """Returns the seconds between two attempts of a flow, after so many failures in a row.

    An apply waits for a flow that starts, and gives up some seconds after its first failure. So a flow that
    starts is tried again often: what it says is not older than what it lacks, such as a restarting cluster.
    """
    most_s = _STARTING_RETRY_S if starting and failures <= _STARTING_RETRIES else _MAX_RETRY_S
    return min(_RETRY_S * 2.0 ** min(failures, 8), most_s)


class Copier(ABC):
    """Does the passes of one flow: it knows the flow's source and sink."""

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
    """Runs one flow until it is cancelled, paused, ended, or taken over by another job.

    The driver takes it over, which writes its generation (R3). Then its copier does passes; one that fails is
    repeated, and stops no other flow (R7). `phase` is how far it is. `taken` is the generation as this driver
    last wrote it; `is_taken` is set once it copies the flow, or has paused it. `partitions` are those that
    are copied now. `copier_of` makes the copier.
    """

    def __init__(
        self, spec: FlowSpec, job: JobSpec, shared: DriverContext, copier_of: Callable[[DriverFlow], Copier]
    ) -> None:
        self.spec = spec
        self.job = job
        self.shared = shared
        self.phase = FlowPhase.TAKING_OVER
        self.taken: Generation | None = None
        self.is_taken = asyncio.Event()
        self.partitions: dict[PartitionKey, AssignedPartition] = {}
        self.accepted: frozenset[PartitionKey] = frozenset()
        self.draining = DrainingTopics()
        self.why = ""  # why the flow does not copy now; empty where it does
        self._source_answers = False
        self._woken = asyncio.Event()
        self._attempts = 1  # to start, and to make the mirrors that fail
        self._behind = 0  # records that are left to drain
        self._gone: dict[str, str] = {}  # topics to drain that the source no longer has, with their mirrors
        self._topics: tuple[Collection[PartitionKey], int] = (), 0  # of which partitions, and how many
        self._group_notes: tuple[str, ...] = ()  # of the last sync of groups whose flow or topics ended
        self.copier = copier_of(self)

    def inherit(self, before: DriverFlow) -> None:
        """Continues from the phase of an older version of the same flow, which is not taken over again.

        A flow that was released is: its generation may have ended meanwhile.
        """
        if before.phase is not FlowPhase.RELEASED:
            self.taken = before.taken
            self.phase = self._phase_once_taken() if before.active else before.phase
            self.is_taken = before.is_taken
            self.why = before.why if before.phase is FlowPhase.SUPERSEDED else ""
        self.partitions = before.partitions
        self.accepted = before.accepted
        self.draining = before.draining
        self.copier.inherit(before.copier)

    @property
    def name(self) -> str:
        """The name of the flow."""
        return self.spec.name

    @property
    def active(self) -> bool:
        """Whether slots copy the flow now."""
        return self.phase in _COPIED

    @property
    def generation(self) -> int:
        """The number of the generation that this driver has written; 0 before."""
        return self.taken.number if self.taken is not None else 0

    @property
    def ledger_lost(self) -> bool:
        """Whether the ledger lost the flow's progress, and `restart_from` has not said where to begin."""
        return is_ledger_lost(self.name, self.shared.ledger.generation(self.name), self.shared)

    @property
    def promoted(self) -> Collection[PartitionKey]:
        """The partitions of topics that were promoted on their own."""
        if self.spec.state in ENDED or self.taken is None or not self.taken.promoted:
            return ()
        names = NamePatterns(self.taken.promoted)
        return [key for key in self.shared.ledger.all_progress(self.name) if names.match(key.topic)]

    def selected(self, topics: Iterable[str]) -> dict[str, str]:
        """Returns the topics that the flow selects now, with their names at the destination."""
        return self.copier.selected(topics)

    def _count_topics(self) -> int:
        """Counts the topics that are copied. Each heartbeat shows the number, and it seldom changes."""
        partitions, topics = self._topics
        if partitions is not self.partitions:
            topics = len({key.topic for key in self.partitions})
            self._topics = self.partitions, topics
        return topics

    def view(self) -> FlowView:
        """Returns the flow's part of the job status."""
        taken, why = self.taken, self.why
        if self._behind and not why and self.phase is FlowPhase.DRAINING:
            of = "" if self.spec.state in ENDED else " of the topics to promote"
            why = f"{self._behind:,} records{of} are left to copy"
        return FlowView(
            flow=self.name,
            state=self.spec.state,
            generation=self.generation,
            source_cluster_id=taken.source_cluster_id if taken is not None else "",
            destination_cluster_id=taken.destination_cluster_id if taken is not None else "",
            source_answers=self._source_answers,
            topics=self._count_topics(),
            partitions=len(self.partitions),
            why=why,
            notes=[*islice(self.copier.notes(), 50), *islice(self._gone_notes(), 50), *self._group_notes],
            ended=self.phase is FlowPhase.ENDED,
            promoted=list(taken.promoted) if taken is not None else [],
            attempts=self._attempts if self.phase in _BEGINS else 0,
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

    def release(self) -> None:
        """Assigns nothing any more: the flow is removed, or its next version takes it over anew."""
        self.partitions = {}
        if self.phase is not FlowPhase.RELEASED:
            self._enter(FlowPhase.RELEASED)

    async def run(self) -> None:
        """Runs the flow until there is nothing more to do for it, or until cancelled. Raises DriverFenced."""
        try:
            if self.spec.state in ENDED and self.phase in _UNTIL_ENDED:
                # Topics whose own promotion is not complete end together with the flow.
                await self._retry_until_done(self._choose_topics)
            while True:
                match self.phase:
                    case FlowPhase.TAKING_OVER:
                        await self._retry_until_done(self._take_over)
                    case FlowPhase.STARTING | FlowPhase.COPYING:
                        await self._copy()
                    case FlowPhase.DRAINING if self.spec.state in ENDED:
                        await self._drain()
                        self._enter(FlowPhase.ENDING)
                        await self._await_release()
                    case FlowPhase.DRAINING:
                        await self._promote_topics()
                    case FlowPhase.ENDING:
                        await self._end()
                    case _:
                        return
        except FlowSuperseded as superseded:
            self.why, self.partitions = str(superseded), {}
            log_event("flow_superseded", key=self.name, flow=self.name, error=self.why, decision="end")
            self._enter(FlowPhase.SUPERSEDED)

    def _enter(self, phase: FlowPhase) -> None:
        """Changes the phase, by the table of phases."""
        assert phase in NEXT_PHASES[self.phase], f"{self.phase} → {phase}"
        self.phase = phase
        if self.active or phase is FlowPhase.PAUSED:
            self.is_taken.set()
        self.shared.changed()

    def _phase_once_taken(self) -> FlowPhase:
        if self.spec.state == "paused":
            return FlowPhase.PAUSED
        drains = self.spec.state == "promoted" or self.spec.promoted
        return FlowPhase.DRAINING if drains else FlowPhase.STARTING

    async def _take_over(self) -> None:
        """Takes the flow over; one that has ended, or fails over, is not copied before. Raises WireError."""
        if self.spec.state == "failed_over":
            self._enter(FlowPhase.ENDING)
            return
        if self.spec.state == "promoted" and await self._has_ended():
            self._enter(FlowPhase.ENDED)
            return
        if self.spec.state == "paused":
            await self._write_generation("paused")
        else:
            await self._write_generation("active", source_id=(await self.source()).cluster_id)
        self._enter(self._phase_once_taken())

    async def _write_generation(self, state: FlowState, source_id: str = "", note: str = "") -> None:
        """Writes the generation and fences its predecessors. Raises WireError.

        A flow that this driver had taken over before is not taken back from another job: it is superseded.
        """
        if self.taken is not None:
            await self._newest_generation()
        opposite = opposite_of(self.job, self.spec)
        self.taken = await take_over(
            self.spec, self.shared, source_id, self._wait_for, state=state, note=note, opposite=opposite
        )
        log_event(
            "flow_taken_over",
            key=self.name,
            flow=self.name,
            generation=self.generation,
            state=state,
            ledger_lost=self.ledger_lost or None,
        )

    async def _copy(self) -> None:
        """Does one pass, and waits until the next one, or until a command changes what is copied.

        A mirror that could not be made is tried again within seconds, however seldom the flow follows (R7).
        """
        began = time.monotonic()
        behind = await self._retry_until_done(self.copier.copy_once)
        if self._gone:
            await self._retry_until_done(self._forget_gone)
        pause_s = self.copier.pause_s(time.monotonic() - began)
        if self.copier.is_incomplete:
            self._attempts += 1
            pause_s = min(pause_s, retry_pause(self._attempts, starting=self.phase is FlowPhase.STARTING))
        else:
            self._attempts = 1
            self.started()
        if not behind:
            await self._pause(pause_s)

    def started(self) -> None:
        """Notes that the flow has started: what fails from now on is no failure to start."""
        if self.phase is FlowPhase.STARTING:
            self._enter(FlowPhase.COPYING)

    async def _pause(self, seconds: float) -> None:
        """Waits until the next pass, or until an operator's command changes what is copied."""
        await pause(seconds, self._woken)
        if self._woken.is_set():
            self._woken.clear()
            self.copier.look_again()

    async def _retry_until_done(self, duty: Callable[[], Coroutine[Any, Any, T]]) -> T:
        """Retries a duty until it succeeds, so that one flow's failure does not stop another flow (R7).

        Returns the duty's result. DriverFenced and FlowSuperseded end it.
        """
        failures = 0
        while True:
            try:
                result = await duty()
            except _FAILURES as error:
                lost = isinstance(error, _LOST)
                self.why = f"{PartitionState.LEDGER_MISSING}: {error}" if lost else str(error)
                self.copier.fail(str(error), lost=lost)
                self._attempts = 1 if isinstance(error, FlowWaits) else self._attempts + 1
                failures += 1
                pause_s = retry_pause(failures, starting=self.phase is not FlowPhase.COPYING)
                log_event(
                    "flow_retry",
                    key=self.name,
                    flow=self.name,
                    error=self.why,
                    failures=failures,
                    decision="retry",
                    pause_s=pause_s,
                )
                await self._pause(pause_s)
            else:
                self.why = ""
                return result

    async def _drain(self, topics: Collection[str] | None = None) -> Collection[PartitionKey]:
        """Copies until the source holds no uncopied record of these topics, or of any.

        Returns their partitions. Records that arrive meanwhile are copied first.
        """
        while True:
            await self._retry_until_done(self.copier.copy_once)
            keys = {key for key in self.partitions if topics is None or key.topic in topics}
            await self._retry_until_done(lambda: self._count_behind(keys))  # noqa: B023 - it ends before
            if not self._behind:
                return keys
            await asyncio.sleep(_DRAIN_POLL_S)

    async def _count_behind(self, keys: Collection[PartitionKey]) -> None:
        """Counts the records that are not copied yet, up to the last stable offsets, without heartbeats.

        A partition without progress counts as one record. A partition that is missing both in the
        driver's listing and in the answer to this request has no record left. Raises WireError.
        """
        source = await self.source()
        await self.shared.ledger.refresh(self.name)
        counted = [key for key in keys if key.topic != naming.HEARTBEATS]
        listed = await self.shared.clusters.listing(self.spec.source)
        ends = await list_offsets(
            source, dict.fromkeys((key.at for key in counted), LATEST), Isolation.READ_COMMITTED
        )
        progress = self.shared.ledger.all_progress(self.name)
        behind, gone = 0, set[str]()
        for key in counted:
            match ends[key.at]:
                case ListedOffset(offset=end):
                    behind += max(end - progress[key].position, 0) if key in progress else 1
                case ErrorCode.UNKNOWN_TOPIC_OR_PARTITION if _is_gone(key, listed.get(key.topic)):
                    gone.add(key.topic)
                case code:
                    raise BrokerError(ErrorCode(code), f"asking about {key.at}")
        self._behind = behind
        mirrors = {key.topic: assigned.destination_topic for key, assigned in self.partitions.items()}
        self._gone = {topic: mirrors.get(topic, self._gone.get(topic, "")) for topic in sorted(gone)}

    def _gone_notes(self) -> Iterator[str]:
        for topic in self._gone:
            yield f"{topic} is gone from {self.spec.source}: no record of it is left to copy"

    async def _forget_gone(self) -> None:
        """Forgets that topics are gone that are at the source again, or whose mirrors were removed.

        Raises WireError.
        """
        clusters = self.shared.clusters
        listed = await clusters.listing(self.spec.source)
        mirrors = await clusters.listing(self.spec.destination) if self.copier.mirrors else None
        self._gone = {
            topic: mirror
            for topic, mirror in self._gone.items()
            if topic not in listed and (mirrors is None or not mirror or mirror in mirrors)
        }

    async def _await_release(self, topics: Collection[str] | None = None) -> None:
        """Waits until no slot holds these topics, or any; a slot that hangs is replaced."""
        self.shared.changed()
        while self.shared.membership.holds(self.name, topics):
            self.why = "a slot has not released its partitions yet: their transactions end first"
            await asyncio.sleep(_DRAIN_POLL_S)
        self.why = ""

    async def _promote_topics(self) -> None:
        """Promotes the topics that the spec names, after a promotion that an earlier driver left incomplete.

        They are copied until the source holds no uncopied record of them and no slot holds them.
        """
        await self._retry_until_done(self._commit_promoted)
        while topics := self.draining.topics:
            keys = await self._drain(topics)
            self.partitions = {key: assigned for key, assigned in self.partitions.items() if key not in keys}
            await self._await_release(topics)
            await self._retry_until_done(lambda: self._count_behind(keys))  # noqa: B023 - it ends before
            if not self._behind:
                self.draining.topics = frozenset()
        await self._retry_until_done(self._commit_promoting)
        await self._retry_until_done(self._commit_promoted)
        self._enter(FlowPhase.STARTING)

    async def _commit_promoting(self) -> None:
        """Commits the topics as `promoting`, so that later generations do not copy them either."""
        last = await self._newest_generation()
        if new := [pattern for pattern in self.spec.promoted if pattern not in last.promoted]:
            await self._commit(replace(last, promoting=new))

    async def _commit_promoted(self) -> None:
        """Commits the groups of `promoting` topics a last time, and chooses the topics to drain next.

        It waits for a pass of group sync that is under way.
        """
        last = await self._newest_generation()
        if last.promoting:
            topics = topics_to_drain(self.spec, self.shared, last.promoting, last.promoted)
            async with self.draining.group_sync_lock:
                last_sync = FinalGroupSync(self.job, self.spec, self.shared, lambda _: topics, self._wait_for)
                self._group_notes = await last_sync.run()
            last = await self._commit(replace(last, promoted=[*last.promoted, *last.promoting], promoting=[]))
            log_event("topics_promoted", key=self.name, flow=self.name, topics=len(topics))
        await self._choose_topics()
        self.shared.leadership.request_heartbeat()

    async def _choose_topics(self) -> None:
        """Chooses the topics of the spec's `promoted` that are drained: those that are not promoted yet."""
        await self.shared.ledger.decided(self.name)
        last = self.shared.ledger.generation(self.name)
        closed = last.promoted if last is not None else ()
        self.draining.topics = topics_to_drain(self.spec, self.shared, self.spec.promoted, closed)

    async def _end(self) -> None:
        """Ends the generation, from where on no slot copies the flow, and moves its groups.

        Records of a promoted flow that arrived before the fence are copied first: it must lose nothing.
        """
        state = self.spec.state
        if await self._retry_until_done(self._has_ended):
            self._enter(FlowPhase.ENDED)
            return
        await self._retry_until_done(lambda: self._write_generation(state, note=_GROUPS_LEFT))
        if state == "promoted":
            await self._retry_until_done(lambda: self._count_behind(self.partitions))
            if self._behind:
                self._enter(FlowPhase.TAKING_OVER)
                return
        await self._retry_until_done(self._complete_end)
        self._enter(FlowPhase.ENDED)
        log_event("flow_ended", key=self.name, flow=self.name, state=state, generation=self.generation)

    async def _has_ended(self) -> bool:
        """Returns whether the ledger says that every step of the flow's end is complete: none is repeated."""
        await self.shared.ledger.decided(self.name)
        last = self.shared.ledger.generation(self.name)
        if last is None or last.state != self.spec.state or last.note == _GROUPS_LEFT:
            return False
        self.taken = last
        return True

    async def _complete_end(self) -> None:
        """Translates the groups a last time and commits the generation without the note."""
        if await self._has_ended():
            return
        if self.shared.ledger.all_progress(self.name):
            last_sync = FinalGroupSync(self.job, self.spec, self.shared, self.selected, self._wait_for)
            self._group_notes = await last_sync.run()
        last = await self._newest_generation()
        promoted = [*dict.fromkeys([*last.promoted, *self.spec.promoted])]
        await self._commit(replace(last, note="", written_at=now_ms(), promoted=promoted, promoting=[]))

    async def _commit(self, record: Generation) -> Generation:
        await self.shared.leadership.ensure()
        await self.shared.leadership.commit({GenerationKey(self.name): record})
        self.taken = record
        return record

    async def _newest_generation(self) -> Generation:
        """Reads the flow's generation; a commit without an answer counts.

        Raises what `own_generation` raises.
        """
        await self.shared.ledger.decided(self.name)
        self.taken = self.own_generation()
        return self.taken

    def own_generation(self) -> Generation:
        """Returns the flow's generation as the ledger was read last.

        Raises FlowSuperseded where another job has the flow, and WireError where the ledger lost it.
        """
        newest = self.shared.ledger.generation(self.name)
        if newest is None or newest.number < self.generation:
            raise WireError(f"the ledger no longer has generation {self.generation} of it")
        if newest.driver != self.shared.driver:
            raise FlowSuperseded(f"job {newest.job} has it now, as generation {newest.number}")
        return newest

    def _wait_for(self, why: str) -> None:
        """Notes what a step waits for that is tried again: in the flow's status, and in the log."""
        self.why, self._attempts = why, 1
        log_event("flow_waits", key=self.name, flow=self.name, error=why, decision="retry")

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
