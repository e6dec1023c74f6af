"""Looks at both sides of partitions, all at once, for R4: ids, starts, ends and leader epochs."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from dataclasses import dataclass

from runtime.batch import Batch, Where, walk
from runtime.contract.records.ledger import Mark
from runtime.kafka.cluster import Cluster
from runtime.kafka.codes import ErrorCode
from runtime.kafka.errors import BrokerError, WireError
from runtime.kafka.fetch.once import fetch_once
from runtime.kafka.protocol.fetch import EpochEnd, Isolation
from runtime.kafka.protocol.metadata import Topic
from runtime.kafka.protocol.offsets import (
    EARLIEST,
    LATEST,
    EpochQuestion,
    ListedOffset,
    TopicPartition,
)
from runtime.kafka.queries.partitions import epoch_ends, list_offsets
from runtime.slot.health.findings import DestinationFacts, SourceFacts
from runtime.slot.partition import PartitionCopy

_WITHIN_S = 10.0


@dataclass(frozen=True, slots=True)
class Missing:
    """The topic or partition is not there, or can't be asked about now: the code says which."""

    side: str
    code: ErrorCode

    @property
    def gone(self) -> bool:
        return self.code in (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.UNKNOWN_TOPIC_ID)


@dataclass(frozen=True, slots=True)
class Seen:
    source: SourceFacts | Missing
    destination: DestinationFacts | Missing


async def inspect(
    source: Cluster, destination: Cluster, copies: Iterable[PartitionCopy]
) -> dict[PartitionCopy, Seen]:
    """Asks each leader once. Raises WireError where a cluster can't be asked at all."""
    listed = list(copies)
    there, here = await asyncio.gather(_source(source, listed), _destination(destination, listed))
    return {copy: Seen(there[copy], here[copy]) for copy in listed}


async def _source(
    cluster: Cluster, copies: list[PartitionCopy]
) -> dict[PartitionCopy, SourceFacts | Missing]:
    at = {copy: TopicPartition(copy.key.topic, copy.key.partition) for copy in copies}
    topics = await cluster.topics({place.topic for place in at.values()}, fresh=True)
    asked = {
        at[copy]: EpochQuestion(copy.progress.source_epoch)
        for copy in copies
        if copy.progress.source_epoch >= 0
    }
    starts, ends, epochs = await asyncio.gather(
        list_offsets(cluster, dict.fromkeys(at.values(), EARLIEST), within=_WITHIN_S),
        list_offsets(cluster, dict.fromkeys(at.values(), LATEST), within=_WITHIN_S),
        epoch_ends(cluster, asked, within=_WITHIN_S),
    )
    found: dict[PartitionCopy, SourceFacts | Missing] = {}
    for copy, place in at.items():
        start, end, progress = starts[place], ends[place], copy.progress
        if not isinstance(start, ListedOffset) or not isinstance(end, ListedOffset):
            found[copy] = Missing("source", start if isinstance(start, ErrorCode) else _code(end))
            continue
        if behind := _behind(topics[place.topic], place, progress.source_topic_id, progress.source_epoch):
            found[copy] = Missing("source", behind)
            continue
        diverged = _parted(copy, epochs.get(place))
        found[copy] = SourceFacts(topics[place.topic].id, start.offset, end.offset, diverged)
    return found


def _parted(copy: PartitionCopy, answer: EpochEnd | ErrorCode | None) -> int | None:
    """Where the source's log parts from what was read, if it does."""
    progress = copy.progress
    if not isinstance(answer, EpochEnd) or answer.end_offset < 0:
        return None
    if answer.epoch < progress.source_epoch or answer.end_offset < progress.position:
        return min(answer.end_offset, progress.position)
    return None


async def _destination(
    cluster: Cluster, copies: list[PartitionCopy]
) -> dict[PartitionCopy, DestinationFacts | Missing]:
    topics = await cluster.topics({copy.at.topic for copy in copies}, fresh=True)
    asked = {
        copy.at: EpochQuestion(copy.progress.destination_epoch)
        for copy in copies
        if copy.progress.destination_epoch >= 0
    }
    ends, epochs = await asyncio.gather(
        list_offsets(cluster, dict.fromkeys((copy.at for copy in copies), LATEST), within=_WITHIN_S),
        epoch_ends(cluster, asked, within=_WITHIN_S),
    )
    found: dict[PartitionCopy, DestinationFacts | Missing] = {}
    for copy in copies:
        topic, end, progress = topics[copy.at.topic], ends[copy.at], copy.progress
        if not isinstance(end, ListedOffset):
            found[copy] = Missing("destination", end)
            continue
        if behind := _behind(topic, copy.at, progress.destination_topic_id, progress.destination_epoch):
            found[copy] = Missing("destination", behind)
            continue
        try:
            doubtful = _doubtful(copy, epochs.get(copy.at), end.offset)
            rewritten = doubtful and await _rewritten(cluster, copy, topic.id)
        except WireError as error:
            code = error.code if isinstance(error, BrokerError) else ErrorCode.NETWORK_EXCEPTION
            found[copy] = Missing("destination", code)
            continue
        led = topic.partitions[copy.at.partition].leader_epoch
        found[copy] = DestinationFacts(topic.id, end.offset, rewritten, led)
    return found


def _behind(topic: Topic, at: TopicPartition, topic_id: bytes, epoch: int) -> ErrorCode | None:
    """Why what was told of the topic says nothing: a broker that is behind does not know it yet, or names a
    leader that was deposed before `epoch`, which the ledger knows.
    """
    named = topic.partitions.get(at.partition)
    if topic.error or named is None:
        return ErrorCode.LEADER_NOT_AVAILABLE
    older = topic.id == topic_id and named.leader_epoch < epoch
    return ErrorCode.UNKNOWN_LEADER_EPOCH if older else None


def _doubtful(copy: PartitionCopy, answer: EpochEnd | ErrorCode | None, log_end: int) -> bool:
    """The epoch that we believe to have written in ends before our last record. Perhaps only because metadata
    was one epoch behind, as a produce answer does not name the epoch: so the log itself is looked at."""
    end = copy.progress.destination_end
    return isinstance(answer, EpochEnd) and answer.end_offset < end <= log_end


async def _rewritten(cluster: Cluster, copy: PartitionCopy, topic_id: bytes) -> bool:
    """Whether another batch stands where our last one was. One that is gone (compacted, expired) says
    nothing.
    """
    mark, last = copy.progress.mark, copy.progress.destination_end - 1
    if mark is None or topic_id != copy.progress.destination_topic_id or cluster.leader(*copy.at) is None:
        return False
    answer = await fetch_once(
        cluster,
        copy.at,
        last,
        1,
        "look",
        isolation=Isolation.READ_UNCOMMITTED,
        topic_id=topic_id,
        within=_WITHIN_S,
    )
    for batch in walk(answer.records, Where(*copy.at)).sets:
        if isinstance(batch, Batch) and batch.base_offset <= last <= batch.last_offset:
            return mark != Mark(batch.producer_id, batch.producer_epoch, batch.base_sequence)
    return False


def _code(answer: ListedOffset | ErrorCode) -> ErrorCode:
    return answer if isinstance(answer, ErrorCode) else ErrorCode.UNKNOWN_SERVER_ERROR
