"""Transactions at a real broker, seen from both sides."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from runtime.kafka.cluster import KafkaCluster
from runtime.kafka.errors import BrokerError, ErrorCode
from runtime.kafka.fetch import FetchLimits, FetchSession
from runtime.kafka.protocol.fetch import FetchFrom, Isolation
from runtime.kafka.protocol.offsets import LATEST, ListedOffset, TopicPartition
from runtime.kafka.protocol.transactions import (
    CoordinatorKind,
    DescribeTransactionsRequest,
    ListTransactionsRequest,
)
from runtime.kafka.queries import active_producers, list_offsets
from runtime.kafka.transactions import (
    abort_and_renew,
    add_partitions,
    end_transaction,
    init_producer_id,
)
from runtime.lab.lab import Lab
from tests.records import create_topic, read
from tests.runtime.kafka.real import (
    accepted,
    batch,
    fetch_some,
    fetch_until,
    produce,
    settings_of,
    transactional,
    values,
)

pytestmark = pytest.mark.integration
Fresh = Callable[[str], str]


async def test_committed_is_read_and_aborted_is_told_apart(lab: Lab, fresh: Fresh) -> None:
    dc1 = lab.clusters["dc1"]
    topic, me = fresh("orders"), fresh("tx")
    create_topic(dc1.client, topic)

    async with await KafkaCluster.open(settings_of(dc1)) as cluster:
        one = await init_producer_id(cluster, me, 60_000)
        await add_partitions(cluster, me, one, [TopicPartition(topic, 0)])
        data = transactional(one, 0, b"dropped 1", b"dropped 2")
        assert await accepted(cluster, topic, 0, *data, transactional_id=me) == 0
        await end_transaction(cluster, me, one, commit=False)

        two = await init_producer_id(cluster, me, 60_000)
        assert (two.producer_id, two.epoch) == (one.producer_id, one.epoch + 1)
        await add_partitions(cluster, me, two, [TopicPartition(topic, 0)])
        for sequence, value in enumerate([b"kept 1", b"kept 2"]):
            data = transactional(two, sequence, value)
            await accepted(cluster, topic, 0, *data, transactional_id=me)
        await end_transaction(cluster, me, two, commit=True)
        await accepted(cluster, topic, 0, batch(b"plain"))

        known = (await cluster.topics([topic]))[topic]
        session = FetchSession(cluster, 1, FetchLimits())
        got, aborted = await fetch_until(session, known.id, 0, end=7)
        assert aborted == {(one.producer_id, 0)}
        assert sorted(got) == [b"dropped 1", b"dropped 2", b"kept 1", b"kept 2", b"plain"]
    assert [record.value for record in read(dc1.client, topic)] == [b"kept 1", b"kept 2", b"plain"]


async def test_an_open_transaction_holds_back_readers_and_is_named(lab: Lab, fresh: Fresh) -> None:
    dc1 = lab.clusters["dc1"]
    topic, me = fresh("orders"), fresh("tx")
    create_topic(dc1.client, topic)
    here = TopicPartition(topic, 0)

    async with await KafkaCluster.open(settings_of(dc1)) as cluster:
        identity = await init_producer_id(cluster, me, 60_000)
        await add_partitions(cluster, me, identity, [TopicPartition(topic, 0)])
        await accepted(cluster, topic, 0, batch(b"before"))
        await accepted(cluster, topic, 0, *transactional(identity, 0, b"open"), transactional_id=me)

        stable = await list_offsets(cluster, {here: LATEST}, Isolation.READ_COMMITTED)
        assert stable == {here: ListedOffset(1, -1, 0)}
        (producers,) = (await active_producers(cluster, [here])).values()
        assert not isinstance(producers, ErrorCode)
        (open_one,) = producers
        assert (open_one.producer_id, open_one.transaction_start) == (identity.producer_id, 1)
        coordinator = await cluster.coordinator(CoordinatorKind.TRANSACTION, me)
        listing = await cluster.call(coordinator, ListTransactionsRequest(["Ongoing"]))
        assert not isinstance(listing, ErrorCode)
        assert me in [transaction.transactional_id for transaction in listing]
        state = (await cluster.call(coordinator, DescribeTransactionsRequest([me])))[me]
        assert not isinstance(state, ErrorCode)
        assert (state.state, state.partitions) == ("Ongoing", (here,))

        session = FetchSession(cluster, 1, FetchLimits(max_wait_ms=100))
        known = (await cluster.topics([topic]))[topic]
        session.want(known.id, 0, FetchFrom(0))
        assert values((await fetch_some(session))[0]) == [b"before"]
        await end_transaction(cluster, me, identity, commit=False)


async def test_whoever_initialises_later_fences_whoever_came_before(lab: Lab, fresh: Fresh) -> None:
    dc1 = lab.clusters["dc1"]
    topic, me = fresh("orders"), fresh("tx")
    create_topic(dc1.client, topic)

    async with await KafkaCluster.open(settings_of(dc1)) as cluster:
        old = await init_producer_id(cluster, me, 60_000)
        await add_partitions(cluster, me, old, [TopicPartition(topic, 0)])
        await accepted(cluster, topic, 0, *transactional(old, 0, b"old"), transactional_id=me)
        new = await init_producer_id(cluster, me, 60_000)
        assert new.epoch > old.epoch

        with pytest.raises(BrokerError) as adding:
            await add_partitions(cluster, me, old, [TopicPartition(topic, 0)])
        with pytest.raises(BrokerError) as ending:
            await end_transaction(cluster, me, old, commit=True)
        fenced = (ErrorCode.PRODUCER_FENCED, ErrorCode.INVALID_PRODUCER_EPOCH)
        assert adding.value.code in fenced
        assert ending.value.code in fenced
        late = await produce(cluster, topic, 0, *transactional(old, 1, b"late"), transactional_id=me)
        assert late.error is ErrorCode.INVALID_PRODUCER_EPOCH
    assert read(dc1.client, topic) == []


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
