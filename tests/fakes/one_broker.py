"""A cluster of one broker and one partition, whose fetches a test answers in turn."""

import asyncio
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from runtime.contract.client.settings import WireSettings, wire_settings
from runtime.contract.spec.naming import TopicPartition
from runtime.kafka.errors import Disconnected, ErrorCode
from runtime.kafka.protocol.fetch import FetchedPartition, FetchRequest, FetchResponse
from runtime.kafka.protocol.metadata import Partition, TopicMetadata
from runtime.kafka.protocol.offsets import ListedOffset, ListOffsetsRequest

AT = TopicPartition("orders", 0)
ID = b"o" * 16
END = 10
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
    settings: WireSettings = field(default_factory=lambda: wire_settings("one:9092", {}))

    async def topics(self, names: Iterable[str], fresh: bool = False) -> dict[str, TopicMetadata]:
        return {AT.topic: self.topic(AT.topic)}

    def topic(self, name: str) -> TopicMetadata:
        return TopicMetadata(name, ID, ErrorCode.NONE, False, {0: self.leader(*AT)})

    def leader(self, topic: str, partition: int) -> Partition:
        return Partition(0, 1, 5, (1,), (1,))

    def doubt(self, topic: str) -> None: ...

    async def call(self, node: int, request: Any, purpose: str, within: float | None) -> Any:
        if isinstance(request, ListOffsetsRequest):
            return {AT: ListedOffset(END, -1, 5)}
        self.asked.append(request)
        await asyncio.sleep(self.takes_s if len(self.asked) == 1 else 0)
        answer = self.answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer
