"""Brokers of older versions: what the client does with those of Kafka 4 works there, in older requests."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest

from runtime.contract.client.settings import wire_settings
from runtime.contract.spec.naming import is_from_kafka
from runtime.kafka.cluster import KafkaCluster
from runtime.kafka.errors import ErrorCode
from runtime.kafka.fetch import FetchLimits, FetchSession, fetch_once
from runtime.kafka.fetch_many import fetch_many
from runtime.kafka.protocol.fetch import FetchedPartition, FetchFrom
from runtime.kafka.protocol.offsets import TopicPartition
from runtime.kafka.protocol.produce import ProducePartition, ProduceRequest
from runtime.kafka.queries import (
    active_producers,
    committed_by,
    epoch_ends,
    list_groups,
    offset_commit,
)
from runtime.kafka.transactions import add_partitions, end_transaction, init_producer_id
from runtime.lab.cluster import LabKafkaCluster
from tests.conftest import MakeLab
from tests.labs import spec
from tests.records import coordinators_ready, create_topic, recreate_topic, write

pytestmark = [pytest.mark.integration, pytest.mark.long]

VERSIONS = [
    pytest.param("2.8.2"),
    pytest.param("2.4.1", marks=pytest.mark.versions),
    pytest.param("2.5.1", marks=pytest.mark.versions),
    pytest.param("3.0.2", marks=pytest.mark.versions),
]


@pytest.fixture(params=VERSIONS)
def old(request: pytest.FixtureRequest, own_lab: MakeLab) -> LabKafkaCluster:
    lab = own_lab(spec("dc1", version=request.param))
    coordinators_ready(lab.clusters["dc1"].client)
    return lab.clusters["dc1"]


def recreate(cluster: LabKafkaCluster, topic: str, values: list[bytes]) -> None:
    recreate_topic(cluster.client, topic, 2)
    write(cluster.client, topic, values, partition=0)


async def test_all_that_a_flow_asks_for(old: LabKafkaCluster, fresh: Callable[[str], str]) -> None:
    topic, group = fresh("orders"), fresh("billing")
    create_topic(old.client, topic, 2)
    write(old.client, topic, [b"%d" % number for number in range(10)], partition=0)
    at = TopicPartition(topic, 0)

    async with await KafkaCluster.open(wire_settings(old.bootstrap, {})) as cluster:
        known = (await cluster.topics([topic]))[topic]
        assert is_from_kafka(known.id) == (old.spec.version >= "2.8")
        assert (await epoch_ends(cluster, {at: 0}))[at].end_offset == 10  # type: ignore[union-attr]
        records = bytes((await fetch_once(cluster, at, 0, 1 << 20, "test")).records)
        both = dict.fromkeys((at, TopicPartition(topic, 1)), FetchFrom(0))
        together = await fetch_many(cluster, 1, both, "test", topic_ids=dict.fromkeys(both, known.id))
        assert [bytes(one.records) for one in together.values()] == [records, b""]

        session = FetchSession(cluster, 1, FetchLimits(max_wait_ms=100))
        session.want(known.id, 0, FetchFrom(0, 0))
        session.want(known.id, 1, FetchFrom(0, 0))
        assert sizes(await session.fetch()) == {0: len(records), 1: 0}
        session.want(known.id, 0, FetchFrom(10, 0))
        assert sizes(await session.fetch()) == {}

        name = fresh("transaction")
        first = await init_producer_id(cluster, name, 60_000)
        await add_partitions(cluster, name, first, [TopicPartition(topic, 0), TopicPartition(topic, 1)])
        await end_transaction(cluster, name, first, commit=True)
        second = await init_producer_id(cluster, name, 60_000)
        assert (second.producer_id, second.epoch) == (first.producer_id, first.epoch + 1)

        connection = await cluster.connection(1, "test")
        batch = ProduceRequest(None, 5_000, [ProducePartition(topic, 1, [records])])
        (produced,) = (await connection.call(batch)).partitions
        assert (produced.error, produced.base_offset) == (ErrorCode.NONE, 1)  # behind the marker

        assert await offset_commit(cluster, group, {at: 3}) == {at: ErrorCode.NONE}
        assert group in (await list_groups(cluster)).groups
        read = await committed_by(cluster, [group, fresh("other")])
        assert read.offsets[group][at].offset == 3
        held = (await active_producers(cluster, [at]))[at]
        assert (held is ErrorCode.UNSUPPORTED_VERSION) == (old.spec.version < "2.8")


def test_a_recreated_topic_is_not_read_on_by_its_name(
    old: LabKafkaCluster, fresh: Callable[[str], str]
) -> None:
    topic = fresh("orders")
    create_topic(old.client, topic, 2)
    write(old.client, topic, [b"1"], partition=0)

    async def asked() -> list[FetchedPartition]:
        async with await KafkaCluster.open(wire_settings(old.bootstrap, {})) as cluster:
            known = (await cluster.topics([topic]))[topic]
            session = FetchSession(cluster, 1, FetchLimits(max_wait_ms=100))
            session.want(known.id, 0, FetchFrom(0, 0))
            assert sizes(await session.fetch())[0] > 0
            session.want(known.id, 0, FetchFrom(1, 0))
            await asyncio.to_thread(recreate, old, topic, [b"2", b"3", b"4"])
            answers: list[FetchedPartition] = []
            while not answers:
                answers += await session.fetch()
            return answers

    (answer,) = asyncio.run(asked())
    if old.spec.version >= "2.8":
        assert answer.error is ErrorCode.UNKNOWN_TOPIC_ID
    else:  # there the session itself may tell of the deletion, and nothing else does
        assert answer.error in (ErrorCode.NONE, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)


def sizes(answers: tuple[FetchedPartition, ...]) -> dict[int, int]:
    assert not [one.error for one in answers if one.error]
    return {one.partition: len(one.records) for one in answers}
