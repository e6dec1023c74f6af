"""The driver's transactional id at Kafka 2.5, which takes InitProducerId up to version 3 (R10)."""

import asyncio
from collections.abc import Awaitable, Callable, Iterator

import pytest

from runtime.contract.client.settings import wire_settings
from runtime.contract.records.job_status import JobStatus
from runtime.driver.leadership import DriverFenced, Leadership
from runtime.driver.slots.channel import at
from runtime.kafka.errors import BrokerError, Disconnected, ErrorCode
from runtime.kafka.records import InternalRecord
from runtime.lab.cluster import LabKafkaCluster
from tests.fakes.transactions import LostAnswer
from tests.labs import running_lab, spec
from tests.records import create_topic, read

pytestmark = [pytest.mark.integration, pytest.mark.versions, pytest.mark.long]


@pytest.fixture(scope="module")
def old(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LabKafkaCluster]:
    with running_lab(tmp_path_factory.mktemp("lab"), spec("dc1", version="2.5.1")) as lab:
        yield lab.clusters["dc1"]


async def leading(cluster: LostAnswer, job: str) -> Leadership:
    return await Leadership.open(cluster, job, lambda: JobStatus(job, "t", "d", "running", 0, 0))


def heartbeat(text: str) -> list[InternalRecord]:
    return [InternalRecord(b"heartbeat", text.encode())]


def run(old: LabKafkaCluster, work: Callable[[LostAnswer], Awaitable[None]]) -> None:
    async def opened() -> None:
        async with await LostAnswer.open(wire_settings(old.bootstrap, {})) as cluster:
            await work(cluster)

    asyncio.run(opened())


def test_a_writer_goes_on_after_a_lost_answer(old: LabKafkaCluster) -> None:
    create_topic(old.client, "renewed")

    async def work(cluster: LostAnswer) -> None:
        writer = await leading(cluster, "renewed")
        cluster.lose = 1
        with pytest.raises(Disconnected):
            await writer.commit_status(at("renewed"), heartbeat("one"))
        await writer.commit_status(at("renewed"), heartbeat("two"))

    run(old, work)
    assert [one.value for one in read(old.client, "renewed")] == [b"one", b"two"]


def test_a_replaced_writer_cannot_renew_its_id(old: LabKafkaCluster) -> None:
    create_topic(old.client, "replaced")

    async def work(cluster: LostAnswer) -> None:
        first = await leading(cluster, "replaced")
        cluster.lose = 1
        with pytest.raises(Disconnected):
            await first.commit_status(at("replaced"), heartbeat("first"))
        second = await leading(cluster, "replaced")
        with pytest.raises(DriverFenced) as fenced:
            await first.commit_status(at("replaced"), heartbeat("zombie"))
        assert isinstance(fenced.value.__cause__, BrokerError)
        assert fenced.value.__cause__.code is ErrorCode.INVALID_PRODUCER_EPOCH
        await second.commit_status(at("replaced"), heartbeat("second"))

    run(old, work)
    assert [one.value for one in read(old.client, "replaced")] == [b"first", b"second"]
