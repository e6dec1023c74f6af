"""Readers and writers of internal topics, where brokers do not agree yet, or lose an answer."""

import asyncio
import struct
import time
from collections.abc import Sequence
from typing import Any, cast

import pytest

from planner.kafka import ClusterClient, ClusterFailure
from planner.kafka import log as module
from planner.kafka.failures import Closed, NoAnswer, RequestRefused
from planner.kafka.log import Appended, LogReader, LogWriter
from planner.model.diagnostic import Failure
from runtime.batch import Record
from runtime.contract.spec.naming import NO_TOPIC_ID, TopicPartition
from runtime.kafka.errors import ErrorCode
from runtime.kafka.protocol.offsets import ListedOffset, ListOffsetsRequest
from runtime.kafka.protocol.produce import ProducedPartition, ProduceRequest, ProduceResponse
from runtime.kafka.protocol.transactions import ProducerIdentity

AT = TopicPartition("__repl.status", 0)
Line = ErrorCode | ClusterFailure | None
_PRODUCER = struct.Struct(">qhi")  # the id, the epoch and the base sequence
_PRODUCER_AT = 43


class Brokers:
    """A client, and the leader of its partition, which answer from scripts. A script that is over is good."""

    name = "dc1"
    closed = False

    def __init__(self, *answers: Line, dials: Sequence[ClusterFailure] = ()) -> None:
        self._answers = list(answers)
        self._dials = list(dials)
        self._identities = 0
        self.produced: list[tuple[int, int]] = []  # the producer id and the sequence of each batch

    async def dial_leader(self, _at: TopicPartition) -> tuple["Brokers", bytes]:
        if self._dials:
            raise self._dials.pop(0)
        return self, NO_TOPIC_ID

    async def ask(self, _request: object) -> ProducerIdentity:
        self._identities += 1
        return ProducerIdentity(self._identities, 0)

    async def call(self, request: object) -> Any:
        if isinstance(request, ProduceRequest):
            header = bytes(request.partitions[0].records[0])
            producer_id, _, sequence = _PRODUCER.unpack_from(header, _PRODUCER_AT)
            self.produced.append((producer_id, sequence))
        line = self._answers.pop(0) if self._answers else None
        if isinstance(line, ClusterFailure):
            raise line
        if isinstance(request, ListOffsetsRequest):
            return {AT: line or ListedOffset(0, -1, 0)}
        produced = ProducedPartition(*AT, line or ErrorCode.NONE, 0, 1_000, 0)
        return ProduceResponse(0, (produced,))

    def close(self) -> None:
        """Connections are not counted."""


async def read_by(brokers: Brokers) -> list[Record]:
    return await module.read(cast(ClusterClient, brokers), AT.topic)


@pytest.fixture(autouse=True)
def at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_AGAIN_SECONDS", 0.0)


@pytest.mark.parametrize("code", [ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.LEADER_NOT_AVAILABLE])
async def test_a_leader_that_does_not_know_a_new_topic_yet_is_asked_again(code: ErrorCode) -> None:
    assert await read_by(Brokers(code, code)) == []


async def test_a_connection_that_is_closed_is_opened_again() -> None:
    closed = Closed("dc1:1 closed the connection")
    assert await read_by(Brokers(closed, dials=[closed] * 2)) == []


async def test_a_topic_that_does_not_exist_is_an_empty_log() -> None:
    missing = RequestRefused(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    assert await read_by(Brokers(dials=[missing])) == []


@pytest.mark.parametrize(
    "brokers",
    [
        Brokers(dials=[Closed("dc1:1 closed the connection")] * 1_000),
        Brokers(*[ErrorCode.UNKNOWN_TOPIC_OR_PARTITION] * 1_000),
    ],
    ids=["no connection", "no leader knows it"],
)
async def test_what_does_not_pass_is_an_error_in_the_end(
    brokers: Brokers, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "READ_SECONDS", 0.0)
    with pytest.raises(Failure, match=r"__repl\.status at dc1 cannot be used: "):
        await read_by(brokers)


async def test_a_reader_without_rights_fails_at_once() -> None:
    refused = RequestRefused(ErrorCode.TOPIC_AUTHORIZATION_FAILED)
    with pytest.raises(Failure, match="needs CREATE, DESCRIBE, READ and WRITE"):
        await read_by(Brokers(dials=[refused]))


async def test_a_follower_waits_where_no_broker_answers() -> None:
    silent = NoAnswer("dc1:1 has not answered for 5 s")
    brokers = Brokers(dials=[silent] * 1_000_000)
    assert await LogReader(cast(ClusterClient, brokers), AT.topic).read_more(0.05) == []


RECORDS = [(b"key", b"value"), (b"gone", None)]
HERE = [Appended(0, 1_000), Appended(1, 1_000)]  # the offset and time that these brokers answer


async def appended(brokers: Brokers, *seconds: float) -> list[Appended]:
    log = LogWriter(cast(ClusterClient, brokers))
    return [record for limit in seconds for record in await log.append(AT.topic, RECORDS, seconds=limit)]


async def test_records_get_their_place_and_append_time_and_sequences_go_on() -> None:
    brokers = Brokers()
    assert await appended(brokers, 5.0, 5.0) == HERE * 2
    assert brokers.produced == [(1, 0), (1, 2)]


@pytest.mark.parametrize(
    "lost",
    [Closed("dc1:1 closed the connection"), ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.REQUEST_TIMED_OUT],
)
async def test_a_batch_whose_answer_is_lost_is_sent_again_and_never_written_twice(lost: Line) -> None:
    brokers = Brokers(lost, ErrorCode.DUPLICATE_SEQUENCE_NUMBER)
    assert await appended(brokers, 5.0) == HERE
    assert brokers.produced == [(1, 0), (1, 0)]


async def test_a_broker_that_has_forgotten_the_producer_gets_a_new_one() -> None:
    brokers = Brokers(None, ErrorCode.UNKNOWN_PRODUCER_ID)
    assert await appended(brokers, 5.0, 5.0) == HERE * 2
    assert brokers.produced == [(1, 0), (1, 2), (2, 0)]


async def test_records_that_are_not_acknowledged_in_time_are_counted() -> None:
    brokers = Brokers(*[ErrorCode.NOT_ENOUGH_REPLICAS] * 1_000_000)
    with pytest.raises(NoAnswer, match=r"2 of 2 records were not acknowledged in 0 s"):
        await appended(brokers, 0.05)


async def test_the_time_of_a_caller_includes_its_wait_for_the_others() -> None:
    log = LogWriter(cast(ClusterClient, Brokers(*[ErrorCode.NOT_ENOUGH_REPLICAS] * 1_000_000)))
    began = time.monotonic()
    appends = (log.append(AT.topic, RECORDS, seconds=0.3) for _ in range(10))
    outcomes = await asyncio.gather(*appends, return_exceptions=True)
    assert all(isinstance(outcome, NoAnswer) for outcome in outcomes)
    assert time.monotonic() - began < 1.5


async def test_a_refused_record_fails_at_once() -> None:
    brokers = Brokers(ErrorCode.TOPIC_AUTHORIZATION_FAILED)
    with pytest.raises(RequestRefused, match="TOPIC_AUTHORIZATION_FAILED"):
        await appended(brokers, 5.0)
    assert len(brokers.produced) == 1
