"""Clients of a drill on a real broker: a group reads of every topic, and gives up where nothing can come."""

from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest
from confluent_kafka import ConsumerGroupTopicPartitions
from confluent_kafka.admin import AdminClient

from planner.drill.traffic import DrillConsumer, partitions_at
from planner.kafka import ClusterEndpoint
from runtime.lab.lab import Lab
from tests.records import create_topic, write

pytestmark = pytest.mark.integration


def committed(client: dict[str, Any], group: str) -> Counter[str]:
    """How many records the group has behind it, by topic."""
    admin = AdminClient(client)
    (answer,) = admin.list_consumer_group_offsets([ConsumerGroupTopicPartitions(group)]).values()
    counts: Counter[str] = Counter()
    for place in answer.result(60).topic_partitions or []:
        counts[place.topic] += max(place.offset, 0)
    return counts


def test_a_group_reads_of_every_topic_and_commits_behind_what_it_took(
    lab: Lab, fresh: Callable[[str], str]
) -> None:
    client = lab.clusters["dc1"].client
    endpoint = ClusterEndpoint("dc1", lab.clusters["dc1"].bootstrap)
    orders, payments, group = fresh("orders"), fresh("payments"), fresh("billing")
    for topic, records in ((orders, 40), (payments, 10)):
        create_topic(client, topic, partitions=2)
        write(client, topic, [f"{topic}-{number}".encode() for number in range(records)])

    with DrillConsumer(client, group, [orders, payments]) as member:
        ids = member.take(16)
        assert member.counts == {orders: 8, payments: 8}
    assert len(set(ids)) == 16
    assert committed(client, group) == {orders: 8, payments: 8}

    with DrillConsumer(client, group, [orders, payments]) as member:  # payments has 2 left, not 10
        ids += member.take(20)
        assert member.counts == {orders: 18, payments: 2}
    assert committed(client, group) == {orders: 26, payments: 10}

    with DrillConsumer(client, group, [orders, payments]) as member:
        ids += member.take(30, may_grow=lambda: False)
        assert member.counts == {orders: 14, payments: 0}
    assert sorted(ids) == sorted(
        record.id
        for topic in (orders, payments)
        for records in partitions_at(endpoint, topic).values()
        for record in records
    )


def test_a_group_that_reads_on_knows_the_ends_that_its_topics_had(
    lab: Lab, fresh: Callable[[str], str]
) -> None:
    client = lab.clusters["dc1"].client
    endpoint = ClusterEndpoint("dc1", lab.clusters["dc1"].bootstrap)
    orders, group = fresh("orders"), fresh("billing")
    create_topic(client, orders, partitions=2)
    write(client, orders, [f"{number}".encode() for number in range(20)])
    with DrillConsumer(client, group, [orders]) as member:
        first = member.take(5)
    with DrillConsumer(client, group, [orders]) as member:
        ids = member.read_to_end()
    write(client, orders, [f"later-{number}".encode() for number in range(4)])

    assert sum(member.ends.values()) == 20
    assert member.first_at is not None
    assert len({*first, *ids}) == 20
    assert sum(map(len, partitions_at(endpoint, orders, member.ends).values())) == 20
    assert sum(map(len, partitions_at(endpoint, orders).values())) == 24
