"""Looks at both sides of partitions, all at once, for R4: ids, starts, ends and leader epochs."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from dataclasses import dataclass

from runtime.copy.findings import DestinationFacts, SourceFacts
from runtime.copy.partition import PartitionCopy
from runtime.copy.wire.asking import epoch_ends, list_offsets
from runtime.copy.wire.cluster import Cluster
from runtime.copy.wire.codes import ErrorCode
from runtime.copy.wire.protocol.fetch import EpochEnd
from runtime.copy.wire.protocol.offsets import (
    EARLIEST,
    LATEST,
    EpochQuestion,
    ListedOffset,
    TopicPartition,
)

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
        start, end = starts[place], ends[place]
        if not isinstance(start, ListedOffset) or not isinstance(end, ListedOffset):
            found[copy] = Missing("source", start if isinstance(start, ErrorCode) else _code(end))
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
    """No leader epochs here: a produce answer does not name the one it was written in, and metadata may be
    one behind, so that an election without any loss would look like one."""
    topics = await cluster.topics({copy.at.topic for copy in copies}, fresh=True)
    ends = await list_offsets(cluster, dict.fromkeys((copy.at for copy in copies), LATEST), within=_WITHIN_S)
    found: dict[PartitionCopy, DestinationFacts | Missing] = {}
    for copy in copies:
        end = ends[copy.at]
        if isinstance(end, ListedOffset):
            found[copy] = DestinationFacts(topics[copy.at.topic].id, end.offset)
        else:
            found[copy] = Missing("destination", end)
    return found


def _code(answer: ListedOffset | ErrorCode) -> ErrorCode:
    return answer if isinstance(answer, ErrorCode) else ErrorCode.UNKNOWN_SERVER_ERROR
