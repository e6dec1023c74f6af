"""What is written to a whole cluster: the growth between two samples, on real brokers."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from confluent_kafka.admin import AdminClient, NewPartitions

from runtime.audit.status.traffic import TrafficReader
from runtime.kafka.cluster import KafkaCluster
from runtime.lab.lab import Lab
from tests.records import create_topic, known_everywhere, write
from tests.runtime.kafka.real import settings_of

pytestmark = pytest.mark.integration
VALUE = b"x" * 1_000


async def test_records_and_bytes_of_all_topics_count(lab: Lab, fresh: Callable[[str], str]) -> None:
    dc1 = lab.clusters["dc1"]
    orders, payments = fresh("orders"), fresh("payments")
    for topic in (orders, payments):
        create_topic(dc1.client, topic)
        known_everywhere(dc1.client, {topic: 1})

    async with await KafkaCluster.open(settings_of(dc1)) as cluster:
        reader, kept = TrafficReader(again_s=0), TrafficReader()
        for each in (reader, kept):
            assert await each.read(cluster, await cluster.all_topics(), 30) is None
        write(dc1.client, orders, [VALUE] * 300)
        write(dc1.client, payments, [VALUE] * 200)
        found = await reader.read(cluster, await cluster.all_topics(), 30)
        assert found is not None
        assert found.bytes_per_s is not None
        assert await kept.read(cluster, await cluster.all_topics(), 30) is None  # no new sample is due
        # Nobody else writes to this cluster's topics meanwhile.
        assert round(found.records_per_s * found.over_ms / 1000) == pytest.approx(500, abs=1)
        assert found.bytes_per_s * found.over_ms / 1000 >= 500 * len(VALUE)
        admin = AdminClient(dict(dc1.client))
        admin.create_partitions([NewPartitions(orders, 2)])[orders].result(60)
        known_everywhere(dc1.client, {orders: 2})
        still = await reader.read(cluster, await cluster.all_topics(), 30)
        assert still is not None
        assert still.records_per_s == 0
