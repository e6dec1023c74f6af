"""R10: a driver acts only while its heartbeat is seconds old."""

import asyncio
from collections.abc import Sequence

import pytest

from runtime.contract.records.job_status import JobStatus
from runtime.driver import leadership
from runtime.driver.leadership import FRESH_S, DriverFenced, Leadership
from runtime.kafka.errors import Disconnected
from runtime.kafka.protocol.offsets import TopicPartition
from runtime.ledger.records import InternalRecord


class Writer:
    def __init__(self) -> None:
        self.beats = 0
        self.answer: Exception | None = None

    async def commit_status(self, at: TopicPartition, records: Sequence[InternalRecord]) -> None:
        if self.answer is not None:
            raise self.answer
        self.beats += 1


class World:
    def __init__(self) -> None:
        self.now = 100.0
        self.writer = Writer()
        status = JobStatus("j", "t", "d", "running", 0, 0)
        self.leadership = Leadership(self.writer, lambda: status, lambda: self.now)

    def ensure(self) -> None:
        asyncio.run(self.leadership.ensure())


def test_the_first_duty_needs_a_heartbeat():
    world = World()
    world.ensure()
    assert world.writer.beats == 1


def test_a_fresh_heartbeat_is_enough():
    world = World()
    world.ensure()
    world.now += FRESH_S - 1
    world.ensure()
    assert world.writer.beats == 1


def test_after_a_sleep_it_is_asked_anew():
    world = World()
    world.ensure()
    world.now += 60
    world.ensure()
    assert world.writer.beats == 2


def test_a_driver_that_was_replaced_while_it_slept_acts_no_more():
    world = World()
    world.ensure()
    world.now += 60
    world.writer.answer = DriverFenced("90")
    with pytest.raises(DriverFenced):
        world.ensure()


def test_where_nobody_answers_nothing_is_done():
    world = World()
    world.writer.answer = Disconnected("dc2", "gone", sent=True)
    with pytest.raises(Disconnected):
        world.ensure()


def test_a_requested_heartbeat_does_not_wait_for_the_next_one(monkeypatch):
    monkeypatch.setattr(leadership, "EVERY_S", 3600)

    async def work() -> None:
        world = World()
        beats = asyncio.create_task(world.leadership.run())
        async with asyncio.timeout(60):
            while not world.writer.beats:
                await asyncio.sleep(0)
            world.leadership.request_heartbeat()
            while world.writer.beats < 2:
                await asyncio.sleep(0)
        beats.cancel()

    asyncio.run(work())
