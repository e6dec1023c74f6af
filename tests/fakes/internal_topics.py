"""A cluster whose internal topics hold what a test says: for what reads them, without a broker."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from runtime.kafka.errors import ErrorCode
from runtime.kafka.protocol.fetch import FetchedPartition, FetchRequest, FetchResponse
from runtime.kafka.protocol.metadata import Partition, TopicMetadata
from runtime.kafka.protocol.offsets import ListedOffset, ListOffsetsRequest
from runtime.kafka.records import InternalRecord, build, plain
from tests.runtime.batch.forge import batch_bytes, control_batch, record

TRANSACTIONAL, COMMIT = 0x10, 1
LEADER = Partition(0, 1, 5, (1,), (1,))


class InternalTopics:
    """Each topic has one partition with one batch, or none. A topic in `replaced` has another id.

    The records of a topic in `committing` are one transaction. Its end was acknowledged, and its marker is
    written after the records were fetched once.
    """

    def __init__(
        self, records: Mapping[str, Sequence[InternalRecord]], committing: Iterable[str] = ()
    ) -> None:
        self.replaced: set[str] = set()
        self._committing = dict.fromkeys(committing, False)
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
            ends = {at: self._end(at.topic) for at in request.times}
            return {at: ListedOffset(end, -1, 5) for at, end in ends.items()}
        assert isinstance(request, FetchRequest)
        ((topic_id, _),) = request.partitions
        topic = next(name for name in self._records if self._id(name) == topic_id)
        end, log = self._end(topic), memoryview(self._log(topic))
        self._committing = {name: name == topic or done for name, done in self._committing.items()}
        found = FetchedPartition(topic_id, 0, ErrorCode.NONE, end, end, 0, (), -1, log, None)
        return FetchResponse(0, ErrorCode.NONE, 0, (found,))

    def _end(self, topic: str) -> int:
        return len(self._records.get(topic, ())) + self._committing.get(topic, False)

    def _log(self, topic: str) -> bytes:
        records = self._records[topic]
        if topic not in self._committing:
            return b"".join(bytes(part) for part in plain(build(records, 1)))
        written = [record(offset, one.value, key=one.key) for offset, one in enumerate(records)]
        log = batch_bytes(written, producer=(7, 0, 0), more=TRANSACTIONAL)
        return log + control_batch(len(records), 7, COMMIT) if self._committing[topic] else log

    def _id(self, topic: str) -> bytes:
        return hashlib.md5(f"{topic} {topic in self.replaced}".encode()).digest()
