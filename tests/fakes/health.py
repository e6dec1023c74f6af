"""What a status says of partitions, topics and flows, for tests that name only what matters to them."""

from typing import Any

from runtime.contract.results.status import FlowHealth, PartitionHealth, ReplicationStatus, TopicHealth
from tests.fakes.blank import blank


def partition_health(
    number: int = 0, *, end: int = 10, position: int = 10, **changes: Any
) -> PartitionHealth:
    """A partition of orders, copied up to `position` of the source's `end`."""
    facts: dict[str, Any] = {"topic": "orders", "partition": number, "state": "caught_up"}
    facts |= {"source_end": end, "source_high_watermark": end, "position": position}
    return blank(PartitionHealth, **facts | {"lag_records": max(end - position, 0)} | changes)


def topic_health(
    *partitions: PartitionHealth, topic: str = "orders", state: str = "caught_up"
) -> TopicHealth:
    facts: dict[str, Any] = {"topic": topic, "destination_topic": topic, "state": state, "lag_ms": 0}
    lag = sum(partition.lag_records or 0 for partition in partitions)
    return blank(TopicHealth, **facts, lag_records=lag, partitions=list(partitions))


def flow_health(*topics: TopicHealth, name: str = "go", **changes: Any) -> FlowHealth:
    facts: dict[str, Any] = {"name": name, "source_answers": True, "destination_answers": True}
    return blank(FlowHealth, **facts | changes, topics=list(topics))


def status_of(*flows: FlowHealth) -> ReplicationStatus:
    return blank(ReplicationStatus, topology="t", flows=list(flows))
