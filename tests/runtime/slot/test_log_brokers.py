"""What a slot decides stands in its log: a leader that changes, an abort, a fence."""

import asyncio
import json
import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from runtime.kafka.protocol.offsets import TopicPartition
from runtime.slot import log
from tests.conftest import MakeLab
from tests.labs import spec
from tests.leaders import elect, move_replicas
from tests.records import PATIENCE_S, wait_for
from tests.runtime.conftest import sides_of
from tests.runtime.slot.brokers import place
from tests.runtime.slot.world import Driver, Side, assigned, at_end, flow_spec, until

pytestmark = [pytest.mark.integration, pytest.mark.long]
Fresh = Callable[[str], str]


@dataclass(frozen=True)
class Log:
    file: Path

    def of(self, event: str) -> list[dict[str, Any]]:
        found = [json.loads(line) for line in self.file.read_text().splitlines()]
        return [line for line in found if line["event"] == event]


@pytest.fixture
def written(tmp_path: Path) -> Iterator[Log]:
    file = tmp_path / "job.log"
    descriptor = os.open(file, os.O_CREAT | os.O_WRONLY | os.O_APPEND)
    log.start({"REPL_LOG": "json"}, descriptor)
    yield Log(file)
    log.stop()
    os.close(descriptor)


def lead(side: Side, topic: str, replicas: list[int]) -> None:
    """The first of them becomes the leader, while none dies."""
    admin, at = side.admin(), TopicPartition(topic, 0)
    move_replicas(side.bootstrap, {at: replicas}, PATIENCE_S)

    def led() -> bool:
        elect(side.bootstrap, [at], PATIENCE_S)
        known = admin.list_topics(topic, timeout=PATIENCE_S).topics[topic]
        return known.partitions[0].leader == replicas[0]

    wait_for(led)


def test_a_leader_change_and_a_fence_are_in_the_log(own_lab: MakeLab, fresh: Fresh, written: Log) -> None:
    sides = sides_of(own_lab(spec("dc1"), spec("dc2", brokers=2)))
    topic, flow = fresh("orders"), flow_spec(fresh("flow"))
    sides["dc1"].create(topic)
    place(sides["dc2"], topic, [[1, 2]])
    driver, partitions = Driver(sides, job=fresh("job")), assigned(flow.name, topic)

    async def write(count: int) -> None:
        rows = [{"value": b"%d" % one, "partition": 0} for one in range(count)]
        await asyncio.to_thread(sides["dc1"].write, topic, rows)

    async def copy() -> None:
        assignment = await driver.take_over(flow, partitions)
        async with driver.running(assignment) as slot:
            await write(10)
            await until(slot, at_end([10]))
            await asyncio.to_thread(lead, sides["dc2"], topic, [2, 1])
            await write(10)
            await until(slot, at_end([20]))
            await driver.take_over(flow, partitions)  # another driver: every id of this slot is fenced
            await write(10)
            while not written.of("slot_ended"):
                await asyncio.sleep(0.05)

    asyncio.run(asyncio.wait_for(copy(), 2 * PATIENCE_S))
    (began,) = written.of("flow_begun")
    assert (began["flow"], began["generation"]) == (flow.name, 1)
    states = [line["state"] for line in written.of("partition_state")]
    assert states[0] in ("copying", "caught_up")
    changed = written.of("leader_changed")[0]
    assert (changed["flow"], changed["topic"], changed["partition"]) == (flow.name, topic, 0)
    assert (changed["side"], changed["leader"], changed["position"]) == ("destination", 2, 10)
    fenced = written.of("transaction_failed")[-1]
    assert fenced["decision"].startswith("end the slot")
    assert "47" in fenced["error"] or "90" in fenced["error"]
    (ended,) = written.of("slot_ended")
    assert ended["decision"] == "fenced"
