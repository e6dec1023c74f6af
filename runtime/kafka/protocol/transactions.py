"""The requests of a transaction, and those that find open transactions.

A transaction uses the coordinator's requests in the classic protocol. See docs/internals/kafka-client.md.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from enum import IntEnum
from typing import Any, ClassVar

from msgspec import Struct

from runtime.kafka.errors import ErrorCode
from runtime.kafka.protocol.layout import indexes
from runtime.kafka.protocol.metadata import check_address
from runtime.kafka.protocol.offsets import TopicPartition, partition_errors
from runtime.kafka.protocol.request import Api, Message, Request, Rows


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


class FindCoordinatorRequest(Request[Sequence[FoundCoordinator]], frozen=True):
    """This request finds the coordinator of one key."""

    MESSAGE: ClassVar[Message] = Message(
        Api.FIND_COORDINATOR,
        3,
        """
        key           string  -3
        kind          int8
        keys          []string  4+
        """,
        """
        throttle_ms   int32
        error         error    -3
        message       string?  -3
        node_id       int32    -3
        host          string   -3
        port          int32    -3
        coordinators  []       4+  = None  -> FoundCoordinator
          key         string
          node_id     int32
          host        string
          port        int32
          error       error
          message     string?
        """,
        FoundCoordinator,
    )
    VERSIONS: ClassVar[tuple[int, int]] = (2, 5)

    kind: CoordinatorKind
    keys: Sequence[str]

    def values(self, version: int) -> Any:
        return self.keys[0], self.kind, self.keys

    def result(
        self,
        _throttle_ms: int,
        error: ErrorCode,
        message: str | None,
        node_id: int,
        host: str,
        port: int,
        coordinators: Sequence[FoundCoordinator] | None,
    ) -> Sequence[FoundCoordinator]:
        if coordinators is None:  # a version for one key
            coordinators = [FoundCoordinator(self.keys[0], node_id, host, port, error, message)]
        for coordinator in coordinators:
            if not coordinator.error:
                check_address(coordinator.node_id, coordinator.host, coordinator.port)
        return coordinators


class FindCoordinatorsRequest(FindCoordinatorRequest, frozen=True):
    """This request finds the coordinators of many keys; brokers from Kafka 3.0 on support it."""

    VERSIONS: ClassVar[tuple[int, int]] = (4, 5)


class ProducerIdentity(Struct, frozen=True):
    """A ProducerIdentity is the id and epoch from the coordinator; writes under an older epoch are fenced."""

    producer_id: int
    epoch: int


NO_IDENTITY = ProducerIdentity(-1, -1)


class InitProducerIdRequest(Request[ProducerIdentity | ErrorCode], frozen=True):
    """This request gets a producer id. It raises the epoch of the transactional id.

    Earlier producers of the transactional id are fenced by that. Version 2 cannot carry an identity.
    """

    MESSAGE: ClassVar[Message] = Message(
        Api.INIT_PRODUCER_ID,
        2,
        """
        transactional_id  string?
        timeout_ms        int32
        producer_id       int64    3+
        epoch             int16    3+
        """,
        """
        throttle_ms       int32
        error             error
        producer_id       int64
        epoch             int16
        """,
    )
    VERSIONS: ClassVar[tuple[int, int]] = (2, 5)

    transactional_id: str | None
    transaction_timeout_ms: int
    identity: ProducerIdentity = NO_IDENTITY

    def values(self, version: int) -> Any:
        identity = self.identity
        return self.transactional_id, self.transaction_timeout_ms, identity.producer_id, identity.epoch

    def result(
        self, _throttle_ms: int, error: ErrorCode, producer_id: int, epoch: int
    ) -> ProducerIdentity | ErrorCode:
        return error or ProducerIdentity(producer_id, epoch)


class RenewProducerIdRequest(InitProducerIdRequest, frozen=True):
    """This request raises the epoch for the newest holder of the id alone (KIP-360).

    The coordinator refuses an older identity: with INVALID_PRODUCER_EPOCH in version 3, with PRODUCER_FENCED
    from version 4 on. Brokers from Kafka 2.5 on support it.
    """

    VERSIONS: ClassVar[tuple[int, int]] = (3, 5)


class AddPartitionsRequest(Request[Mapping[TopicPartition, ErrorCode]], frozen=True):
    """This request has versions up to 3: later versions are for brokers among themselves."""

    MESSAGE: ClassVar[Message] = Message(
        Api.ADD_PARTITIONS_TO_TXN,
        3,
        """
        transactional_id  string
        producer_id       int64
        epoch             int16
        topics            []
          name            string
          indexes         []int32
        """,
        """
        throttle_ms       int32
        topics            []
          name            string
          partitions      []
            index         int32
            error         error
        """,
    )
    VERSIONS: ClassVar[tuple[int, int]] = (0, 3)

    transactional_id: str
    identity: ProducerIdentity
    partitions: Sequence[tuple[str, int]]

    def values(self, version: int) -> Any:
        identity = self.identity
        return self.transactional_id, identity.producer_id, identity.epoch, indexes(self.partitions)

    def result(self, _throttle_ms: int, topics: Rows) -> Mapping[TopicPartition, ErrorCode]:
        return partition_errors(topics)


class EndTransactionRequest(Request[ErrorCode], frozen=True):
    MESSAGE: ClassVar[Message] = Message(
        Api.END_TXN,
        3,
        """
        transactional_id  string
        producer_id       int64
        epoch             int16
        commit            bool
        """,
        """
        throttle_ms       int32
        error             error
        """,
    )
    VERSIONS: ClassVar[tuple[int, int]] = (1, 4)

    transactional_id: str
    identity: ProducerIdentity
    commit: bool

    def values(self, version: int) -> Any:
        return self.transactional_id, self.identity.producer_id, self.identity.epoch, self.commit

    def result(self, _throttle_ms: int, error: ErrorCode) -> ErrorCode:
        return error


class ActiveProducer(Struct, frozen=True):
    """An ActiveProducer has state in a partition; `transaction_start` is -1 without an open transaction."""

    producer_id: int
    epoch: int
    last_sequence: int
    last_timestamp: int
    coordinator_epoch: int
    transaction_start: int


Producers = Sequence[ActiveProducer]


class DescribeProducersRequest(Request[Mapping[TopicPartition, Producers | ErrorCode]], frozen=True):
    MESSAGE: ClassVar[Message] = Message(
        Api.DESCRIBE_PRODUCERS,
        0,
        """
        topics                 []
          name                 string
          indexes              []int32
        """,
        """
        throttle_ms            int32
        topics                 []
          name                 string
          partitions           []
            index              int32
            error              error
            _message           string?
            producers          [] -> ActiveProducer
              producer_id      int64
              epoch            int32
              last_sequence    int32
              last_timestamp   int64
              coordinator_epoch int32
              transaction_start int64
        """,
        ActiveProducer,
    )
    VERSIONS: ClassVar[tuple[int, int]] = (0, 0)

    partitions: Sequence[TopicPartition]

    def values(self, version: int) -> Rows:
        return indexes(self.partitions)

    def result(self, _throttle_ms: int, topics: Rows) -> Mapping[TopicPartition, Producers | ErrorCode]:
        return {
            TopicPartition(topic, index): error or producers
            for topic, partitions in topics
            for index, error, producers in partitions
        }


class TransactionState(Struct, frozen=True):
    """A TransactionState is a transaction as its coordinator holds it.

    `state` is Kafka's term: Empty, Ongoing, PrepareCommit, …
    """

    state: str
    timeout_ms: int
    start_ms: int
    producer_id: int
    epoch: int
    partitions: tuple[TopicPartition, ...]


class DescribeTransactionsRequest(Request[Mapping[str, TransactionState | ErrorCode]], frozen=True):
    MESSAGE: ClassVar[Message] = Message(
        Api.DESCRIBE_TRANSACTIONS,
        0,
        "        transactional_ids  []string",
        """
        throttle_ms         int32
        states              []
          error             error
          transactional_id  string
          state             string
          timeout_ms        int32
          start_ms          int64
          producer_id       int64
          epoch             int16
          topics            []
            name            string
            indexes         []int32
        """,
    )
    VERSIONS: ClassVar[tuple[int, int]] = (0, 0)

    transactional_ids: Sequence[str]

    def values(self, version: int) -> Sequence[str]:
        return self.transactional_ids

    def result(self, _throttle_ms: int, states: Rows) -> Mapping[str, TransactionState | ErrorCode]:
        return {
            name: error
            or TransactionState(
                state,
                timeout_ms,
                start_ms,
                producer_id,
                epoch,
                tuple(TopicPartition(topic, index) for topic, partitions in topics for index in partitions),
            )
            for error, name, state, timeout_ms, start_ms, producer_id, epoch, topics in states
        }


class ListedTransaction(Struct, frozen=True):
    transactional_id: str
    producer_id: int
    state: str


class ListTransactionsRequest(Request[Sequence[ListedTransaction] | ErrorCode], frozen=True):
    """Each broker lists the transactions that it coordinates; empty filters select all of them."""

    MESSAGE: ClassVar[Message] = Message(
        Api.LIST_TRANSACTIONS,
        0,
        """
        states              []string
        producer_ids        []int64
        """,
        """
        throttle_ms         int32
        error               error
        _unknown_states     []string
        transactions        [] -> ListedTransaction
          transactional_id  string
          producer_id       int64
          state             string
        """,
        ListedTransaction,
    )
    VERSIONS: ClassVar[tuple[int, int]] = (0, 0)

    states: Sequence[str] = ()
    producer_ids: Sequence[int] = ()

    def values(self, version: int) -> Any:
        return self.states, self.producer_ids

    def result(
        self, _throttle_ms: int, error: ErrorCode, transactions: list[ListedTransaction]
    ) -> Sequence[ListedTransaction] | ErrorCode:
        return error or transactions
