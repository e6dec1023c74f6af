"""A slot is submitted again after every kind of end, and the driver never waits for the JVM."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Iterable
from contextlib import suppress
from types import SimpleNamespace
from typing import Any

import pytest
from py4j.protocol import Py4JError

from runtime.contract.records.control import AssignedFlow
from runtime.contract.records.job_status import PartitionState, PartitionStatus, SlotReport, SlotStatus
from runtime.contract.records.ledger import PartitionKey
from runtime.contract.spec.cluster import ClusterSpec
from runtime.contract.spec.jobspec import CopySettings
from runtime.driver.application import in_thread, reason
from runtime.driver.process import JvmCalls, JvmSilent
from runtime.driver.slots.channel import at
from runtime.driver.slots.manager import SlotManager, partitions_in_loss
from runtime.driver.slots.membership import Membership, slot_layout
from runtime.driver.slots.supervisor import SlotSupervisor
from runtime.driver.task import SlotResult, SlotStartRequest, run_with_channel
from runtime.kafka.errors import ErrorCode
from runtime.kafka.protocol.metadata import Partition, TopicMetadata
from runtime.kafka.protocol.offsets import ListedOffset, ListOffsetsRequest
from runtime.kafka.timing import BackgroundTasks
from runtime.slot import log
from runtime.slot.slot import SlotEnd, Stopped
from tests.runtime.slot.world import assigned, flow_spec

LOST = """An error occurred while calling o53.collect.
: org.apache.spark.SparkException: Job aborted due to stage failure: Lost task 0.0: worker died
\tat org.apache.spark.scheduler.DAGScheduler"""
ABORTED = "org.apache.spark.SparkException: Job aborted due to stage failure: Lost task 0.0: worker died"
BAD_MASTER = """An error occurred while calling None.org.apache.spark.api.java.JavaSparkContext.
: org.apache.spark.SparkException: Could not parse Master URL: 'lokal'
\tat org.apache.spark.SparkContext$"""


class Destination:
    """Says where the control topic ends."""

    def __init__(self) -> None:
        self.gathered: dict[Any, Any] = {}

    async def topics(self, names: Iterable[str], fresh: bool = False) -> dict[str, TopicMetadata]:
        return {name: TopicMetadata(name, b"c" * 16, ErrorCode.NONE, False, {0: LEADER}) for name in names}

    async def call(self, node: int, request: Any, purpose: str, within: float | None) -> Any:
        assert isinstance(request, ListOffsetsRequest)
        return {at("__repl.control"): ListedOffset(0, -1, 5)}


FLOW = AssignedFlow(flow_spec("flow"), 1)
LEADER = Partition(0, 1, 5, (1,), (1,))


class Spark:
    """Its first task ends as `first` does, or runs on; the next ones run on. `has_core` is said of all."""

    def __init__(self, first: Callable[[], SlotResult] | None) -> None:
        self._first = first
        self.groups: list[str] = []
        self.cancelled: list[str] = []
        self.has_core = True
        self.submitted = asyncio.Event()
        self.again = asyncio.Event()

    async def scheduled(self, group: str) -> bool:
        return self.has_core

    async def cores(self) -> int:
        return int(self.has_core)

    async def cancel(self, group: str) -> None:
        self.cancelled.append(group)

    def submit(self, group: str, ticket: SlotStartRequest) -> asyncio.Future[SlotResult]:
        self.groups.append(group)
        self.submitted.set()
        if len(self.groups) == 1 and self._first is not None:
            return in_thread(group, self._first)
        self.again.set()
        return asyncio.get_running_loop().create_future()


class FreshLeadership:
    async def ensure(self) -> None: ...


def context_of(spark: Spark) -> Any:
    """A driver with one slot, for which it has a partition."""
    context = SimpleNamespace(
        job="job",
        driver="driver",
        destination="dc2",
        settings=CopySettings(),
        layout=slot_layout([], 1),
        reached={"dc1": ClusterSpec(bootstrap="a:1"), "dc2": ClusterSpec(bootstrap="b:1")},
        cluster=Destination(),
        application=spark,
        membership=Membership(range(1)),
        leadership=FreshLeadership(),
        changed=lambda: None,
    )
    context.membership.set_wanted({"flow": FLOW}, {}, {one.key: one for one in assigned("flow", "orders")})
    return context


def raises(error: BaseException) -> Callable[[], SlotResult]:
    def work() -> SlotResult:
        raise error

    return work


@pytest.mark.parametrize(
    ("first", "why", "traced"),
    [
        (raises(ZeroDivisionError("a mistake")), "failed: ZeroDivisionError: a mistake", True),
        (raises(SystemExit(3)), "failed: SystemExit: 3", True),
        (raises(Py4JError(LOST)), f"failed: {ABORTED}", False),
        (lambda: SlotResult("fenced", "47"), "fenced: 47", False),
    ],
    ids=["unforeseen", "exit", "spark", "an end"],
)
async def test_however_a_task_ends_the_slot_is_submitted_again(
    first: Callable[[], SlotResult], why: str, traced: bool, capsys: pytest.CaptureFixture[str]
) -> None:
    spark = Spark(first)
    context = context_of(spark)
    assert context.membership.publish(0) is not None
    supervisor = SlotSupervisor(0, context)
    running = asyncio.create_task(supervisor.run())
    await asyncio.wait_for(spark.again.wait(), 20)
    await asyncio.sleep(0)
    view = supervisor.view()
    assert (view.state, view.attempts, view.why) == ("submitted", 2, why)
    assert spark.groups == ["slot 0 attempt 1", "slot 0 attempt 2"]
    running.cancel()
    assert ("Traceback" in capsys.readouterr().err) is traced


@pytest.mark.parametrize(("seconds", "has_core"), [(6, False), (60, True), (60, False)])
async def test_a_silent_slot_without_a_core_has_lost_its_executor(seconds: int, has_core: bool) -> None:
    """Spark does not count the loss of an executor as a failure of the task, and waits for a core."""

    spark, now = Spark(None), 100.0
    context = context_of(spark)
    context.membership.publish(0)
    manager = SlotManager(1, context, list, BackgroundTasks(), lambda _: None)
    manager.supervisors[0] = slot = SlotSupervisor(0, context, lambda: now)
    running = asyncio.create_task(slot.run())
    await asyncio.wait_for(spark.submitted.wait(), 20)
    slot.acknowledge(SlotReport("driver", 1, SlotStatus(slot=0, at_ms=0, assignment=1)))
    now += seconds
    spark.has_core = has_core
    await manager.inspect_once()
    assert spark.cancelled == (["slot 0 attempt 1"] if seconds > 6 and not has_core else [])
    running.cancel()


@pytest.mark.parametrize(
    ("error", "line"),
    [
        (Py4JError(BAD_MASTER), "org.apache.spark.SparkException: Could not parse Master URL: 'lokal'"),
        (OSError("no spark-submit"), "no spark-submit"),
        (ValueError(), "ValueError"),
    ],
)
def test_of_a_java_stack_trace_one_line_says_what_happened(error: Exception, line: str) -> None:
    assert reason(error) == line


def test_only_losses_can_be_accepted() -> None:
    def report(slot: int, *states: PartitionState) -> SlotReport:
        told = [
            PartitionStatus("f", "t", slot * 100 + n, state, since_ms=0) for n, state in enumerate(states)
        ]
        return SlotReport("driver", 1, SlotStatus(slot=slot, at_ms=0, assignment=1, partitions=told))

    state = PartitionState
    lost = [state.DATA_LOSS, state.DIVERGED, state.RECREATED, state.FILE_TRUNCATED, state.FILE_VANISHED]
    others = [one for one in state if one not in lost]
    found = partitions_in_loss([report(0, state.DATA_LOSS, *others), report(1, *lost[1:])])
    assert found == [PartitionKey("f", "t", number) for number in (0, 100, 101, 102, 103)]


# A slot and its end of the channel end together


class Copying:
    """A slot that copies until it is stopped."""

    def __init__(self) -> None:
        self._stopping = asyncio.Event()
        self.stop = self._stopping.set

    async def run(self) -> SlotEnd:
        await self._stopping.wait()
        return Stopped()


class Channel:
    """Its driver stops the slot, or it breaks."""

    def __init__(self, slot: Copying, *, broken: bool) -> None:
        self._slot, self._broken = slot, broken

    async def run(self) -> None:
        if self._broken:
            raise ZeroDivisionError("a programming error")
        self._slot.stop()
        await asyncio.Event().wait()


@pytest.mark.parametrize(
    ("broken", "result"),
    [(True, SlotResult("failed", "ZeroDivisionError: a programming error")), (False, SlotResult("stopped"))],
)
def test_a_slot_ends_with_its_channel(
    broken: bool, result: SlotResult, caplog: pytest.LogCaptureFixture
) -> None:
    async def work() -> SlotResult:
        slot: Any = Copying()
        channel: Any = Channel(slot, broken=broken)
        return await asyncio.wait_for(run_with_channel(slot, channel), 60)

    assert asyncio.run(work()) == result
    assert [line.getMessage() for line in caplog.records] == ["slot_failed"] * broken
    assert not broken or "in run\n" in str(log.fields_of(caplog.records[0])["traceback"])


# The event loop never waits for the JVM, and two calls never run at once


async def test_a_silent_jvm_is_told_and_called_again_after_the_call_that_hangs() -> None:
    answers, under_way, at_once, turns = threading.Event(), 0, 0, 0

    def hangs() -> int:
        nonlocal under_way, at_once
        under_way += 1
        at_once = max(at_once, under_way)
        answers.wait(60)
        under_way -= 1
        return 7

    loop, jvm = asyncio.get_running_loop(), JvmCalls(within_s=0.05)

    def turn() -> None:
        nonlocal turns
        turns += 1
        loop.call_soon(turn)

    turn()
    for _ in range(3):
        with pytest.raises(JvmSilent, match=r"0\.05 s \(cores\)"):
            await jvm.call("cores", hangs)
    assert turns > 3
    answers.set()
    async with asyncio.timeout(30):  # on a busy machine even a call that answers may need more than 50 ms
        answer = None
        while answer is None:
            with suppress(JvmSilent):
                answer = await jvm.call("cores", hangs)
    assert (answer, at_once) == (7, 1)


def test_an_error_of_a_call_reaches_its_caller_and_no_other_one() -> None:
    go = threading.Event()

    def fails() -> int:
        go.wait(60)
        raise TimeoutError("of its own")

    async def work() -> int:
        jvm = JvmCalls(within_s=0.05)
        with pytest.raises(JvmSilent):
            await jvm.call("to cancel", fails)
        go.set()
        answer = None
        while answer is None:
            with suppress(JvmSilent):
                answer = await jvm.call("cores", lambda: 3)
        assert answer == 3
        return await JvmCalls().call("cores", fails)

    with pytest.raises(TimeoutError, match="of its own"):
        asyncio.run(work())
