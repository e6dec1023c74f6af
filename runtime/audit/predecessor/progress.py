"""Joins what both clusters tell of the tool that a flow replaces: its positions, and signs that it runs.

The tool is looked at twice. It runs if its group has a member, if a position moved between the two looks, or
if records arrived in a mirror topic. Nothing is written.

MirrorMaker 2 keeps its position in each source partition in the offsets topic of Kafka Connect.
MirrorSourceConnector writes the key `["NAME", {"cluster": ALIAS, "partition": P, "topic": T}]` and the value
`{"offset": N}`. N is the offset of the last record that it copied, so copying continues at N + 1
(`MirrorSourceTask.initializeConsumer` of Kafka). A null value is an offset that was reset. The other
connectors of MirrorMaker 2 write keys of another form into the same topic.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from typing import Any

from msgspec import Struct

from runtime.audit.ledger import AuditFailure, FlowAccess, as_audit_failure, open_cluster
from runtime.audit.partition_logs import LogBounds, bounds_of, log_bounds
from runtime.audit.predecessor.alignment import BY_HAND, CopiedPartition, compare_mirrors
from runtime.contract.predecessor import ConnectOffsets, GroupCommits, StoredPositions
from runtime.contract.records.record_values import UnreadableValue
from runtime.contract.spec.naming import TopicPartition
from runtime.kafka.cluster import KafkaCluster
from runtime.kafka.errors import BrokerError, ErrorCode
from runtime.kafka.protocol.fetch import Isolation
from runtime.kafka.queries import NO_MEMBERS, committed_by, list_groups
from runtime.ledger.records import InternalTopicScan

_KEYS = ("cluster", "partition", "topic")  # in the order in which Connect serializes them


def next_offsets(records: Iterable[tuple[bytes, bytes]], alias: str) -> dict[TopicPartition, int]:
    """Returns the next source offset to copy of each partition of the source cluster `alias`.

    Connect finds a position by the bytes of its key. A key with its parts in another order was written by
    hand and counts only where Connect's own is missing. Raises UnreadableValue for a value that is no
    offset.
    """
    canonical: dict[TopicPartition, int] = {}
    others: dict[TopicPartition, int] = {}
    for key, value in records:
        partition = _partition(key)
        if partition is None or partition.get("cluster") != alias:
            continue
        at = TopicPartition(str(partition["topic"]), int(partition["partition"]))
        offset = _json(value)
        copied = offset.get("offset") if isinstance(offset, dict) else None
        if isinstance(copied, bool) or not isinstance(copied, int):
            raise UnreadableValue(f"the position of {at} is no offset: {value[:100]!r}")
        if copied >= 0:
            (canonical if tuple(partition) == _KEYS else others)[at] = copied + 1
    return others | canonical


def _partition(key: bytes) -> dict[str, Any] | None:
    """Returns the source partition of a MirrorSourceConnector's key, None for any other key."""
    match _json(key):
        case [str(), {"cluster": str(), "partition": int(), "topic": str()} as partition]:
            return dict(partition) if len(partition) == len(_KEYS) else None
    return None


def _json(raw: bytes) -> Any:
    try:
        return json.loads(raw)
    except (ValueError, RecursionError):
        return None


Positions = Mapping[TopicPartition, int]
_FLOWS_AT_ONCE = 8
_BETWEEN_LOOKS_S = 2.0
_Read = Callable[[], Awaitable[Positions]]
# The tool's positions at one time, and the log's bounds of each mirror partition that exists.
_Inspection = tuple[Positions, Mapping[TopicPartition, LogBounds]]


class PredecessorProgress(Struct, frozen=True):
    """The partitions of the flow, in order. `running` tells the sign that the tool runs, if there is one."""

    partitions: Sequence[CopiedPartition]
    running: str = ""


async def progress_of_all(
    flows: Iterable[tuple[FlowAccess, StoredPositions]],
) -> list[PredecessorProgress]:
    """Reads the positions of every partition that the flows select, of a few flows at a time.

    Raises AuditFailure.
    """
    turns = asyncio.Semaphore(_FLOWS_AT_ONCE)

    async def read(access: FlowAccess, positions: StoredPositions) -> PredecessorProgress:
        async with turns:
            return await _progress(access, positions)

    return await asyncio.gather(*(read(*flow) for flow in flows))


async def _progress(access: FlowAccess, positions: StoredPositions) -> PredecessorProgress:
    async with (
        open_cluster(access.source, access.within_s) as source,
        open_cluster(access.destination, access.within_s) as destination,
    ):
        with as_audit_failure(access.source.cluster):
            partitions = await _selected(access, source)
        running = await _members(access, positions, source, destination)
        read = await _reader(access, positions, source, destination)
        mirrors = {}
        for at in partitions:
            mirror = access.destination_topic(at.topic)
            assert mirror is not None, "the flow takes the topic"
            mirrors[at] = TopicPartition(mirror, at.partition)
        first = await _inspect(access, read, destination, mirrors.values())
        await asyncio.sleep(_BETWEEN_LOOKS_S)
        last = await _inspect(access, read, destination, mirrors.values())
        with as_audit_failure(access.source.cluster):
            bounds = await bounds_of(source, partitions, access.within_s)
        positions_now, logs = last
        copied = [CopiedPartition(*at, positions_now.get(at), *bounds[at]) for at in partitions]
        await compare_mirrors(access, source, destination, copied, mirrors, logs)
    return PredecessorProgress(copied, running or _moved(first, last, access))


async def _selected(access: FlowAccess, source: KafkaCluster) -> list[TopicPartition]:
    """Returns every partition of the topics that the flow copies. Raises WireError."""
    topics = await source.all_topics()
    return [
        TopicPartition(name, partition)
        for name, topic in sorted(topics.items())
        if access.router.verdict(access.flow, name).taken
        for partition in sorted(topic.partitions)
    ]


async def _members(
    access: FlowAccess, positions: StoredPositions, source: KafkaCluster, destination: KafkaCluster
) -> str:
    """Returns a text where the tool's group has a member, else an empty one. Raises AuditFailure.

    Brokers before Kafka 2.6 do not tell the state of a group.
    """
    group = positions.group
    at_source = isinstance(positions, GroupCommits)
    side, cluster = (access.source, source) if at_source else (access.destination, destination)
    with as_audit_failure(side.cluster):
        listed = await list_groups(cluster, access.within_s)
    listed_group = listed.groups.get(group)
    if listed_group is None and listed.missing:
        node, why = next(iter(listed.missing.items()))
        raise AuditFailure(
            side.cluster,
            f"broker {node} does not tell whether group {group} has members: {why}",
            "run this again when every broker answers",
        )
    if listed_group is None or listed_group.state in NO_MEMBERS:
        return ""
    return f"group {group} at {side.cluster} has members (its state is {listed_group.state})"


async def _reader(
    access: FlowAccess, positions: StoredPositions, source: KafkaCluster, destination: KafkaCluster
) -> _Read:
    """Returns how the positions are read, now and again. Raises AuditFailure."""
    match positions:
        case GroupCommits(group=group):

            async def committed() -> Positions:
                with as_audit_failure(access.source.cluster):
                    read = await committed_by(source, [group], access.within_s)
                if group in read.failed:
                    why = f"the offsets of group {group} can't be read: {read.failed[group]}"
                    raise AuditFailure(
                        access.source.cluster, why, "its principal needs DESCRIBE on the group"
                    )
                return {at: committed.offset for at, committed in read.offsets.get(group, {}).items()}

            return committed
        case ConnectOffsets(topic=topic, alias=alias):
            with as_audit_failure(access.destination.cluster):
                metadata = (await destination.topics([topic], fresh=True))[topic]
                if metadata.error is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
                    raise AuditFailure(
                        access.destination.cluster,
                        f"there is no topic {topic}, where MirrorMaker 2 keeps its positions",
                        "if its workers keep them in another topic, name it in the file by"
                        " offset.storage.topic",
                    )
                if metadata.error is not ErrorCode.NONE:
                    raise BrokerError(metadata.error, topic)
            scans = [InternalTopicScan(destination, topic, number) for number in sorted(metadata.partitions)]

            async def stored() -> Positions:
                """Continues where the last reading ended."""
                with as_audit_failure(access.destination.cluster, BY_HAND):
                    await asyncio.gather(*(scan.refresh() for scan in scans))
                    return next_offsets((pair for scan in scans for pair in scan.fold.items()), alias)

            return stored


async def _inspect(
    access: FlowAccess, read: _Read, destination: KafkaCluster, mirrors: Iterable[TopicPartition]
) -> _Inspection:
    positions = await read()
    wanted = list(mirrors)
    with as_audit_failure(access.destination.cluster):
        metadata = await destination.topics({at.topic for at in wanted}, fresh=True)
        existing = [
            at for at in wanted if at.topic in metadata and at.partition in metadata[at.topic].partitions
        ]
        logs = await log_bounds(destination, existing, access.within_s, Isolation.READ_UNCOMMITTED)
    return positions, logs


def _moved(first: _Inspection, last: _Inspection, access: FlowAccess) -> str:
    """Returns what moved between the two inspections."""
    (positions_before, logs_before), (positions, logs) = first, last
    for at, position in positions.items():
        before = positions_before.get(at)
        if before != position:
            return f"its position in {at} moved from {before} to {position} meanwhile"
    for at, (_, end) in logs.items():
        _, end_before = logs_before.get(at, (0, 0))
        if end_before != end:
            return f"{end - end_before} records arrived in {at} at {access.destination.cluster} meanwhile"
    return ""
