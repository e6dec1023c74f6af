"""Finds offsets: of a record on the other side of a flow, and of the first record as late as a timestamp.

A record is also found where salvage replayed it.
"""

from __future__ import annotations

import asyncio
import dataclasses
from collections.abc import Mapping
from contextlib import AsyncExitStack, suppress
from typing import assert_never

from msgspec.structs import replace

from runtime.audit.ledger import (
    AuditFailure,
    FlowAccess,
    NothingCopied,
    as_audit_failure,
    open_cluster,
    open_if_answering,
    open_ledger,
    producers_at,
)
from runtime.audit.partition_logs import fetch_places, find_record
from runtime.audit.verify.provenance import original_of
from runtime.contract.client.endpoint import ClusterEndpoint
from runtime.contract.records.consumer_record import ConsumerRecord
from runtime.contract.records.ledger import PartitionKey, Progress
from runtime.contract.records.offset_map import (
    Answer,
    EndOfOffsetMap,
    MappedOffset,
    NotYetCopied,
    OffsetMap,
    UnmappedOffset,
)
from runtime.contract.records.provenance import ClusterPartition
from runtime.contract.results.groups import LocatedRecord, LocateResult
from runtime.contract.spec.naming import TopicPartition, is_other_topic
from runtime.kafka.cluster import KafkaCluster
from runtime.kafka.errors import BrokerError, ErrorCode, WireError
from runtime.kafka.protocol.offsets import ListedOffset
from runtime.kafka.queries import list_offsets
from runtime.kafka.timing import in_time
from runtime.ledger.offset_maps import OffsetMaps

_SOURCE_WITHIN_S = 3.0


async def with_replays(
    access: FlowAccess, opened: OffsetMaps, located: LocatedRecord, key: PartitionKey, offsets: OffsetMap
) -> LocatedRecord:
    """Returns the answer of the map, or for a replayed record the place that it was replayed from, or to.

    A replayed source record lies behind the records that were copied before it, at an unknown offset. Raises
    WireError, UnreadableRecord, AuditFailure.
    """
    generation = opened.ledger.generation(key.flow)
    progress = opened.progress(key.flow).get(key)
    offset = located.offset
    if offset is None or located.found is LocateResult.EXACT or generation is None or progress is None:
        return located
    mirror = progress.destination_topic
    replayed = opened.ledger.orphans(key.flow)[key].replays(progress.source_topic_id)
    if not replayed:
        return located
    place = ClusterPartition(generation.source_cluster_id, key.topic, key.partition)
    producers = await producers_at(opened.cluster)
    replayers = {
        producer_id
        for producer_id, producer in producers.items()
        if (producer.flow, producer.only) == (key.flow, mirror)
    }

    def original(record: ConsumerRecord) -> int | None:
        return original_of(record, producers, key.flow, mirror, place)

    with as_audit_failure(access.destination.cluster, "ask about another record"):
        if located.reverse:
            at = TopicPartition(located.topic, located.partition)
            record = (await fetch_places(opened.cluster, at, None, [offset])).get(offset)
            source = original(record) if record is not None else None
            if source is None or not any(
                low <= source < replay.end and replay.topic == located.topic for low, replay in replayed
            ):
                return located
            return replace(located, found=LocateResult.REPLAYED, other_offset=source)
        for low, replay in replayed:
            if not low <= offset < replay.end:
                continue
            into = replace(located, found=LocateResult.REPLAYED, other_topic=replay.topic, other_offset=None)
            at = TopicPartition(replay.topic, key.partition)
            begin = offsets.destination_behind(low) if replay.topic == mirror else 0
            try:
                async with asyncio.timeout(access.within_s):
                    record = await find_record(
                        opened.cluster, at, begin, replayers, lambda record: original(record) == offset
                    )
            except TimeoutError:
                return into
            if record is not None:
                return replace(into, other_offset=record.offset)
        return located


async def locate(access: FlowAccess, record: LocatedRecord) -> LocatedRecord:
    """Locates a record that is known at one side: `topic` and `partition`, and its offset or timestamp there.

    Raises AuditFailure where something can't be read, the flow never copied the partition, or a topic is not
    the one that was copied. A source that does not answer soon is not asked for its topic.
    """
    if record.timestamp_ms is not None:
        side = access.destination if record.reverse else access.source
        record = await first_as_late(side, record, access.within_s)
    briefly = dataclasses.replace(access.source, at_most_s=_SOURCE_WITHIN_S)
    async with AsyncExitStack() as stack:
        opened = await stack.enter_async_context(open_ledger(access.destination, access.within_s))
        source, _ = await open_if_answering(replace(access, source=briefly), stack)
        with as_audit_failure(access.destination.cluster):
            return await locate_between(access, record, opened, source)


async def locate_between(
    access: FlowAccess, record: LocatedRecord, opened: OffsetMaps, source: KafkaCluster | None
) -> LocatedRecord:
    """Locates a record whose offset is known, if there is one, by an open ledger.

    Without a source, it is not checked whether its topic is the one that was copied. Raises AuditFailure,
    WireError and UnreadableRecord.
    """
    await opened.decided(access.flow)
    copied = opened.progress(access.flow)
    for key, progress in copied.items():
        if progress.map_name:  # a file has no offsets
            continue
        name = progress.destination_topic if record.reverse else key.topic
        if name == record.topic and key.partition == record.partition:
            offsets = opened.get(key)
            assert offsets is not None, "there is progress, and it is decided"
            if source is not None:
                checking = _check_topic(source, access.source.cluster, key.topic, progress.source_topic_id)
                with suppress(WireError):  # such a source counts as one that does not answer
                    await in_time(checking, _SOURCE_WITHIN_S, f"reading {key.topic}")
            mirror, mirror_id = progress.destination_topic, progress.destination_topic_id
            await _check_topic(opened.cluster, access.destination.cluster, mirror, mirror_id)
            located = _located(record, key, mirror, offsets)
            return await with_replays(access, opened, located, key, offsets)
    for key, orphans in opened.ledger.orphans(access.flow).items():
        elsewhere = {replayed.topic for _, replayed in orphans.replayed}
        if record.reverse and record.topic in elsewhere and key.partition == record.partition:
            offsets = OffsetMap([])  # a replay into another topic is in no map
            located = _located(record, key, record.topic, offsets)
            located = await with_replays(access, opened, located, key, offsets)
            if located.found is LocateResult.REPLAYED:
                return located
    raise not_copied(access, record, copied)


async def _check_topic(cluster: KafkaCluster, name: str, topic: str, copied_id: bytes) -> None:
    """Raises AuditFailure where a topic is not the one with the given id: its offsets name other records."""
    metadata = (await cluster.topics([topic], fresh=True))[topic]
    if metadata.error is ErrorCode.NONE and is_other_topic(copied_id, metadata.id):
        why = f"{topic} is not the topic that was copied: it was deleted and created again"
        raise AuditFailure(name, why, "repl status shows its partitions, and the next step")


def not_copied(
    access: FlowAccess, record: LocatedRecord, copied: Mapping[PartitionKey, Progress]
) -> AuditFailure:
    """Returns the error for a partition that the flow never copied: it copied other partitions, or none."""
    cluster, topic = access.destination.cluster, record.topic
    if not copied:
        return NothingCopied(cluster, access.flow)
    side = "into" if record.reverse else "from"
    here = {to.destination_topic if record.reverse else key.topic for key, to in copied.items()}
    there = {key.topic if record.reverse else to.destination_topic for key, to in copied.items()}
    hint = f"it copied {side} {', '.join(sorted(here)[:10])}"
    if topic in here:
        hint = f"{topic} has other partitions: repl status --all lists them"
    elif topic in there and record.reverse:
        there_is = f"that is a topic's name at {access.source.cluster}"
        hint = f"{there_is}: leave --reverse out to ask about a record there"
    elif topic in there:
        hint = f"that is a topic's name at {cluster}: add --reverse to ask about a record there"
    return AuditFailure(cluster, f"{access.flow} copied no {topic}-{record.partition}", hint)


async def first_as_late(side: ClusterEndpoint, record: LocatedRecord, within_s: float) -> LocatedRecord:
    """Returns the record with the offset of the first one that is as late; None where there is none.

    Raises AuditFailure.
    """
    assert record.timestamp_ms is not None
    at = TopicPartition(record.topic, record.partition)
    async with open_cluster(side, within_s) as cluster:
        answer = (await list_offsets(cluster, {at: record.timestamp_ms}, within=within_s))[at]
        if answer is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
            why, hint = f"there is no {at}", f"repl read {side.cluster} lists its topics"
            raise AuditFailure(side.cluster, why, hint)
        if not isinstance(answer, ListedOffset):
            raise BrokerError(answer, str(at))
    return replace(record, offset=answer.offset if answer.offset >= 0 else None)


def _located(
    record: LocatedRecord, key: PartitionKey, destination_topic: str, offsets: OffsetMap
) -> LocatedRecord:
    """Returns the answer of the offset map."""
    reverse, offset = record.reverse, record.offset
    located = replace(
        record,
        other_topic=key.topic if reverse else destination_topic,
        found=LocateResult.NO_RECORD,
        other_offset=None,
        replicated_through=offsets.end,
        low=offsets.destination_low if reverse else offsets.low,
    )
    if offset is None:
        return located
    answer: Answer = offsets.origin(offset) if reverse else offsets.translate(offset)
    match answer:
        case MappedOffset(offset=other, exact=exact):
            result = LocateResult.EXACT if exact else LocateResult.NEXT
            return replace(located, found=result, other_offset=other)
        case EndOfOffsetMap() if offset == (offsets.destination_end if reverse else offsets.end):
            return replace(located, found=LocateResult.NOT_YET)
        case EndOfOffsetMap(offset=other):
            return replace(located, found=LocateResult.END, other_offset=other)
        case NotYetCopied():
            return replace(located, found=LocateResult.NOT_YET)
        case UnmappedOffset():
            return replace(located, found=LocateResult.UNMAPPED)
        case other_answer:
            assert_never(other_answer)


async def offsets_by_time(
    reach: ClusterEndpoint, timestamps_ms: Mapping[tuple[str, int], int], within_s: float
) -> dict[tuple[str, int], tuple[int, int]]:
    """Returns offset and time of the first record at or after each timestamp, by topic and partition.

    A partition that has none, or can't be asked, is left out. Raises AuditFailure if the cluster does not
    answer.
    """
    times = {TopicPartition(*place): at_ms for place, at_ms in timestamps_ms.items()}
    async with open_cluster(reach, within_s) as cluster:
        answers = await list_offsets(cluster, times, within=within_s)
    listed = {at: answer for at, answer in answers.items() if isinstance(answer, ListedOffset)}
    return {at: (first.offset, first.timestamp) for at, first in listed.items() if first.offset >= 0}
