"""A task of a file source whose outcome is unknown: it is fenced before the driver believes the ledger."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, cast

import msgspec
import pytest
from msgspec.structs import replace

from runtime.contract.spec.files import LinesSpec
from runtime.driver.application import TasksFailed
from runtime.driver.flows.copiers import copier_of
from runtime.driver.flows.flow import DriverFlow
from runtime.files.source.load import FileLoad, LoadTicket, load
from runtime.kafka.cluster import KafkaCluster
from runtime.kafka.errors import Disconnected, ErrorCode
from runtime.kafka.protocol.transactions import EndTransactionRequest
from tests.runtime.driver.groups_world import driving
from tests.runtime.slot.world import Side
from tests.spark.job import flow_of

pytestmark = pytest.mark.integration


class EndsLate(KafkaCluster):
    """The end of a transaction leaves this client, and does not arrive before `arrive`."""

    ending: tuple[Any, ...] = ()

    async def call(self, node: int, request: Any, *more: Any, **options: Any) -> Any:
        if isinstance(request, EndTransactionRequest):
            self.ending = (node, request, *more)
            raise Disconnected("test", "cut", sent=True)
        return await super().call(node, request, *more, **options)

    async def arrive(self) -> ErrorCode:
        """Lets the end arrive, and returns the coordinator's answer."""
        error: ErrorCode = await super().call(*self.ending)
        return error


class Tasks:
    """Runs the first task until its end is lost. That arrives just before the second task begins."""

    def __init__(self, side: Side) -> None:
        self._side = side
        self._first: EndsLate | None = None
        self.answer: ErrorCode | None = None

    def submit_round(self, group: str, work: Any, tickets: Sequence[bytes]) -> asyncio.Future[list[bytes]]:
        return asyncio.ensure_future(self._run(tickets))

    async def _run(self, tickets: Sequence[bytes]) -> list[bytes]:
        if self._first is None:
            async with await self._side.open() as cluster:
                self._first = await EndsLate.open(cluster.settings)
            task = FileLoad(msgspec.msgpack.decode(tickets[0], type=LoadTicket))
            try:
                await task.run(self._first)
            except Disconnected as error:
                raise TasksFailed(str(error)) from error
            finally:
                task.close()
        else:
            self.answer = await self._first.arrive()
            await self._first.close()
        return await asyncio.to_thread(lambda: list(load(tickets)))


async def test_lines_of_a_task_in_doubt_are_not_read_again_under_another_name(
    sides: dict[str, Side], fresh: Callable[[str], str], tmp_path: Path
) -> None:
    """The file is renamed while the task's last answer is lost, and the ledger does not know the file yet."""
    side, topic, name = sides["dc2"], fresh("lines"), fresh("flow")
    side.create(topic)
    (tmp_path / "a.txt").write_text("one\ntwo\n")
    tasks = Tasks(side)

    lines = LinesSpec(endpoint="inbox", folder=str(tmp_path), format="text", topic=topic)
    spec = flow_of(name, [], "dc2", "dc2", lines=lines)
    async with driving({"dc2": side}, spec, (), "lines") as (job, shared):
        flow = DriverFlow(spec, job, replace(shared, application=cast(Any, tasks)), copier_of)
        await flow._take_over()
        with pytest.raises(TasksFailed):
            await flow.copier.copy_once()
        (tmp_path / "a.txt").rename(tmp_path / "b.txt")
        while await flow.copier.copy_once():
            continue
    assert [row.value for row in side.read(topic)[0]] == [b"one", b"two"]
    assert tasks.answer is ErrorCode.PRODUCER_FENCED
