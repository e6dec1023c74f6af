"""Ledger records of several flows are one transaction; a driver acts only with a fresh heartbeat (R10)."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence

import pytest
from msgspec.structs import replace

from runtime.batch import Batch
from runtime.contract.client.settings import ClientSettingsError
from runtime.contract.records.control import AcceptLoss, Command, Reconfigure, StopJobCommand
from runtime.contract.records.job_status import JobStatus
from runtime.contract.records.ledger import GenerationKey, LedgerKey, LedgerValue
from runtime.contract.spec.cluster import ClusterSpec
from runtime.contract.spec.jobspec import JobSpec
from runtime.contract.spec.naming import TopicPartition
from runtime.driver import leadership
from runtime.driver.commands import CommandHandler, RefusedCommand
from runtime.driver.leadership import (
    FRESH_S,
    DriverFenced,
    Leadership,
    StatusTopicLost,
)
from runtime.kafka.errors import BrokerError, Disconnected, ErrorCode, WireError
from tests.fakes.clock import virtual
from tests.fakes.permits import settled
from tests.waiting import until

RUNNING = JobStatus("j", "t", "d", "running", 0, 0)


class Transactions:
    """Holds each transaction until the test ends it, one at a time, as the real writer does."""

    def __init__(self) -> None:
        self.flows: list[list[str]] = []  # of each transaction; a heartbeat has none
        self.leadership = Leadership(self, lambda: RUNNING)  # type: ignore[arg-type]
        self._ended: asyncio.Queue[Exception | None] = asyncio.Queue()
        self._lock = asyncio.Lock()

    async def commit(
        self,
        records: Mapping[LedgerKey, LedgerValue | None],
        batches: Mapping[TopicPartition, Sequence[Batch]] | None = None,
        *,
        within: float = 0,
    ) -> None:
        async with self._lock:
            self.flows.append([key.flow for key in records if isinstance(key, GenerationKey)])
            error = await self._ended.get()
            if error is not None:
                raise error

    async def start(self, *flows: str) -> list[asyncio.Task[None]]:
        tasks = [asyncio.create_task(self.leadership.commit({GenerationKey(flow): None})) for flow in flows]
        await settled()
        return tasks

    async def end(self, *errors: Exception | None) -> None:
        for error in errors:
            self._ended.put_nowait(error)
            await settled()


REFUSED = BrokerError(ErrorCode.MESSAGE_TOO_LARGE, "the ledger")
FENCED = BrokerError(ErrorCode.PRODUCER_FENCED, "the driver's id")
DONE = type(None)


@pytest.mark.parametrize(
    ("flows", "ends", "results", "transactions"),
    [
        ("abc", [None, None], [DONE] * 3, ["a", "bc"]),
        ("abbc", [None] * 3, [DONE] * 4, ["a", "b", "bc"]),  # commits of one key keep their order
        ("abc", [None, REFUSED], [DONE, BrokerError, BrokerError], ["a", "bc"]),
        ("abc", [None, FENCED], [DONE, DriverFenced, DriverFenced], ["a", "bc"]),
    ],
)
async def test_callers_that_wait_share_the_next_transaction_and_its_end(
    flows: str, ends: list[Exception | None], results: list[type], transactions: list[str]
) -> None:
    scene = Transactions()
    tasks = await scene.start(*flows)
    await scene.end(ends[0])
    assert [task.done() for task in tasks] == [True] + [False] * (len(flows) - 1)
    await scene.end(*ends[1:])
    ended = await asyncio.gather(*tasks, return_exceptions=True)
    assert [type(one) for one in ended] == results
    assert scene.flows == [list(some) for some in transactions]


async def test_a_heartbeat_waits_for_one_transaction_of_ledger_records_at_most() -> None:
    scene = Transactions()
    same = [task for _ in range(5) for task in await scene.start("a")]  # one key: five transactions
    beat = asyncio.create_task(scene.leadership.send_heartbeat())
    await settled()
    await scene.end(None, None)
    assert beat.done()
    assert scene.flows[:3] == [["a"], [], ["a"]]
    await scene.end(*[None] * 4)
    await asyncio.gather(*same)
    assert len(scene.flows) == 6


async def test_after_a_refusal_each_flow_gets_a_transaction_of_its_own() -> None:
    """R7: an error of a broker about one flow stops no other flow."""

    scene = Transactions()
    before = await scene.start("a", "b", "c")
    await scene.end(None, REFUSED)
    await asyncio.gather(*before, return_exceptions=True)
    again = await scene.start("b", "c", "d")
    await scene.end(REFUSED, None, None)
    results = await asyncio.gather(*again, return_exceptions=True)
    assert [type(one) for one in results] == [BrokerError, DONE, DONE]
    assert scene.flows == [["a"], ["b", "c"], ["b"], ["c"], ["d"]]


async def test_a_cancelled_caller_cancels_no_other_commit() -> None:
    scene = Transactions()
    (first,) = await scene.start("a")
    leading, other, waiting = await scene.start("b", "c", "a")
    await scene.end(None)
    assert scene.flows == [["a"], ["b", "c", "a"]]
    (late,) = await scene.start("d")
    late.cancel()
    leading.cancel()  # it commits for all three
    await settled()
    for task in (other, waiting):
        with pytest.raises(WireError, match="interrupted"):
            await task
    (again,) = await scene.start("c")
    await scene.end(None)
    await asyncio.gather(first, again)
    assert scene.flows[2:] == [["c"]]


# The heartbeat


class Leader:
    """A driver with its clock and its heartbeats, which fail with `answer`."""

    def __init__(self, clock: Callable[[], float] | None = None) -> None:
        self.now, self.beats, self.answer = 100.0, 0, None
        self.leadership = Leadership(self, lambda: RUNNING, clock or (lambda: self.now))  # type: ignore[arg-type]

    answer: Exception | None

    async def commit(
        self,
        records: Mapping[LedgerKey, LedgerValue | None],
        batches: Mapping[TopicPartition, Sequence[Batch]],
        *,
        within: float,
    ) -> None:
        assert list(batches) == [TopicPartition("__repl.status", 0)]
        if self.answer is not None:
            raise self.answer
        self.beats += 1

    def ensure(self) -> None:
        asyncio.run(self.leadership.ensure())


@pytest.mark.parametrize(("later_s", "beats"), [(0, 1), (FRESH_S - 1, 1), (60, 2)])
def test_a_driver_acts_only_while_its_heartbeat_is_seconds_old(later_s: float, beats: int) -> None:
    leader = Leader()
    leader.ensure()
    leader.now += later_s
    leader.ensure()
    assert leader.beats == beats


@virtual
async def test_a_driver_whose_status_topic_was_deleted_ends_so_that_the_next_one_creates_it() -> None:
    leader = Leader(asyncio.get_running_loop().time)
    running = asyncio.create_task(leader.leadership.run())
    leader.answer = BrokerError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "__repl.status")
    await asyncio.sleep(25)
    leader.answer = Disconnected("dc2", "gone", sent=True)  # a broker that has restarted may not know it yet
    await asyncio.sleep(300)
    assert not running.done()
    leader.answer = BrokerError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "__repl.status")
    with pytest.raises(StatusTopicLost, match=r"__repl\.status was deleted"):
        await asyncio.wait_for(running, 60)


@pytest.mark.parametrize(
    ("answer", "raised"), [(FENCED, DriverFenced), (Disconnected("dc2", "gone", sent=True), Disconnected)]
)
@pytest.mark.parametrize("before", [True, False])
def test_a_driver_that_was_replaced_or_gets_no_answer_acts_no_more(
    answer: Exception, raised: type[Exception], before: bool
) -> None:
    leader = Leader()
    if before:
        leader.ensure()
        leader.now += 60
    leader.answer = answer
    with pytest.raises(raised):
        leader.ensure()


async def test_a_requested_heartbeat_does_not_wait_for_the_next_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(leadership, "EVERY_S", 3600)

    leader = Leader()
    beats = asyncio.create_task(leader.leadership.run())
    await until(lambda: leader.beats == 1)
    leader.leadership.request_heartbeat()
    await until(lambda: leader.beats == 2)
    beats.cancel()


# Commands do not wait for each other, and each is answered

SPEC = JobSpec(
    job="shop", topology="t", destination="dc2", clusters={"dc2": ClusterSpec(bootstrap="b:1")}, flows=[]
)
OTHER = replace(SPEC, metrics=None)
AWAY = Disconnected("dc2", "away", sent=False)
NOT_OURS = ClientSettingsError("job", "another job")


class Job:
    """Takes on a spec as `outcome` says, which is an error or nothing."""

    def __init__(self, outcome: Exception | None = None) -> None:
        self.outcome = outcome
        self.tried: list[JobSpec] = []
        self.stopped = self.answered = 0
        self.accepted: list[AcceptLoss] = []
        self.may_apply = asyncio.Event()
        self.may_apply.set()
        self._running: asyncio.Task[None] | None = None
        self.commands = CommandHandler(
            self._stop, self._accept, self._reconfigure, self._count_answer, retry_s=0.01
        )

    def _count_answer(self) -> None:
        self.answered += 1

    def _stop(self) -> None:
        self.stopped += 1

    def _accept(self, command: AcceptLoss) -> None:
        if not command.partitions:
            raise RefusedCommand("it had not stopped")
        self.accepted.append(command)

    async def _reconfigure(self, spec: JobSpec) -> None:
        self.tried.append(spec)
        await self.may_apply.wait()
        if self.outcome is not None:
            raise self.outcome

    def accept(self, *commands: Command) -> None:
        for command in commands:
            self.commands.accept(command)

    async def until(self, holds: Callable[[], bool]) -> None:
        self._running = self._running or asyncio.create_task(self.commands.run())
        await until(holds)


async def other_commands(job: Job) -> None:
    loss = AcceptLoss("loss", "flow", [("orders", 0)])
    job.accept(loss, StopJobCommand("stop"))
    assert (job.accepted, job.stopped) == ([loss], 1)
    assert job.commands.answers == {"loss": "", "stop": ""}
    assert (job.answered, job.commands.trouble) == (2, str(AWAY))
    job.outcome = None
    await job.until(lambda: "edit" in job.commands.answers)
    assert (job.commands.answers["edit"], job.commands.trouble) == ("", "")


async def a_newer_spec(job: Job) -> None:
    job.outcome = None
    job.accept(Reconfigure("newer", OTHER))
    await job.until(lambda: "newer" in job.commands.answers)
    assert job.tried[-1] == OTHER
    assert "newer spec" in job.commands.answers["edit"]


async def a_spec_after_a_refused_one(job: Job) -> None:
    assert job.commands.answers == {"edit": str(NOT_OURS)}
    assert job.commands.trouble == str(NOT_OURS)
    await a_spec_is_taken_on(job)
    assert len(job.tried) == 2  # a refused spec is not tried again


async def a_spec_is_taken_on(job: Job) -> None:
    job.outcome = None
    job.accept(Reconfigure("next", OTHER))
    await job.until(lambda: "next" in job.commands.answers)


@pytest.mark.parametrize(
    ("outcome", "then"),
    [(AWAY, other_commands), (AWAY, a_newer_spec), (NOT_OURS, a_spec_after_a_refused_one)],
)
async def test_a_spec_that_cannot_be_taken_on_holds_up_no_other_command(
    outcome: Exception, then: Callable[[Job], Awaitable[None]]
) -> None:
    job = Job(outcome)
    job.accept(Reconfigure("edit", SPEC))
    await job.until(lambda: len(job.tried) >= 2 or bool(job.commands.answers))
    await then(job)


@pytest.mark.parametrize(("outcome", "answer"), [(None, ""), (AWAY, "a newer spec arrived")])
async def test_a_spec_that_is_being_applied_when_a_newer_one_arrives_is_answered_by_its_own_outcome(
    outcome: Exception | None, answer: str
) -> None:
    job = Job(outcome)
    job.may_apply.clear()
    job.accept(Reconfigure("edit", SPEC))
    await job.until(lambda: job.tried == [SPEC])
    job.accept(Reconfigure("waits", SPEC), Reconfigure("newer", OTHER))
    assert list(job.commands.answers) == ["waits"]
    job.may_apply.set()
    await job.until(lambda: "edit" in job.commands.answers)
    job.outcome = None
    await job.until(lambda: "newer" in job.commands.answers)
    assert answer in job.commands.answers["edit"]
    assert bool(answer) == bool(job.commands.answers["edit"])
    assert job.commands.answers["newer"] == ""


async def test_a_loss_that_nothing_had_stopped_over_is_refused() -> None:
    job = Job()
    job.accept(AcceptLoss("none", "flow", []), AcceptLoss("some", "flow", [("orders", 0)]))
    assert job.commands.answers == {"none": "it had not stopped", "some": ""}
    assert [command.id for command in job.accepted] == ["some"]


async def test_answers_are_of_the_newest_commands() -> None:
    job = Job()
    job.accept(*(AcceptLoss(str(number), "flow", [("orders", 0)]) for number in range(50)))
    assert list(job.commands.answers) == [str(number) for number in range(30, 50)]
