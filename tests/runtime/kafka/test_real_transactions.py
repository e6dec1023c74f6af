"""Transactions at a real broker, seen from both sides."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from runtime.contract.spec.naming import TopicPartition
from runtime.kafka.cluster import KafkaCluster
from runtime.kafka.errors import BrokerError, ErrorCode
from runtime.kafka.transactions import abort_and_renew, add_partitions, init_producer_id
from runtime.lab.lab import Lab
from tests.records import create_topic
from tests.runtime.kafka.real import settings_of

pytestmark = pytest.mark.integration
Fresh = Callable[[str], str]


async def test_an_open_transaction_is_aborted_before_the_epoch_is_renewed(lab: Lab, fresh: Fresh) -> None:
    """Only the newest holder gets the next epoch (KIP-360)."""
    dc1 = lab.clusters["dc1"]
    topic, name = fresh("orders"), fresh("tx")
    create_topic(dc1.client, topic)

    async with await KafkaCluster.open(settings_of(dc1)) as cluster:
        first = await init_producer_id(cluster, name, 60_000)
        await add_partitions(cluster, name, first, [TopicPartition(topic, 0)])
        second = await abort_and_renew(cluster, name, 60_000, first)
        assert (second.producer_id, second.epoch > first.epoch) == (first.producer_id, True)
        await add_partitions(cluster, name, second, [TopicPartition(topic, 0)])
        other = await init_producer_id(cluster, name, 60_000)
        for attempt in (
            abort_and_renew(cluster, name, 60_000, second),
            init_producer_id(cluster, name, 60_000, identity=second),
        ):
            with pytest.raises(BrokerError) as fenced:
                await attempt
            assert fenced.value.code in (ErrorCode.PRODUCER_FENCED, ErrorCode.INVALID_PRODUCER_EPOCH)
        assert await abort_and_renew(cluster, name, 60_000, other)
