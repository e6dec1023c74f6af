"""Reads and completes the cluster that a restore writes to.

Before a restore the topics must be empty, or hold what an earlier run of the same restore wrote. After it the
offsets of consumer groups are translated by the offset maps of the restored partitions, and committed.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence

import msgspec

from runtime.audit.ledger import existing_ledger, ledger_of
from runtime.audit.partition_logs import bounds_of, fetch_records, open_spec
from runtime.contract.records.ledger import PartitionKey
from runtime.contract.records.manifest import SnapshotOffset
from runtime.contract.records.offset_map import EndOfOffsetMap, MappedOffset, OffsetMap
from runtime.contract.spec.cluster import ClusterSpec
from runtime.contract.spec.naming import is_other_topic
from runtime.kafka.errors import ErrorCode, WireError
from runtime.kafka.protocol.groups import CommittedOffset
from runtime.kafka.protocol.offsets import TopicPartition
from runtime.kafka.queries import commit_many

_CONNECTED = (ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.ILLEGAL_GENERATION, ErrorCode.REBALANCE_IN_PROGRESS)


def restore_key(flow: str, into: str, partition: int) -> PartitionKey:
    """Returns the ledger's name of a restored partition. No flow of a topology has such a name."""
    return PartitionKey(f"restore:{flow}:{into}", into, partition)


class TargetTopic(msgspec.Struct, frozen=True, kw_only=True):
    """Describes a topic of the cluster. `foreign` names a partition that holds records which no restore of
    this backup wrote; empty where there is none. `restored` says whether a restore of it has begun.
    """

    partitions: int
    foreign: str = ""
    restored: bool = False


async def target_topics(
    spec: ClusterSpec, name: str, flow: str, sources: Mapping[str, str], within_s: float
) -> dict[str, TargetTopic]:
    """Returns those of the topics that exist. `sources` maps each to the id of the topic that is restored.

    Raises AuditFailure.
    """
    async with open_spec(spec, name) as cluster:
        known = await cluster.topics(sorted(sources), fresh=True)
        existing = {name: topic for name, topic in known.items() if topic.error is ErrorCode.NONE}
        wanted = [
            TopicPartition(name, number) for name, topic in existing.items() for number in topic.partitions
        ]
        logs = await bounds_of(cluster, wanted, within_s)
        opened = await ledger_of(cluster, name)
        targets: dict[str, TargetTopic] = {}
        for name, topic in existing.items():
            foreign, restored = "", False
            for number in sorted(topic.partitions):
                key, at = restore_key(flow, name, number), TopicPartition(name, number)
                progress = None
                if opened is not None:
                    await opened.ledger.refresh(key.flow)
                    progress = opened.ledger.committed(key)
                if progress is not None and not is_other_topic(progress.destination_topic_id, topic.id):
                    restored = True
                    if is_other_topic(progress.source_topic_id, bytes.fromhex(sources[name])):
                        foreign = foreign or f"{name}-{number}"
                elif await fetch_records(cluster, at, *logs[at], 1):  # an aborted restore leaves none
                    foreign = foreign or f"{name}-{number}"
            targets[name] = TargetTopic(partitions=len(topic.partitions), foreign=foreign, restored=restored)
        return targets


async def restore_offsets(
    spec: ClusterSpec, name: str, flow: str, wanted: Sequence[SnapshotOffset]
) -> dict[str, str]:
    """Commits the translated offsets. Returns for each group why it has not all of them; empty where it has.

    Raises AuditFailure.
    """
    async with open_spec(spec, name) as cluster:
        opened = await existing_ledger(cluster, name)
        for topic in sorted({offset.topic for offset in wanted}):
            await opened.refresh(restore_key(flow, topic, 0).flow)
        offsets: defaultdict[str, dict[TopicPartition, CommittedOffset]] = defaultdict(dict)
        problems = {offset.group: "" for offset in wanted}
        for offset in wanted:
            offset_map = opened.maps.get(restore_key(flow, offset.topic, offset.partition))
            if offset_map is None:
                problems[offset.group] = f"{offset.topic}-{offset.partition} has no restored records"
                continue
            at = TopicPartition(offset.topic, offset.partition)
            offsets[offset.group][at] = CommittedOffset(
                translated(offset_map, offset.offset), -1, offset.metadata
            )
        for group, outcome in (await commit_many(cluster, offsets)).items():
            if isinstance(outcome, WireError):
                problems[group] = str(outcome)
            elif failed := {at: code for at, code in outcome.items() if code is not ErrorCode.NONE}:
                at, code = min(failed.items())
                problems[group] = f"{at}: {code.name}"
                if code in _CONNECTED:
                    problems[group] = (
                        "a member of the group is connected: stop its consumers, then apply again"
                    )
        return problems


def translated(offsets: OffsetMap, source: int) -> int:
    """Returns the restored offset of the first record at or after an offset of the backup.

    An offset behind the last restored record becomes the offset behind that record.
    """
    match offsets.translate(source):
        case MappedOffset(offset=offset) | EndOfOffsetMap(offset=offset):
            return offset
        case _:
            return offsets.destination_end
