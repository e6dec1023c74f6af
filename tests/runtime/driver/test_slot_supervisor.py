"""A slot is submitted again after every kind of end, and the driver never waits for the JVM."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from functools import partial
from types import SimpleNamespace
from typing import Any, Self, cast

import pytest
from msgspec.structs import replace
from py4j.protocol import Py4JError

from runtime.contract.records import control, job_status
from runtime.contract.records.control import AssignedFlow, AssignedPartition, Assignment
from runtime.contract.records.job_status import (
    PartitionState,
    PartitionStatus,
    SlotHeartbeat,
    SlotReport,
)
from runtime.contract.records.ledger import PartitionKey
from runtime.contract.spec import naming
from runtime.contract.spec.cluster import ClusterSpec
from runtime.contract.spec.jobspec import JobSpec
from runtime.driver.application import in_thread, reason
from runtime.driver.process import JvmCalls, JvmSilent
from runtime.driver.slots import worker
from runtime.driver.slots.manager import SlotManager, partitions_in_loss, rest_s
from runtime.driver.slots.membership import Membership, slot_layout
from runtime.driver.slots.supervisor import SlotSupervisor
from runtime.driver.slots.ticket import SlotStartRequest
from runtime.driver.slots.worker import run_with_channel
from runtime.kafka.errors import ErrorCode
from runtime.kafka.protocol.produce import ProduceRequest
from runtime.kafka.protocol.transactions import CoordinatorKind, InitProducerIdRequest
from runtime.kafka.records import InternalRecord
from runtime.kafka.timing import BackgroundTasks, Silence
from runtime.slot import log
from runtime.slot.errors import SlotEnd
from tests.fakes.internal_topics import InternalTopics, TransactionalTopics
from tests.runtime.slot.world import assigned, flow_spec
from tests.waiting import until

LOST = """An error occurred while calling o53.collect.
: org.apache.spark.SparkException: Job aborted due to stage failure: Lost task 0.0: worker died
\tat org.apache.spark.scheduler.DAGScheduler"""
ABORTED = "org.apache.spark.SparkException: Job aborted due to stage failure: Lost task 0.0: worker died"
BAD_MASTER = """An error occurred while calling None.org.apache.spark.api.java.JavaSparkContext.
: org.apache.spark.SparkException: Could not parse Master URL: 'lokal'
\tat org.apache.spark.SparkContext$"""


class Destination(TransactionalTopics):
    """`done` lists in order: the end of an attempt in the control topic, the removal of its report, and each
    fenced id. `refused` are the errors of ids that can't be fenced.
    """

    def __init__(self) -> None:
        super().__init__({naming.CONTROL: [], naming.STATUS: []})
        self.done: list[str] = []
        self.refused: dict[str, ErrorCode] = {}

    def forget_coordinator(self, kind: CoordinatorKind, key: str) -> None: ...

    async def call(self, node: int, request: Any, purpose: str, within: float | None) -> Any:
        match request:
            case InitProducerIdRequest():
                if error := self.refused.get(str(request.transactional_id)):
                    return error
                self.done.append(str(request.transactional_id))
            case ProduceRequest(partitions=[part]):
                content = b"".join(bytes(piece) for piece in part.records)
                if part.topic == naming.CONTROL and b'"stop_slot"' in content:
                    self.done.append("end")
                elif part.topic == naming.STATUS:
                    self.done.append("no report")
        return await super().call(node, request, purpose, within)


FLOW = AssignedFlow(flow_spec("flow"), 1)
REACHED = {"dc1": ClusterSpec(bootstrap="a:1"), "dc2": ClusterSpec(bootstrap="b:1")}


class Spark:
    """Its first task ends as `first` does, or runs on; the next ones run on. `lacks`: what all wait for."""

    def __init__(self, first: Callable[[], SlotEnd] | None) -> None:
        self._first = first
        self.groups: list[str] = []
        self.cancelled: list[str] = []
        self.lacks: str | None = None
        self.submitted = asyncio.Event()
        self.again = asyncio.Event()

    async def waits_for(self, group: str) -> str | None:
        return self.lacks

    async def cores(self) -> int:
        return int(self.lacks is None)

    async def cancel(self, group: str) -> None:
        self.cancelled.append(group)

    def submit(self, group: str, ticket: SlotStartRequest) -> asyncio.Future[SlotEnd]:
        self.groups.append(group)
        self.submitted.set()
        if len(self.groups) == 1 and self._first is not None:
            return in_thread(group, self._first)
        self.again.set()
        return asyncio.get_running_loop().create_future()


class FreshLeadership:
    age_s = 0.0

    async def ensure(self) -> None: ...


def context_of(spark: Spark, slots: int = 1) -> Any:
    """A driver with a partition for each of its slots."""
    context = SimpleNamespace(
        job="job",
        driver="driver",
        spec=JobSpec(job="job", topology="t", destination="dc2", clusters=REACHED, flows=[]),
        layout=slot_layout([], slots),
        destination=Destination(),
        application=spark,
        membership=Membership(range(slots)),
        leadership=FreshLeadership(),
        changed=lambda: None,
    )
    partitions = {one.key: one for topic in "abcd"[:slots] for one in assigned("flow", topic)}
    context.membership.set_wanted({"flow": FLOW}, partitions)
    return context


def raises(error: BaseException) -> Callable[[], SlotEnd]:
    def work() -> SlotEnd:
        raise error

    return work


@pytest.mark.parametrize(
    ("first", "why", "traced"),
    [
        (raises(ZeroDivisionError("a mistake")), "failed: ZeroDivisionError: a mistake", True),
        (raises(SystemExit(3)), "failed: SystemExit: 3", True),
        (raises(Py4JError(LOST)), f"failed: {ABORTED}", False),
        (lambda: SlotEnd("fenced", "47"), "fenced: 47", False),
    ],
    ids=["unforeseen", "exit", "spark", "an end"],
)
async def test_however_a_task_ends_the_slot_is_submitted_again(
    first: Callable[[], SlotEnd], why: str, traced: bool, capsys: pytest.CaptureFixture[str]
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


def is_submitted(supervisor: SlotSupervisor, attempt: int) -> bool:
    return supervisor.attempt >= attempt and supervisor.state == "submitted"


class Driver:
    """A driver with slots that run, and a clock."""

    def __init__(self, slots: int) -> None:
        self.spark = Spark(None)
        self.context = context_of(self.spark, slots)
        self.manager = SlotManager(slots, self.context, list, BackgroundTasks(), lambda _: None)
        self.now = 100.0
        self.throttled_ms = 0
        self._running = [asyncio.create_task(one.run()) for one in self.manager.supervisors]

    async def run(self, slots: Iterable[int], attempt: int) -> None:
        """Returns when these slots have reported from their attempt."""
        for slot in slots:
            supervisor = self.manager.supervisors[slot]
            await until(partial(is_submitted, supervisor, attempt))
            supervisor.acknowledge(SlotReport(slot, 0, 0, "driver", attempt))

    async def read(self, seconds: int, *beating: int) -> None:
        """Reads the status topic twice a second, with heartbeats of some slots in it."""
        for _ in range(2 * seconds):
            self.now += 0.5
            for supervisor in self.manager.supervisors:
                if supervisor.slot in beating:
                    self.manager.take_heartbeat(
                        supervisor.slot, SlotHeartbeat("driver", supervisor.attempt, self.throttled_ms)
                    )
            self.manager.end_read(self.now)
            await asyncio.sleep(0)

    def slots(self, *slots: int) -> list[int]:
        """How many partitions each of these slots is assigned."""
        for slot in slots:
            self.context.membership.publish(slot)
        return [self.context.membership.partitions_of(slot) for slot in slots]

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        for running in self._running:
            running.cancel()


class CountedWeights(Membership):
    """It counts the rates that it takes."""

    def __init__(self, slots: int) -> None:
        super().__init__(range(slots))
        self.taken = 0

    def update_weights(self, weights: Mapping[PartitionKey, float]) -> None:
        self.taken += len(weights)
        super().update_weights(weights)


def measured(partitions: int, at_ms: int, **first: Any) -> bytes:
    """A report of partitions that were measured. `first` is what it says of the first one."""
    each = PartitionStatus("flow", "a", 0, PartitionState.CAUGHT_UP, 0, rate=0, last_fetch_ms=at_ms)
    partition, others = replace(each, **first), range(1, partitions)
    reported = [partition, *(replace(each, partition=number) for number in others)]
    return job_status.encode(SlotReport(0, at_ms, 1, "driver", 1, partitions=reported))


async def test_of_each_report_only_what_changed_is_looked_at_until_other_partitions_are_wanted() -> None:
    async with Driver(1) as driver:
        await driver.run([0], 1)
        manager, counted = driver.manager, CountedWeights(1)
        driver.context.membership = counted
        taken = []
        for at_ms, first in enumerate([{}, {}, {"rate": 5}, {"rate": 5}]):
            manager._read_report(0, measured(50, at_ms, **first), at_ms)
            taken.append(counted.taken)
        assert taken == [50, 50, 51, 51]
        assigning = asyncio.create_task(manager._assign())
        manager.changed()
        await until(lambda: not manager._changed.is_set())
        manager._read_report(0, measured(50, 9, rate=5), 9)
        assert counted.taken == 101
        assigning.cancel()


def test_what_takes_long_for_very_many_partitions_leaves_most_of_the_loop_to_the_rest() -> None:
    spent_s = 1.5
    assert spent_s / (spent_s + rest_s(spent_s)) == pytest.approx(0.2)


async def test_a_slot_without_heartbeats_is_fenced_and_others_copy_its_partitions() -> None:
    """Its end is written before its ids are fenced, and only then others get what it had (R3)."""
    async with Driver(3) as driver:
        assert driver.slots(0, 1, 2) == [1, 1, 1]
        await driver.run(range(3), 1)
        await driver.read(4, 1, 2)
        assert driver.manager.supervisors[0].state == "running"
        await driver.read(2, 1, 2)
        assert driver.manager.supervisors[0].view().why.endswith("no heartbeat for 5 s")
        assert driver.slots(0, 1, 2) == [0, 1, 1], "what it had is not free before it is fenced"
        await until(lambda: len(driver.spark.groups) == 4)
        ids = [f"repl.job.0.flow.{lane}" for lane in range(4)]
        assert driver.context.destination.done == ["end", *ids, "no report"]
        assert driver.spark.cancelled == ["slot 0 attempt 1"]
        assert sorted(driver.slots(0, 1, 2)) == [0, 1, 2], "its next attempt gets nothing before it runs"
        await driver.run([0], 2)
        await driver.manager.inspect_once()
        assert driver.context.membership.usable(0)


async def test_an_id_that_cannot_be_fenced_delays_its_own_flow_only() -> None:
    """And no longer than the job runs (R7)."""
    async with Driver(2) as driver:
        membership, slot = driver.context.membership, driver.manager.supervisors[0]
        flows = {name: AssignedFlow(flow_spec(name), 1) for name in ("flow", "other")}
        partitions = {one.key: one for name in flows for topic in "abcd" for one in assigned(name, topic)}
        membership.set_wanted(flows, partitions)
        driver.context.destination.refused = {
            "repl.job.0.other.1": ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
        }
        driver.slots(0, 1)
        assert {key.flow for key in membership._held if membership._held[key] == 0} == set(flows)
        await driver.run(range(2), 1)
        await driver.read(6, 1)
        driver.slots(0, 1)
        await until(lambda: membership.releasing(0) == {"other"})
        assert slot.attempt == 1
        await slot.stop()
        await asyncio.wait_for(driver._running[0], 20)


async def test_a_slot_that_waits_for_the_control_topic_ends_with_its_job() -> None:
    async with Driver(1) as driver:
        slot = driver.manager.supervisors[0]
        driver.context.destination.gone = {naming.CONTROL}
        await until(lambda: slot.view().why)
        await slot.stop()
        await asyncio.wait_for(driver._running[0], 20)
        assert slot.attempt == 0


async def test_a_slot_whose_partitions_nobody_else_can_copy_has_more_time() -> None:
    async with Driver(1) as driver:
        assert driver.slots(0) == [1]
        await driver.run([0], 1)
        await driver.read(29)
        assert driver.manager.supervisors[0].view().state == "running"
        await driver.read(2)
        assert driver.manager.supervisors[0].view().why.endswith("no heartbeat for 30 s")


async def test_no_slot_is_replaced_because_the_status_topic_took_no_heartbeat_for_a_while() -> None:
    """One slot's heartbeat is the first that is taken again."""
    async with Driver(4) as driver:
        await driver.run(range(4), 1)
        await driver.read(10, 0, 1, 2, 3)
        await driver.read(2)
        driver.context.leadership.age_s = 3.0
        await driver.read(6)
        await driver.read(1, 1)
        driver.context.leadership.age_s = 0.5
        await driver.read(3, 1)
        assert [view.state for view in driver.manager.views()] == ["running"] * 4
        await driver.read(2, 1)
        assert driver.manager.supervisors[1].state == "running"
        assert driver.manager.supervisors[0].state == "waiting"


async def test_a_slot_that_is_replaced_again_and_again_has_more_time_each_time() -> None:
    async with Driver(2) as driver:
        slot = driver.manager.supervisors[0]
        driver.slots(0, 1)
        await driver.run([1], 1)
        for attempt, limit in enumerate((5, 10, 20), 1):
            await driver.run([0], attempt)
            await driver.read(limit - 1, 1)
            assert slot.state == "running"
            await driver.read(2, 1)
            assert slot.view().why.endswith(f"no heartbeat for {limit} s")
        await driver.run([0], 4)
        await driver.read(600, 0, 1)
        await driver.read(6, 1)
        assert slot.view().why.endswith("no heartbeat for 5 s")


async def test_a_slot_that_a_broker_throttles_has_so_much_more_time() -> None:
    async with Driver(2) as driver:
        slot = driver.manager.supervisors[0]
        await driver.run(range(2), 1)
        driver.throttled_ms = 8_000
        await driver.read(1, 0)
        driver.throttled_ms = 0
        await driver.read(12, 1)
        assert slot.state == "running"
        await driver.read(2, 1)
        assert slot.view().why.endswith("no heartbeat for 13 s")


async def test_a_heartbeat_does_not_wait_until_a_throttle_is_over(monkeypatch: pytest.MonkeyPatch) -> None:
    """The broker reads no more from its connection, so it goes over another one, and says so."""
    beats: asyncio.Queue[SlotHeartbeat] = asyncio.Queue()
    dropped: list[str] = []

    async def post(cluster: Any, topic: str, records: Any, purpose: str, within: float) -> None:
        assert dropped == [purpose] * (throttle_s > 1), "it would wait"
        beats.put_nowait(job_status.decode_slot_heartbeat(records[0].value))

    monkeypatch.setattr(worker, "post", post)
    spec = SimpleNamespace(job="job", slot=0)
    ticket: Any = SimpleNamespace(spec=spec, driver="driver", attempt=3, first=SimpleNamespace(version=0))
    for throttle_s in (8, 0.5):
        dropped.clear()
        until = asyncio.get_running_loop().time() + throttle_s

        def kept(node: int, purpose: str, until: float = until) -> Any:
            return SimpleNamespace(throttled_until=until, drop=lambda: dropped.append(purpose))

        cluster: Any = SimpleNamespace(brokers=(1,), kept=kept)
        sending = asyncio.create_task(worker._ControlChannel(ticket)._send_heartbeats(cluster))
        beat = await asyncio.wait_for(beats.get(), 20)
        sending.cancel()
        assert (beat.attempt, round(beat.throttled_ms / 1000)) == (3, 8 if throttle_s == 8 else 0)


class Commands(InternalTopics):
    """The control topic, whose broker answers after a moment."""

    async def call(self, node: int, request: Any, purpose: str = "", within: float | None = None) -> Any:
        await asyncio.sleep(0.01)
        return await super().call(node, request, purpose, within)


async def test_a_slot_reports_at_once_that_its_last_partition_has_started(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """An apply waits for it, and the driver for partitions that were taken away. All else waits its turn."""
    reports: asyncio.Queue[SlotReport] = asyncio.Queue()
    states = [PartitionState.STARTING, PartitionState.STARTING]

    async def post(cluster: Any, topic: str, records: Any) -> None:
        reports.put_nowait(job_status.decode_slot(records[0].value))

    def status(_: object) -> SlotReport:
        numbered = enumerate(states)
        partitions = [PartitionStatus("flow", "orders", number, state, 0) for number, state in numbered]
        return SlotReport(0, 0, channel.slot.assignment_in_force, partitions=partitions)

    monkeypatch.setattr(worker, "post", post)
    monkeypatch.setattr(worker, "_REPORT_S", 40.0)
    monkeypatch.setattr(worker, "_REPEAT_S", 40.0)
    monkeypatch.setattr(worker, "_LOOKS_AT_START", 1_000)
    spec = SimpleNamespace(job="job", slot=0)
    ticket: Any = SimpleNamespace(
        spec=spec, driver="driver", attempt=3, first=Assignment(1), control_offset=0
    )
    channel = worker._ControlChannel(ticket)
    topics, read = (
        Commands({naming.CONTROL: [InternalRecord(b"another's", b"")]}),
        asyncio.Queue[Assignment](),
    )
    channel.slot = slot = cast(
        Any, SimpleNamespace(assignment_in_force=1, status=status, assign=read.put_nowait)
    )

    async def assign(version: int, *partitions: AssignedPartition) -> None:
        message = control.Assign("driver", 3, Assignment(version, partitions=list(partitions)))
        topics.grow(naming.CONTROL, InternalRecord(control.slot_key("job", 0), control.encode(message)))
        assert (await read.get()).version == version

    reporting = asyncio.create_task(channel._report(cast(Any, None)))
    listening = asyncio.create_task(channel._listen(cast(Any, topics)))
    async with asyncio.timeout(20):
        assert [one.state for one in (await reports.get()).partitions] == states
        states[0] = PartitionState.COPYING
        await asyncio.sleep(0.5)
        assert reports.empty()
        states[1] = PartitionState.CAUGHT_UP
        assert [one.state for one in (await reports.get()).partitions] == states
        orders = AssignedPartition("flow", "orders", 0, "orders")
        await assign(2, orders)
        slot.assignment_in_force = 2
        await asyncio.sleep(0.5)
        assert reports.empty(), "nothing waits for partitions that are added"
        await assign(3)
        await assign(4, orders)
        await asyncio.sleep(0.5)
        assert reports.empty(), "it is not released yet"
        slot.assignment_in_force = 4
        assert (await reports.get()).assignment == 4, "what is added later takes no acknowledgement away"
        await assign(3)  # it is read again, and is not the newest
        await assign(5)
        slot.assignment_in_force = 5
        assert (await reports.get()).assignment == 5
    reporting.cancel()
    listening.cancel()


async def test_slots_that_were_lost_together_give_their_partitions_to_the_one_that_runs_again() -> None:
    """Neither could take those of the other; later there is a core for one of them only."""
    async with Driver(2) as driver:
        one, other = driver.manager.supervisors
        driver.slots(0, 1)
        await driver.run(range(2), 1)
        await driver.read(31)
        await until(lambda: (one.attempt, other.attempt) == (2, 2))
        await driver.run([0], 2)
        driver.spark.lacks = "no free core"
        await driver.manager.inspect_once()
        assert other.state == "unscheduled"
        assert driver.slots(0, 1) == [1, 0]
        other.changed_at -= 11
        await driver.manager.inspect_once()
        await until(lambda: other.attempt == 3)
        assert driver.slots(0, 1) == [2, 0]
        await driver.manager.inspect_once()
        other.changed_at -= 3600
        await driver.manager.inspect_once()
        assert (other.state, other.attempt) == ("unscheduled", 3), "without partitions it may wait"


@pytest.mark.parametrize(
    ("lacks", "why"),
    [
        ("no free core", "no free core, for 11 s"),
        ("", "Spark has not started its task: an executor starts, for 11 s"),
    ],
)
async def test_what_a_slot_waits_for_is_said_with_the_time_also_after_the_wall_clock_was_set_back(
    lacks: str, why: str
) -> None:
    async with Driver(2) as driver:
        slot = driver.manager.supervisors[1]
        driver.slots(0, 1)
        await driver.run([0], 1)
        driver.spark.lacks = lacks
        await driver.manager.inspect_once()
        slot.since += 3600
        slot.changed_at -= 11
        await driver.manager.inspect_once()
        assert slot.view().why == why


async def test_a_replaced_attempt_that_a_silent_jvm_did_not_cancel_is_cancelled_later() -> None:
    async with Driver(1) as driver:
        asked: list[str] = []

        async def cancel(group: str) -> None:
            asked.append(group)
            if len(asked) < 3:
                raise JvmSilent("cancelJobGroup", 1)

        driver.spark.cancel = cancel  # type: ignore[method-assign]
        driver.slots(0)
        await driver.run([0], 1)
        await driver.read(31)
        await driver.run([0], 2)
        await until(lambda: not driver.manager.supervisors[0]._cancelling)
        assert asked == ["slot 0 attempt 1"] * 3


async def test_a_report_of_an_attempt_that_was_replaced_counts_for_nothing() -> None:
    """Its process was cut off, and its next attempt waits to be submitted."""
    async with Driver(2) as driver:
        slot = driver.manager.supervisors[0]
        late = SlotReport(0, 0, 99, "driver", 1)
        driver.slots(0, 1)
        await driver.run(range(2), 1)
        assert slot.acknowledge(late)
        await driver.read(6, 1)
        assert not slot.acknowledge(late)
        await driver.run([0], 2)
        assert not slot.acknowledge(late)


async def test_a_slot_that_has_a_core_and_never_reports_is_replaced() -> None:
    async with Driver(2) as driver:
        slot = driver.manager.supervisors[0]
        driver.slots(0, 1)
        await driver.run([1], 1)
        await driver.manager.inspect_once()
        assert slot.view().state == "submitted"
        slot.changed_at -= 61
        await driver.manager.inspect_once()
        assert slot.view().why == "not started in 61 s"
        assert driver.spark.groups == ["slot 0 attempt 1", "slot 1 attempt 1"]


async def test_heartbeats_of_an_earlier_attempt_or_another_driver_count_for_nothing() -> None:
    async with Driver(1) as driver:
        slot = driver.manager.supervisors[0]
        await driver.run([0], 1)
        await driver.read(10)
        for stranger in (SlotHeartbeat("driver", 0), SlotHeartbeat("another", 1)):
            slot.take_heartbeat(stranger)
        assert slot.silence.seconds > 9
        slot.take_heartbeat(SlotHeartbeat("driver", 1))
        assert slot.silence.seconds == 0


def test_silence_counts_only_while_it_is_read() -> None:
    silence = Silence(1.0)
    for now in (0.0, 0.5, 1.0, 60.0):  # the reader stood still for a minute
        silence.end_read(now)
    assert silence.seconds == 2.0
    silence.restart()
    silence.end_read(100.0)
    assert silence.seconds == 0


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
        return SlotReport(slot, 0, 1, "driver", 1, partitions=told)

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
        return SlotEnd("stopped")


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
    [(True, SlotEnd("failed", "ZeroDivisionError: a programming error")), (False, SlotEnd("stopped"))],
)
def test_a_slot_ends_with_its_channel(
    broken: bool, result: SlotEnd, caplog: pytest.LogCaptureFixture
) -> None:
    async def work() -> SlotEnd:
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
