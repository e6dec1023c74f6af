"""Plans the comparison of a flow from files, by the ledger, the folder and the log of its topic."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Final

from runtime.audit.ledger import (
    AuditFailure,
    LedgerNotFound,
    NothingCopied,
    as_audit_failure,
    ledger_of,
    progress_at,
)
from runtime.audit.partition_logs import (
    PartitionLogs,
    logs_of,
    open_spec,
)
from runtime.audit.verify.pieces import (
    PlannedPartition,
    ReadFile,
    VerificationPiece,
    VerifyRequest,
)
from runtime.contract.records.ledger import PartitionKey, Progress
from runtime.contract.spec.files import LinesSpec
from runtime.contract.spec.naming import is_other_topic
from runtime.contract.spec.selection import regex
from runtime.files.manifest import EndpointUnavailable
from runtime.files.source.known_files import KnownFile, Reconciliation, reconcile
from runtime.files.source.sources import source_of
from runtime.kafka.protocol.offsets import TopicPartition

_WHOLE: Final = "name no range, no share: the files are compared whole"


async def plan_loaded(asked: VerifyRequest) -> list[PlannedPartition]:
    """Returns the plan of every file that the ledger knows. Raises AuditFailure."""
    flow, lines = asked.flow, asked.flow.lines
    assert lines is not None, "the flow reads no files"
    if asked.sample < 100 or (asked.low, asked.high, asked.last) != (None, None, None):
        what = f"{flow.name} reads files: --range and --sample choose offsets of a topic"
        raise AuditFailure(lines.endpoint, what, _WHOLE)
    async with open_spec(asked.destination, flow.destination) as cluster:
        opened = await ledger_of(cluster)
        if opened is None:
            raise LedgerNotFound(flow.destination)
        progress = await progress_at(flow.destination, opened, flow.name)
        if not progress:
            raise NothingCopied(flow.destination, flow.name)
        chosen = _chosen(asked, lines, progress)
        places = {TopicPartition(lines.topic, key.partition) for key in chosen}
        with as_audit_failure(flow.destination):
            logs = await logs_of(cluster, flow.destination, places, asked.within_s)
    found = await asyncio.to_thread(_looked, lines, chosen)
    ends: dict[int, int] = {}
    for key, one in progress.items():
        ends[key.partition] = max(ends.get(key.partition, 0), one.destination_end)
    gone = {one.name for one in (*found.replaced, *found.vanished)}
    unseen = {key.partition for key in progress if key not in chosen or key.topic in gone}
    return [
        _planned(
            asked,
            number,
            key,
            chosen[key],
            found,
            logs,
            ends[key.partition],
            alone=key.partition not in unseen,
        )
        for number, key in enumerate(sorted(chosen))
    ]


def _chosen(
    asked: VerifyRequest, lines: LinesSpec, progress: Mapping[PartitionKey, Progress]
) -> Mapping[PartitionKey, Progress]:
    """Returns the files that are asked for. Raises AuditFailure where there is none."""
    if asked.topics is None:
        return progress
    wanted = regex(asked.topics)
    chosen = {key: one for key, one in progress.items() if wanted.matches(key.topic)}
    if not chosen:
        read = ", ".join(sorted({key.topic for key in progress})[:10])
        raise AuditFailure(
            lines.endpoint, f"{asked.flow.name} read no file {asked.topics}", f"it read {read}"
        )
    return chosen


def _looked(lines: LinesSpec, chosen: Mapping[PartitionKey, Progress]) -> Reconciliation:
    """Returns what became of the files that were read. Raises AuditFailure."""
    source = source_of(lines)
    try:
        listing = source.look()
    except EndpointUnavailable as problem:
        hint = "it is read on this machine, with --on-cluster on those of the job"
        raise AuditFailure(lines.endpoint, str(problem), hint) from None
    known = {
        key.topic: KnownFile(key.topic, one.position, one.source_topic_id, one.source_epoch)
        for key, one in chosen.items()
    }
    return reconcile(listing.files, known, lambda name, one: source.holds(listing.files, name, one))


def _planned(
    asked: VerifyRequest,
    number: int,
    key: PartitionKey,
    one: Progress,
    found: Reconciliation,
    logs: PartitionLogs,
    end: int,
    *,
    alone: bool = True,
) -> PlannedPartition:
    """Returns the plan of a file. `alone`: all other files of its partition are there, too."""
    planned = PlannedPartition(key, one.destination_topic, 0, one.position)
    at, cluster = TopicPartition(one.destination_topic, key.partition), asked.flow.destination
    if at.topic not in logs.ids:
        planned.unread = f"there is no topic {at.topic} at {cluster}"
    elif is_other_topic(one.destination_topic_id, logs.ids[at.topic]):
        planned.unread = f"{at.topic} at {cluster} is not the topic that took the records: it was recreated"
    elif at not in logs.starts or at not in logs.ends:
        planned.unread = f"{at.topic}-{at.partition} at {cluster} has no leader that answers"
    elif any(other.name == key.topic for other in found.replaced):
        planned.unread = "it is not the file that was read: it was truncated or overwritten"
    elif any(other.name == key.topic for other in found.vanished):
        planned.exclude(0, one.position, "the file is not there any more")
    elif at.topic in logs.compacted:
        planned.exclude(0, one.position, f"{at.topic} is compacted, so its records can't be counted")
    elif one.position:
        name = next((new for known, new in found.moved if known.name == key.topic), key.topic)
        planned.pieces = [
            VerificationPiece(
                number=number,
                topic=key.topic,
                partition=key.partition,
                source_id=b"",
                destination_topic=at.topic,
                destination_id=one.destination_topic_id,
                low=0,
                high=one.position,
                destination_low=logs.starts[at],
                destination_high=max(min(end, logs.ends[at]), logs.starts[at]),
                owned_end=end,
                runs=b"",
                gaps=(),
                compacted=False,
                alone=alone,
                read=ReadFile(name, one.position, one.source_topic_id, one.records),
            )
        ]
    if planned.not_comparable or planned.unread:
        planned.low = planned.end
    return planned
