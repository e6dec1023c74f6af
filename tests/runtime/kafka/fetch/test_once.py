"""A fetch over a quota is answered with nothing but a time to wait: that is waited out, and no failure."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

import pytest

from runtime.kafka.errors import BrokerError, Disconnected, ErrorCode
from runtime.kafka.fetch import fetch_once
from runtime.kafka.protocol.fetch import FetchedPartition, FetchRequest, FetchResponse
from runtime.kafka.protocol.metadata import Partition, TopicMetadata
from runtime.kafka.protocol.offsets import (
    ListedOffset,
    ListOffsetsRequest,
    ListOffsetsResponse,
    TopicPartition,
)
from runtime.ledger.records import InternalTopicScan

AT = TopicPartition("orders", 0)
ID = b"o" * 16
END = 10
KB = 1 << 10
LONG_S, PATIENCE_S = 0.05, 0.02
GONE = Disconnected("broker 1", "gone", sent=True)


def answered(records: bytes = b"", end: int = END, stable: int = END) -> FetchResponse:
    found = FetchedPartition(ID, 0, ErrorCode.NONE, end, stable, 0, (), -1, memoryview(records), None)
    return FetchResponse(0, ErrorCode.NONE, 0, (found,))


def throttled(seconds: int) -> FetchResponse:
    return FetchResponse(seconds * 1000, ErrorCode.NONE, 0, ())


@dataclass(slots=True)
class OneBroker:
    """Answers fetches in turn, the first after `takes_s`: as long as a quota kept it waiting."""

    answers: list[FetchResponse | Exception]
    takes_s: float = 0.0
    asked: list[FetchRequest] = field(default_factory=list)
    gathered: dict[Any, Any] = field(default_factory=dict)

    async def topics(self, names: Iterable[str], fresh: bool = False) -> dict[str, TopicMetadata]:
        return {AT.topic: self.topic(AT.topic)}

    def topic(self, name: str) -> TopicMetadata:
        return TopicMetadata(name, ID, ErrorCode.NONE, False, {0: self.leader(*AT)})

    def leader(self, topic: str, partition: int) -> Partition:
        return Partition(0, 1, 5, (1,), (1,))

    def doubt(self, topic: str) -> None: ...

    async def call(self, node: int, request: Any, purpose: str, within: float | None) -> Any:
        if isinstance(request, ListOffsetsRequest):
            return ListOffsetsResponse(0, {AT: ListedOffset(END, -1, 5)})
        self.asked.append(request)
        await asyncio.sleep(self.takes_s if len(self.asked) == 1 else 0)
        answer = self.answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer


def fetch(broker: OneBroker) -> FetchedPartition:
    return asyncio.run(fetch_once(broker, AT, 3, 8 * KB, "test"))  # type: ignore[arg-type]


def test_what_a_quota_holds_back_comes_later_and_less_is_asked_for_each_time() -> None:
    broker = OneBroker([throttled(9), throttled(1), answered(b"records")])

    assert bytes(fetch(broker).records) == b"records"
    asked = [(one.max_bytes, one.partitions[ID, 0].max_bytes) for one in broker.asked]
    assert asked == [(8 * KB, 8 * KB), (4 * KB, 4 * KB), (2 * KB, 2 * KB)]
    assert {one.partitions[ID, 0].offset for one in broker.asked} == {3}


def test_a_quota_that_never_lets_anything_through_is_told() -> None:
    broker = OneBroker([throttled(100)] * 10)

    with pytest.raises(BrokerError, match=r"orders-0: THROTTLING_QUOTA_EXCEEDED \(89\): throttled for 300 s"):
        fetch(broker)
    assert len(broker.asked) == 3


def test_nothing_at_all_without_a_quota_is_a_broker_s_error() -> None:
    with pytest.raises(BrokerError, match="UNKNOWN_SERVER_ERROR"):
        fetch(OneBroker([throttled(0)]))


def test_the_time_that_a_quota_took_leaves_a_scan_its_patience() -> None:
    broker = OneBroker([GONE, answered()], takes_s=LONG_S)
    scan = InternalTopicScan(broker, *AT)  # type: ignore[arg-type]
    asyncio.run(scan.refresh(PATIENCE_S))
    assert scan.fold.position == END


def test_a_scan_s_patience_ends() -> None:
    scan = InternalTopicScan(OneBroker([GONE] * 3), *AT)  # type: ignore[arg-type]
    with pytest.raises(Disconnected):
        asyncio.run(scan.refresh(PATIENCE_S))
