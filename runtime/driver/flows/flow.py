"""This module runs one flow in the driver: it takes the flow over once (R3) and then follows its topics.

Following covers topics, partitions, settings and first positions. Topics that are promoted on their own are
copied like all others until the source holds no uncopied record of them, and are not copied afterwards.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Iterable, Mapping

from msgspec import Struct, field

from runtime.contract.client.settings import ClientSettingsError
from runtime.contract.records import heartbeat
from runtime.contract.records.control import AssignedPartition
from runtime.contract.records.failback import opposite_of
from runtime.contract.records.job_status import FlowView, PartitionState
from runtime.contract.records.ledger import PartitionKey, Progress
from runtime.contract.spec import naming
from runtime.contract.spec.flow import FlowState
from runtime.contract.spec.jobspec import FlowSpec, JobSpec
from runtime.contract.spec.route import Router
from runtime.contract.spec.selection import NamePatterns
from runtime.driver.flows.failback import begin_new_partitions, start_failback
from runtime.driver.flows.start import (
    FlowContext,
    FlowWaits,
    commit_begun,
    group_by_start,
    initial_topics,
    restart,
    selection,
    take_over,
)
from runtime.driver.slots.channel import pause
from runtime.driver.topics.mirrors import (
    MirrorTopic,
    MirrorTopicManager,
    discover,
    not_promoted,
    selected_topics,
)
from runtime.kafka.cluster import KafkaCluster
from runtime.kafka.errors import WireError
from runtime.kafka.protocol.fetch import Isolation
from runtime.kafka.protocol.offsets import LATEST, TopicPartition
from runtime.kafka.queries import offsets_of
from runtime.kafka.timing import until_next
from runtime.ledger.positions import first_positions
from runtime.ledger.records import READ_FAILURES
from runtime.slot.log import log_event


class DrainingTopics(Struct):
    """A DrainingTopics names the topics of a flow that are promoted on their own and still copied.

    The consumer groups of `topics` are still synced. `turn` is a lock: one task at a time commits the flow's
    groups.
    """

    topics: frozenset[str] = frozenset()
    group_sync_lock: asyncio.Lock = field(default_factory=asyncio.Lock)


def topics_to_drain(
    spec: FlowSpec, shared: FlowContext, patterns: Collection[str], closed: Iterable[str]
) -> frozenset[str]:
    """Returns the topics that match these patterns and that the flow has copied before.

    A topic that was never copied is not started: it matches a promoted pattern. Topics that match `closed`
    patterns are promoted already.
    """
    wanted, done = NamePatterns(patterns), NamePatterns(closed)
    known = {key.topic for key in shared.ledger.all_progress(spec.name)}
    return frozenset(topic for topic in known if wanted.match(topic) and not done.match(topic))


async def count_uncopied(
    spec: FlowSpec, shared: FlowContext, source: KafkaCluster, keys: Collection[PartitionKey]
) -> int:
    """Returns how many records are not copied yet, up to the last stable offsets; heartbeats are not counted.

    A partition without progress counts as one record. Raises WireError.
    """
    await shared.ledger.refresh(spec.name)
    keys = [key for key in keys if key.topic != naming.HEARTBEATS]
    asked = dict.fromkeys((TopicPartition(key.topic, key.partition) for key in keys), LATEST)
    ends = await offsets_of(source, asked, Isolation.READ_COMMITTED)
    progress = shared.ledger.all_progress(spec.name)
    behind = 0
    for key in keys:
        end = ends[TopicPartition(key.topic, key.partition)]
        behind += max(end - progress[key].position, 0) if key in progress else 1
    return behind


_RETRY_S, _MAX_RETRY_S = 0.3, 10.0
_STARTING_RETRY_S, _STARTING_RETRIES = 2.0, 30
_NO_FOLLOW_S = 3600.0


def retry_pause(
    failures: int, *, starting: bool, first_s: float = _RETRY_S, most_s: float = _MAX_RETRY_S
) -> float:
    """Returns the seconds between two attempts of a flow, after so many failures in a row.

    An apply waits for a flow that starts, and gives up some seconds after its first failure. So a flow that
    starts is tried again often: what it says is not older than what it lacks, such as a restarting cluster.
    """
    if starting and failures <= _STARTING_RETRIES:
        most_s = min(most_s, _STARTING_RETRY_S)
    return min(first_s * 2.0 ** min(failures, 8), most_s)


class DriverFlow:
    """A DriverFlow runs one flow until cancelled.

    `generation` is set once this driver has taken the flow over; `partitions` are those that slots must copy.
    """

    def __init__(self, spec: FlowSpec, job: JobSpec, router: Router, shared: FlowContext) -> None:
        self.spec = spec
        self.generation: int | None = None
        self.partitions: dict[PartitionKey, AssignedPartition] = {}
        self.accepted: frozenset[PartitionKey] = frozenset()
        self.draining = DrainingTopics()
        self._router = router
        self._opposite = opposite_of(job, spec)
        self._shared = shared
        self._mirrors = MirrorTopicManager(spec, job, router, shared.clusters, shared.leadership)
        self._initial: frozenset[str] | None = None
        self._follow_now = asyncio.Event()
        self._compared: tuple[Mapping[str, int], Mapping[str, int], frozenset[str]] | None = None
        self._cluster_ids = ("", "")
        self._source_answers = False
        self._ledger_lost = False
        self._superseded = ""
        self._why = ""
        self._attempts = 1  # to start
        self._notes: tuple[str, ...] = ()

    def inherit(self, before: DriverFlow) -> None:
        """Continues from the state of an older version of the same flow.

        So the flow is not taken over again.
        """
        self.generation = before.generation
        self.partitions = before.partitions
        self.accepted = before.accepted
        self.draining = before.draining
        self._cluster_ids = before._cluster_ids
        self._ledger_lost, self._superseded = before._ledger_lost, before._superseded
        self._mirrors.done = before._mirrors.done
        if selection(before.spec) == selection(self.spec):
            self._initial = before._initial

    @property
    def name(self) -> str:
        """The name of the flow."""
        return self.spec.name

    @property
    def shared(self) -> FlowContext:
        """The objects of the job that the flow's side duties need."""
        return self._shared

    @property
    def copies(self) -> bool:
        """Whether slots must copy the flow once this driver has taken it over."""
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
        """Whether slots must copy the flow now."""
        return self.copies and self.generation is not None and not self._superseded

    @property
    def actions(self) -> Mapping[str, int]:
        """How many mirror topics were created, grown and changed, by kind of action, for the metrics."""
        return dict(self._mirrors.done)

    def view(self) -> FlowView:
        """Returns the flow's part of the job status."""
        failed = (f"{name}: {why}" for name, why in self._mirrors.failed.items())
        unprotected = self._mirrors.unprotected.items()
        protection = (f"{name} is not protected from foreign writers: {why}" for name, why in unprotected)
        notes = [*self._notes, *protection, *failed]
        return FlowView(
            flow=self.name,
            state=self.spec.state,
            generation=self.generation or 0,
            source_cluster_id=self._cluster_ids[0],
            destination_cluster_id=self._cluster_ids[1],
            source_answers=self._source_answers,
            topics=len({key.topic for key in self.partitions}),
            partitions=len(self.partitions),
            why=self._why or self._superseded,
            notes=notes[:50],
            ended=self.ended,
            attempts=self._attempts if self.copies and not self._superseded else 0,
        )

    def accept_loss(self, stopped: Iterable[PartitionKey]) -> None:
        """Accepts data loss (R4) for these partitions, by an operator's command, so that they continue.

        Once they continue, the next loss stops them again.
        """
        self.accepted = frozenset(stopped)
        self._follow_now.set()

    def clear_accepted_loss(self, keys: Iterable[PartitionKey]) -> None:
        """Withdraws the accepted loss of these partitions, because they are copied again."""
        left = self.accepted.difference(keys)
        if left != self.accepted:
            self.accepted = left
            self._follow_now.set()

    async def run(self) -> None:
        """Takes the flow over and follows its topics until cancelled."""
        if self.generation is None:
            await self._retry_until_done(self._take_over)
        if not self.copies:
            return
        every = self.spec.follow_every_ms
        while not self._superseded:
            if self._follow_now.is_set():
                self._follow_now.clear()
                self._compared = None
            await self._retry_until_done(self._follow)
            if self._mirrors.failed:
                self._attempts += bool(self._attempts)
            else:
                self._started()
            await pause(until_next(every / 1000) if every is not None else _NO_FOLLOW_S, self._follow_now)

    def _started(self) -> None:
        """Notes that the flow has started: what fails from now on is no failure to start."""
        if self._attempts:
            self._attempts = 0
            self._shared.changed()

    def _note_failure(self, error: Exception) -> None:
        """Counts a failure to start. Waiting for another flow or driver is none."""
        if self._attempts:
            self._attempts = 1 if isinstance(error, FlowWaits) else self._attempts + 1

    async def _retry_until_done(self, duty: Callable[[], object]) -> None:
        """Retries a duty until it succeeds, so that one flow's failure does not stop another flow (R7).

        DriverFenced ends it.
        """
        failures = 0
        while True:
            try:
                result = duty()
                if asyncio.iscoroutine(result):
                    await result
            except (WireError, ClientSettingsError, *READ_FAILURES) as error:
                unreadable = isinstance(error, READ_FAILURES)
                self._why = f"{PartitionState.LEDGER_MISSING}: {error}" if unreadable else str(error)
                self._note_failure(error)
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
                await asyncio.sleep(pause_s)
            else:
                self._why = ""
                return

    async def _source(self) -> KafkaCluster:
        """Opens the source cluster.

        A flow that is paused or failed over is taken over without it. Raises WireError.
        """
        try:
            cluster = await self._shared.clusters.cluster(self.spec.source)
        except WireError:
            self._source_answers = False
            raise
        self._source_answers = True
        return cluster

    async def _take_over(self) -> None:
        source_id = (await self._source()).cluster_id if self.copies else ""
        await self._take("active" if self.copies else self.spec.state, source_id)

    async def _take(self, state: FlowState, source_id: str = "", note: str = "") -> None:
        """Writes the generation and fences its predecessors, with the reason of a wait in the flow's status.

        Raises WireError.
        """

        def waits(why: str) -> None:
            self._why, self._attempts = why, 1
            log_event("flow_waits", key=self.name, flow=self.name, error=why, decision="fence again")

        taken = await take_over(self.spec, self._shared, source_id, waits, state=state, note=note)
        self._cluster_ids = (taken.source_cluster_id, self._shared.destination.cluster_id)
        self._ledger_lost = taken.ledger_lost
        self.generation = taken.number
        log_event(
            "flow_taken_over",
            key=self.name,
            flow=self.name,
            generation=taken.number,
            state=state,
            ledger_lost=taken.ledger_lost or None,
        )
        self._shared.changed()

    async def _follow(self) -> None:
        """Compares the source's topics with the destination's once, and starts what is new.

        Nothing is compared again while the same listings are used, as those of large clusters are for some
        passes. Raises WireError.
        """
        shared = self._shared
        source = await self._source()
        await shared.ledger.decided(self.name)
        if self._is_superseded():
            return
        source_topics = await shared.clusters.partition_counts(self.spec.source)
        destination_topics = await shared.clusters.partition_counts(self.spec.destination)
        draining = frozenset(self.draining.topics)
        if self._compared is not None:
            before_source, before_destination, before_draining = self._compared
            same = source_topics is before_source and destination_topics is before_destination
            if same and draining == before_draining:
                return
        self._compared = None
        known = {key.topic for key in shared.ledger.all_progress(self.name)}
        taken = self._selected_of_source(source_topics)
        self._ledger_lost = self._ledger_lost and not known
        if self._initial is None or self._ledger_lost:
            self._initial = initial_topics(self.spec, shared.ledger.generation(self.name), taken, known)
        if self.spec.heartbeats_every_ms is not None and naming.HEARTBEATS in source_topics:
            taken[naming.HEARTBEATS] = heartbeat.topic_there(self.name)
        replace_lost = self.spec.on_data_loss == "skip" or bool(self.accepted)
        found = discover(taken, source_topics, destination_topics, known, replace_lost=replace_lost)
        await self._mirrors.update(found.create, found.grow, found.copy)
        self._notes = found.notes
        wanted = self._assignable(found.copy)
        await start_failback(self.spec, self._opposite, shared, source, wanted)
        if await restart(self.spec, shared, source, wanted.values(), ledger_lost=self._ledger_lost):
            self._ledger_lost = False
        await self._begin_new_partitions(source, wanted)
        if not self._ledger_lost:
            await self._commit_begun({}, wanted)
            self._compared = (source_topics, destination_topics, draining)
        self._publish_partitions(wanted)

    def _selected_of_source(self, topics: Mapping[str, int]) -> dict[str, str]:
        """Returns what `selected` returns for all topics of the source."""
        taken = self._shared.selected.of(self._router, self.name, self.spec.source, topics)
        return not_promoted(self.spec, taken, self.draining.topics)

    def selected(self, topics: Iterable[str]) -> dict[str, str]:
        """Returns the topics that the flow selects now, with their names at the destination."""
        return selected_topics(self.spec, self._router, topics, self.draining.topics)

    def _is_superseded(self) -> bool:
        """Returns whether another job has taken the flow over.

        Raises WireError when the ledger lost the generation.
        """
        generation = self._shared.ledger.generation(self.name)
        if generation is None or generation.number < (self.generation or 0):
            raise WireError(f"the ledger no longer has generation {self.generation} of it")
        if generation.number == self.generation:
            return False
        self._superseded = f"job {generation.job} has it now, as generation {generation.number}"
        log_event("flow_superseded", key=self.name, flow=self.name, error=self._superseded, decision="end")
        self.partitions = {}
        self._shared.changed()
        return True

    def _assignable(self, mirrors: tuple[MirrorTopic, ...]) -> dict[PartitionKey, AssignedPartition]:
        """Returns the partitions of mirrors whose limits are known; failed mirrors are retried later."""
        wanted: dict[PartitionKey, AssignedPartition] = {}
        unknown: set[str] = set()
        for mirror in mirrors:
            limits = self._mirrors.limits(mirror.destination_topic)
            if limits is None or not self._mirrors.is_ready(mirror.destination_topic):
                unknown.add(mirror.topic)
                continue
            for number in range(mirror.partitions):
                key = PartitionKey(self.name, mirror.topic, number)
                wanted[key] = AssignedPartition(
                    *key,
                    destination_topic=mirror.destination_topic,
                    max_message_bytes=limits.max_message_bytes,
                    min_in_sync=limits.min_in_sync,
                    accept_loss=key in self.accepted,
                    quarantine=self._mirrors.quarantine(mirror.destination_topic),
                )
        wanted.update((key, one) for key, one in self.partitions.items() if key.topic in unknown)
        return wanted

    async def _begin_new_partitions(
        self, source: KafkaCluster, wanted: Mapping[PartitionKey, AssignedPartition]
    ) -> None:
        """Commits first positions of partitions without progress before any of them is copied (R1).

        All are committed in one transaction: otherwise a crash would leave a flow half begun, and the rest
        would look like topics that appeared later.
        """
        shared = self._shared
        begun = shared.ledger.all_progress(self.name)
        new = [
            one
            for key, one in wanted.items()
            if key not in begun and shared.ledger.progress(key) is None  # it may be undecided
        ]
        if not new or self._ledger_lost:
            return
        assert self.generation is not None
        await shared.leadership.ensure()
        new = await begin_new_partitions(self.spec, self._opposite, shared, source, new)
        first: dict[PartitionKey, Progress] = {}
        copied = shared.ledger.all_progress(self.name)
        for start, some in group_by_start(self.spec, self._initial or (), new, copied):
            if some:
                first |= await first_positions(source, shared.destination, some, start, self.generation)
        await self._commit_begun(first, wanted)

    async def _commit_begun(
        self, first: Mapping[PartitionKey, Progress], wanted: Mapping[PartitionKey, AssignedPartition]
    ) -> None:
        """Commits the first positions, and the note that the flow has begun.

        The note is written even when there are no first positions.
        """
        assert self.generation is not None
        awaited = (self._initial or frozenset()).difference(key.topic for key in wanted)
        await commit_begun(self.spec, self._shared, self.generation, first, awaited)

    def _publish_partitions(self, wanted: dict[PartitionKey, AssignedPartition]) -> None:
        """Publishes the partitions that slots must copy.

        A partition that vanished at the source stays, and its slot reports that (R4), until the flow no
        longer selects it.
        """
        kept = {
            key: one
            for key, one in self.partitions.items()
            if key not in wanted and self.selected([key.topic])
        }
        after = {**kept, **wanted}
        if after != self.partitions:
            log_event(
                "flow_partitions",
                key=self.name,
                flow=self.name,
                partitions=len(after),
                added=len(after.keys() - self.partitions.keys()),
                removed=len(self.partitions.keys() - after.keys()),
            )
            self.partitions = after
            self._shared.changed()
