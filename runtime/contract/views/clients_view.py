"""Defines the results of `repl clients`: made by runtime.audit, shown by planner.render. Pure data."""

import msgspec


class GroupMemberView(msgspec.Struct, frozen=True, kw_only=True):
    """Describes a member of a group that has partitions of the topic."""

    client_id: str
    host: str
    member_id: str
    partitions: list[int]


class CommittedOffsetView(msgspec.Struct, frozen=True, kw_only=True):
    """Holds a group's position in one partition; None where it never committed."""

    partition: int
    offset: int | None
    end: int | None
    lag: int | None
    records_per_s: float | None


class ConsumerGroupView(msgspec.Struct, frozen=True, kw_only=True):
    """Describes a group that reads a topic, known by its commits or by its members' assignments.

    `state` is Kafka's.
    """

    group: str
    state: str
    members: list[GroupMemberView]
    lag: int | None
    records_per_s: float | None
    partitions: list[CommittedOffsetView]


class ProducerView(msgspec.Struct, frozen=True, kw_only=True):
    """Describes a producer id that wrote to a topic recently.

    `flow`: it is the product's own and copies for that flow. `last_timestamp_ms` is its newest record's own
    timestamp. `open_since`: the offsets, by partition, at which its open transaction began.
    """

    producer_id: int
    epoch: int
    transactional_id: str | None
    flow: str | None
    last_timestamp_ms: int | None
    partitions: list[int]
    open_since: dict[int, int]


class TopicClients(msgspec.Struct, frozen=True, kw_only=True):
    """Holds the producers and consumers of a topic."""

    topic: str
    partitions: int
    producers: list[ProducerView]
    consumers: list[ConsumerGroupView]


class ClientsView(msgspec.Struct, frozen=True, kw_only=True):
    """Holds the clients of a cluster's topics.

    `over_ms` is the time between the two inspections from which rates are computed, 0 where there was one.
    `notes` list what could not be read.
    """

    cluster: str
    cluster_id: str
    at_ms: int
    over_ms: int
    topics: list[TopicClients]
    notes: list[str]
