"""A cluster whose internal topics hold what a test says: for what reads them, without a broker."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from runtime.kafka.errors import ErrorCode
from runtime.kafka.protocol.fetch import FetchedPartition, FetchRequest, FetchResponse
from runtime.kafka.protocol.metadata import Partition, TopicMetadata
from runtime.kafka.protocol.offsets import ListedOffset, ListOffsetsRequest, ListOffsetsResponse
from runtime.ledger.records import InternalRecord, build, plain

LEADER = Partition(0, 1, 5, (1,), (1,))


class InternalTopics:
    """Each topic has one partition with one batch, or none. A topic in `replaced` has another id."""

    def __init__(self, records: Mapping[str, Sequence[InternalRecord]]) -> None:
        self.replaced: set[str] = set()
        self.gathered: dict[Any, Any] = {}
        self._records = {topic: list(some) for topic, some in records.items()}

    def grow(self, topic: str, record: InternalRecord) -> None:
        """One more record is at the end."""
        self._records[topic].append(record)

    async def topics(self, names: Iterable[str], fresh: bool = False) -> dict[str, TopicMetadata]:
        return {name: self.topic(name) for name in names}

    def topic(self, name: str) -> TopicMetadata:
        return TopicMetadata(name, self._id(name), ErrorCode.NONE, False, {0: LEADER})

    def leader(self, topic: str, partition: int) -> Partition:
        return LEADER

    async def call(self, node: int, request: Any, purpose: str, within: float | None) -> Any:
        if isinstance(request, ListOffsetsRequest):
            ends = {at: len(self._records.get(at.topic, ())) for at in request.questions}
            return ListOffsetsResponse(0, {at: ListedOffset(end, -1, 5) for at, end in ends.items()})
        assert isinstance(request, FetchRequest)
        ((topic_id, _),) = request.partitions
        topic = next(name for name in self._records if self._id(name) == topic_id)
        end = len(self._records[topic])
        batch = b"".join(bytes(part) for part in plain(build(self._records[topic], 1)))
        found = FetchedPartition(topic_id, 0, ErrorCode.NONE, end, end, 0, (), -1, memoryview(batch), None)
        return FetchResponse(0, ErrorCode.NONE, 0, (found,))

    def _id(self, topic: str) -> bytes:
        return hashlib.md5(f"{topic} {topic in self.replaced}".encode()).digest()
