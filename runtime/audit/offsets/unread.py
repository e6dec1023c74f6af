"""Finds consumer groups that have not read what salvage replayed for a flow, before its reverse flow ends."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

from runtime.audit.ledger import FlowAccess, as_audit_failure, open_cluster
from runtime.audit.offsets.offsets import committed_offsets
from runtime.contract.groups import is_ours
from runtime.contract.records.group_records import Checkpoint, GroupPartition
from runtime.contract.results.groups import UnreadReplay
from runtime.groups.translation import Checkpoints
from runtime.kafka.queries import list_groups
from runtime.ledger.offset_maps import offset_maps_at


async def unread_replays(access: FlowAccess, replayed: str) -> list[UnreadReplay]:
    """Returns which groups at the source have not read what salvage replayed there for the flow `replayed`.

    `access` is that of its reverse flow, which does not copy these records: the flow's source has them, at
    lower offsets than what comes back. A group that has not read all that the flow itself copied continues in
    front of them, and does not count. Neither do groups that only flows moved. Raises AuditFailure where the
    source can't be read.
    """
    async with open_cluster(access.source, access.within_s) as source:
        with as_audit_failure(access.source.cluster):
            opened = await offset_maps_at(source, fresh=True)
            if opened is None:
                return []
            await opened.ledger.refresh(replayed)
            checkpoints = Checkpoints(source)
            await checkpoints.refresh()
            committed = moved_by_consumers(
                await committed_offsets(access, source, await list_groups(source)),
                lambda item: checkpoints.at(*item),
            )
    unread: dict[tuple[str, str], int] = {}
    for key, orphans in opened.ledger.orphans(replayed).items():
        progress = opened.ledger.committed(key)
        copied_end = progress.destination_end if progress is not None else 0
        for _, replay in orphans.replayed:
            if access.destination_topic(replay.topic) != key.topic:
                continue  # a topic of its own, which is copied like any other
            for item, offset in committed.items():
                same = (item.topic, item.partition) == (replay.topic, key.partition)
                if same and offset >= copied_end:
                    left = max(min(replay.records, replay.destination_end - offset), 0)
                    unread[item.group, item.topic] = unread.get((item.group, item.topic), 0) + left
    return [
        UnreadReplay(group=group, topic=topic, records=records)
        for (group, topic), records in sorted(unread.items())
        if records
    ]


def moved_by_consumers(
    committed: Mapping[GroupPartition, int], written: Callable[[GroupPartition], Iterable[Checkpoint]]
) -> dict[GroupPartition, int]:
    """Returns all offsets of the groups that have at least one that no flow wrote.

    Such a group has been read from here. In a partition without new records it still has the flow's offset.
    """
    groups = {item.group for item, offset in committed.items() if not is_ours(offset, written(item))}
    return {item: offset for item, offset in committed.items() if item.group in groups}
