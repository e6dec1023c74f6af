"""Reads and completes the cluster that a restore writes to.

Before a restore the topics must be empty, or hold what an earlier run of the same restore wrote. After it the
offsets of consumer groups are translated by the offset maps of the restored partitions, and committed.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence

from msgspec.structs import replace

from runtime.audit.ledger import existing_ledger
from runtime.audit.partition_logs import LogBounds, bounds_of, fetch_records, open_spec
from runtime.contract.records.ledger import Progress
from runtime.contract.records.manifest import SnapshotOffset
from runtime.contract.records.offset_map import EndOfOffsetMap, MappedOffset, OffsetMap
from runtime.contract.spec.cluster import ClusterSpec
from runtime.contract.spec.naming import TopicPartition, is_other_topic
from runtime.kafka.cluster import KafkaCluster
from runtime.kafka.errors import ErrorCode, WireError
from runtime.kafka.protocol.groups import CommittedOffset
from runtime.kafka.queries import commit_many
from runtime.ledger.offset_maps import offset_maps_at
from runtime.replay.request import CopyStopped, restore_key
from runtime.replay.target import TargetTopic, existing_topics

_CONNECTED = (ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.ILLEGAL_GENERATION, ErrorCode.REBALANCE_IN_PROGRESS)


async def restore_targets(
    spec: ClusterSpec, name: str, flow: str, sources: Mapping[str, str], within_s: float
) -> dict[str, TargetTopic]:
    """Returns those of the topics that exist. `sources` maps each to the id of the topic that is restored.

    Raises AuditFailure.
    """
    async with open_spec(spec, name) as cluster:
        targets = await existing_topics(cluster, name, sources)
        wanted = [
            TopicPartition(name, number)
            for name, topic in targets.items()
            for number in range(topic.partitions)
        ]
        logs = await bounds_of(cluster, wanted, within_s)
        opened = await offset_maps_at(cluster, fresh=True)
        for at in wanted:
            key, topic = restore_key(flow, *at), targets[at.topic]
            committed = None
            if opened is not None:
                await opened.ledger.refresh(key.flow)
                committed = opened.ledger.committed(key)
            source_id = bytes.fromhex(sources[at.topic])
            try:
                if await earlier_restore(cluster, at, topic.id, source_id, committed, logs[at]) is not None:
                    targets[at.topic] = replace(topic, restored=True)
            except CopyStopped:
                targets[at.topic] = replace(topic, foreign=topic.foreign or str(at))
        return targets


async def earlier_restore(
    cluster: KafkaCluster,
    at: TopicPartition,
    topic_id: bytes,
    source_id: bytes,
    committed: Progress | None,
    log: LogBounds,
) -> Progress | None:
    """Returns the committed progress if it is that of a restore of this source; None where nothing is there.

    Raises CopyStopped where the partition holds records of another source, and WireError.
    """
    if committed is not None and not is_other_topic(committed.destination_topic_id, topic_id):
        if is_other_topic(committed.source_topic_id, source_id):
            raise CopyStopped(f"{at} holds records of another topic of the backup: delete it first")
        return committed
    if await fetch_records(cluster, at, *log, 1):  # an aborted restore leaves none
        raise CopyStopped(f"{at} holds records that this restore has not written")
    return None


async def restore_offsets(
    spec: ClusterSpec, name: str, flow: str, wanted: Sequence[SnapshotOffset]
) -> dict[str, str]:
    """Commits the translated offsets. Returns for each group why it has not all of them; empty where it has.

    Raises AuditFailure.
    """
    async with open_spec(spec, name) as cluster:
        opened = await existing_ledger(cluster, name)
        for topic in sorted({offset.topic for offset in wanted}):
            await opened.decided(restore_key(flow, topic, 0).flow)
        offsets: defaultdict[str, dict[TopicPartition, CommittedOffset]] = defaultdict(dict)
        problems = {offset.group: "" for offset in wanted}
        for offset in wanted:
            offset_map = opened.get(restore_key(flow, offset.topic, offset.partition))
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
