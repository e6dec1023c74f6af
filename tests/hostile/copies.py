"""What copies through the proxy. Each one goes on until all is copied, and is begun again whenever it ends.

A slot is resubmitted in the same generation, as its driver does, or another driver takes the flow over. The
tasks of file sources, restores and replays are those that Spark calls, and run in this process.
"""

from __future__ import annotations

import asyncio
import random
import threading
import time
from collections.abc import Callable, Coroutine, Sequence
from pathlib import Path
from typing import Any

import uvloop
from msgspec.structs import replace

from runtime.contract.records.control import AssignedPartition, Assignment, SlotSpec
from runtime.contract.records.ledger import PartitionKey
from runtime.contract.results.records import ReplayedPartition
from runtime.contract.spec.cluster import ClusterSpec
from runtime.contract.spec.files import LinesSpec
from runtime.contract.spec.jobspec import FlowSpec
from runtime.files.source.load import LOAD, LoadFile, LoadTicket, load
from runtime.files.tasks import encode
from runtime.kafka.errors import WireError
from runtime.lab.cluster import LabKafkaCluster
from runtime.ledger.ledger import Ledger
from runtime.replay import request as replay
from runtime.replay.task import copy_partitions
from runtime.slot.errors import SlotEnd
from runtime.slot.slot import Slot
from tests.runtime.slot.world import Driver, Side
from tests.spark.backups import BackupWriter
from tests.spark.backups import restoring as restore_of

_AGAIN_S = 0.2
_ENDS_S = 180.0
_LEFT_S = 20.0  # a task that was replaced is waited for at least so long
_MAX_MESSAGE_BYTES = 1_000_000


class _Attempt(threading.Thread):
    """One attempt of a slot, with an event loop of its own."""

    def __init__(self, spec: SlotSpec, assignment: Assignment) -> None:
        super().__init__(daemon=True)
        self.how = ""
        self._spec, self._assignment = spec, assignment
        self._slot: Slot | None = None
        self._loop: asyncio.AbstractEventLoop | None = None

    def run(self) -> None:
        try:
            with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
                self.how = runner.run(self._copy()).how
        except Exception as error:  # noqa: BLE001 - as a process that ends: it is submitted again
            self.how = repr(error)

    def stop(self) -> None:
        if self._loop is not None and self._slot is not None and self.is_alive():
            self._loop.call_soon_threadsafe(self._slot.stop)

    async def _copy(self) -> SlotEnd:
        self._loop = asyncio.get_running_loop()
        self._slot = Slot(self._spec, self._assignment, {})
        return await self._slot.run()


class KeptSlot:
    """A slot that is submitted again whenever it ended, or while another attempt of it is still alive."""

    def __init__(
        self,
        driver: Driver,
        spec: SlotSpec,
        flow: FlowSpec,
        partitions: Sequence[AssignedPartition],
        dice: random.Random,
    ) -> None:
        self.attempts: list[_Attempt] = []
        self._driver, self._spec = driver, spec
        self._flow, self._partitions = flow, partitions
        self._dice = dice
        self._assignment = self._take_over()
        self._stopping = threading.Event()
        self._replace = threading.Event()
        self._keeper = threading.Thread(target=self._keep, daemon=True)

    def __enter__(self) -> KeptSlot:
        self._keeper.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stopping.set()
        self._keeper.join(_ENDS_S)

    def fence(self, _transactional_id: str) -> None:
        """Replaces the slot while it runs: by a new generation, or by another attempt in the same one."""
        if self._dice.random() < 0.5:
            self._assignment = self._take_over()
        self._replace.set()

    @property
    def outlived(self) -> bool:
        """Whether an attempt that was replaced has not ended yet."""
        return any(one.is_alive() for one in self.attempts[:-1])

    def await_ended(self, write: Callable[[], object]) -> None:
        """Waits until every attempt that was replaced has ended by itself (R3).

        One that is caught up learns that it was fenced from the next records. The newest attempt may still
        begin while some are written, so more are written until the others have ended.
        """
        deadline = time.monotonic() + _ENDS_S
        while self.outlived:
            assert time.monotonic() < deadline, "an attempt that was replaced still runs"
            write()
            for one in self.attempts[:-1]:
                one.join(_AGAIN_S)

    def _take_over(self) -> Assignment:
        return asyncio.run(self._driver.take_over(self._flow, self._partitions))

    def _keep(self) -> None:
        while not self._stopping.is_set():
            self._replace.clear()
            attempt = _Attempt(self._spec, self._assignment)
            self.attempts.append(attempt)
            attempt.start()
            while attempt.is_alive() and not (self._stopping.is_set() or self._replace.is_set()):
                attempt.join(0.05)
            self._stopping.wait(_AGAIN_S)
        for attempt in self.attempts:
            attempt.stop()
        for attempt in self.attempts:
            attempt.join(_ENDS_S)


class RepeatedTask:
    """A task that is begun again until it has done all of its work; `begin` returns whether it has.

    Where it is fenced, another one is begun while it still runs.
    """

    def __init__(self, begin: Callable[[], bool]) -> None:
        self.attempts: list[str] = []
        self._begin = begin
        self._replace = threading.Event()

    def fence(self, _transactional_id: str) -> None:
        """Begins another task beside the one that runs."""
        self._replace.set()

    def run(self, within_s: float) -> None:
        """Runs tasks until one is done, and all others have ended."""
        deadline = time.monotonic() + within_s
        running: list[threading.Thread] = []
        done = threading.Event()

        def once() -> None:
            try:
                if self._begin():
                    done.set()
            except (WireError, AssertionError, OSError) as error:
                self.attempts.append(repr(error))

        while not done.is_set():
            assert time.monotonic() < deadline, f"not done in {within_s:g} s: {self.attempts[-3:]}"
            self._replace.clear()
            task = threading.Thread(target=once, daemon=True)
            running.append(task)
            task.start()
            while task.is_alive() and not (done.is_set() or self._replace.is_set()):
                task.join(0.05)
            done.wait(_AGAIN_S)
        for task in running:
            task.join(max(_LEFT_S, deadline - time.monotonic()))
            assert not task.is_alive(), "a task that was replaced still runs"


def _copied(copies: Coroutine[Any, Any, list[ReplayedPartition]]) -> bool:
    """Copies in the kind of event loop that Spark's tasks use, and returns whether all was copied."""
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        return not any(part.unread for part in runner.run(copies))


def replaying(
    flow: FlowSpec, source: Side, through: ClusterSpec, topic: str, partitions: int
) -> RepeatedTask:
    """Replays the orphans of a flow that has ended."""
    parts = [AssignedPartition(flow.name, topic, one, topic, _MAX_MESSAGE_BYTES) for one in range(partitions)]
    request = replay.ReplayRequest(
        flow=flow, source=source.spec(), destination=through, parts=parts, bytes=4_000
    )

    def begin() -> bool:
        return _copied(copy_partitions(request))

    return RepeatedTask(begin)


def restoring(
    cluster: LabKafkaCluster, through: ClusterSpec, topic: str, into: str, folder: Path
) -> RepeatedTask:
    """Backs a topic up into a folder, and restores it into another topic of the destination."""
    folder.mkdir()
    BackupWriter(cluster, folder).round(topic, snapshot=False)
    request = restore_of(folder, topic, into, "dc2", through, max_message_bytes=_MAX_MESSAGE_BYTES)
    request = replace(request, bytes=8_000)

    def begin() -> bool:
        return _copied(copy_partitions(request))

    return RepeatedTask(begin)


def loading(
    driver: Driver, flow: FlowSpec, through: ClusterSpec, topic: str, files: Sequence[Path]
) -> RepeatedTask:
    """Reads files into a topic, a partition for each, round by round as the driver has it done."""
    asyncio.run(driver.take_over(flow, []))
    folder = files[0].parent
    transactional_id = f"repl.{driver.job}.0.{flow.name}.0"
    lines = LinesSpec(endpoint="inbox", folder=str(folder), format="text", topic=topic)
    ends = {one.name: one.stat().st_size for one in files}

    def begin() -> bool:
        ticket = asyncio.run(_ticket(driver, flow, through, lines, transactional_id, sorted(ends)))
        (result,) = LOAD.results(list(load([encode(ticket)])))
        return {one.name: one.position for one in result.done} == ends

    return RepeatedTask(begin)


async def _ticket(
    driver: Driver,
    flow: FlowSpec,
    through: ClusterSpec,
    lines: LinesSpec,
    transactional_id: str,
    names: Sequence[str],
) -> LoadTicket:
    """Returns the work of a round, by what the ledger says now."""
    async with await driver.sides[driver.destination].open() as cluster:
        ledger = await Ledger.open(cluster)
        await ledger.decided(flow.name)
        generation = ledger.generation(flow.name)
        assert generation is not None
        files, known = [], ledger.all_progress(flow.name)
        for number, name in enumerate(names):
            progress = known.get(PartitionKey(flow.name, name, number))
            position, mark = (progress.position, progress.source_topic_id) if progress else (0, b"")
            files.append(LoadFile(name, number, position, mark, (Path(lines.folder) / name).stat().st_size))
        topic = (await cluster.topics([lines.topic]))[lines.topic]
    return LoadTicket(
        flow=flow.name,
        generation=generation.number,
        transactional_id=transactional_id,
        cluster_name=driver.destination,
        cluster=through,
        client_id=f"repl.{driver.job}.slot-0",
        lines=lines,
        topic_id=topic.id,
        max_message_bytes=6_000,
        files=files,
        round_s=20.0,
    )
