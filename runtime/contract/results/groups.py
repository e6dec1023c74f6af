"""Defines where groups continue at the destination, and what a failover loses of a flow and of its groups.

These are the results of `repl offsets` and `repl locate`, and pure arithmetic over the results of status. The
field names are those of `--json`: they are only ever added. None is an unknown value.
"""

from enum import StrEnum

import msgspec
from msgspec.structs import replace

from runtime.contract.records.job_status import ANOTHER_LOG, PartitionState
from runtime.contract.results.status import FlowHealth, PartitionHealth

BY_MAP = "map"
BY_TIME = "time"


class GroupOffset(msgspec.Struct, frozen=True, kw_only=True):
    """Holds one partition of a group.

    `source` is the group's commit at the source, `translation` its translation to the destination now,
    `committed` the group's commit at the destination. `as_of_ms`: the source's side is from a checkpoint of
    that time, because the source does not answer. `by`: the offset map or, for offsets below it, record time;
    empty where there is no translation. Records behind an offset that is not `exact` may be read again, never
    skipped.
    """

    topic: str
    partition: int
    destination_topic: str
    source: int | None
    translation: int | None
    committed: int | None
    state: str
    clamped: bool = False
    exact: bool = True
    by: str = ""
    why: str = ""
    as_of_ms: int | None = None


class GroupOffsets(msgspec.Struct, frozen=True, kw_only=True):
    """Holds a group over one flow.

    `state_there`, `state_here`: of the group at the source and the destination, empty where it does not
    exist. `unsynced`: why the flow does not sync the group, where it does not.
    """

    flow: str
    group: str
    source_cluster: str
    destination_cluster: str
    source_answers: bool
    source_why: str
    synced: bool
    unsynced: str
    state_there: str
    state_here: str
    partitions: list[GroupOffset]


class LocateResult(StrEnum):
    """Lists the results of locating a record.

    `exact`: the record itself was found. `next`: it was not copied, the first copied record behind it was
    found. `end`: it was not copied, and no record behind it yet. `no_record`: no record is as late as the
    timestamp. `replayed`: salvage replayed it; the other offset is None where it was not found in time.
    """

    EXACT = "exact"
    NEXT = "next"
    END = "end"
    NOT_YET = "not_yet"
    UNMAPPED = "unmapped"
    NO_RECORD = "no_record"
    REPLAYED = "replayed"


class LocatedRecord(msgspec.Struct, frozen=True, kw_only=True):
    """Holds a record at one side, `topic`-`partition` at `offset`, and its offset at the other side.

    Before it is located, it says what is known of the record: its offset, or its timestamp.

    For a flow into files (`in_files`), `other_offset` is the source offset of the record that was found,
    `file` is its file, relative to the endpoint's folder, and `record` its number in the file, from 1 on.
    """

    flow: str
    reverse: bool = False
    cluster: str
    topic: str
    partition: int
    offset: int | None = None
    timestamp_ms: int | None = None
    other_cluster: str
    other_topic: str = ""
    found: LocateResult = LocateResult.NO_RECORD
    other_offset: int | None = None
    replicated_through: int | None = None
    low: int | None = None
    in_files: bool = False
    file: str | None = None
    record: int | None = None


_OLDER_MS = 60_000  # a partition is named if its end is older than the flow's newest one by this much


class PartitionUnheard(msgspec.Struct, frozen=True, kw_only=True):
    """Describes a partition whose loss is unknown, or known only as of `as_of_ms`, and the reason."""

    topic: str
    partition: int
    why: str
    as_of_ms: int | None = None


class FlowLoss(msgspec.Struct, frozen=True, kw_only=True):
    """Reports the loss of a flow: at least `records` are lost, by the source's end offsets at `as_of_ms`.

    `ms` is how far the destination was behind at that time. `unheard` counts the partitions whose loss is
    unknown, `unheard_partitions` names them. `older_partitions` are counted, by end offsets that are much
    older.
    """

    flow: str
    source: str
    destination: str
    state: str
    source_answers: bool
    destination_answers: bool
    records: int | None
    ms: int | None
    as_of_ms: int | None
    partitions: int
    unheard: int
    unheard_partitions: list[PartitionUnheard] = []
    older_partitions: list[PartitionUnheard] = []


class GroupLoss(msgspec.Struct, frozen=True, kw_only=True):
    """Reports where one group over one flow continues at the destination, by number of partitions.

    `exact` continues at its own position; `again` reads some records again (both sides write the topic);
    `lost` had read further than the flow copied, by `records_lost` in all; `kept` keeps its commit, because
    of `why`. `topics` are the names that its consumers subscribe to at the destination.
    """

    flow: str
    group: str
    exact: int = 0
    again: int = 0
    lost: int = 0
    records_lost: int = 0
    kept: int = 0
    why: str = ""
    topics: list[str] = []


class UnreadReplay(msgspec.Struct, frozen=True, kw_only=True):
    """Says that a group has not read replayed records of a topic, and how many there are at most."""

    group: str
    topic: str
    records: int


class GroupTopics(msgspec.Struct, frozen=True, kw_only=True):
    """Lists the topics that a group's consumers subscribe to at the destination; the flow may rename them.

    `kept`: in so many partitions the group was not moved, because of `why`.
    """

    flow: str
    group: str
    cluster: str
    topics: list[str]
    kept: int = 0
    why: str = ""


def loss_of(flow: FlowHealth, now_ms: int) -> FlowLoss:
    """Computes the records and the time that a failover of this flow loses."""
    with_lag = [partition for partition in flow.partitions if partition.lag_records is not None]
    as_of = max((_source_end_time(partition, now_ms) for partition in with_lag), default=None)
    behind = [_behind_ms(partition) for partition in with_lag if partition.lag_records]
    return FlowLoss(
        flow=flow.name,
        source=flow.source,
        destination=flow.destination,
        state=flow.state,
        source_answers=flow.source_answers,
        destination_answers=flow.destination_answers,
        records=sum(partition.lag_records or 0 for partition in with_lag) if with_lag else None,
        ms=max((ms for ms in behind if ms is not None), default=None if behind or not with_lag else 0),
        as_of_ms=as_of,
        partitions=len(flow.partitions),
        unheard=len(flow.partitions) - len(with_lag),
        unheard_partitions=[
            _unheard(partition, flow) for partition in flow.partitions if partition.lag_records is None
        ],
        older_partitions=[
            _unheard(partition, flow, _source_end_time(partition, now_ms))
            for partition in with_lag
            if as_of is not None and as_of - _source_end_time(partition, now_ms) >= _OLDER_MS
        ],
    )


def _unheard(partition: PartitionHealth, flow: FlowHealth, as_of_ms: int | None = None) -> PartitionUnheard:
    if not flow.destination_answers:
        why = f"{flow.destination} does not answer"
    elif partition.state in ANOTHER_LOG or as_of_ms is not None:
        why = f"{partition.state}: {partition.why}" if partition.why else partition.state
    elif partition.position is None:
        why = f"the ledger at {flow.destination} has no position of it"
    else:
        why = f"job {flow.job} has not told where it ends at {flow.source}"
    return PartitionUnheard(topic=partition.topic, partition=partition.partition, why=why, as_of_ms=as_of_ms)


def with_ends_of(after: FlowHealth, before: FlowHealth, before_ms: int) -> FlowHealth:
    """Returns the final positions of a flow, by end offsets of the source that were read before."""
    with_end = {
        (partition.topic, partition.partition): partition
        for partition in before.partitions
        if partition.source_end is not None
    }
    topics = [
        replace(
            topic,
            partitions=[
                _against(partition, with_end[partition.topic, partition.partition], before_ms)
                if (partition.topic, partition.partition) in with_end
                else partition
                for partition in topic.partitions
            ],
        )
        for topic in after.topics
    ]
    return replace(after, topics=topics, source_answers=False)


def _against(partition: PartitionHealth, before: PartitionHealth, before_ms: int) -> PartitionHealth:
    if partition.state == PartitionState.PROMOTED:
        return partition
    if before.state in ANOTHER_LOG:
        return replace(partition, lag_records=None, lag_ms=None, state=before.state, why=before.why)
    seen_ms = before.source_end_seen_ms if before.source_end_seen_ms is not None else before_ms
    lag = max((before.source_end or 0) - partition.position, 0) if partition.position is not None else None
    return replace(
        partition,
        source_end_seen_ms=seen_ms,
        lag_records=lag,
        lag_ms=None,
        state=before.state,
        why=before.why,
    )


def _source_end_time(partition: PartitionHealth, now_ms: int) -> int:
    return partition.source_end_seen_ms if partition.source_end_seen_ms is not None else now_ms


def _behind_ms(partition: PartitionHealth) -> int | None:
    """Returns how far the destination was behind when the source last answered."""
    if partition.lag_ms is not None:
        return partition.lag_ms
    if partition.source_end_seen_ms is None or partition.last_timestamp_ms is None:
        return None
    return max(partition.source_end_seen_ms - partition.last_timestamp_ms, 0)


class UntranslatableReason(StrEnum):
    """Lists why a stored offset has no exact counterpart at the other side of a flow.

    `not_selected`: the flow does not copy the topic. `no_partition`: there is no such partition.
    `not_started`: nothing of the partition was copied yet. `before_map`: the flow did not copy so old an
    offset, or did before it kept a map. `removed`: retention deleted the records there at the other side.
    `not_reached`: nothing is copied so far yet. `recreated`: the topic at one side is not the one that was
    copied. `merged`: both sides write the topic. `foreign`: behind the copied records are records that
    another producer wrote. `unsettled`: the ledger or a broker can't say now. `no_kafka_offset`: the entry
    holds no offset of a Kafka topic.
    """

    NOT_SELECTED = "not_selected"
    NO_PARTITION = "no_partition"
    NOT_STARTED = "not_started"
    BEFORE_MAP = "before_map"
    REMOVED = "removed"
    NOT_REACHED = "not_reached"
    RECREATED = "recreated"
    MERGED = "merged"
    FOREIGN = "foreign"
    UNSETTLED = "unsettled"
    NO_KAFKA_OFFSET = "no_kafka_offset"


class UntranslatedOffset(msgspec.Struct, frozen=True, kw_only=True):
    """Holds a stored offset without an exact counterpart. `line` is its line or its number in the file."""

    line: int
    topic: str
    partition: int
    offset: int | None
    reason: UntranslatableReason
    why: str


class OffsetTranslation(msgspec.Struct, frozen=True, kw_only=True):
    """Counts the stored offsets of a file that were translated over a flow, and those that were not.

    `form` is the file's. `examples` are the first ones of each reason. `source_why` says why the source does
    not answer, where it does not.
    """

    flow: str
    reverse: bool
    cluster: str
    other_cluster: str
    form: str
    translated: int
    untranslated: dict[UntranslatableReason, int]
    examples: list[UntranslatedOffset]
    source_why: str = ""
