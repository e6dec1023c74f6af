"""This module reads topics for rounds: their partitions, the offsets that they hold, and what is to copy."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Final

from msgspec import Struct
from msgspec.structs import replace

from runtime.contract.records.job_status import Finding, PartitionState
from runtime.contract.records.ledger import PartitionKey
from runtime.contract.records.manifest import FilePosition, OffsetGap
from runtime.contract.spec.files import in_own_folder
from runtime.contract.spec.flow import Earliest
from runtime.contract.spec.naming import TopicPartition, is_other_topic
from runtime.contract.spec.route import Router
from runtime.driver.flows.files_sink import FilesSink
from runtime.driver.flows.flow import DriverFlow
from runtime.driver.flows.rounds import Look, RecordSource, SourceRange
from runtime.driver.topics.mirrors import selected_topics
from runtime.files.export import ExportPartition
from runtime.kafka.cluster import KafkaCluster
from runtime.kafka.errors import BrokerError, ErrorCode
from runtime.kafka.protocol.fetch import Isolation
from runtime.kafka.protocol.offsets import EARLIEST, ListedOffset
from runtime.kafka.queries import known_offsets, log_ends
from runtime.ledger.positions import resolve_start
from runtime.slot.log import log_event

_LIST_S: Final = 20.0
_KEPT_GAPS: Final = 20
S = PartitionState
Positions = Mapping[PartitionKey, FilePosition]


class SourcePartition(Struct, frozen=True):
    """A partition as the source shows it at the start of a round; -1 where its leader does not answer."""

    key: PartitionKey
    topic_id: bytes
    start: int = -1
    end: int = -1

    def is_known(self, positions: Positions) -> bool:
        """Returns whether there is a position for this very topic."""
        position = positions.get(self.key)
        return position is not None and position.topic_id == self.topic_id.hex()


class TopicSource(RecordSource[FilePosition]):
    """Reads the topics of one flow, up to their last stable offsets."""

    tried_again = frozenset({S.RECORD_CORRUPT, S.RECORD_INVALID, S.RETRYING})

    def __init__(self, flow: DriverFlow, router: Router, layout: str, sink: FilesSink) -> None:
        self._flow = flow
        self._router = router
        self._layout = layout
        self._sink = sink

    def selected(self, topics: Iterable[str]) -> dict[str, str]:
        """Returns the topics that are read, without those whose folder holds the manifests."""
        return {name: into for name, into in self._named(topics) if not in_own_folder(self._layout, name)}

    def _named(self, topics: Iterable[str]) -> Iterable[tuple[str, str]]:
        """Returns all topics that the flow selects, with their names at the destination."""
        return selected_topics(self._flow.spec, self._router, topics, self._flow.draining.topics).items()

    async def look(self, cluster: KafkaCluster, positions: Positions) -> Look[FilePosition]:
        flow, spec = self._flow, self._flow.spec
        look = Look[FilePosition]()
        flow.shared.clusters.invalidate(spec.source)
        listing = await flow.shared.clusters.listing(spec.source)
        topics = {name: topic for name, topic in listing.items() if topic.error is ErrorCode.NONE}
        named = sorted(name for name, _ in self._named(topics))
        refused = [name for name in named if in_own_folder(self._layout, name)]
        wanted = [
            TopicPartition(name, number)
            for name in named
            if name not in refused
            for number in topics[name].partitions
        ]
        expected = {key.at: position.position for key, position in positions.items()}
        starts, ends = await asyncio.gather(
            known_offsets(cluster, wanted, EARLIEST, within=_LIST_S),
            log_ends(cluster, {at: expected.get(at, 0) for at in wanted}, Isolation.READ_COMMITTED, _LIST_S),
        )
        partitions = [
            SourcePartition(
                PartitionKey(flow.name, *at),
                topics[at.topic].id,
                starts.get(at, -1),
                end.offset if isinstance(end := ends[at], ListedOffset) else -1,
            )
            for at in sorted(wanted)
        ]
        look.moved = await self._first_positions(cluster, partitions, positions)
        if look.moved is not None:
            return look
        gone = sorted({key.topic for key in positions if key.topic not in topics})
        look.notes += [f"{name} is gone from {spec.source}: its files stay" for name in gone]
        look.notes += [f"{name} is not copied: its folder would be that of the manifests" for name in refused]
        answering = [partition for partition in partitions if partition.is_known(positions)]
        skips, accepted = spec.on_data_loss == "skip", flow.accepted
        plan_round(look, answering, positions, lambda key: skips or key in accepted)
        return look

    async def _first_positions(
        self, cluster: KafkaCluster, partitions: Sequence[SourcePartition], positions: Positions
    ) -> dict[PartitionKey, FilePosition | None] | None:
        """Returns the first positions of new partitions and of new lineages, before any is copied (R1).

        `start` applies to topics without a position when the selection begins. Partitions and topics that
        appear later, and a topic that was made again, start at their first record. So a flow begins once the
        leaders of all partitions that `start` is for have answered; one that copies does not wait for those
        of a topic that an edit adds (R7). Raises WireError.
        """
        answering = [partition for partition in partitions if partition.start >= 0]
        new = [partition for partition in answering if partition.key not in positions]
        other = [
            partition
            for partition in answering
            if partition.key in positions and not partition.is_known(positions)
        ]
        begins = not self._sink.begun
        if not (other or new or begins):
            return None
        topics = {key.topic for key in positions}
        silent = [
            partition.key.at
            for partition in partitions
            if partition.start < 0 and partition.key.topic not in topics
        ]
        if begins and silent and not positions and not isinstance(self._flow.spec.start, Earliest):
            raise BrokerError(ErrorCode.LEADER_NOT_AVAILABLE, f"where {silent[0]} begins")
        by_start = [partition.key.at for partition in new if begins and partition.key.topic not in topics]
        at = await resolve_start(cluster, by_start, self._flow.spec.start) if by_start else {}
        first: dict[PartitionKey, FilePosition | None] = {}
        for partition in (*new, *other):
            key, before = partition.key, positions.get(partition.key)
            if before is not None and not is_other_topic(bytes.fromhex(before.topic_id), partition.topic_id):
                # Its cluster had no ids before an upgrade.
                first[key] = replace(before, topic_id=partition.topic_id.hex())
                continue
            first[key] = FilePosition(
                topic=key.topic,
                topic_id=partition.topic_id.hex(),
                partition=key.partition,
                position=at.get(key.at, partition.start),
            )
            if before is not None:
                log_event(
                    "topic_recreated",
                    key=f"{key.flow} {key.at}",
                    flow=key.flow,
                    topic=key.topic,
                    partition=key.partition,
                    position=before.position,
                    decision="begin another lineage",
                )
        return first

    def take(self, look: Look[FilePosition], results: Sequence[Any], positions: Positions) -> bool:
        behind = False
        done: ExportPartition
        for done in results:
            key = PartitionKey(self._flow.name, *done.position.key)
            shown = look.shown[key]
            reached = S.CAUGHT_UP if done.position.position >= shown.end else S.COPYING
            state, why = done.problem or (reached, "")
            behind |= state is S.COPYING
            look.shown[key] = shown._replace(state=state, why=why)
        return behind


def plan_round(
    look: Look[FilePosition],
    partitions: Iterable[SourcePartition],
    positions: Positions,
    accepts_loss: Callable[[PartitionKey], bool],
) -> None:
    """Decides for each partition whether it is copied, from where, and why not (R4). It is pure."""
    for partition in partitions:
        key, position = partition.key, positions[partition.key]
        finding = _loss(partition, position)
        if finding is not None and accepts_loss(key):
            low = position.position
            target = partition.start if finding.state is S.DATA_LOSS else partition.end
            gap = OffsetGap(low=min(low, target), end=max(low, target), why=finding.state, at_ms=look.at_ms)
            position = replace(position, position=target, gaps=[*position.gaps, gap][-_KEPT_GAPS:])
            look.move(key, position)
            look.continued.add(key)
            finding = None
        if finding is None and partition.end < 0:
            finding = Finding(S.RETRYING, "its leader at the source does not answer")
        elif finding is None and position.position < partition.end:
            finding = Finding(S.COPYING, "")
            look.read.append(ExportPartition(position, partition.end))
        look.shown[key] = SourceRange(partition.start, partition.end, *(finding or (S.CAUGHT_UP, "")))


def _loss(partition: SourcePartition, position: FilePosition) -> Finding | None:
    """Returns what does not fit between the log of a partition and its position, if anything."""
    at, start, end = position.position, partition.start, partition.end
    if end < 0 or start < 0:
        return None
    if at < start:
        return Finding(S.DATA_LOSS, f"the offsets {at} to {start - 1} are gone and were not copied")
    if at > end:
        return Finding(S.DIVERGED, f"the source ends at {end}, {at} was copied already")
    return None
