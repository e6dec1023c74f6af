"""This module follows the topics of a flow between clusters, whose records slots copy.

Following covers topics, partitions, settings and first positions. Topics that are promoted on their own are
copied like all others until the source holds no uncopied record of them, and are not copied afterwards.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import ClassVar, Final

from msgspec import Struct
from msgspec.structs import replace

from runtime.contract.records import heartbeat
from runtime.contract.records.control import AssignedPartition
from runtime.contract.records.failback import opposite_of
from runtime.contract.records.ledger import PartitionKey, Progress
from runtime.contract.spec import naming
from runtime.contract.spec.route import Router
from runtime.driver.clusters import CountedTopics
from runtime.driver.flows.failback import begin_new_partitions, start_failback
from runtime.driver.flows.flow import Copier, DriverFlow
from runtime.driver.flows.start import commit_begun, group_by_start, initial_topics, restart, selection
from runtime.driver.topics.mirrors import (
    MirrorTopic,
    MirrorTopicManager,
    discover,
    not_promoted,
    selected_topics,
)
from runtime.kafka.cluster import KafkaCluster
from runtime.kafka.timing import until_next
from runtime.ledger.positions import first_positions
from runtime.slot.log import log_event

_NO_FOLLOW_S: Final = 3600.0


class _Compared(Struct, frozen=True):
    """What a pass compared: the topics of both sides, and what the driver decided on the flow meanwhile.

    `draining` are the topics that are promoted on their own, `accepted` the partitions whose loss is
    accepted, `partitions` those that the pass gave to slots. `mirrors` are those that it found. It is None
    where something is left to do for one of them: then they are found anew from the next listings.
    """

    source: CountedTopics
    destination: CountedTopics
    draining: frozenset[str]
    accepted: frozenset[PartitionKey]
    partitions: Mapping[PartitionKey, AssignedPartition]
    mirrors: list[MirrorTopic] | None

    def is_of(self, source: CountedTopics, destination: CountedTopics, flow: DriverFlow) -> bool:
        """Returns whether both sides have the same topics and partitions, and nothing else was decided."""
        return (
            source.partitions is self.source.partitions
            and destination.partitions is self.destination.partitions
            and flow.draining.topics == self.draining
            and flow.accepted == self.accepted
            and flow.partitions is self.partitions
        )

    def has_same_listings(self, source: CountedTopics, destination: CountedTopics) -> bool:
        """Returns whether neither side was listed again."""
        return source is self.source and destination is self.destination


class MirrorCopier(Copier):
    """Keeps the partitions that slots copy, and the topics that they copy into."""

    mirrors: ClassVar[bool] = True

    def __init__(self, flow: DriverFlow, router: Router) -> None:
        self._flow = flow
        self._router = router
        self._opposite = opposite_of(flow.job, flow.spec)
        shared = flow.shared
        self._mirrors = MirrorTopicManager(flow.spec, flow.job, router, shared.clusters, shared.leadership)
        self._initial: frozenset[str] | None = None
        self._compared: _Compared | None = None
        self._notes: list[str] = []

    def inherit(self, before: Copier) -> None:
        if not isinstance(before, MirrorCopier):
            return
        self._mirrors.done = before._mirrors.done
        if selection(before._flow.spec) == selection(self._flow.spec):
            self._initial = before._initial

    @property
    def actions(self) -> Mapping[str, int]:
        return dict(self._mirrors.done)

    def notes(self) -> Iterator[str]:
        yield from self._notes
        for name, why in self._mirrors.unprotected.items():
            yield f"{name} is not protected from foreign writers: {why}"
        yield from (f"{name}: {why}" for name, why in self._mirrors.failed.items())

    @property
    def is_incomplete(self) -> bool:
        return bool(self._mirrors.failed)

    def look_again(self) -> None:
        self._compared = None

    def pause_s(self, took_s: float) -> float:
        every_ms = self._flow.spec.follow_every_ms
        return until_next(every_ms / 1000) if every_ms is not None else _NO_FOLLOW_S

    def selected(self, topics: Iterable[str]) -> dict[str, str]:
        flow = self._flow
        return selected_topics(flow.spec, self._router, topics, flow.draining.topics)

    async def copy_once(self) -> bool:
        """Compares the source's topics with the destination's once, and starts what is new.

        Nothing is compared again while the same listings are used, as those of large clusters are for some
        passes. Where newer listings have the same topics and partitions, only their settings are compared.
        Raises WireError.
        """
        flow, shared = self._flow, self._flow.shared
        source = await flow.source()
        await shared.ledger.decided(flow.name)
        flow.own_generation()
        at_source = await shared.clusters.counted(flow.spec.source)
        there = await shared.clusters.counted(flow.spec.destination)
        draining, accepted = frozenset(flow.draining.topics), flow.accepted
        compared, self._compared = self._compared, None
        same = compared if compared is not None and compared.is_of(at_source, there, flow) else None
        if same is not None and same.has_same_listings(at_source, there):
            self._compared = same
            return False
        if same is None or same.mirrors is None:
            mirrors = self._discover(at_source.partitions, there.partitions, draining)
            await self._mirrors.update(mirrors)
        else:
            mirrors = same.mirrors
            if not await self._mirrors.update(mirrors):
                self._compared = replace(same, source=at_source, destination=there)
                return False
        wanted = self._assignable(mirrors)
        await start_failback(flow.spec, self._opposite, shared, source, wanted)
        await restart(flow.spec, shared, source, wanted.values())
        await self._begin_new_partitions(source, wanted)
        if flow.ledger_lost:
            self._publish_partitions(wanted)
            return False
        await self._commit_begun({}, wanted)
        self._publish_partitions(wanted)
        begun = wanted.keys() <= shared.ledger.all_progress(flow.name).keys()
        complete = begun and not self._mirrors.failed and not any(mirror.change for mirror in mirrors)
        found = mirrors if complete else None
        self._compared = _Compared(at_source, there, draining, accepted, flow.partitions, found)
        return False

    def _discover(
        self, source: Mapping[str, int], destination: Mapping[str, int], draining: frozenset[str]
    ) -> list[MirrorTopic]:
        """Returns the mirrors that the flow needs by the topics of both sides. Notes what is left out."""
        flow, shared = self._flow, self._flow.shared
        copied = {key.topic for key in shared.ledger.all_progress(flow.name)}
        names = shared.selected.of(self._router, flow.name, flow.spec.source, source)
        taken = not_promoted(flow.spec, names, draining)
        if self._initial is None or flow.ledger_lost:
            self._initial = initial_topics(flow.spec, shared.ledger.generation(flow.name), taken, copied)
        if flow.spec.heartbeats_every_ms is not None and naming.HEARTBEATS in source:
            taken[naming.HEARTBEATS] = heartbeat.topic_there(flow.name)
        replace_lost = flow.spec.on_data_loss == "skip" or bool(flow.accepted)
        mirrors, self._notes = discover(taken, source, destination, copied, replace_lost=replace_lost)
        return mirrors

    def _assignable(self, mirrors: Iterable[MirrorTopic]) -> dict[PartitionKey, AssignedPartition]:
        """Returns the partitions of mirrors whose limits are known; failed mirrors are retried later."""
        wanted: dict[PartitionKey, AssignedPartition] = {}
        unknown: set[str] = set()
        for mirror in mirrors:
            limited = self._mirrors.limited(mirror.destination_topic)
            if limited is None or not self._mirrors.is_ready(mirror.destination_topic):
                unknown.add(mirror.topic)
                continue
            for number in range(mirror.partitions):
                key = PartitionKey(self._flow.name, mirror.topic, number)
                wanted[key] = AssignedPartition(
                    *key,
                    destination_topic=mirror.destination_topic,
                    max_message_bytes=limited.max_message_bytes,
                    min_in_sync=limited.min_in_sync,
                    accept_loss=key in self._flow.accepted,
                    quarantine=self._mirrors.quarantine(mirror.destination_topic),
                )
        wanted.update(
            (key, assigned) for key, assigned in self._flow.partitions.items() if key.topic in unknown
        )
        return wanted

    async def _begin_new_partitions(
        self, source: KafkaCluster, wanted: Mapping[PartitionKey, AssignedPartition]
    ) -> None:
        """Commits first positions of partitions without progress before any of them is copied (R1).

        All are committed in one transaction: otherwise a crash would leave a flow half begun, and the rest
        would look like topics that appeared later.
        """
        shared = self._flow.shared
        begun = shared.ledger.all_progress(self._flow.name)
        new = [
            assigned
            for key, assigned in wanted.items()
            if key not in begun and shared.ledger.progress(key) is None  # it may be undecided
        ]
        if not new or self._flow.ledger_lost:
            return
        await shared.leadership.ensure()
        new = await begin_new_partitions(self._flow.spec, self._opposite, shared, source, new)
        first: dict[PartitionKey, Progress] = {}
        copied = shared.ledger.all_progress(self._flow.name)
        for start, group in group_by_start(self._flow.spec, self._initial or (), new, copied):
            if group:
                first |= await first_positions(
                    source, shared.destination, group, start, self._flow.generation
                )
        await self._commit_begun(first, wanted)

    async def _commit_begun(
        self, first: Mapping[PartitionKey, Progress], wanted: Mapping[PartitionKey, AssignedPartition]
    ) -> None:
        """Commits the first positions, and the note that the flow has begun.

        The note is written even when there are no first positions.
        """
        awaited = (self._initial or frozenset()).difference(key.topic for key in wanted)
        await commit_begun(self._flow.spec, self._flow.shared, self._flow.generation, first, awaited)

    def _publish_partitions(self, wanted: dict[PartitionKey, AssignedPartition]) -> None:
        """Publishes the partitions that slots must copy.

        A partition that vanished at the source stays, and its slot reports that (R4), until the flow no
        longer selects it.
        """
        kept = {
            key: assigned
            for key, assigned in self._flow.partitions.items()
            if key not in wanted and self.selected([key.topic])
        }
        after = {**kept, **wanted}
        if after != self._flow.partitions:
            log_event(
                "flow_partitions",
                key=self._flow.name,
                flow=self._flow.name,
                partitions=len(after),
                added=len(after.keys() - self._flow.partitions.keys()),
                removed=len(self._flow.partitions.keys() - after.keys()),
            )
            self._flow.partitions = after
            self._flow.shared.changed()
