"""What a failover loses of a flow, and what becomes of its groups. Pure data, and pure arithmetic over what
status sees.

The field names are those of `--json`: they are only ever added. None is what is not known.
"""

import msgspec
from msgspec.structs import replace

from runtime.contract.records.status import PartitionState
from runtime.contract.views.status_view import FlowSeen, PartitionSeen

_OLDER_MS = 60_000  # a partition whose end is older than the flow's last word by this much is named
# What a partition held no longer counts: how much of its source is at the destination is not known.
_ANOTHER_LOG = (PartitionState.RECREATED, PartitionState.DIVERGED)


class PartitionUnheard(msgspec.Struct, frozen=True, kw_only=True):
    """A partition whose loss is not known, or only `as_of_ms`, longer ago than that of its flow; and why."""

    topic: str
    partition: int
    why: str
    as_of_ms: int | None = None


class FlowLoss(msgspec.Struct, frozen=True, kw_only=True):
    """`records` are at least lost, as far as the source was last heard of at `as_of_ms`; `ms` is how far the
    destination was behind then. `unheard` counts the partitions of whose loss nothing is known,
    `unheard_partitions` names them; `older_partitions` are counted, by what was known long before.
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
    """One group over one flow, at its next start at the destination. By partitions: `exact` goes on where it
    was; `again` reads some records again (both sides write the topic); `lost` had read further than what
    arrived, `records_lost` in all; `kept` is left where it stands, for `why`. `topics` are the names that
    its consumers subscribe to at the destination.
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


class GroupTopics(msgspec.Struct, frozen=True, kw_only=True):
    """The topics that the consumers of a group subscribe to at the destination; the flow may rename them."""

    flow: str
    group: str
    cluster: str
    topics: list[str]


def loss_of(flow: FlowSeen, now_ms: int) -> FlowLoss:
    known = [one for one in flow.partitions if one.lag_records is not None]
    as_of = max((_heard(one, now_ms) for one in known), default=None)
    behind = [_behind_ms(one) for one in known if one.lag_records]
    return FlowLoss(
        flow=flow.name,
        source=flow.source,
        destination=flow.destination,
        state=flow.state,
        source_answers=flow.source_answers,
        destination_answers=flow.destination_answers,
        records=sum(one.lag_records or 0 for one in known) if known else None,
        ms=max((one for one in behind if one is not None), default=None if behind or not known else 0),
        as_of_ms=as_of,
        partitions=len(flow.partitions),
        unheard=len(flow.partitions) - len(known),
        unheard_partitions=[_unheard(one, flow) for one in flow.partitions if one.lag_records is None],
        older_partitions=[
            _unheard(one, flow, _heard(one, now_ms))
            for one in known
            if as_of is not None and as_of - _heard(one, now_ms) >= _OLDER_MS
        ],
    )


def _unheard(one: PartitionSeen, flow: FlowSeen, as_of_ms: int | None = None) -> PartitionUnheard:
    if not flow.destination_answers:
        why = f"{flow.destination} does not answer"
    elif one.state in _ANOTHER_LOG or as_of_ms is not None:
        why = f"{one.state}: {one.why}" if one.why else one.state
    elif one.position is None:
        why = f"the ledger at {flow.destination} has no position of it"
    else:
        why = f"job {flow.job} has not told where it ends at {flow.source}"
    return PartitionUnheard(topic=one.topic, partition=one.partition, why=why, as_of_ms=as_of_ms)


def with_ends_of(after: FlowSeen, before: FlowSeen, before_ms: int) -> FlowSeen:
    """What arrived in the end, against the source's ends as they were known before."""
    known = {(one.topic, one.partition): one for one in before.partitions if one.source_end is not None}
    topics = [
        replace(
            topic,
            partitions=[
                _against(one, known[one.topic, one.partition], before_ms)
                if (one.topic, one.partition) in known
                else one
                for one in topic.partitions
            ],
        )
        for topic in after.topics
    ]
    return replace(after, topics=topics, source_answers=False)


def _against(one: PartitionSeen, before: PartitionSeen, before_ms: int) -> PartitionSeen:
    if one.state == PartitionState.PROMOTED:
        return one
    if before.state in _ANOTHER_LOG:
        return replace(one, lag_records=None, lag_ms=None, state=before.state, why=before.why)
    seen_ms = before.source_end_seen_ms if before.source_end_seen_ms is not None else before_ms
    lag = max((before.source_end or 0) - one.position, 0) if one.position is not None else None
    return replace(
        one, source_end_seen_ms=seen_ms, lag_records=lag, lag_ms=None, state=before.state, why=before.why
    )


def _heard(one: PartitionSeen, now_ms: int) -> int:
    return one.source_end_seen_ms if one.source_end_seen_ms is not None else now_ms


def _behind_ms(one: PartitionSeen) -> int | None:
    """At the moment when the source was last heard of."""
    if one.lag_ms is not None:
        return one.lag_ms
    if one.source_end_seen_ms is None or one.last_timestamp_ms is None:
        return None
    return max(one.source_end_seen_ms - one.last_timestamp_ms, 0)
