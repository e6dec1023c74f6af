"""The heartbeats of all flows of a source are one batch, and many flows write theirs less often."""

import asyncio
from collections.abc import Sequence
from typing import Any

import pytest
from msgspec.structs import replace

from runtime.contract.records import heartbeat
from runtime.driver.duties import heartbeats
from runtime.driver.duties.heartbeats import MAX_PER_S, NOTE, FlowHeartbeats, interval_s
from runtime.kafka.errors import Disconnected
from runtime.kafka.timing import BackgroundTasks
from runtime.ledger.records import InternalRecord
from tests.runtime.metrics.given import flow_spec, picture


class Sources:
    """Stands for the brokers of all sources: keeps the batches, or refuses them."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.batches: list[tuple[str, list[str]]] = []
        self.refused: str = ""
        self.written = asyncio.Event()
        monkeypatch.setattr(heartbeats, "ensure", self._ensure)
        monkeypatch.setattr(heartbeats, "post", self._post)

    async def cluster(self, name: str) -> Any:
        class Cluster:
            cluster_id = name

        return Cluster()

    async def _ensure(self, *_: object) -> None:
        return None

    async def _post(self, cluster: Any, _topic: str, records: Sequence[InternalRecord], **_: object) -> None:
        self.written.set()
        if self.refused:
            raise Disconnected(cluster.cluster_id, self.refused, sent=False)
        flows = [heartbeat.decode(one.value or b"").flow for one in records]
        self.batches.append((cluster.cluster_id, flows))

    async def next_write(self) -> None:
        self.written.clear()
        await asyncio.wait_for(self.written.wait(), 30)
        await asyncio.sleep(0)


class Scene:
    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(heartbeats, "_RETRY_S", 0.01)
        self.sources = Sources(monkeypatch)
        self.tasks = BackgroundTasks()
        job = picture().spec
        self.writer = FlowHeartbeats(lambda: job, self.sources, self.tasks)  # type: ignore[arg-type]

    def add(self, flow: str, source: str = "dc1", every_ms: int | None = 10) -> dict[str, str]:
        notes: dict[str, str] = {}
        spec = replace(flow_spec(flow), source=source, heartbeats_every_ms=every_ms)
        self.writer.add(spec, notes)
        return notes


def test_flows_of_one_source_and_interval_share_a_batch(monkeypatch: pytest.MonkeyPatch) -> None:
    async def work() -> None:
        scene = Scene(monkeypatch)
        scene.add("a")
        scene.add("b")
        scene.add("far", source="dc3")
        scene.add("off", every_ms=None)
        while len(scene.sources.batches) < 4:
            await scene.sources.next_write()
        await scene.tasks.end_all()
        assert set(map(str, scene.sources.batches)) == {"('dc1', ['a', 'b'])", "('dc3', ['far'])"}

    asyncio.run(work())


def test_a_flow_that_ends_is_left_out_and_the_last_one_ends_the_writing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def work() -> None:
        scene = Scene(monkeypatch)
        scene.add("a")
        scene.add("b")
        await scene.sources.next_write()
        scene.writer.remove("a")
        scene.sources.batches.clear()
        await scene.sources.next_write()
        assert scene.sources.batches == [("dc1", ["b"])]
        scene.writer.remove("b")
        scene.writer.remove("b")
        await asyncio.sleep(0)
        scene.sources.batches.clear()
        scene.add("c", source="dc3")
        while len(scene.sources.batches) < 3:
            await scene.sources.next_write()
        await scene.tasks.end_all()
        assert {source for source, _ in scene.sources.batches} == {"dc3"}

    asyncio.run(work())


def test_a_failure_is_noted_at_each_flow_until_it_is_over(monkeypatch: pytest.MonkeyPatch) -> None:
    async def work() -> None:
        scene = Scene(monkeypatch)
        scene.sources.refused = "no broker answers"
        notes = [scene.add("a"), scene.add("b")]
        await scene.sources.next_write()
        assert ["no broker answers" in one[NOTE] for one in notes] == [True, True]
        scene.sources.refused = ""
        while not scene.sources.batches:
            await scene.sources.next_write()
        assert notes == [{}, {}]
        await scene.tasks.end_all()

    asyncio.run(work())


@pytest.mark.parametrize(
    ("every_ms", "flows", "seconds"),
    [(1_000, 1, 1.0), (1_000, MAX_PER_S, 1.0), (1_000, 5 * MAX_PER_S, 5.0), (10_000, 5 * MAX_PER_S, 10.0)],
)
def test_many_flows_write_less_often(every_ms: int, flows: int, seconds: float) -> None:
    assert interval_s(every_ms, flows) == seconds
