"""Finds consumer groups that have not read what salvage replayed for a flow, before its reverse flow ends."""

from __future__ import annotations

from runtime.audit.ledger import as_audit_failure, ledger_of, open_cluster
from runtime.audit.offsets.offsets import RehearsalRequest, committed_offsets
from runtime.contract.groups import is_ours
from runtime.contract.views.groups_view import UnreadReplay
from runtime.groups.translation import Checkpoints


async def unread_replays(asked: RehearsalRequest, replayed: str) -> list[UnreadReplay]:
    """Returns which groups at the source have not read what salvage replayed there for the flow `replayed`.

    `asked` describes its reverse flow, which does not copy these records: the flow's source has them at lower
    offsets. Groups that only flows moved do not count. Raises AuditFailure where the source can't be read.
    """
    async with open_cluster(asked.source, asked.within_s) as source:
        with as_audit_failure(asked.source.name):
            opened = await ledger_of(source)
            if opened is None:
                return []
            await opened.refresh(replayed)
            checkpoints = Checkpoints(source)
            await checkpoints.refresh()
            committed = {
                item: offset
                for item, offset in (await committed_offsets(asked, source)).items()
                if not is_ours(offset, checkpoints.at(*item))
            }
    found: dict[tuple[str, str], int] = {}
    for key, orphans in opened.ledger.orphans(replayed).items():
        for _, one in orphans.replayed:
            if asked.router.destination_topic(asked.flow, one.topic) != key.topic:
                continue  # a topic of its own, which is copied like any other
            for item, offset in committed.items():
                if item.topic == one.topic and item.partition == key.partition:
                    unread = min(one.records, one.destination_end - offset)
                    found[item.group, item.topic] = found.get((item.group, item.topic), 0) + max(unread, 0)
    return [
        UnreadReplay(group=group, topic=topic, records=records)
        for (group, topic), records in sorted(found.items())
        if records
    ]
