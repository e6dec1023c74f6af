"""One partition, or many of a broker in one request: each gets the answer that it gets alone, or none yet."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any, cast

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from runtime.batch import walk
from runtime.contract.spec.naming import TopicPartition as At
from runtime.contract.spec.naming import name_id
from runtime.kafka.cluster import KafkaCluster
from runtime.kafka.errors import BrokerError, Disconnected, ErrorCode
from runtime.kafka.fetch import fetch_once
from runtime.kafka.fetch_many import fetch_many
from runtime.kafka.protocol.fetch import FetchedPartition, FetchFrom, FetchRequest, FetchResponse, Isolation
from runtime.ledger.records import InternalTopicScan
from tests.fakes.one_broker import AT, END, GONE, LONG_S, PATIENCE_S, OneBroker, answered, throttled
from tests.fakes.partition_logs import PartitionLog, PartitionLogs
from tests.runtime.batch.forge import HERE, batch_bytes, record

IDS = {"orders": b"o" * 16, "pay": b"p" * 16}
UNCOMMITTED = Isolation.READ_UNCOMMITTED


def log(*sizes: int) -> PartitionLog:
    """One batch of a record for each size of a value."""
    return PartitionLog([batch_bytes([record(at, b"v" * size)]) for at, size in enumerate(sizes)])


def many(
    cluster: PartitionLogs, starts: Mapping[At, FetchFrom], ids: Mapping[At, bytes] | None = None
) -> dict[At, FetchedPartition]:
    ids = {at: IDS[at.topic] for at in starts} | dict(ids or {})
    work = fetch_many(
        cast(KafkaCluster, cluster), 1, starts, "test", topic_ids=ids, isolation=UNCOMMITTED, within=5
    )
    return asyncio.run(work)


def alone(cluster: PartitionLogs, at: At, start: FetchFrom) -> FetchedPartition:
    work = fetch_once(
        cast(KafkaCluster, cluster), at, start.offset, start.max_bytes, "test", isolation=UNCOMMITTED
    )
    return asyncio.run(work)


POSITIONS = st.lists(
    st.tuples(
        st.sampled_from(sorted(IDS)),
        st.integers(0, 20),
        st.lists(st.integers(0, 300), max_size=4),
        st.integers(0, 5),
        st.integers(1, 600),
    ),
    min_size=1,
    max_size=12,
    unique_by=lambda one: one[:2],
)


@given(POSITIONS)
def test_an_answer_begins_as_the_one_that_the_partition_gets_alone_or_is_missing(positions: Any) -> None:
    logs = {At(topic, partition): log(*sizes) for topic, partition, sizes, _, _ in positions}
    starts = {At(topic, one): FetchFrom(offset, max_bytes=most) for topic, one, _, offset, most in positions}
    cluster = PartitionLogs(logs, IDS)

    found = many(cluster, starts)

    largest = max((len(batch) for log in logs.values() for batch in log.batches), default=0)
    assert cluster.sizes[0] <= max(largest, sum(one.max_bytes for one in starts.values()))
    assert next(iter(starts)) in found
    for at, start in starts.items():
        expected = alone(cluster, at, start)
        if at not in found:
            assert len(expected.records)
            continue
        size = len(found[at].records)
        assert replace(found[at], records=expected.records) == expected
        assert found[at].records == expected.records[:size]
        assert walk(found[at].records, HERE).sets[:1] == walk(expected.records, HERE).sets[:1]


def test_an_error_is_of_its_own_partition() -> None:
    places = {At("orders", number): FetchFrom(0) for number in range(5)}
    wrong = {1: ErrorCode.NOT_LEADER_OR_FOLLOWER, 3: ErrorCode.OFFSET_OUT_OF_RANGE}
    logs = {at: log(10) for at in places}
    logs[At("orders", 1)] = PartitionLog(error=wrong[1])
    logs[At("orders", 3)] = PartitionLog(start=7)
    cluster = PartitionLogs(logs, IDS)

    found = many(cluster, places)

    assert {at.partition: one.error for at, one in found.items() if one.error} == wrong
    assert [len(one.records) > 0 for one in found.values()] == [True, False, True, False, True]
    assert cluster.doubted == ["orders"]


def test_an_error_of_the_only_partition_is_raised() -> None:
    place = At("orders", 0)
    cluster = PartitionLogs({place: PartitionLog(error=ErrorCode.NOT_LEADER_OR_FOLLOWER)}, IDS)
    with pytest.raises(BrokerError, match="orders-0: NOT_LEADER_OR_FOLLOWER"):
        alone(cluster, place, FetchFrom(0))


def test_a_topic_that_was_recreated_is_not_read_and_an_id_from_before_an_upgrade_is() -> None:
    gone, old, current = (At("orders", number) for number in range(3))
    cluster = PartitionLogs({at: log(10) for at in (gone, old, current)}, IDS)

    found = many(
        cluster, {at: FetchFrom(0) for at in (gone, old, current)}, {gone: b"g" * 16, old: name_id("orders")}
    )

    assert [found[at].error.name for at in (gone, old, current)] == ["UNKNOWN_TOPIC_ID", "NONE", "NONE"]


class Scripted(PartitionLogs):
    """Answers as it is told to."""

    def __init__(self, *answers: FetchResponse) -> None:
        super().__init__({At("orders", one): log(10) for one in range(2)}, IDS)
        self._answers = list(answers)

    async def call(self, node: int, request: Any, purpose: str, within: float | None) -> Any:
        self.asked.append(cast(FetchRequest, request))
        return self._answers.pop(0)


def nothing(throttle_ms: int = 0, error: ErrorCode = ErrorCode.NONE) -> FetchResponse:
    return FetchResponse(throttle_ms, error, 0, ())


BOTH = {At("orders", one): FetchFrom(0, max_bytes=800) for one in range(2)}


def test_a_quota_is_waited_out_and_less_is_asked_for_each_time() -> None:
    empty = FetchedPartition(IDS["orders"], 1, ErrorCode.NONE, 0, 0, 0, (), -1, memoryview(b""))
    cluster = Scripted(nothing(9_000), nothing(1_000), FetchResponse(0, ErrorCode.NONE, 0, (empty,)))

    assert many(cluster, BOTH) == {At("orders", 1): empty}
    assert [one.max_bytes for one in cluster.asked] == [1600, 800, 400]
    assert [one.max_bytes for one in cluster.asked[-1].partitions.values()] == [200, 200]


def test_a_quota_that_lets_nothing_through_is_told() -> None:
    with pytest.raises(BrokerError, match=r"orders-0 and 1 more: THROTTLING_QUOTA_EXCEEDED .* for 300 s"):
        many(Scripted(*[nothing(100_000)] * 3), BOTH)


def test_partitions_that_a_broker_leaves_out_are_missing() -> None:
    assert many(Scripted(nothing()), BOTH) == {}


def test_an_error_of_the_whole_request_is_raised_and_the_leaders_are_looked_up() -> None:
    refused = Scripted(nothing(error=ErrorCode.UNKNOWN_SERVER_ERROR))
    with pytest.raises(BrokerError, match="UNKNOWN_SERVER_ERROR"):
        many(refused, BOTH)
    silent = PartitionLogs({at: log(10) for at in BOTH}, IDS, silent={1})
    with pytest.raises(Disconnected):
        many(silent, BOTH)
    assert refused.doubted == silent.doubted == ["orders"]


# One partition alone


def test_nothing_at_all_without_a_quota_is_a_broker_s_error() -> None:
    with pytest.raises(BrokerError, match="UNKNOWN_SERVER_ERROR"):
        asyncio.run(fetch_once(OneBroker([throttled(0)]), AT, 3, 8 << 10, "test"))  # type: ignore[arg-type]


def test_the_time_that_a_quota_took_leaves_a_scan_its_patience() -> None:
    broker = OneBroker([GONE, answered()], takes_s=LONG_S)
    scan = InternalTopicScan(broker, *AT)  # type: ignore[arg-type]
    asyncio.run(scan.refresh(PATIENCE_S))
    assert scan.fold.position == END


def test_a_scan_s_patience_ends() -> None:
    scan = InternalTopicScan(OneBroker([GONE] * 3), *AT)  # type: ignore[arg-type]
    with pytest.raises(Disconnected):
        asyncio.run(scan.refresh(PATIENCE_S))
