"""The wire at a real broker: topics, positions, groups, producing and fetching."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest
from confluent_kafka.admin import AdminClient

from runtime.kafka.cluster import KafkaCluster
from runtime.kafka.errors import ErrorCode
from runtime.kafka.fetch import FetchLimits, FetchSession
from runtime.kafka.fetch_many import fetch_many
from runtime.kafka.protocol.fetch import EpochEnd, FetchFrom, Isolation
from runtime.kafka.protocol.groups import CommittedOffset
from runtime.kafka.protocol.offsets import (
    EARLIEST,
    LATEST,
    MAX_TIMESTAMP,
    EpochQuestion,
    ListedOffset,
    TopicPartition,
)
from runtime.kafka.queries import active_producers, committed_by, epoch_ends, list_offsets, offset_commit
from runtime.lab.lab import Lab
from tests.records import create_topic, read, wait_for, write
from tests.runtime.kafka.real import NOW, accepted, batch, fetch_some, produce, run, settings_of, values

pytestmark = pytest.mark.integration
Fresh = Callable[[str], str]


def test_the_cluster_its_brokers_and_topics_are_known(lab: Lab, fresh: Fresh) -> None:
    dc1 = lab.clusters["dc1"]
    topic = fresh("orders")
    create_topic(dc1.client, topic, partitions=3)

    async def look() -> None:
        async with await KafkaCluster.open(settings_of(dc1)) as cluster:
            assert cluster.cluster_id == dc1.cluster_id
            assert f"{cluster.brokers[1].host}:{cluster.brokers[1].port}" == dc1.bootstrap
            found = await cluster.topics([topic, "no-such-topic"])
            assert sorted(found[topic].partitions) == [0, 1, 2]
            assert found["no-such-topic"].error is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            assert cluster.topic_by_id(found[topic].id) is cluster.topic(topic)
            assert (await cluster.topics_by_id([found[topic].id]))[found[topic].id].name == topic
            unknown = await cluster.topics_by_id([b"?" * 16])
            assert unknown[b"?" * 16].error is ErrorCode.UNKNOWN_TOPIC_ID
            assert topic in await cluster.all_topics()

    run(look())


def test_a_recreated_topic_has_another_id_and_the_old_one_is_not_fetched(lab: Lab, fresh: Fresh) -> None:
    dc1 = lab.clusters["dc1"]
    topic = fresh("orders")
    create_topic(dc1.client, topic)

    async def look() -> None:
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

    run(look())


def test_many_partitions_share_a_request_and_its_bytes(lab: Lab, fresh: Fresh) -> None:
    """The first partition with records is sent whole; another whose batch has no room is missing."""
    dc1 = lab.clusters["dc1"]
    topic = fresh("orders")
    create_topic(dc1.client, topic, partitions=6)
    sizes = {0: 0, 1: 5_000, 2: 10, 3: 5_000, 4: 10}

    async def look() -> None:
        async with await KafkaCluster.open(settings_of(dc1)) as cluster:
            for partition, size in sizes.items():
                if size:
                    await accepted(cluster, topic, partition, batch(b"v" * size))
            known = (await cluster.topics([topic]))[topic]
            starts = {TopicPartition(topic, one): FetchFrom(0, max_bytes=2_000) for one in sizes}
            starts[TopicPartition(topic, 5)] = FetchFrom(7, max_bytes=2_000)  # behind the log end
            ids = dict.fromkeys(starts, known.id)

            found = await fetch_many(cluster, 1, starts, "test", topic_ids=ids)

            read = {at.partition: [len(value) for value in values(one)] for at, one in found.items()}
            assert read == {0: [], 1: [5_000], 2: [10], 4: [10], 5: []}
            errors = {at.partition: one.error for at, one in found.items() if one.error}
            assert errors == {5: ErrorCode.OFFSET_OUT_OF_RANGE}
            left = TopicPartition(topic, 3)
            again = await fetch_many(cluster, 1, {left: starts[left]}, "test", topic_ids=ids)
            assert values(again[left]) == [b"v" * 5_000]

    run(look())


def test_positions_are_answered_for_each_partition(lab: Lab, fresh: Fresh) -> None:
    dc1 = lab.clusters["dc1"]
    topic = fresh("orders")
    create_topic(dc1.client, topic, partitions=2)
    first, second, third = (TopicPartition(topic, index) for index in range(3))

    async def look() -> None:
        async with await KafkaCluster.open(settings_of(dc1)) as cluster:
            assert await accepted(cluster, topic, 0, batch(b"1", b"2", b"3")) == 0
            assert await accepted(cluster, topic, 0, batch(b"4")) == 3
            ends = await list_offsets(cluster, dict.fromkeys((first, second, third), LATEST))
            assert ends == {
                first: ListedOffset(4, -1, 0),
                second: ListedOffset(0, -1, 0),
                third: ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
            }
            questions = {first: NOW, second: EARLIEST}
            assert await list_offsets(cluster, questions, Isolation.READ_COMMITTED) == {
                first: ListedOffset(0, NOW, 0),
                second: ListedOffset(0, -1, 0),
            }
            later = await list_offsets(cluster, {first: NOW + 3_600_000, second: MAX_TIMESTAMP})
            assert later == {first: ListedOffset(-1, -1, -1), second: ListedOffset(-1, -1, -1)}
            assert await epoch_ends(cluster, {first: EpochQuestion(0)}) == {first: EpochEnd(0, 4)}
            unknown = {second: EpochQuestion(9, current_epoch=9)}  # which may only be on its way
            assert await epoch_ends(cluster, unknown, within=2) == {second: ErrorCode.UNKNOWN_LEADER_EPOCH}
            assert await active_producers(cluster, [first]) == {first: []}

    run(look())


def test_a_group_that_nobody_is_in_is_committed_and_read(lab: Lab, fresh: Fresh) -> None:
    dc1 = lab.clusters["dc1"]
    topic, group = fresh("orders"), fresh("group")
    create_topic(dc1.client, topic)
    here, nowhere = TopicPartition(topic, 0), TopicPartition("no-such-topic", 0)

    async def look() -> None:
        async with await KafkaCluster.open(settings_of(dc1)) as cluster:
            assert await offset_commit(cluster, group, {here: 17}) == {here: ErrorCode.NONE}
            read = await committed_by(cluster, [group])
            assert read.offsets[group] == {here: CommittedOffset(17, -1, "")}
            refused = await offset_commit(cluster, group, {nowhere: 1})
            assert refused == {nowhere: ErrorCode.UNKNOWN_TOPIC_OR_PARTITION}

    run(look())


def test_batches_go_out_in_pieces_and_come_in_as_they_were(lab: Lab, fresh: Fresh) -> None:
    dc1 = lab.clusters["dc1"]
    topic = fresh("orders")
    create_topic(dc1.client, topic, config={"max.message.bytes": "20000000"})
    large = bytes(range(256)) * 40_000

    async def copy() -> None:
        async with await KafkaCluster.open(settings_of(dc1)) as cluster:
            for values_ in ([b"small", b""], [large], [b"last"]):
                data = memoryview(batch(*values_))
                await accepted(cluster, topic, 0, data[:61], data[61:])
            known = (await cluster.topics([topic]))[topic]
            session = FetchSession(cluster, 1, FetchLimits(max_bytes=1000))
            got: list[bytes] = []
            for offset in (0, 2, 3):
                session.want(known.id, 0, FetchFrom(offset, max_bytes=1000))
                (answered,) = await fetch_some(session)
                got += values(answered)[:1]
            assert got == [b"small", large, b"last"]
            assert not answered.records.readonly

    run(copy())
    assert [record.value for record in read(dc1.client, topic)] == [b"small", b"", large, b"last"]


def test_what_a_broker_refuses_is_said_for_each_partition(lab: Lab, fresh: Fresh) -> None:
    dc1 = lab.clusters["dc1"]
    topic, compacted = fresh("orders"), fresh("compacted")
    create_topic(dc1.client, topic, config={"max.message.bytes": "1000"})
    create_topic(dc1.client, compacted, config={"cleanup.policy": "compact"})

    async def ask() -> None:
        async with await KafkaCluster.open(settings_of(dc1)) as cluster:
            too_large = await produce(cluster, topic, 0, batch(b"x" * 2000))
            assert too_large.error is ErrorCode.MESSAGE_TOO_LARGE
            no_key = await produce(cluster, compacted, 0, batch(b"x"))
            assert no_key.error is ErrorCode.INVALID_RECORD
            assert no_key.record_errors == ((0, None),) or no_key.record_errors[0][0] == 0
            torn = bytearray(batch(b"x"))
            torn[-1] ^= 1
            assert (await produce(cluster, topic, 0, torn)).error is ErrorCode.CORRUPT_MESSAGE

    run(ask())


def test_a_thousand_partitions_in_one_session(lab: Lab, fresh: Fresh) -> None:
    """A fetch returns the one partition that has news, at once (its cost: docs/internals/kafka-client.md)."""
    dc1 = lab.clusters["dc1"]
    topic = fresh("idle")
    create_topic(dc1.client, topic, partitions=1000)

    async def watch() -> None:
        async with await KafkaCluster.open(settings_of(dc1)) as cluster:
            await accepted(cluster, topic, 777, batch(b"old"))  # from now on the broker leads it
            known = (await cluster.topics([topic]))[topic]
            session = FetchSession(cluster, 1, FetchLimits(max_wait_ms=20_000))
            for index in known.partitions:
                session.want(known.id, index, FetchFrom(0))
            assert len(await session.fetch()) == 1000
            session.want(known.id, 777, FetchFrom(1))
            coming = asyncio.ensure_future(session.fetch())
            await asyncio.wait({coming}, timeout=0.2)
            assert not coming.done()
            began = asyncio.get_running_loop().time()
            await accepted(cluster, topic, 777, batch(b"news"))

            (answered,) = await coming

            assert (answered.partition, values(answered)) == (777, [b"news"])
            assert asyncio.get_running_loop().time() - began < 10.0
            session.want(known.id, 777, FetchFrom(2))
            session.limits = FetchLimits(max_wait_ms=10)
            assert all(not one.records for one in await session.fetch())
            await session.close()

    run(watch())


def test_a_position_outside_the_log_is_an_error_of_its_partition(lab: Lab, fresh: Fresh) -> None:
    dc1 = lab.clusters["dc1"]
    topic = fresh("orders")
    create_topic(dc1.client, topic, partitions=2)
    write(dc1.client, topic, [b"x"] * 10)

    async def look() -> None:
        async with await KafkaCluster.open(settings_of(dc1)) as cluster:
            known = (await cluster.topics([topic]))[topic]
            session = FetchSession(cluster, 1, FetchLimits(max_wait_ms=100))
            session.want(known.id, 0, FetchFrom(1000))
            session.want(known.id, 1, FetchFrom(0, leader_epoch=5))
            errors = {one.partition: one.error for one in await fetch_some(session)}
            assert errors == {0: ErrorCode.OFFSET_OUT_OF_RANGE, 1: ErrorCode.UNKNOWN_LEADER_EPOCH}

    run(look())
