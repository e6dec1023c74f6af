"""A fetch session says only what changed, and survives whatever the broker forgets."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from runtime.contract.client.settings import WireSettings, wire_settings
from runtime.kafka.errors import BrokerError, Disconnected, ErrorCode
from runtime.kafka.fetch import FetchLimits, FetchSession
from runtime.kafka.protocol.fetch import (
    EpochEnd,
    FetchedPartition,
    FetchFrom,
    FetchRequest,
    FetchResponse,
)
from runtime.kafka.protocol.last_decoded import LastDecoded
from runtime.kafka.protocol.metadata import DecodedTopics, MetadataRequest, MetadataResponse, TopicMetadata

A, B, C = b"A" * 16, b"B" * 16, b"C" * 16
OK = ErrorCode.NONE
SESSION = 42


@dataclass(slots=True)
class Broker:
    """Answers what it is told to and remembers what it was asked."""

    answers: list[FetchResponse | Exception] = field(default_factory=list)
    asked: list[FetchRequest] = field(default_factory=list)
    settings: WireSettings = field(default_factory=lambda: wire_settings("one:9092", {"client.rack": "r1"}))
    names: dict[bytes, str] = field(default_factory=lambda: {A: "a", B: "b"})
    recreated: bool = False
    down: bool = False
    decoded: LastDecoded[DecodedTopics] = field(default_factory=LastDecoded)

    def topic_by_id(self, topic_id: bytes) -> TopicMetadata | None:
        name = self.names.get(topic_id)
        return None if name is None else TopicMetadata(name, topic_id, OK, False, {})

    def failed_lately(self, node: int) -> bool:
        return self.down

    async def call(self, node: int, request: Any, purpose: str, within: float | None) -> Any:
        if isinstance(request, MetadataRequest):
            ids = {C if self.recreated and one == A else one: name for one, name in self.names.items()}
            topics = (TopicMetadata(name, one, OK, False, {}) for one, name in ids.items())
            return MetadataResponse((), "", 1, tuple(topics))
        self.asked.append(request)
        answer = self.answers.pop(0) if self.answers else fetched()
        if isinstance(answer, Exception):
            raise answer
        return answer


def fetched(*partitions: FetchedPartition, error: ErrorCode = OK, session_id: int = SESSION) -> FetchResponse:
    return FetchResponse(0, error, session_id, partitions)


def partition(
    topic: bytes, index: int, error: ErrorCode = OK, data: bytes = b"", diverging: EpochEnd | None = None
) -> FetchedPartition:
    return FetchedPartition(topic, index, error, 9, 9, 0, (), -1, memoryview(data), diverging)


def session(*answers: FetchResponse | Exception) -> tuple[FetchSession, Broker]:
    broker = Broker(list(answers))
    return FetchSession(broker, 1, FetchLimits(max_wait_ms=100)), broker


def fetch(session: FetchSession) -> tuple[FetchedPartition, ...]:
    return asyncio.run(session.fetch())


def said(request: FetchRequest) -> tuple[int, int, dict[tuple[bytes, int], int], list[tuple[bytes, int]]]:
    offsets = {key: start.offset for key, start in request.partitions.items()}
    return request.session_id, request.session_epoch, offsets, list(request.forgotten)


def test_after_the_first_fetch_only_changes_are_said() -> None:
    one, broker = session()
    one.want(A, 0, FetchFrom(10))
    one.want(A, 1, FetchFrom(20))
    fetch(one)
    fetch(one)
    one.want(A, 1, FetchFrom(25))
    one.want(B, 0, FetchFrom(0))
    fetch(one)
    one.forget(A, 0)
    fetch(one)

    assert [said(request) for request in broker.asked] == [
        (0, 0, {(A, 0): 10, (A, 1): 20}, []),
        (SESSION, 1, {}, []),
        (SESSION, 2, {(A, 1): 25, (B, 0): 0}, []),
        (SESSION, 3, {}, [(A, 0)]),
    ]
    assert {one.rack for one in broker.asked} == {""}  # else a leader may answer a replica's name, no records


@pytest.mark.parametrize(("recreated", "error"), [(False, OK), (True, ErrorCode.UNKNOWN_TOPIC_ID)])
def test_records_by_name_are_believed_if_the_topic_still_has_its_id(
    recreated: bool, error: ErrorCode
) -> None:
    one, broker = session(replace(fetched(partition(A, 0, data=b"records")), by_name=True))
    broker.recreated = recreated
    one.want(A, 0, FetchFrom(10))
    (answer,) = fetch(one)

    assert (answer.error, len(answer.records)) == (error, 0 if recreated else 7)
    assert len(one) == (0 if recreated else 1)
    assert {topic_id: topic.name for topic_id, topic in broker.asked[0].topics.items()} == {A: "a"}


def test_wanting_the_same_again_or_changing_ones_mind_says_nothing() -> None:
    one, broker = session()
    one.want(A, 0, FetchFrom(10))
    fetch(one)
    one.want(A, 0, FetchFrom(10))
    one.want(B, 0, FetchFrom(1))
    one.forget(B, 0)
    fetch(one)

    assert said(broker.asked[1]) == (SESSION, 1, {}, [])


def test_what_the_broker_knows_and_an_answer_is_due_for_begins_the_session_anew() -> None:
    one, broker = session()
    one.want(A, 0, FetchFrom(10), anew=True)
    one.want(B, 0, FetchFrom(1))
    fetch(one)
    one.forget(A, 0)
    one.want(A, 0, FetchFrom(10), anew=True)
    fetch(one)
    one.want(A, 1, FetchFrom(5), anew=True)
    fetch(one)

    assert [said(request) for request in broker.asked] == [
        (0, 0, {(A, 0): 10, (B, 0): 1}, []),
        (SESSION, 0, {(A, 0): 10, (B, 0): 1}, []),
        (SESSION, 1, {(A, 1): 5}, []),
    ]


@pytest.mark.parametrize(
    "error",
    [
        ErrorCode.FETCH_SESSION_ID_NOT_FOUND,
        ErrorCode.INVALID_FETCH_SESSION_EPOCH,
        ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR,
    ],
)
def test_a_session_that_the_broker_forgot_is_begun_anew(error: ErrorCode) -> None:
    one, broker = session(fetched(), fetched(error=error, session_id=0), fetched(session_id=43))
    one.want(A, 0, FetchFrom(10))
    fetch(one)
    assert fetch(one) == ()
    fetch(one)
    fetch(one)

    assert said(broker.asked[2])[1:] == (0, {(A, 0): 10}, [])
    assert said(broker.asked[3]) == (43, 1, {}, [])


@pytest.mark.parametrize(
    "failure",
    [Disconnected("broker 1", "gone", sent=True), fetched(error=ErrorCode.CORRUPT_MESSAGE)],
    ids=["connection", "error"],
)
def test_after_a_failure_everything_is_said_again_beside_the_old_id(
    failure: FetchResponse | Exception,
) -> None:
    one, broker = session(fetched(), failure)
    one.want(A, 0, FetchFrom(10))
    fetch(one)
    with pytest.raises((Disconnected, BrokerError)):
        fetch(one)
    fetch(one)

    assert said(broker.asked[2]) == (SESSION, 0, {(A, 0): 10}, [])


@pytest.mark.parametrize(
    "answer",
    [
        partition(A, 0, ErrorCode.NOT_LEADER_OR_FOLLOWER),
        partition(A, 0, ErrorCode.OFFSET_OUT_OF_RANGE),
        partition(A, 0, diverging=EpochEnd(3, 7)),
    ],
    ids=["moved", "out of range", "diverging"],
)
def test_a_partition_that_failed_is_not_asked_again_until_it_is_wanted(answer: FetchedPartition) -> None:
    one, broker = session(fetched(answer, partition(A, 1)))
    one.want(A, 0, FetchFrom(10))
    one.want(A, 1, FetchFrom(10))

    assert fetch(one)[0] == answer
    assert len(one) == 1
    fetch(one)
    one.want(A, 0, FetchFrom(10))
    fetch(one)

    assert said(broker.asked[1])[2:] == ({}, [(A, 0)])
    assert said(broker.asked[2])[2:] == ({(A, 0): 10}, [])


def test_without_a_session_the_partitions_that_had_data_go_last() -> None:
    data = [fetched(partition(A, index, data=b"x"), session_id=0) for index in (0, 1)]
    one, broker = session(*data, fetched(session_id=0))
    for index in range(3):
        one.want(A, index, FetchFrom(0))
    for _ in range(3):
        fetch(one)

    assert [[index for _, index in request.partitions] for request in broker.asked] == [
        [0, 1, 2],
        [1, 2, 0],
        [2, 0, 1],
    ]
    assert all((request.session_id, request.session_epoch) == (0, 0) for request in broker.asked)


@pytest.mark.parametrize(
    ("session_id", "then"), [(SESSION, (SESSION, 2, {}, [])), (0, (0, 0, {(A, 0): 10}, []))]
)
def test_a_throttled_fetch_brings_nothing_and_the_session_goes_on(session_id: int, then: Any) -> None:
    """One that would have begun a session is answered as if there were none."""
    throttled = FetchResponse(100, OK, session_id, ())
    first = fetched(session_id=SESSION) if session_id else throttled
    one, broker = session(first, throttled)
    one.want(A, 0, FetchFrom(10))
    assert fetch(one) == fetch(one) == ()
    fetch(one)

    assert said(broker.asked[2]) == then
    assert len(one) == 1


def test_closing_lets_the_broker_forget_it() -> None:
    one, broker = session()
    one.want(A, 0, FetchFrom(0))
    fetch(one)
    asyncio.run(one.close())

    assert said(broker.asked[1]) == (SESSION, -1, {}, [])
    assert broker.asked[1].max_wait_ms == 0


def test_closing_does_not_wait_for_a_broker_that_is_down() -> None:
    one, broker = session()
    fetch(one)
    broker.down = True
    asyncio.run(one.close())

    assert len(broker.asked) == 1


async def test_a_farewell_that_a_quota_holds_back_is_not_waited_for() -> None:
    class Throttling(Broker):
        async def call(self, node: int, request: Any, purpose: str, within: float | None) -> Any:
            if request.session_epoch < 0:
                await asyncio.sleep(60)
            return fetched()

    one = FetchSession(Throttling(), 1, FetchLimits(max_wait_ms=100))
    await one.fetch()
    async with asyncio.timeout(30):
        await one.close()


STEPS = st.lists(
    st.one_of(
        st.tuples(st.sampled_from(["want", "want anew"]), st.integers(0, 4), st.integers(0, 3)),
        st.tuples(st.just("forget"), st.integers(0, 4), st.just(0)),
        st.tuples(st.just("fetch"), st.sampled_from(["fine", "forgotten", "error"]), st.integers(0, 4)),
    ),
    max_size=40,
)


@given(STEPS)
def test_the_broker_always_ends_up_with_what_is_wanted(steps: list[tuple[str, Any, int]]) -> None:
    """A model of the broker's side of the session is told all that is said, and compared with the wishes."""
    one, broker = session()
    wishes: dict[tuple[bytes, int], int] = {}
    known: dict[tuple[bytes, int], int] = {}

    def hear(request: FetchRequest) -> None:
        if request.session_epoch == 0:
            known.clear()
        _, _, offsets, forgotten = said(request)
        known.update(offsets)
        for key in forgotten:
            known.pop(key, None)

    for step, what, number in [*steps, ("fetch", "fine", 0), ("fetch", "fine", 0)]:
        match step:
            case "want" | "want anew":
                one.want(A, what, FetchFrom(number), anew=step == "want anew")
                wishes[A, what] = number
            case "forget":
                one.forget(A, what)
                wishes.pop((A, what), None)
            case _:
                key = (A, number)
                if what == "forgotten":
                    broker.answers = [fetched(error=ErrorCode.FETCH_SESSION_ID_NOT_FOUND, session_id=0)]
                elif what == "error" and key in wishes:
                    broker.answers = [fetched(partition(*key, ErrorCode.KAFKA_STORAGE_ERROR))]
                    wishes.pop(key)
                else:
                    broker.answers = [fetched()]
                fetch(one)
                if what != "forgotten":
                    hear(broker.asked[-1])
    assert known == wishes
    assert len(one) == len(wishes)
