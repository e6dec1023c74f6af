"""What a status says of partitions, topics and flows, for tests that name only what matters to them."""

from typing import Any

from runtime.contract.results.status import FlowHealth, PartitionHealth, ReplicationStatus, TopicHealth


def partition_health(
    number: int = 0, *, end: int = 10, position: int = 10, **changes: Any
) -> PartitionHealth:
    """A partition of orders, copied up to `position` of the source's `end`."""
    facts: dict[str, Any] = {
        **dict.fromkeys(PartitionHealth.__struct_fields__),
        **dict.fromkeys(("records", "bytes", "dropped", "given_up", "quarantined", "tombstones"), 0),
        **dict.fromkeys(("needs_someone", "foreign_writes"), False),
    }
    facts |= {"topic": "orders", "partition": number, "state": "caught_up", "why": "", "next": ""}
    facts |= {"source_end": end, "source_high_watermark": end, "position": position}
    return PartitionHealth(**facts | {"lag_records": max(end - position, 0)} | changes)


def topic_health(
    *partitions: PartitionHealth, topic: str = "orders", state: str = "caught_up"
) -> TopicHealth:
    facts: dict[str, Any] = dict.fromkeys(TopicHealth.__struct_fields__)
    facts |= {"topic": topic, "destination_topic": topic, "state": state, "lag_ms": 0}
    lag = sum(partition.lag_records or 0 for partition in partitions)
    return TopicHealth(**facts | {"lag_records": lag, "partitions": list(partitions)})


def flow_health(*topics: TopicHealth, name: str = "go", **changes: Any) -> FlowHealth:
    facts: dict[str, Any] = dict.fromkeys(FlowHealth.__struct_fields__)
    facts |= {"name": name, "topics": list(topics), "source_answers": True, "destination_answers": True}
    return FlowHealth(**facts | changes)


def status_of(*flows: FlowHealth) -> ReplicationStatus:
    return ReplicationStatus(topology="t", at_ms=0, over_ms=0, clusters=[], jobs=[], flows=list(flows))
