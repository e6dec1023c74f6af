"""The requests of a transaction, and those that find open transactions.

A transaction uses the coordinator's requests in the classic protocol. See docs/internals/kafka-client.md.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from enum import IntEnum
from typing import Annotated, Any

from msgspec import Struct

from runtime.contract.spec.naming import TopicPartition
from runtime.kafka.errors import ErrorCode
from runtime.kafka.protocol.layout import (
    ERROR,
    INLINE,
    KEY,
    VALUE,
    EntryOrder,
    Int8,
    Int16,
    Int32,
    Int64,
    Skipped,
    since,
    until,
)
from runtime.kafka.protocol.metadata import check_address
from runtime.kafka.protocol.request import Api, Request


class CoordinatorKind(IntEnum):
    GROUP = 0
    TRANSACTION = 1


class FoundCoordinator(Struct, frozen=True):
    key: str
    node_id: Int32
    host: str
    port: Int32
    error: ErrorCode
    message: str | None


class FindCoordinatorRequest(Request[Sequence[FoundCoordinator]], frozen=True):
    """This request finds the coordinator of one key, or of many: since Kafka 3.0."""

    API = Api.FIND_COORDINATOR
    FLEXIBLE = 3
    VERSIONS = (2, 5)
    BODY = tuple[Annotated[str, until(3)], Int8, Annotated[Sequence[str], since(4)]]
    RESPONSE = tuple[
        Annotated[tuple[ErrorCode, str | None, Int32, str, Int32], until(3)],
        Annotated[Sequence[FoundCoordinator] | None, since(4)],
    ]

    kind: CoordinatorKind
    keys: Sequence[str]

    @property
    def versions(self) -> tuple[int, int]:
        return self.VERSIONS if len(self.keys) == 1 else (4, 5)

    def values(self, version: int) -> Any:
        return self.keys[0], self.kind, self.keys

    def result(self, value: Any) -> Sequence[FoundCoordinator]:
        (error, message, node_id, host, port), several = value
        coordinators: Sequence[FoundCoordinator] = several
        if several is None:  # a version for one key
            coordinators = [FoundCoordinator(self.keys[0], node_id, host, port, error, message)]
        for coordinator in coordinators:
            if not coordinator.error:
                check_address(coordinator.node_id, coordinator.host, coordinator.port)
        return coordinators


class ProducerIdentity(Struct, frozen=True):
    """A ProducerIdentity is the id and epoch from the coordinator; writes under an older epoch are fenced."""

    producer_id: Int64
    epoch: Int16


NO_IDENTITY = ProducerIdentity(-1, -1)


class InitProducerIdRequest(Request[ProducerIdentity | ErrorCode], frozen=True):
    """This request gets a producer id. It raises the epoch of the transactional id.

    Earlier producers of the transactional id are fenced by that. With an identity, since Kafka 2.5, it is for
    the newest holder of the id alone (KIP-360): the coordinator refuses an older identity, with
    INVALID_PRODUCER_EPOCH in version 3, and with PRODUCER_FENCED from version 4 on.
    """

    API = Api.INIT_PRODUCER_ID
    FLEXIBLE = 2
    VERSIONS = (2, 5)

    transactional_id: str | None
    transaction_timeout_ms: Int32
    identity: Annotated[ProducerIdentity, INLINE, since(3)] = NO_IDENTITY

    @property
    def versions(self) -> tuple[int, int]:
        return self.VERSIONS if self.identity == NO_IDENTITY else (3, 5)


class AddPartitionsRequest(Request[Mapping[TopicPartition, ErrorCode]], frozen=True):
    """This request has versions up to 3: later versions are for brokers among themselves."""

    API = Api.ADD_PARTITIONS_TO_TXN
    FLEXIBLE = 3
    VERSIONS = (0, 3)

    transactional_id: str
    identity: Annotated[ProducerIdentity, INLINE]
    partitions: Sequence[TopicPartition]


class EndTransactionRequest(Request[ErrorCode], frozen=True):
    API = Api.END_TXN
    FLEXIBLE = 3
    VERSIONS = (1, 4)

    transactional_id: str
    identity: Annotated[ProducerIdentity, INLINE]
    commit: bool


class ActiveProducer(Struct, frozen=True):
    """An ActiveProducer has state in a partition; `transaction_start` is -1 without an open transaction."""

    producer_id: Int64
    epoch: Int32
    last_sequence: Int32
    last_timestamp: Int64
    coordinator_epoch: Int32
    transaction_start: Int64


Producers = Sequence[ActiveProducer]


class DescribeProducersRequest(
    Request[Annotated[Mapping[TopicPartition, Producers | ErrorCode], EntryOrder(KEY, ERROR, str, VALUE)]],
    frozen=True,
):
    API = Api.DESCRIBE_PRODUCERS
    FLEXIBLE = 0
    VERSIONS = (0, 0)

    partitions: Sequence[TopicPartition]


class TransactionState(Struct, frozen=True):
    """A TransactionState is a transaction as its coordinator holds it.

    `state` is Kafka's term: Empty, Ongoing, PrepareCommit, …
    """

    state: str
    timeout_ms: Int32
    start_ms: Int64
    producer_id: Int64
    epoch: Int16
    partitions: tuple[TopicPartition, ...]


class DescribeTransactionsRequest(
    Request[Annotated[Mapping[str, TransactionState | ErrorCode], EntryOrder(ERROR, KEY, VALUE)]], frozen=True
):
    API = Api.DESCRIBE_TRANSACTIONS
    FLEXIBLE = 0
    VERSIONS = (0, 0)

    transactional_ids: Sequence[str]


class ListedTransaction(Struct, frozen=True):
    transactional_id: str
    producer_id: Int64
    state: str


class ListTransactionsRequest(Request[Sequence[ListedTransaction] | ErrorCode], frozen=True):
    """Each broker lists the transactions that it coordinates; empty filters select all of them."""

    API = Api.LIST_TRANSACTIONS
    FLEXIBLE = 0
    VERSIONS = (0, 0)
    RESPONSE = tuple[ErrorCode, Skipped[Sequence[str]], Sequence[ListedTransaction]]

    states: Sequence[str] = ()
    producer_ids: Sequence[Int64] = ()

    def result(self, value: Any) -> Sequence[ListedTransaction] | ErrorCode:
        result: Sequence[ListedTransaction] | ErrorCode = value[0] or value[1]
        return result
