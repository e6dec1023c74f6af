"""A cluster whose internal topics hold what a test says: for what reads them, without a broker."""

from __future__ import annotations

import asyncio
import hashlib
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from runtime.batch import Batch, records, walk
from runtime.contract.client.settings import wire_settings
from runtime.contract.records.ledger import LedgerKey, LedgerValue, encode_key, encode_value
from runtime.kafka.errors import BrokerError, ErrorCode
from runtime.kafka.protocol import offsets
from runtime.kafka.protocol.fetch import FetchedPartition, FetchRequest, FetchResponse
from runtime.kafka.protocol.metadata import Partition, TopicMetadata
from runtime.kafka.protocol.offsets import ListedOffset, ListOffsetsRequest
from runtime.kafka.protocol.produce import (
    ProducedPartition,
    ProducePartition,
    ProduceRequest,
    ProduceResponse,
)
from runtime.kafka.protocol.transactions import (
    AddPartitionsRequest,
    CoordinatorKind,
    EndTransactionRequest,
    InitProducerIdRequest,
    ProducerIdentity,
)
from runtime.kafka.records import InternalRecord, build, plain
from tests.runtime.batch.forge import HERE, batch_bytes, control_batch, record

TRANSACTIONAL, COMMIT = 0x10, 1
LEADER = Partition(0, 0, 5, (0,), (0,))


def stored(values: Mapping[LedgerKey, LedgerValue]) -> list[InternalRecord]:
    """The records of a ledger or an offset map."""
    return [InternalRecord(encode_key(key), encode_value(value)) for key, value in values.items()]


class InternalTopics:
    """Each topic has one partition with one batch, or none. A topic in `replaced` has another id.

    The records of a topic in `committing` are one transaction. Its end was acknowledged, and its marker is
    written after the records were fetched once. `starts` are log starts; topics in `gone` are no more. A
    record's timestamp is its offset. Of topics in `unlisted` a broker lists no offset. The batches of topics
    in `damaged` have a wrong checksum.
    """

    def __init__(
        self, records: Mapping[str, Sequence[InternalRecord]], committing: Iterable[str] = ()
    ) -> None:
        self.replaced: set[str] = set()
        self.gone: set[str] = set()
        self.unlisted: set[str] = set()
        self.damaged: set[str] = set()
        self.starts: dict[str, int] = {}
        self._committing = dict.fromkeys(committing, False)
        self.gathered: dict[Any, Any] = {}
        self.settings = wire_settings("one:9092", {})
        self._records = {topic: list(some) for topic, some in records.items()}

    def grow(self, topic: str, record: InternalRecord) -> None:
        """One more record is at the end."""
        self._records[topic].append(record)

    async def topics(self, names: Iterable[str], fresh: bool = False) -> dict[str, TopicMetadata]:
        return {name: self.topic(name) for name in names}

    async def all_topics(self) -> dict[str, TopicMetadata]:
        return await self.topics(self._records)

    def topic(self, name: str) -> TopicMetadata:
        error = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION if name in self.gone else ErrorCode.NONE
        return TopicMetadata(name, self._id(name), error, False, {0: LEADER})

    def leader(self, topic: str, partition: int) -> Partition:
        return LEADER

    async def call(self, node: int, request: Any, purpose: str, within: float | None) -> Any:
        if isinstance(request, ListOffsetsRequest):
            times = request.times.items()
            return {
                at: ErrorCode.TOPIC_AUTHORIZATION_FAILED
                if at.topic in self.unlisted
                else ListedOffset(self._offset(at.topic, time), -1, 5)
                for at, time in times
            }
        assert isinstance(request, FetchRequest)
        ((topic_id, _),) = request.partitions
        topic = next(name for name in self._records if self._id(name) == topic_id)
        end, log = self._end(topic), bytearray(self._log(topic))
        if topic in self.damaged:
            log[-1] ^= 1
        self._committing = {name: name == topic or done for name, done in self._committing.items()}
        found = FetchedPartition(topic_id, 0, ErrorCode.NONE, end, end, 0, (), -1, memoryview(log), None)
        return FetchResponse(0, ErrorCode.NONE, 0, (found,))

    def _offset(self, topic: str, time: int) -> int:
        match time:
            case offsets.EARLIEST:
                return self.starts.get(topic, 0)
            case offsets.LATEST:
                return self._end(topic)
        return time if time < self._end(topic) else -1

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


class TransactionalTopics(InternalTopics):
    """Takes records too, and transactions, one at a time: their records are there once they are committed.

    `steps` lists the requests: the id that is initialised, "abort" or "commit". `sequences` are those of the
    batches. The next produce request is refused with `refusal`, or not answered where that is None.
    """

    def __init__(
        self, records: Mapping[str, Sequence[InternalRecord]], committing: Iterable[str] = ()
    ) -> None:
        super().__init__(records, committing)
        self.turns: defaultdict[tuple[int, str], asyncio.Lock] = defaultdict(asyncio.Lock)
        self.steps: list[str] = []
        self.sequences: list[int] = []
        self.refusal: ErrorCode | None = ErrorCode.NONE
        self._written: list[tuple[str, InternalRecord]] = []

    async def coordinators(self, kind: CoordinatorKind, keys: Iterable[str]) -> dict[str, int | BrokerError]:
        return dict.fromkeys(keys, 1)

    async def coordinator(self, kind: CoordinatorKind, key: str) -> int:
        return 1

    def doubt(self, topic: str) -> None: ...

    async def connection(self, node: int, purpose: str, within: float) -> TransactionalTopics:
        return self

    async def ready(self) -> None: ...

    def start(self, request: ProduceRequest, within: float) -> asyncio.Future[ProduceResponse]:
        (part,) = request.partitions
        error, self.refusal = self.refusal, ErrorCode.NONE
        for batch, written in self._produced(part):
            self.sequences.append(batch.base_sequence)
            self._written += [(part.topic, one) for one in written]
        answer: asyncio.Future[ProduceResponse] = asyncio.get_running_loop().create_future()
        if error is not None:
            answer.set_result(ProduceResponse(0, (ProducedPartition(part.topic, 0, error, 0, -1, 0),)))
        return answer

    def _produced(self, part: ProducePartition) -> Iterator[tuple[Batch, list[InternalRecord]]]:
        for batch in walk(b"".join(bytes(piece) for piece in part.records), HERE).sets:
            assert isinstance(batch, Batch)
            yield batch, [InternalRecord(one.key or b"", one.value) for one in records(batch, HERE)]

    async def call(self, node: int, request: Any, purpose: str, within: float | None) -> Any:
        match request:
            case ProduceRequest(partitions=[part]):  # without a transaction
                for _, taken in self._produced(part):
                    for one in taken:
                        self.grow(part.topic, one)
                produced = ProducedPartition(part.topic, part.partition, ErrorCode.NONE, 0, -1, 0)
                return ProduceResponse(0, (produced,))
            case InitProducerIdRequest():
                self.steps.append(request.transactional_id or "")
                return ProducerIdentity(7, request.identity.epoch + 1)
            case AddPartitionsRequest():
                return {}
            case EndTransactionRequest():
                self.steps.append("commit" if request.commit else "abort")
                for topic, written in self._written if request.commit else ():
                    self.grow(topic, written)
                self._written.clear()
                return ErrorCode.NONE
        return await super().call(node, request, purpose, within)
