"""The driver's id at a real broker: a driver that was replaced can't renew it (R10)."""

from collections.abc import Callable

import pytest

from runtime.contract.client.settings import wire_settings
from runtime.contract.records.job_status import JobStatus
from runtime.driver.leadership import DriverFenced, Leadership
from runtime.driver.slots.channel import at
from runtime.kafka.errors import Disconnected
from runtime.kafka.records import InternalRecord
from runtime.lab.lab import Lab
from tests.fakes.transactions import LostAnswer
from tests.records import create_topic, read


@pytest.mark.integration
async def test_a_replaced_driver_that_lost_its_connection_does_not_come_back(
    lab: Lab, fresh: Callable[[str], str]
) -> None:
    """Simply initialising its id again would fence the one that replaced it."""
    dc2, topic, job = lab.clusters["dc2"], fresh("heartbeats"), fresh("job")
    create_topic(dc2.client, topic)

    async def leading() -> Leadership:
        return await Leadership.open(cluster, job, lambda: JobStatus(job, "t", "d", "running", 0, 0))

    async def write(driver: Leadership, value: bytes) -> None:
        await driver.commit_status(at(topic), [InternalRecord(b"heartbeat", value)])

    async with await LostAnswer.open(wire_settings(dc2.bootstrap, {})) as cluster:
        old = await leading()
        cluster.lose = 1
        with pytest.raises(Disconnected):
            await write(old, b"first")
        await write(old, b"second")  # it goes on
        cluster.lose = 1
        with pytest.raises(Disconnected):
            await write(old, b"third")
        new = await leading()
        with pytest.raises(DriverFenced):
            await write(old, b"zombie")
        await write(new, b"new")
    assert [one.value for one in read(dc2.client, topic)] == [b"first", b"second", b"third", b"new"]
