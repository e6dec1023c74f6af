"""Asking a coordinator: what is tried again, what never is."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import pytest

from runtime.contract.spec.naming import TopicPartition
from runtime.kafka.errors import BrokerError, Disconnected, ErrorCode, PartitionsRefused, TimedOut
from runtime.kafka.protocol.transactions import (
    AddPartitionsRequest,
    CoordinatorKind,
    EndTransactionRequest,
    InitProducerIdRequest,
    ProducerIdentity,
)
from runtime.kafka.transactions import add_partitions, end_transaction, init_producer_id

OK = ErrorCode.NONE
BUSY = ErrorCode.CONCURRENT_TRANSACTIONS
MOVED = ErrorCode.NOT_COORDINATOR
IDENTITY = ProducerIdentity(9, 2)
LOST = Disconnected("broker 1", "gone", sent=True)
NEVER_SENT = Disconnected("broker 1", "refused", sent=False)


@dataclass(slots=True)
class Coordinators:
    """Answers with codes and failures in turn, the last one for ever; a new broker after each move."""

    answers: Iterator[ErrorCode | Exception]
    nodes: Iterator[int] = field(default_factory=lambda: itertools.count(1))
    known: int | None = None
    asked: list[int] = field(default_factory=list)

    async def coordinator(self, kind: CoordinatorKind, key: str) -> int:
        assert (kind, key) == (CoordinatorKind.TRANSACTION, "tx")
        if self.known is None:
            self.known = next(self.nodes)
        return self.known

    def forget_coordinator(self, kind: CoordinatorKind, key: str) -> None:
        self.known = None

    async def call(self, node: int, request: Any, purpose: str, within: float | None) -> Any:
        self.asked.append(node)
        answer = next(self.answers)
        match request:
            case _ if isinstance(answer, Exception):
                raise answer
            case InitProducerIdRequest():
                return answer or IDENTITY
            case AddPartitionsRequest():
                blamed = (
                    {} if answer in (OK, BUSY, MOVED) else {("ledger", 0): ErrorCode.OPERATION_NOT_ATTEMPTED}
                )
                return {**blamed, ("orders", 0): answer}
            case EndTransactionRequest():
                return answer


def answering(*answers: ErrorCode | Exception) -> Coordinators:
    return Coordinators(itertools.chain(answers, itertools.repeat(answers[-1])))


def initialise(broker: Coordinators, within: float = 5.0) -> ProducerIdentity:
    return asyncio.run(init_producer_id(broker, "tx", 60_000, within))


def add(broker: Coordinators, within: float = 5.0) -> None:
    partitions = [TopicPartition("orders", 0), TopicPartition("ledger", 0)]
    asyncio.run(add_partitions(broker, "tx", IDENTITY, partitions, within))


def end(broker: Coordinators, within: float = 5.0) -> None:
    asyncio.run(end_transaction(broker, "tx", IDENTITY, commit=True, within=within))


@pytest.mark.parametrize("call", [initialise, add, end])
@pytest.mark.parametrize(
    ("answers", "nodes"),
    [
        ((OK,), [1]),
        ((BUSY, BUSY, BUSY, OK), [1, 1, 1, 1]),
        ((ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, OK), [1, 1]),
        ((ErrorCode.COORDINATOR_NOT_AVAILABLE, MOVED, OK), [1, 2, 3]),
        ((NEVER_SENT, OK), [1, 2]),
    ],
    ids=["at once", "markers being written", "loading", "moved", "unreachable"],
)
def test_what_is_normal_is_tried_again(
    call: Any, answers: tuple[ErrorCode | Exception, ...], nodes: list[int]
) -> None:
    broker = answering(*answers)

    call(broker)

    assert broker.asked == nodes


@pytest.mark.parametrize("call", [initialise, add])
def test_a_lost_answer_is_asked_for_again_where_that_changes_nothing(call: Any) -> None:
    broker = answering(LOST, OK)

    call(broker)

    assert broker.asked == [1, 2]


def test_the_end_of_a_transaction_is_never_sent_twice_when_its_answer_was_lost() -> None:
    broker = answering(LOST, OK)

    with pytest.raises(Disconnected) as failure:
        end(broker)

    assert failure.value.sent
    assert broker.asked == [1]


@pytest.mark.parametrize("call", [initialise, add, end])
@pytest.mark.parametrize(
    "answer", [MOVED, BUSY, ErrorCode.COORDINATOR_NOT_AVAILABLE, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS]
)
def test_a_request_whose_first_attempt_was_answered_is_sent_whatever_becomes_of_the_next(
    call: Any, answer: ErrorCode
) -> None:
    """The log of the coordinator may hold it, and the coordinator after it carries it out."""
    broker = answering(answer, NEVER_SENT)

    with pytest.raises(Disconnected, match="refused") as failure:
        call(broker, within=0.2)

    assert failure.value.sent
    assert not NEVER_SENT.sent


def test_a_request_that_no_attempt_delivered_is_not_sent() -> None:
    with pytest.raises(Disconnected) as failure:
        end(answering(NEVER_SENT), within=0.2)

    assert not failure.value.sent


@pytest.mark.parametrize("call", [initialise, add, end])
@pytest.mark.parametrize(
    "code",
    [
        ErrorCode.PRODUCER_FENCED,
        ErrorCode.INVALID_PRODUCER_EPOCH,
        ErrorCode.INVALID_TXN_STATE,
        ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
    ],
)
def test_what_is_not_normal_is_told_at_once(call: Any, code: ErrorCode) -> None:
    broker = answering(code, OK)

    with pytest.raises(BrokerError) as failure:
        call(broker)

    assert failure.value.code is code
    assert broker.asked == [1]


@pytest.mark.parametrize("call", [initialise, add, end])
def test_what_does_not_pass_in_time_is_told_as_it_is(call: Any) -> None:
    with pytest.raises(BrokerError, match="CONCURRENT_TRANSACTIONS") as failure:
        call(answering(BUSY), 0.05)

    assert failure.value.code is BUSY


@pytest.mark.parametrize("call", [initialise, add, end])
def test_a_coordinator_that_cannot_be_reached_in_time_is_the_failure(call: Any) -> None:
    with pytest.raises((Disconnected, TimedOut), match="refused"):
        call(answering(NEVER_SENT), 0.05)


def test_a_refused_partition_is_named_and_not_those_that_were_not_tried() -> None:
    why = "adding orders-0 to the transaction of tx: UNKNOWN_TOPIC_OR_PARTITION"
    with pytest.raises(PartitionsRefused, match=why) as refused:
        add(answering(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION))
    assert refused.value.partitions == {("orders", 0)}
