"""Deletes and merges the segments of offset maps at a destination (R6), a duty of the driver.

Transactions seal small segments, so a busy partition has thousands of them after an hour. `clean_map` merges
them into large ones, and deletes those that map no record of the destination any more. A merged segment has
the number of its first part and is written in the transaction that deletes the other parts. So a reader sees
the same map before and after.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from runtime.contract.records.advance import LARGEST
from runtime.contract.records.ledger import (
    LedgerKey,
    LedgerValue,
    PartitionKey,
    Progress,
    SegmentKey,
    UnreadableRecord,
)
from runtime.contract.records.offset_map import Span, join_runs, trimmable
from runtime.contract.spec.naming import TopicPartition
from runtime.kafka.cluster import KafkaCluster
from runtime.kafka.protocol.offsets import EARLIEST
from runtime.kafka.queries import known_offsets
from runtime.ledger.offset_maps import OffsetMaps
from runtime.ledger.transaction_writer import LedgerWriter

SealedSpan = tuple[SegmentKey, Span]

_TRANSACTION_BYTES = 1 << 20


async def clean_map(maps: OffsetMaps, cluster: KafkaCluster, writer: LedgerWriter, flow: str) -> int:
    """Deletes the segments of a flow that are no longer needed, and merges small ones.

    It returns by how many segments there are fewer.

    Segments of older incarnations are deleted too: the log that they map was recreated or truncated, or a
    newer incarnation contains their runs. So are those of files that the ledger has forgotten. Raises
    WireError and what `OffsetMaps.refresh` raises.
    """
    await maps.refresh(flow)
    forgotten = maps.map_keys(flow) - _map_keys(maps.progress(flow))
    if forgotten:
        await maps.refresh(flow)  # a file's progress was committed before its first segment
    progress = maps.progress(flow)
    sealed = {key: maps.spans(key, state) for key, state in progress.items()}
    gone = [old for key in forgotten - _map_keys(progress) for old in maps.segments(key)]
    gone += _outdated(maps, progress) + await _trimmed(cluster, progress, sealed)
    if gone:
        await writer.commit(dict.fromkeys(gone))
    deleted = set(gone)
    fewer, size = len(gone), 0
    records: dict[LedgerKey, LedgerValue | None] = {}
    for spans in sealed.values():
        for group in mergeable([span for span in spans if span[0] not in deleted]):
            segment = _merged(group)
            records.update(dict.fromkeys(key for key, _ in group))
            records[group[0][0]] = segment
            fewer += len(group) - 1
            size += len(segment.encoded_runs())
            if size > _TRANSACTION_BYTES:
                await writer.commit(records)
                records, size = {}, 0
    if records:
        await writer.commit(records)
    return fewer


def mergeable(sealed: Sequence[SealedSpan]) -> Iterator[list[SealedSpan]]:
    """Yields groups of adjacent small segments that together make a large one.

    The newest segment is left alone, because progress names it. So are the last small ones, until newer ones
    fill a large segment.
    """
    group: list[SealedSpan] = []
    runs = 0
    for key, span in sealed[:-1]:
        adjacent = not group or group[-1][1].end == span.low
        if group and not (adjacent and runs + span.run_count <= LARGEST):
            if len(group) > 1:
                yield group
            group, runs = [], 0
        if span.run_count <= LARGEST // 2:
            group.append((key, span))
            runs += span.run_count


def merge(spans: Sequence[Span]) -> Span:
    """Returns one span with the runs of adjacent spans."""
    first, last = spans[0], spans[-1]
    return Span(first.low, last.end, first.destination_low, last.destination_end, join_runs(spans))


def _merged(group: Sequence[SealedSpan]) -> Span:
    """Returns the segment of a group. Raises UnreadableRecord where the runs of a part can't be decoded."""
    try:
        return merge([span for _, span in group])
    except ValueError as error:
        (key, _), (last, _) = group[0], group[-1]
        where = f"{key.of.at}, segments {key.number} to {last.number}"
        raise UnreadableRecord(f"offset map of {key.of.flow}: {where}: {error}") from error


def _map_keys(progress: Mapping[PartitionKey, Progress]) -> set[PartitionKey]:
    return {state.map_key(key) for key, state in progress.items()}


def _outdated(maps: OffsetMaps, progress: Mapping[PartitionKey, Progress]) -> list[SegmentKey]:
    """Returns the segments of older incarnations."""
    return [
        old
        for key, state in progress.items()
        for old in maps.segments(state.map_key(key))
        if old.incarnation < state.incarnation
    ]


async def _trimmed(
    cluster: KafkaCluster,
    progress: Mapping[PartitionKey, Progress],
    sealed: Mapping[PartitionKey, list[SealedSpan]],
) -> list[SegmentKey]:
    """Returns the first segments whose records the destination no longer holds. Raises WireError."""
    places = {
        key: TopicPartition(progress[key].destination_topic, key.partition)
        for key, spans in sealed.items()
        if spans
    }
    starts = await known_offsets(cluster, list(places.values()), EARLIEST)
    trimmed: list[SegmentKey] = []
    for key, at in places.items():
        if at in starts:
            spans = [span for _, span in sealed[key]]
            count = trimmable([*spans, progress[key].open_span()], starts[at])
            trimmed += [number for number, _ in sealed[key][:count]]
    return trimmed
