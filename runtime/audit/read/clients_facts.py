"""Converts the facts about a cluster's clients into topics with their producers and consumers. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from runtime.audit.read.clients_members import GroupDescription
from runtime.audit.status.numbers import rate, sum_known, sum_rates
from runtime.contract.views.records_view import (
    CommittedOffsetView,
    ConsumerGroupView,
    GroupMemberView,
    ProducerView,
    TopicClients,
)
from runtime.kafka.protocol.offsets import TopicPartition
from runtime.kafka.protocol.transactions import ActiveProducer


@dataclass(frozen=True, slots=True)
class ClientFacts:
    """Holds the facts about a cluster's clients.

    `offsets` are the committed offsets of groups, `before` the same at an earlier inspection. `owners`: the
    flow of a producer id that is the product's own.
    """

    topics: Mapping[str, int]
    ends: Mapping[TopicPartition, int]
    groups: Mapping[str, GroupDescription]
    offsets: Mapping[str, Mapping[TopicPartition, int]]
    before: Mapping[str, Mapping[TopicPartition, int]] = field(default_factory=dict)
    elapsed_ms: int = 0
    producers: Mapping[TopicPartition, tuple[ActiveProducer, ...]] = field(default_factory=dict)
    transactional_ids: Mapping[int, str] = field(default_factory=dict)
    owners: Mapping[int, str] = field(default_factory=dict)


def topic_views(facts: ClientFacts) -> list[TopicClients]:
    """Returns every topic with its producers and consumers."""
    producers = _producers(facts)
    readers = _readers(facts)
    return [
        TopicClients(
            topic=topic,
            partitions=count,
            producers=producers.get(topic, []),
            consumers=[_consumer(facts, group, topic) for group in sorted(readers.get(topic, ()))],
        )
        for topic, count in sorted(facts.topics.items())
    ]


def _readers(facts: ClientFacts) -> dict[str, set[str]]:
    found: dict[str, set[str]] = {}
    for group, offsets in facts.offsets.items():
        for at in offsets:
            found.setdefault(at.topic, set()).add(group)
    for group, described in facts.groups.items():
        for member in described.members:
            for topic in member.partitions:
                found.setdefault(topic, set()).add(group)
    return found


def _consumer(facts: ClientFacts, group: str, topic: str) -> ConsumerGroupView:
    described = facts.groups.get(group, GroupDescription("Unknown"))
    members = [
        GroupMemberView(
            client_id=one.client_id,
            host=one.host.removeprefix("/"),
            member_id=one.member_id,
            partitions=sorted(one.partitions[topic]),
        )
        for one in described.members
        if topic in one.partitions
    ]
    committed = {at.partition for at in facts.offsets.get(group, {}) if at.topic == topic}
    numbers = committed | {number for member in members for number in member.partitions}
    partitions = [_committed(facts, group, TopicPartition(topic, number)) for number in sorted(numbers)]
    return ConsumerGroupView(
        group=group,
        state=described.state,
        members=sorted(members, key=lambda one: (one.client_id, one.member_id)),
        lag=sum_known(one.lag for one in partitions),
        records_per_s=sum_rates(one.records_per_s for one in partitions),
        partitions=partitions,
    )


def _committed(facts: ClientFacts, group: str, at: TopicPartition) -> CommittedOffsetView:
    offset, end = facts.offsets.get(group, {}).get(at), facts.ends.get(at)
    before = facts.before.get(group, {}).get(at)
    return CommittedOffsetView(
        partition=at.partition,
        offset=offset,
        end=end,
        lag=max(end - offset, 0) if end is not None and offset is not None else None,
        records_per_s=rate(offset, before, facts.elapsed_ms) if offset is not None else None,
    )


def _producers(facts: ClientFacts) -> dict[str, list[ProducerView]]:
    """Returns the producers by topic, the one with the newest record first."""
    states: dict[str, dict[int, dict[int, ActiveProducer]]] = {}
    for at, producers in facts.producers.items():
        for one in producers:
            states.setdefault(at.topic, {}).setdefault(one.producer_id, {})[at.partition] = one
    return {
        topic: sorted(
            (_producer(facts, producer_id, partitions) for producer_id, partitions in by_id.items()),
            key=lambda one: (-(one.last_timestamp_ms or 0), one.producer_id),
        )
        for topic, by_id in states.items()
    }


def _producer(facts: ClientFacts, producer_id: int, partitions: Mapping[int, ActiveProducer]) -> ProducerView:
    latest = max(one.last_timestamp for one in partitions.values())
    return ProducerView(
        producer_id=producer_id,
        epoch=max(one.epoch for one in partitions.values()),
        transactional_id=facts.transactional_ids.get(producer_id),
        flow=facts.owners.get(producer_id),
        last_timestamp_ms=latest if latest >= 0 else None,
        partitions=sorted(partitions),
        open_since={
            number: one.transaction_start
            for number, one in sorted(partitions.items())
            if one.transaction_start >= 0
        },
    )
