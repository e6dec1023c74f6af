"""The driver's id at a real broker: who was replaced is told so, whatever it tries (R10)."""

import asyncio
import time
from collections.abc import Awaitable, Callable

import pytest

from runtime.contract.client import settings as client
from runtime.contract.records.job_status import JobStatus
from runtime.driver.leadership import DriverFenced, Leadership
from runtime.driver.slots.channel import at
from runtime.kafka.cluster import KafkaCluster
from runtime.kafka.errors import Disconnected
from runtime.kafka.records import BATCH_BYTES, InternalRecord
from runtime.lab.lab import Lab
from runtime.ledger.records import InternalTopicScan
from tests.fakes.transactions import HaltingProduce, LostAnswer
from tests.records import create_topic

pytestmark = pytest.mark.integration


async def leading(cluster: KafkaCluster, job: str) -> Leadership:
    return await Leadership.open(cluster, job, lambda: JobStatus(job, "t", "d", "running", 0, 0))


def beat(name: str) -> list[InternalRecord]:
    return [InternalRecord(b"beat", name.encode())]


@pytest.fixture
def topic(lab: Lab, fresh: Callable[[str], str]) -> str:
    """As the status topic and the control topic are."""
    made = fresh("beats")
    create_topic(lab.clusters["dc2"].client, made, 1, config={"cleanup.policy": "compact"})
    return made


@pytest.fixture
def at_dc2(lab: Lab) -> Callable[..., None]:
    """Runs a coroutine function with the wire's client of dc2."""
    found = lab.clusters["dc2"]

    def run(work: Callable[[KafkaCluster], Awaitable[None]], kind: type[KafkaCluster] = KafkaCluster) -> None:
        async def opened() -> None:
            async with await kind.open(client.wire_settings(found.bootstrap, {})) as cluster:
                await work(cluster)

        asyncio.run(opened())

    return run


async def told(cluster: KafkaCluster, topic: str, name: str) -> bool:
    """Whether that is the newest beat; markers are written after the answer, so it may take a moment."""
    scan = InternalTopicScan(cluster, topic, 0)
    until = time.monotonic() + 60
    while time.monotonic() < until:
        await scan.refresh()
        if scan.fold.get(b"beat") == name.encode():
            return True
        await asyncio.sleep(0.02)
    return False


def test_a_replaced_driver_that_lost_its_connection_does_not_come_back(at_dc2, topic, fresh):
    """Simply initialising its id again would fence the one that replaced it."""

    async def work(cluster: LostAnswer) -> None:
        job = fresh("job")
        old = await leading(cluster, job)
        cluster.lose = 1
        with pytest.raises(Disconnected):
            await old.commit_status(at(topic), beat("old"))
        new = await leading(cluster, job)
        with pytest.raises(DriverFenced):
            await old.commit_status(at(topic), beat("zombie"))
        await new.commit_status(at(topic), beat("new"))
        assert await told(cluster, topic, "new")

    at_dc2(work, LostAnswer)


def test_a_driver_that_lost_an_answer_goes_on(at_dc2, topic, fresh):
    async def work(cluster: LostAnswer) -> None:
        writer = await leading(cluster, fresh("job"))
        cluster.lose = 1
        with pytest.raises(Disconnected):
            await writer.commit_status(at(topic), beat("one"))
        await writer.commit_status(at(topic), beat("two"))
        assert await told(cluster, topic, "two")

    at_dc2(work, LostAnswer)


def test_what_was_half_written_when_its_task_was_cancelled_is_never_committed(at_dc2, topic, fresh):
    """An edit of a flow cancels its task, whatever that is at."""

    async def work(cluster: HaltingProduce) -> None:
        writer = await leading(cluster, fresh("job"))
        large = [InternalRecord(name, bytes(BATCH_BYTES)) for name in (b"half", b"other half")]
        writing = asyncio.create_task(writer.commit_status(at(topic), large))
        while cluster.sent < 2:
            await asyncio.sleep(0.02)
        writing.cancel()
        await asyncio.gather(writing, return_exceptions=True)
        await writer.commit_status(at(topic), beat("next"))
        assert await told(cluster, topic, "next")
        scan = InternalTopicScan(cluster, topic, 0)
        await scan.refresh()
        assert {key for key, _ in scan.fold.items()} == {b"beat"}

    at_dc2(work, HaltingProduce)
