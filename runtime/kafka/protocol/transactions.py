"""This module encodes the requests of a transaction, and those that find open transactions.

A transaction uses the coordinator's requests in the classic protocol. See docs/internals/kafka-client.md.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from enum import IntEnum
from typing import ClassVar

from msgspec import Struct

from runtime.kafka.errors import ErrorCode
from runtime.kafka.protocol.metadata import check_address
from runtime.kafka.protocol.offsets import TopicPartition
from runtime.kafka.protocol.request import Api, Buffer, Reader, Writer, reader_of, writer_of

_MANY_KEYS = 4
_WITH_IDENTITY = 3


class CoordinatorKind(IntEnum):
    GROUP = 0
    TRANSACTION = 1


class FoundCoordinator(Struct, frozen=True):
    key: str
    node_id: int
    host: str
    port: int
    error: ErrorCode
    message: str | None


class FindCoordinatorResponse(Struct, frozen=True):
    throttle_ms: int
    coordinators: tuple[FoundCoordinator, ...]


class FindCoordinatorRequest(Struct, frozen=True):
    """This request finds the coordinator of one key."""

    API: ClassVar[Api] = Api.FIND_COORDINATOR
    VERSIONS: ClassVar[tuple[int, int]] = (2, 5)
    FLEXIBLE: ClassVar[int] = 3

    kind: CoordinatorKind
    keys: Sequence[str]

    def body(self, version: int) -> list[Buffer]:
        writer = writer_of(version, self.FLEXIBLE)
        if version < _MANY_KEYS:
            (key,) = self.keys
            writer.compact_string(key)
            writer.int8(self.kind)
        else:
            writer.int8(self.kind)
            writer.count(len(self.keys))
            for key in self.keys:
                writer.compact_string(key)
        writer.no_tags()
        return [writer.buffer]

    def answer(self, version: int, reader: Reader) -> FindCoordinatorResponse:
        reader = reader_of(reader, version, self.FLEXIBLE)
        throttle_ms = reader.int32()
        if version >= _MANY_KEYS:
            return FindCoordinatorResponse(throttle_ms, tuple(reader.array(lambda: _found(reader))))
        error, message = reader.error_code(), reader.nullable_string()
        node, host, port = reader.int32(), reader.compact_string(), reader.int32()
        found = _checked(FoundCoordinator(self.keys[0], node, host, port, error, message))
        return FindCoordinatorResponse(throttle_ms, (found,))


class FindCoordinatorsRequest(FindCoordinatorRequest, frozen=True):
    """This request finds the coordinators of many keys; brokers from Kafka 3.0 on support it."""

    VERSIONS: ClassVar[tuple[int, int]] = (4, 5)


def _found(reader: Reader) -> FoundCoordinator:
    found = FoundCoordinator(
        reader.compact_string(),
        reader.int32(),
        reader.compact_string(),
        reader.int32(),
        reader.error_code(),
        reader.nullable_string(),
    )
    reader.skip_tags()
    return _checked(found)


def _checked(found: FoundCoordinator) -> FoundCoordinator:
    if not found.error:
        check_address(found.node_id, found.host, found.port)
    return found


class ProducerIdentity(Struct, frozen=True):
    """A ProducerIdentity is the id and epoch from the coordinator; writes under an older epoch are fenced."""

    producer_id: int
    epoch: int


class InitProducerIdResponse(Struct, frozen=True):
    throttle_ms: int
    error: ErrorCode
    identity: ProducerIdentity


NO_IDENTITY = ProducerIdentity(-1, -1)


class InitProducerIdRequest(Struct, frozen=True):
    """This request gets a producer id. It raises the epoch of the transactional id.

    Earlier producers of the transactional id are fenced by that. Version 2 cannot carry an identity.
    """

    API: ClassVar[Api] = Api.INIT_PRODUCER_ID
    VERSIONS: ClassVar[tuple[int, int]] = (2, 5)
    FLEXIBLE: ClassVar[int] = 2

    transactional_id: str | None
    transaction_timeout_ms: int
    identity: ProducerIdentity = NO_IDENTITY

    def body(self, version: int) -> list[Buffer]:
        writer = Writer()
        writer.compact_string(self.transactional_id)
        writer.int32(self.transaction_timeout_ms)
        if version >= _WITH_IDENTITY:
            writer.int64(self.identity.producer_id)
            writer.int16(self.identity.epoch)
        writer.no_tags()
        return [writer.buffer]

    def answer(self, version: int, reader: Reader) -> InitProducerIdResponse:
        throttle_ms = reader.int32()
        error = reader.error_code()
        return InitProducerIdResponse(throttle_ms, error, ProducerIdentity(reader.int64(), reader.int16()))


class RenewProducerIdRequest(InitProducerIdRequest, frozen=True):
    """This request raises the epoch for the newest holder of the id alone (KIP-360).

    The coordinator refuses an older identity: with INVALID_PRODUCER_EPOCH in version 3, with PRODUCER_FENCED
    from version 4 on. Brokers from Kafka 2.5 on support it.
    """

    VERSIONS: ClassVar[tuple[int, int]] = (_WITH_IDENTITY, 5)


class AddPartitionsResponse(Struct, frozen=True):
    throttle_ms: int
    errors: Mapping[tuple[str, int], ErrorCode]


class AddPartitionsRequest(Struct, frozen=True):
    """This request has versions up to 3: later versions are for brokers among themselves."""

    API: ClassVar[Api] = Api.ADD_PARTITIONS_TO_TXN
    VERSIONS: ClassVar[tuple[int, int]] = (0, 3)
    FLEXIBLE: ClassVar[int] = 3

    transactional_id: str
    identity: ProducerIdentity
    partitions: Sequence[tuple[str, int]]

    def body(self, version: int) -> list[Buffer]:
        writer = writer_of(version, self.FLEXIBLE)
        writer.compact_string(self.transactional_id)
        writer.int64(self.identity.producer_id)
        writer.int16(self.identity.epoch)
        writer.by_topic(self.partitions)
        writer.no_tags()
        return [writer.buffer]

    def answer(self, version: int, reader: Reader) -> AddPartitionsResponse:
        reader = reader_of(reader, version, self.FLEXIBLE)
        throttle_ms = reader.int32()
        errors: dict[tuple[str, int], ErrorCode] = {}
        for _ in range(reader.count()):
            topic = reader.compact_string()
            for _ in range(reader.count()):
                partition = reader.int32()
                errors[topic, partition] = reader.error_code()
                reader.skip_tags()
            reader.skip_tags()
        return AddPartitionsResponse(throttle_ms, errors)


class EndTransactionResponse(Struct, frozen=True):
    throttle_ms: int
    error: ErrorCode


class EndTransactionRequest(Struct, frozen=True):
    API: ClassVar[Api] = Api.END_TXN
    VERSIONS: ClassVar[tuple[int, int]] = (1, 4)
    FLEXIBLE: ClassVar[int] = 3

    transactional_id: str
    identity: ProducerIdentity
    commit: bool

    def body(self, version: int) -> list[Buffer]:
        writer = writer_of(version, self.FLEXIBLE)
        writer.compact_string(self.transactional_id)
        writer.int64(self.identity.producer_id)
        writer.int16(self.identity.epoch)
        writer.boolean(self.commit)
        writer.no_tags()
        return [writer.buffer]

    def answer(self, version: int, reader: Reader) -> EndTransactionResponse:
        return EndTransactionResponse(reader.int32(), reader.error_code())


class ActiveProducer(Struct, frozen=True):
    """An ActiveProducer has state in a partition; `transaction_start` is -1 without an open transaction."""

    producer_id: int
    epoch: int
    last_sequence: int
    last_timestamp: int
    coordinator_epoch: int
    transaction_start: int


class DescribeProducersResponse(Struct, frozen=True):
    throttle_ms: int
    answers: Mapping[TopicPartition, tuple[ActiveProducer, ...] | ErrorCode]


class DescribeProducersRequest(Struct, frozen=True):
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
                error = reader.error_code()
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


class TransactionState(Struct, frozen=True):
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


class DescribeTransactionsResponse(Struct, frozen=True):
    throttle_ms: int
    states: tuple[TransactionState, ...]


class DescribeTransactionsRequest(Struct, frozen=True):
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
    error = reader.error_code()
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


class ListedTransaction(Struct, frozen=True):
    transactional_id: str
    producer_id: int
    state: str


class ListTransactionsResponse(Struct, frozen=True):
    throttle_ms: int
    error: ErrorCode
    transactions: tuple[ListedTransaction, ...]


class ListTransactionsRequest(Struct, frozen=True):
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
        error = reader.error_code()
        reader.array(reader.compact_string)  # filters the broker does not know
        found = []
        for _ in range(reader.count()):
            found.append(ListedTransaction(reader.compact_string(), reader.int64(), reader.compact_string()))
            reader.skip_tags()
        return ListTransactionsResponse(throttle_ms, error, tuple(found))
