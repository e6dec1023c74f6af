"""Topics, coordinators and offsets of partitions: callers that wait at the same time share a request."""

import asyncio
import gc
from collections.abc import Iterable
from typing import Any

import pytest

from runtime.contract.client.settings import wire_settings
from runtime.contract.spec.naming import NO_TOPIC_ID, TopicPartition
from runtime.kafka.cluster import CONTROL, KafkaCluster
from runtime.kafka.errors import BrokerError, Disconnected, ErrorCode, Unsupported
from runtime.kafka.protocol.fetch import Isolation
from runtime.kafka.protocol.metadata import (
    Broker,
    MetadataRequest,
    MetadataResponse,
    Partition,
    TopicMetadata,
)
from runtime.kafka.protocol.offsets import EARLIEST, LATEST, ListedOffset, ListOffsetsRequest
from runtime.kafka.protocol.transactions import CoordinatorKind, FindCoordinatorRequest, FoundCoordinator
from runtime.kafka.queries import list_offsets
from tests.fakes.permits import Permits, settled

NODE = 1
TRANSACTION = CoordinatorKind.TRANSACTION


class HeldCluster(KafkaCluster):
    """A cluster whose requests wait for permits, without the topic `gone` and a coordinator of `bad`."""

    def __init__(self, *, old: bool = False) -> None:
        super().__init__(wire_settings("localhost:1", {}))
        self.asked: list[list[str]] = []
        self.permits = Permits()
        self.failures: list[Exception] = []
        self.most_at_once = 0
        self._waiting = 0
        self._old = old

    async def ask_any(self, request: Any) -> Any:
        names = list((request.names or ()) if isinstance(request, MetadataRequest) else request.keys)
        if self._old and isinstance(request, FindCoordinatorRequest) and len(request.keys) > 1:
            raise Unsupported("FIND_COORDINATOR", "version 4")
        self.asked.append(names)
        self._waiting += 1
        self.most_at_once = max(self.most_at_once, self._waiting)
        await self.permits.acquire()
        self._waiting -= 1
        if self.failures:
            raise self.failures.pop()
        if isinstance(request, MetadataRequest):
            topics = tuple(_topic(name) for name in names)
            response = MetadataResponse((Broker(NODE, "localhost", 1),), "cluster", NODE, topics)
            self._learn(response, "localhost:1")
            return response
        return [_coordinator(name) for name in names]


def _topic(name: str) -> TopicMetadata:
    if name == "gone":
        return TopicMetadata(name, NO_TOPIC_ID, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, False, {})
    return TopicMetadata(
        name, name.encode()[:16], ErrorCode.NONE, False, {0: Partition(0, NODE, 0, (1,), (1,))}
    )


def _coordinator(key: str) -> FoundCoordinator:
    error = ErrorCode.COORDINATOR_NOT_AVAILABLE if key == "bad" else ErrorCode.NONE
    return FoundCoordinator(key, NODE, "localhost", 1, error, None)


async def test_tasks_that_ask_for_topics_at_the_same_moment_share_one_request():
    cluster = HeldCluster()
    names = [f"topic-{number}" for number in range(5)]
    callers = [asyncio.create_task(cluster.topics([name], fresh=True)) for name in names]
    await settled()
    assert cluster.asked == [names]
    cluster.permits.allow(1)
    assert [list(one) for one in await asyncio.gather(*callers)] == [[name] for name in names]


async def test_topics_that_are_asked_for_during_a_request_go_with_the_next_one():
    cluster = HeldCluster()
    first = asyncio.create_task(cluster.topics(["a"], fresh=True))
    await settled()
    later = [asyncio.create_task(cluster.topics(names, fresh=True)) for names in (["b"], ["c", "a"])]
    await settled()
    cluster.permits.allow(2)
    assert [sorted(found) for found in await asyncio.gather(first, *later)] == [["a"], ["b"], ["a", "c"]]
    assert cluster.asked == [["a"], ["a", "b", "c"]]


async def test_a_failed_request_for_topics_is_sent_again_for_those_who_wait():
    cluster = HeldCluster()
    cluster.failures = [Disconnected("localhost:1", "broken", sent=True)]
    callers = [asyncio.create_task(cluster.topics([name], fresh=True)) for name in ("a", "b")]
    await settled()
    cluster.permits.allow(2)
    first, second = await asyncio.gather(*callers, return_exceptions=True)
    assert isinstance(first, Disconnected)
    assert isinstance(second, dict)
    assert list(second) == ["b"]


async def test_a_periodic_look_at_topics_refreshes_those_of_all_who_look(monkeypatch: pytest.MonkeyPatch):
    cluster = HeldCluster()
    cluster.permits.allow(5)
    await cluster.topics(["a", "b", "gone", "c", "other"])
    await cluster.recent_topics(["a"], max_age_s=60)
    assert len(cluster.asked) == 1
    cluster.doubt("a")
    cluster.doubt("b")
    cluster.doubt("gone")
    looks = [cluster.recent_topics([name], max_age_s=60) for name in ("b", "a", "c")]
    assert [list(one) for one in await asyncio.gather(*looks)] == [["b"], ["a"], ["c"]]
    assert cluster.asked[1:] == [["a", "b", "c"]]
    found = await cluster.recent_topics(["gone", "a"], max_age_s=60)
    assert cluster.asked[2:] == [["a", "b", "c", "gone"]]
    assert found["gone"].error is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    monkeypatch.setattr("runtime.kafka.cluster._WATCHED_S", 0.001)
    await asyncio.sleep(0.01)
    await cluster.recent_topics(["b"], max_age_s=0.0)
    assert cluster.asked[3:] == [["b"]]  # nobody looks at the others any more


async def test_coordinators_are_looked_up_together_and_each_caller_gets_its_own():
    cluster = HeldCluster()
    ids = ["one", "two", "bad", "three"]
    callers = [asyncio.create_task(cluster.coordinator(TRANSACTION, one)) for one in ids]
    again = asyncio.create_task(cluster.coordinator(TRANSACTION, "two"))
    await settled()
    cluster.permits.allow(2)
    found = await asyncio.gather(*callers, return_exceptions=True)
    assert cluster.asked == [["one"], ["two", "bad", "three"]]
    assert [found[0], found[1], found[3], await again] == [NODE] * 4
    assert isinstance(found[2], BrokerError)
    assert await cluster.coordinator(TRANSACTION, "three") == NODE  # from the cache


async def test_a_lookup_survives_the_caller_that_sent_it():
    cluster = HeldCluster()
    first, second, third = (
        asyncio.create_task(cluster.coordinator(TRANSACTION, one)) for one in ("one", "two", "three")
    )
    await settled()
    cluster.permits.allow(1)
    await first
    await settled()
    second.cancel()  # it had sent the lookup of both
    await settled()
    cluster.permits.allow(1)
    assert await third == NODE
    assert cluster.asked == [["one"], ["two", "three"], ["three"]]
    with pytest.raises(asyncio.CancelledError):
        await second


async def test_callers_that_were_cancelled_are_not_sent_again_and_leave_no_unretrieved_failure():
    cluster, told = HeldCluster(), []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: told.append(context))
    ids = ["one", "two", "three", "four"]
    first, sender, gone, left = (asyncio.create_task(cluster.coordinator(TRANSACTION, one)) for one in ids)
    await settled()
    cluster.permits.allow(1)
    await first
    await settled()
    gone.cancel()  # it waits for the request of the sender
    await settled()
    sender.cancel()
    await settled()
    assert cluster.asked == [["one"], ["two", "three", "four"], ["four"]]
    cluster.failures = [Disconnected("localhost:1", "broken", sent=True)]
    cluster.permits.allow(1)
    with pytest.raises(Disconnected):
        await left
    del gone, sender
    gc.collect()
    assert told == []


async def test_an_old_broker_is_asked_for_a_few_coordinators_at_a_time():
    cluster = HeldCluster(old=True)
    ids = [f"id-{number}" for number in range(30)]
    looking = asyncio.create_task(cluster.coordinators(TRANSACTION, ids))
    await settled()
    cluster.permits.allow(len(ids))
    assert await looking == dict.fromkeys(ids, NODE)
    assert sorted(cluster.asked) == sorted([one] for one in ids)
    assert cluster.most_at_once == 8


# Offsets of many partitions of a broker

PARTITIONS = 4
NOON = 1_800_000_000_000
AT = [TopicPartition("orders", number) for number in range(PARTITIONS)]


class HeldPartitions(HeldCluster):
    """Its one broker leads all partitions. The offset of a partition is its number."""

    def __init__(self) -> None:
        super().__init__()
        self.requests: list[ListOffsetsRequest] = []

    async def topics(self, names: Iterable[str], fresh: bool = False) -> dict[str, TopicMetadata]:
        partitions = {number: Partition(number, NODE, 0, (NODE,), (NODE,)) for number in range(PARTITIONS)}
        return {name: TopicMetadata(name, b"t" * 16, ErrorCode.NONE, False, partitions) for name in names}

    async def call(self, node: int, request: Any, purpose: str = CONTROL, within: float | None = None) -> Any:
        self.requests.append(request)
        await self.permits.acquire()
        if self.failures:
            raise self.failures.pop()
        return {at: ListedOffset(at.partition, -1, 0) for at in request.times}

    def partitions(self) -> list[list[int]]:
        """Those of each request so far."""
        return [sorted(at.partition for at in one.times) for one in self.requests]


def begin(
    cluster: KafkaCluster, *partitions: int, at: int = LATEST, isolation: Isolation = Isolation.READ_COMMITTED
) -> asyncio.Task[Any]:
    questions = {AT[number]: at for number in partitions}
    return asyncio.create_task(list_offsets(cluster, questions, isolation, within=60))


def offsets(answers: Any) -> dict[int, int]:
    return {at.partition: answer.offset for at, answer in answers.items()}


async def test_what_is_asked_while_a_request_is_under_way_goes_with_the_next_one():
    cluster = HeldPartitions()
    callers = []
    for partitions in ((0,), (1,), (2, 3)):
        callers.append(begin(cluster, *partitions))
        await settled()
    cluster.permits.allow(2)
    found = await asyncio.gather(*callers)
    assert cluster.partitions() == [[0], [1, 2, 3]]
    assert [offsets(one) for one in found] == [{0: 0}, {1: 1}, {2: 2, 3: 3}]


@pytest.mark.parametrize(
    "questions",
    [
        [{"at": at} for at in (EARLIEST, LATEST)],
        [{"isolation": isolation} for isolation in Isolation],
    ],
    ids=["starts and ends", "isolations"],
)
async def test_questions_of_another_kind_do_not_wait_for_each_other(questions: list[dict[str, Any]]):
    cluster = HeldPartitions()
    callers = [begin(cluster, 1, **question) for question in questions]
    await settled()
    assert cluster.partitions() == [[1]] * len(questions)
    cluster.permits.allow(len(callers))
    await asyncio.gather(*callers)


async def test_two_questions_about_one_partition_are_two_requests():
    cluster = HeldPartitions()
    callers = [begin(cluster, partition, at=NOON + partition) for partition in (0, 1)]
    callers.append(begin(cluster, 1, at=NOON))
    cluster.permits.allow(len(callers))
    await asyncio.gather(*callers)
    assert cluster.partitions() == [[0], [1], [1]]
    asked = [time for request in cluster.requests[1:] for time in request.times.values()]
    assert asked == [NOON + 1, NOON]


async def test_a_connection_that_breaks_is_tried_again_for_each_caller():
    cluster = HeldPartitions()
    cluster.failures = [Disconnected("localhost:1", "broken", sent=True)]
    callers = [begin(cluster, 0), begin(cluster, 1)]
    cluster.permits.allow(4)
    assert [offsets(one) for one in await asyncio.gather(*callers)] == [{0: 0}, {1: 1}]
