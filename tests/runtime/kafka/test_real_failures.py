"""Brokers that die, hang, come back and lead no more."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator

import pytest

from runtime.kafka.cluster import KafkaCluster
from runtime.kafka.errors import ConnectionFailure, Disconnected, ErrorCode, TimedOut
from runtime.kafka.fetch import FetchLimits, FetchSession
from runtime.kafka.protocol.fetch import FetchFrom
from runtime.kafka.protocol.offsets import LATEST, ListedOffset, TopicPartition
from runtime.kafka.protocol.transactions import CoordinatorKind
from runtime.kafka.queries import list_offsets
from runtime.kafka.transactions import add_partitions, end_transaction, init_producer_id
from runtime.lab.lab import Lab
from tests.labs import spec
from tests.records import all_in_sync, create_topic, read
from tests.runtime.kafka.real import (
    accepted,
    batch,
    fetch_some,
    fetch_until,
    settings_of,
    transactional,
    values,
)

pytestmark = pytest.mark.integration
Fresh = Callable[[str], str]
# A broker started from another thread would die with that thread: those of tests go with their parent.
SOON = {"socket.timeout.ms": "5000", "reconnect.backoff.max.ms": "500"}


@pytest.fixture(scope="module")
def brokers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lab]:
    """dc1 has three brokers, dc2 one."""
    lab = Lab(tmp_path_factory.mktemp("failures"))
    lab.up([spec("dc1", brokers=3), spec("dc2", properties={"quota.window.num": "2"})])
    yield lab
    lab.down(purge=True)


@pytest.fixture
def breakable(brokers: Lab) -> Lab:
    """Every broker runs and every replica is in sync, whatever the test before has left."""
    for name, cluster in brokers.clusters.items():
        brokers.start(name)
        all_in_sync(cluster.client)
    return brokers


async def fetch_for_ever(session: FetchSession) -> None:
    while True:
        await session.fetch()


async def elected(cluster: KafkaCluster, topic: str, not_by: int) -> int:
    """The leader, once it is another."""
    while True:
        leader = (await cluster.topics([topic], fresh=True))[topic].partitions[0].leader
        if leader not in (-1, not_by):
            return leader
        await asyncio.sleep(0.1)


async def test_a_leader_dies_and_another_takes_over(breakable: Lab, fresh: Fresh) -> None:
    """The session learns it as a lost connection, positions, transactions and coordinators move along."""
    lab, dc1 = breakable, breakable.clusters["dc1"]
    topic, me = fresh("orders"), fresh("tx")
    create_topic(dc1.client, topic, replication=3)
    here = TopicPartition(topic, 0)

    async with await KafkaCluster.open(settings_of(dc1, **SOON)) as cluster:
        assert await accepted(cluster, topic, 0, batch(b"before")) == 0
        identity = await init_producer_id(cluster, me, 60_000)
        coordinator = await cluster.coordinator(CoordinatorKind.TRANSACTION, me)
        known = (await cluster.topics([topic]))[topic]
        leader = known.partitions[0].leader
        session = FetchSession(cluster, leader, FetchLimits(max_wait_ms=20_000))
        session.want(known.id, 0, FetchFrom(0))
        await session.fetch()
        session.want(known.id, 0, FetchFrom(1))  # where nothing is yet
        waiting = asyncio.ensure_future(session.fetch())

        await asyncio.to_thread(lab.kill, f"dc1:{leader}")

        with pytest.raises(Disconnected):
            await waiting
        successor = await elected(cluster, topic, not_by=leader)
        await list_offsets(cluster, {here: LATEST})  # a new leader's first answer may be too low: `_log_ends`
        end = (await list_offsets(cluster, {here: LATEST}))[here]
        assert isinstance(end, ListedOffset)
        assert end.offset == 1
        moved = FetchSession(cluster, successor, FetchLimits())
        epoch = (await cluster.topics([topic]))[topic].partitions[0].leader_epoch
        assert epoch > known.partitions[0].leader_epoch
        assert (await fetch_until(moved, known.id, 0, end=1))[0] == [b"before"]
        moved.want(known.id, 0, FetchFrom(1, leader_epoch=epoch, last_fetched_epoch=0))
        assert all(not one.error and not one.diverging for one in await moved.fetch())

        again = await init_producer_id(cluster, me, 60_000)
        assert again.producer_id == identity.producer_id
        await add_partitions(cluster, me, again, [TopicPartition(topic, 0)])
        await accepted(cluster, topic, 0, *transactional(again, 0, b"after"), transactional_id=me)
        await end_transaction(cluster, me, again, commit=True)

        lab.start(f"dc1:{leader}")
        await cluster.connection(leader, "produce")
        assert (await fetch_until(moved, known.id, 0, end=3))[0] == [b"before", b"after"]
        if coordinator == leader:
            cluster.forget_coordinator(CoordinatorKind.TRANSACTION, me)
            assert await cluster.coordinator(CoordinatorKind.TRANSACTION, me) in cluster.brokers
    assert [record.value for record in read(dc1.client, topic)] == [b"before", b"after"]


async def test_a_broker_that_hangs_is_a_timeout_and_others_answer(breakable: Lab, fresh: Fresh) -> None:
    lab, dc2 = breakable, breakable.clusters["dc2"]
    topic = fresh("orders")
    create_topic(dc2.client, topic)
    here = TopicPartition(topic, 0)

    async with await KafkaCluster.open(settings_of(dc2, **SOON)) as cluster:
        await accepted(cluster, topic, 0, batch(b"x"))
        await cluster.connection(1, "fetch")
        await asyncio.to_thread(lab.pause, "dc2")
        known = cluster.topic(topic)
        assert known is not None
        session = FetchSession(cluster, 1, FetchLimits(max_wait_ms=100))
        session.want(known.id, 0, FetchFrom(0))
        with pytest.raises(TimedOut) as failure:
            await fetch_for_ever(session)
        assert failure.value.sent
        assert await list_offsets(cluster, {here: LATEST}, within=1) == {here: ErrorCode.NETWORK_EXCEPTION}
        await asyncio.to_thread(lab.unpause, "dc2")
        while True:
            try:
                (answered,) = await fetch_some(session)
                break
            except ConnectionFailure:
                continue
        assert values(answered) == [b"x"]
