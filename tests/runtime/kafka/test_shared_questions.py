"""Questions about many partitions: callers that wait for the same broker at the same time share a request."""

import asyncio
from collections.abc import Iterable
from typing import Any

from runtime.contract.client.settings import wire_settings
from runtime.kafka.cluster import CONTROL, KafkaCluster
from runtime.kafka.errors import Disconnected, ErrorCode
from runtime.kafka.protocol.fetch import Isolation
from runtime.kafka.protocol.metadata import Partition, TopicMetadata
from runtime.kafka.protocol.offsets import (
    EARLIEST,
    LATEST,
    ListedOffset,
    ListOffsetsRequest,
    ListOffsetsResponse,
    TopicPartition,
)
from runtime.kafka.queries import list_offsets
from tests.fakes.permits import Permits, settled

NODE = 1
PARTITIONS = 4
NOON = 1_800_000_000_000
AT = [TopicPartition("orders", number) for number in range(PARTITIONS)]


class HeldCluster(KafkaCluster):
    """A cluster of one broker: each request waits for a permit. The offset of a partition is its number."""

    def __init__(self) -> None:
        super().__init__(wire_settings("localhost:1", {}))
        self.requests: list[ListOffsetsRequest] = []
        self.permits = Permits()
        self.failures: list[Exception] = []

    async def topics(self, names: Iterable[str], fresh: bool = False) -> dict[str, TopicMetadata]:
        partitions = {number: Partition(number, NODE, 0, (NODE,), (NODE,)) for number in range(PARTITIONS)}
        return {name: TopicMetadata(name, b"t" * 16, ErrorCode.NONE, False, partitions) for name in names}

    async def call(self, node: int, request: Any, purpose: str = CONTROL, within: float | None = None) -> Any:
        self.requests.append(request)
        await self.permits.acquire()
        if self.failures:
            raise self.failures.pop()
        listed = {at: ListedOffset(at.partition, -1, 0) for at in request.questions}
        return ListOffsetsResponse(0, listed)

    def asked(self) -> list[list[int]]:
        """The partitions of each request so far."""
        return [sorted(at.partition for at in one.questions) for one in self.requests]


def begin(
    cluster: KafkaCluster, *partitions: int, at: int = LATEST, isolation: Isolation = Isolation.READ_COMMITTED
) -> asyncio.Task[Any]:
    questions = {AT[number]: at for number in partitions}
    return asyncio.create_task(list_offsets(cluster, questions, isolation, within=60))


def offsets(answers: Any) -> dict[int, int]:
    return {at.partition: answer.offset for at, answer in answers.items()}


def test_what_is_asked_while_a_request_is_under_way_goes_with_the_next_one():
    async def story() -> None:
        cluster = HeldCluster()
        callers = []
        for partitions in ((0,), (1,), (2, 3)):
            callers.append(begin(cluster, *partitions))
            await settled()
        cluster.permits.allow(2)
        found = await asyncio.gather(*callers)
        assert cluster.asked() == [[0], [1, 2, 3]]
        assert [offsets(one) for one in found] == [{0: 0}, {1: 1}, {2: 2, 3: 3}]

    asyncio.run(story())


def test_questions_about_starts_and_about_ends_do_not_wait_for_each_other():
    async def story() -> None:
        cluster = HeldCluster()
        callers = [begin(cluster, 1, at=at) for at in (EARLIEST, LATEST)]
        await settled()
        assert cluster.asked() == [[1], [1]]
        cluster.permits.allow(len(callers))
        await asyncio.gather(*callers)

    asyncio.run(story())


def test_two_questions_about_one_partition_are_two_requests():
    async def story() -> None:
        cluster = HeldCluster()
        callers = [begin(cluster, partition, at=NOON + partition) for partition in (0, 1)]
        callers.append(begin(cluster, 1, at=NOON))
        cluster.permits.allow(len(callers))
        await asyncio.gather(*callers)
        assert cluster.asked() == [[0], [1], [1]]
        asked = [one.at for request in cluster.requests[1:] for one in request.questions.values()]
        assert asked == [NOON + 1, NOON]

    asyncio.run(story())


def test_requests_of_another_isolation_are_not_waited_for():
    async def story() -> None:
        cluster = HeldCluster()
        callers = [begin(cluster, number, isolation=isolation) for number, isolation in enumerate(Isolation)]
        await settled()
        assert len(cluster.requests) == len(Isolation)
        cluster.permits.allow(len(callers))
        await asyncio.gather(*callers)

    asyncio.run(story())


def test_a_caller_that_is_cancelled_takes_no_answer_from_the_others():
    async def story() -> None:
        cluster = HeldCluster()
        first = begin(cluster, 0)
        await settled()
        second, third = begin(cluster, 1), begin(cluster, 2)
        await settled()
        cluster.permits.allow(1)
        await first
        await settled()
        assert cluster.asked() == [[0], [1, 2]]
        second.cancel()  # it had sent the request of both
        cluster.permits.allow(1)
        assert offsets(await third) == {2: 2}
        assert cluster.asked()[2:] == [[2]]

    asyncio.run(story())


def test_a_connection_that_breaks_is_tried_again_for_each_caller():
    async def story() -> None:
        cluster = HeldCluster()
        cluster.failures = [Disconnected("localhost:1", "broken", sent=True)]
        callers = [begin(cluster, 0), begin(cluster, 1)]
        cluster.permits.allow(4)
        assert [offsets(one) for one in await asyncio.gather(*callers)] == [{0: 0}, {1: 1}]

    asyncio.run(story())
