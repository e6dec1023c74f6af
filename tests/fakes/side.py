"""A cluster that answers the inspections of the partition `orders-0` and `orders-1` in this process."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from typing import Any

from runtime.kafka.errors import ErrorCode
from runtime.kafka.protocol.fetch import EpochEnd, Isolation
from runtime.kafka.protocol.metadata import Partition, TopicMetadata
from runtime.kafka.protocol.offsets import EpochEndsRequest, ListedOffset, ListOffsetsRequest
from runtime.kafka.protocol.transactions import ActiveProducer, DescribeProducersRequest


class Side:
    """A cluster whose partition ends at `end`; `answered` is called once it has said so."""

    def __init__(self, topic_id: bytes, end: int) -> None:
        self.end = end
        self.open_since = -1  # the first offset of an open transaction
        self.gathered: dict[Any, Any] = {}
        self.answered: Callable[[], None] = lambda: None
        self.silent = asyncio.Event()  # set while the partition 1 is not answered for
        self.first: list[TopicMetadata] = []  # what a look is told before the truth
        partitions = {number: self.leader() for number in (0, 1)}
        self._topic = TopicMetadata("orders", topic_id, ErrorCode.NONE, False, partitions)

    def leader(self, *_: object) -> Partition:
        return Partition(0, 1, 5, (1,), (1,))

    async def topics(self, names: Iterable[str], fresh: bool = False) -> dict[str, TopicMetadata]:
        return {"orders": self.first.pop() if fresh and self.first else self._topic}

    async def call(self, node: int, request: object, purpose: str, within: float) -> object:
        match request:
            case ListOffsetsRequest(Isolation.READ_COMMITTED, questions) if self.open_since >= 0:
                return {at: ListedOffset(self.open_since, -1, 5) for at in questions}
            case ListOffsetsRequest(times=questions):
                asyncio.get_running_loop().call_soon(self.answered)
                if self.silent.is_set() and any(at.partition == 1 for at in questions):
                    await asyncio.Event().wait()
                return {at: ListedOffset(self.end, -1, 5) for at in questions}
            case EpochEndsRequest(leader_epochs=questions):
                return {at: EpochEnd(5, self.end) for at in questions}
            case DescribeProducersRequest(partitions=partitions):
                return {at: [ActiveProducer(7, 0, 0, 0, 0, self.open_since)] for at in partitions}
        raise AssertionError(request)
