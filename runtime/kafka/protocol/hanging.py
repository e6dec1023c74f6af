"""This module encodes the requests that find open transactions and the producers behind them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar

from runtime.kafka.codes import ErrorCode
from runtime.kafka.protocol.fields import Reader, Writer
from runtime.kafka.protocol.offsets import TopicPartition
from runtime.kafka.protocol.request import Api, Buffer


@dataclass(frozen=True, slots=True)
class ActiveProducer:
    """An ActiveProducer has state in a partition; `transaction_start` is -1 without an open transaction."""

    producer_id: int
    epoch: int
    last_sequence: int
    last_timestamp: int
    coordinator_epoch: int
    transaction_start: int


@dataclass(frozen=True, slots=True)
class DescribeProducersResponse:
    throttle_ms: int
    answers: Mapping[TopicPartition, tuple[ActiveProducer, ...] | ErrorCode]


@dataclass(frozen=True, slots=True)
class DescribeProducersRequest:
    API: ClassVar[Api] = Api.DESCRIBE_PRODUCERS
    VERSIONS: ClassVar[tuple[int, int]] = (0, 0)
    FLEXIBLE: ClassVar[int] = 0

    partitions: Sequence[TopicPartition]

    def body(self, version: int) -> list[Buffer]:
        writer = Writer()
        writer.by_topic(self.partitions)
        writer.no_tags()
        return [writer.buffer]

    def answer(self, version: int, reader: Reader) -> DescribeProducersResponse:
        throttle_ms = reader.int32()
        found: dict[TopicPartition, tuple[ActiveProducer, ...] | ErrorCode] = {}
        for _ in range(reader.count()):
            topic = reader.compact_string()
            for _ in range(reader.count()):
                partition = reader.int32()
                error = ErrorCode(reader.int16())
                reader.nullable_string()
                producers = tuple(reader.array(lambda: _producer(reader)))
                reader.skip_tags()
                found[TopicPartition(topic, partition)] = error or producers
            reader.skip_tags()
        return DescribeProducersResponse(throttle_ms, found)


def _producer(reader: Reader) -> ActiveProducer:
    producer = ActiveProducer(
        reader.int64(), reader.int32(), reader.int32(), reader.int64(), reader.int32(), reader.int64()
    )
    reader.skip_tags()
    return producer


@dataclass(frozen=True, slots=True)
class TransactionState:
    """A TransactionState is a transaction as its coordinator holds it.

    `state` is Kafka's term: Empty, Ongoing, PrepareCommit, …
    """

    transactional_id: str
    error: ErrorCode
    state: str
    timeout_ms: int
    start_ms: int
    producer_id: int
    epoch: int
    partitions: tuple[TopicPartition, ...]


@dataclass(frozen=True, slots=True)
class DescribeTransactionsResponse:
    throttle_ms: int
    states: tuple[TransactionState, ...]


@dataclass(frozen=True, slots=True)
class DescribeTransactionsRequest:
    API: ClassVar[Api] = Api.DESCRIBE_TRANSACTIONS
    VERSIONS: ClassVar[tuple[int, int]] = (0, 0)
    FLEXIBLE: ClassVar[int] = 0

    transactional_ids: Sequence[str]

    def body(self, version: int) -> list[Buffer]:
        writer = Writer()
        writer.count(len(self.transactional_ids))
        for transactional_id in self.transactional_ids:
            writer.compact_string(transactional_id)
        writer.no_tags()
        return [writer.buffer]

    def answer(self, version: int, reader: Reader) -> DescribeTransactionsResponse:
        return DescribeTransactionsResponse(reader.int32(), tuple(reader.array(lambda: _state(reader))))


def _state(reader: Reader) -> TransactionState:
    error = ErrorCode(reader.int16())
    transactional_id, state = reader.compact_string(), reader.compact_string()
    timeout_ms, start_ms, producer_id, epoch = reader.int32(), reader.int64(), reader.int64(), reader.int16()
    partitions: list[TopicPartition] = []
    for _ in range(reader.count()):
        topic = reader.compact_string()
        partitions += [TopicPartition(topic, index) for index in reader.int32s()]
        reader.skip_tags()
    reader.skip_tags()
    return TransactionState(
        transactional_id, error, state, timeout_ms, start_ms, producer_id, epoch, tuple(partitions)
    )


@dataclass(frozen=True, slots=True)
class ListedTransaction:
    transactional_id: str
    producer_id: int
    state: str


@dataclass(frozen=True, slots=True)
class ListTransactionsResponse:
    throttle_ms: int
    error: ErrorCode
    transactions: tuple[ListedTransaction, ...]


@dataclass(frozen=True, slots=True)
class ListTransactionsRequest:
    """Each broker lists the transactions that it coordinates; empty filters select all of them."""

    API: ClassVar[Api] = Api.LIST_TRANSACTIONS
    VERSIONS: ClassVar[tuple[int, int]] = (0, 0)
    FLEXIBLE: ClassVar[int] = 0

    states: Sequence[str] = ()
    producer_ids: Sequence[int] = ()

    def body(self, version: int) -> list[Buffer]:
        writer = Writer()
        writer.count(len(self.states))
        for state in self.states:
            writer.compact_string(state)
        writer.count(len(self.producer_ids))
        for producer_id in self.producer_ids:
            writer.int64(producer_id)
        writer.no_tags()
        return [writer.buffer]

    def answer(self, version: int, reader: Reader) -> ListTransactionsResponse:
        throttle_ms = reader.int32()
        error = ErrorCode(reader.int16())
        reader.array(reader.compact_string)  # filters the broker does not know
        found = []
        for _ in range(reader.count()):
            found.append(ListedTransaction(reader.compact_string(), reader.int64(), reader.compact_string()))
            reader.skip_tags()
        return ListTransactionsResponse(throttle_ms, error, tuple(found))
