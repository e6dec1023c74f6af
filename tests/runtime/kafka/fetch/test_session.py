"""A fetch session says only what changed, and survives whatever the broker forgets."""

from __future__ import annotations

import asyncio
from contextlib import nullcontext
from dataclasses import dataclass, field
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from msgspec.structs import replace

from runtime.contract.client.settings import WireSettings, wire_settings
from runtime.kafka.errors import AuthenticationFailed, BrokerError, Disconnected, ErrorCode
from runtime.kafka.fetch import FetchLimits, FetchSession
from runtime.kafka.protocol.fetch import (
    EpochEnd,
    FetchedPartition,
    FetchFrom,
    FetchRequest,
    FetchResponse,
)
from runtime.kafka.protocol.last_decoded import LastDecoded
from runtime.kafka.protocol.metadata import Broker as MetadataBroker
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
    just_started: bool = False
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
            brokers = () if self.just_started else (MetadataBroker(1, "one", 9092),)
            return MetadataResponse(brokers, "", 1, () if self.just_started else tuple(topics))
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
    return request.session_id, request.session_epoch, offsets, sorted(request.forgotten)


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


def test_no_topic_counts_as_deleted_where_the_broker_has_just_started() -> None:
    one, broker = session(replace(fetched(partition(A, 0, data=b"records")), by_name=True))
    broker.just_started = True
    one.want(A, 0, FetchFrom(10))
    with pytest.raises(Disconnected, match="no brokers"):
        fetch(one)

    assert len(one) == 1


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


def test_closing_does_not_fail_where_the_broker_refuses_the_login() -> None:
    one, broker = session(fetched(), AuthenticationFailed("broker 1", "the password has changed"))
    fetch(one)
    asyncio.run(one.close())

    assert len(broker.asked) == 2


# What the broker answers to a fetch, by name; an answer to a partition is of the one with the given number.
LOST = {
    "unknown id": ErrorCode.FETCH_SESSION_ID_NOT_FOUND,
    "wrong epoch": ErrorCode.INVALID_FETCH_SESSION_EPOCH,
    "other topic": ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR,
}
FAILURES: dict[str, Any] = {
    "disconnected": Disconnected("broker 1", "gone", sent=True),
    "corrupt": fetched(error=ErrorCode.CORRUPT_MESSAGE),
}
OF_A_PARTITION = {
    "moved": partition(A, 0, ErrorCode.NOT_LEADER_OR_FOLLOWER),
    "out of range": partition(A, 0, ErrorCode.OFFSET_OUT_OF_RANGE),
    "diverging": partition(A, 0, diverging=EpochEnd(3, 7)),
}
STEPS = st.lists(
    st.one_of(
        st.tuples(st.sampled_from(["want", "want anew"]), st.integers(0, 4), st.integers(0, 3)),
        st.tuples(st.just("forget"), st.integers(0, 4), st.just(0)),
        st.tuples(
            st.just("fetch"), st.sampled_from(["fine", *LOST, *FAILURES, *OF_A_PARTITION]), st.integers(0, 4)
        ),
    ),
    max_size=40,
)
FETCH = ("fetch", "fine", 0)
BEGUN = [("want", 0, 1), ("want", 1, 2), FETCH]


@given(STEPS)
@example([*BEGUN, ("want", 1, 3), ("want", 2, 0), FETCH, ("forget", 0, 0)])
@example([*BEGUN, ("want", 0, 1), ("want", 3, 1), ("forget", 3, 0)])  # nothing is said
@example([("want anew", 0, 1), FETCH, ("forget", 0, 0), ("want anew", 0, 1), FETCH, ("want anew", 1, 1)])
@example([*BEGUN, *(("fetch", name, 0) for name in LOST)])
@example([*BEGUN, *(("fetch", name, 0) for name in FAILURES)])
@example([step for name in OF_A_PARTITION for step in (*BEGUN, ("fetch", name, 0), FETCH)])
def test_after_the_first_fetch_only_changes_are_said(steps: list[tuple[str, Any, int]]) -> None:
    """Where the broker lost the session, or its answer, or owes one for a partition that it knows, the next
    fetch begins a session. A partition that was answered with an error is forgotten until it is wanted.
    """
    one, broker = session()
    wishes: dict[int, int] = {}
    known: dict[int, int] = {}
    epoch = 0
    for step, what, number in [*steps, FETCH, FETCH]:
        if step == "forget":
            one.forget(A, what)
            wishes.pop(what, None)
        elif step != "fetch":
            one.want(A, what, FetchFrom(number), anew=step == "want anew")
            wishes[what] = number
            epoch = 0 if step == "want anew" and what in known else epoch
        else:
            answer = OF_A_PARTITION[what] if what in OF_A_PARTITION and number in wishes else None
            news = [] if answer is None else [replace(answer, partition=number)]
            broker.answers = [FAILURES.get(what, fetched(*news, error=LOST.get(what, OK)))]
            with pytest.raises((Disconnected, BrokerError)) if what in FAILURES else nullcontext():
                assert fetch(one) == tuple(news)
            _, *asked = said(broker.asked[-1])
            known = known if epoch else {}
            changed = {(A, at): offset for at, offset in wishes.items() if known.get(at) != offset}
            assert asked == [epoch, changed, sorted((A, at) for at in known if at not in wishes)]
            known, epoch = (dict(wishes), epoch + 1) if what not in (*LOST, *FAILURES) else ({}, 0)
            for failed in news:
                del wishes[failed.partition]
    assert len(one) == len(wishes)
    assert {request.session_id for request in broker.asked[1:]} <= {0, SESSION}
    assert {request.rack for request in broker.asked} == {""}  # else a leader may answer a replica's name
