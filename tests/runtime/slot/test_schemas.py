"""Records arrive once, in order, and each can be decoded with the schema registry of the destination."""

import asyncio
import signal
import struct
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from runtime.contract.records.job_status import PartitionState as State
from runtime.contract.records.job_status import PartitionStatus
from runtime.contract.spec.schemas import RegistrySpec, SchemaSync
from tests.fakes.registry import RegistryServer, registry_server
from tests.runtime.slot.slot_process import ended, slot_process
from tests.runtime.slot.world import Driver, Row, Side, assigned, at_end, copy_through, flow_spec, until

pytestmark = pytest.mark.integration
Fresh = Callable[[str], str]


class Pair:
    """The registries of both clusters, and a topic that is renamed between them."""

    def __init__(
        self, sides: dict[str, Side], fresh: Fresh, here: RegistryServer, there: RegistryServer
    ) -> None:
        self.sides, self.here, self.there = sides, here, there
        self.topic, self.renamed = fresh("orders"), fresh("copied-orders")
        sides["dc1"].create(self.topic, 2)
        sides["dc2"].create(self.renamed, 2)
        specs = {"dc1": RegistrySpec(url=here.url), "dc2": RegistrySpec(url=there.url)}
        self.driver = Driver(sides, job=fresh("job"), registries=specs)
        self.flow = flow_spec(fresh("flow"), schemas=SchemaSync(sync=True, ids="translate"))
        self.partitions = assigned(self.flow.name, self.topic, 2, destination_topic=self.renamed)

    def add(self, number: int, *, default: bool = True) -> None:
        """Registers a new version of the schema of the topic's values at the source."""
        fields = [{"name": "a", "type": "long"}]
        if number > 1:
            more: dict[str, Any] = {"name": f"b{number}", "type": "long"}
            fields.append(more | {"default": 0} if default else more)
        self.here.add(number, {"type": "record", "name": "Order", "fields": fields}, f"{self.topic}-value")

    def write(self, numbers: list[int], partition: int = 0) -> None:
        """Each key is a long, as Kafka's serializer writes it: it begins with a zero byte."""
        self.sides["dc1"].write(
            self.topic,
            [
                {
                    "key": struct.pack(">q", at << 26),
                    "value": framed(number, b"%d" % at),
                    "partition": partition,
                }
                for at, number in enumerate(numbers)
            ],
        )

    def decoded(self, side: str) -> list[list[tuple[bytes | None, str, bytes]]]:
        """What a consumer of the topic reads at a side: keys, the text of the schemas, and payloads."""
        registry = self.here if side == "dc1" else self.there
        topic = self.topic if side == "dc1" else self.renamed
        return [[_decoded(row, registry) for row in rows] for rows in self.sides[side].read(topic, 2)]

    def assert_copied(self) -> None:
        assert self.decoded("dc2") == self.decoded("dc1")


def framed(number: int, payload: bytes) -> bytes:
    return struct.pack(">bI", 0, number) + payload


def _decoded(row: Row, registry: RegistryServer) -> tuple[bytes | None, str, bytes]:
    assert row.value is not None
    (number,) = struct.unpack(">I", row.value[1:5])
    return row.key, registry.schemas[number]["schema"], row.value[5:]


@pytest.fixture
def pair(sides: dict[str, Side], fresh: Fresh) -> Iterator[Pair]:
    with registry_server() as here, registry_server() as there:
        for number in range(1, 5):  # these ids mean other schemas at the destination
            there.add(number, {"type": "enum", "name": f"E{number}", "symbols": ["A"]}, f"other-{number}")
        yield Pair(sides, fresh, here, there)


async def test_records_wait_for_a_registry_that_is_down_and_others_go_on(pair: Pair) -> None:
    pair.add(1)
    pair.write([1] * 20)
    pair.write([1] * 5, partition=1)
    assignment = await pair.driver.take_over(pair.flow, pair.partitions)
    async with pair.driver.running(assignment) as slot:
        await until(slot, at_end([20, 5]))
        pair.there.down = True
        pair.add(2)
        await asyncio.to_thread(pair.write, [1, 2, 1])
        await asyncio.to_thread(pair.write, [1] * 5, 1)

        def waits(status: PartitionStatus) -> bool:
            if status.partition == 1:
                return status.position >= 10
            return status.position == 21 and status.state is State.RETRYING and "schema id 2" in status.why

        await until(slot, waits)
        (flow,) = slot.status().flows
        assert flow.schemas_waiting == 1
        (why,) = [status.why for status in slot.status().partitions if status.partition == 0]
        assert pair.there.url in why
        pair.there.down = False
        await until(slot, at_end([23, 10]))
    await asyncio.to_thread(pair.assert_copied)


def test_killed_after_registering_nothing_is_lost_doubled_or_undecodable(pair: Pair, tmp_path: Path) -> None:
    for nth in (1, 2):
        pair.add(nth)
        pair.write([nth] * 30)
        assignment = asyncio.run(pair.driver.take_over(pair.flow, pair.partitions))
        with slot_process(tmp_path, pair.driver.spec(), assignment, "before_flush:1") as process:
            ended(process, -signal.SIGKILL)
        assert nth in pair.there.subjects[f"{pair.renamed}-value"]
    copy_through(pair.driver, pair.flow, pair.partitions)
    pair.assert_copied()
    assert len(pair.decoded("dc2")[0]) == 60
    assert pair.there.subjects[f"{pair.renamed}-value"] == {1: 5, 2: 6}
