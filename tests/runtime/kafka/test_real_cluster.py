"""The wire at a real broker: topics, positions, groups, producing and fetching."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest
from confluent_kafka.admin import AdminClient

from runtime.kafka.cluster import KafkaCluster
from runtime.kafka.errors import ErrorCode
from runtime.kafka.fetch import FetchLimits, FetchSession
from runtime.kafka.protocol.fetch import FetchFrom
from runtime.lab.lab import Lab
from tests.records import create_topic, wait_for, write
from tests.runtime.kafka.real import batch, fetch_some, produce, settings_of

pytestmark = pytest.mark.integration
Fresh = Callable[[str], str]


async def test_a_recreated_topic_has_another_id_and_the_old_one_is_not_fetched(
    lab: Lab, fresh: Fresh
) -> None:
    dc1 = lab.clusters["dc1"]
    topic = fresh("orders")
    create_topic(dc1.client, topic)

    async with await KafkaCluster.open(settings_of(dc1)) as cluster:
        before = (await cluster.topics([topic]))[topic]
        session = FetchSession(cluster, 1, FetchLimits(max_wait_ms=100))
        session.want(before.id, 0, FetchFrom(0))
        await session.fetch()
        admin = AdminClient(dict(dc1.client))
        await asyncio.to_thread(lambda: admin.delete_topics([topic])[topic].result(60))
        await asyncio.to_thread(wait_for, lambda: topic not in admin.list_topics(timeout=60).topics)
        await asyncio.to_thread(create_topic, dc1.client, topic)

        (answered,) = await fetch_some(session)

        assert answered.error in (ErrorCode.UNKNOWN_TOPIC_ID, ErrorCode.INCONSISTENT_TOPIC_ID)
        assert not session.wants(before.id, 0)
        after = (await cluster.topics([topic], fresh=True))[topic]
        assert after.id != before.id
        assert cluster.topic_by_id(before.id) is None


async def test_what_a_broker_refuses_is_said_for_each_partition(lab: Lab, fresh: Fresh) -> None:
    dc1 = lab.clusters["dc1"]
    topic, compacted = fresh("orders"), fresh("compacted")
    create_topic(dc1.client, topic, config={"max.message.bytes": "1000"})
    create_topic(dc1.client, compacted, config={"cleanup.policy": "compact"})

    async with await KafkaCluster.open(settings_of(dc1)) as cluster:
        too_large = await produce(cluster, topic, 0, batch(b"x" * 2000))
        assert too_large.error is ErrorCode.MESSAGE_TOO_LARGE
        no_key = await produce(cluster, compacted, 0, batch(b"x"))
        assert no_key.error is ErrorCode.INVALID_RECORD
        assert no_key.record_errors == ((0, None),) or no_key.record_errors[0][0] == 0
        torn = bytearray(batch(b"x"))
        torn[-1] ^= 1
        assert (await produce(cluster, topic, 0, torn)).error is ErrorCode.CORRUPT_MESSAGE


async def test_a_position_outside_the_log_is_an_error_of_its_partition(lab: Lab, fresh: Fresh) -> None:
    dc1 = lab.clusters["dc1"]
    topic = fresh("orders")
    create_topic(dc1.client, topic, partitions=2)
    write(dc1.client, topic, [b"x"] * 10)

    async with await KafkaCluster.open(settings_of(dc1)) as cluster:
        known = (await cluster.topics([topic]))[topic]
        session = FetchSession(cluster, 1, FetchLimits(max_wait_ms=100))
        session.want(known.id, 0, FetchFrom(1000))
        session.want(known.id, 1, FetchFrom(0, leader_epoch=5))
        errors = {one.partition: one.error for one in await fetch_some(session)}
        assert errors == {0: ErrorCode.OFFSET_OUT_OF_RANGE, 1: ErrorCode.UNKNOWN_LEADER_EPOCH}
