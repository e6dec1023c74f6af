"""What a new spec does to the flows of a job, and what is accepted of a loss; nothing runs."""

import asyncio
from collections.abc import Collection, Coroutine
from types import SimpleNamespace
from typing import Any, cast

import pytest
from msgspec.structs import replace

from runtime.contract.records.control import AcceptLoss
from runtime.contract.records.job_status import JobStatusTable, PartitionState, PartitionStatus, SlotReport
from runtime.contract.records.ledger import PartitionKey
from runtime.contract.spec import naming
from runtime.contract.spec.cluster import ClusterSpec
from runtime.contract.spec.jobspec import JobSpec
from runtime.driver.commands import RefusedCommand
from runtime.driver.flows.flow import DriverFlow, FlowPhase
from runtime.driver.flows.flows import FlowManager
from runtime.driver.flows.start import DriverContext
from runtime.driver.job import JobRunner
from runtime.driver.leadership import StatusTopicLost
from runtime.driver.process import SpecFile
from runtime.kafka.cluster import KafkaCluster
from runtime.kafka.errors import Disconnected, WireError
from runtime.kafka.protocol.offsets import ListOffsetsRequest
from runtime.kafka.protocol.produce import ProduceRequest
from runtime.kafka.timing import BackgroundTasks
from tests.fakes.internal_topics import TransactionalTopics
from tests.runtime.slot.world import flow_spec
from tests.waiting import until

SPEC = JobSpec(
    job="job",
    topology="t",
    destination="dc2",
    clusters={name: ClusterSpec(bootstrap="b:1") for name in ("dc1", "dc2")},
    flows=[flow_spec(name) for name in ("a", "b")],
)


class Slots:
    """The slots hold what `held` names, and the tasks of flows are noted and do not run."""

    def __init__(self, *held: str) -> None:
        self.held = set(held)
        self.started: list[str] = []
        shared = SimpleNamespace(
            clusters=SimpleNamespace(invalidate=lambda _: None),
            leadership=None,
            changed=lambda: None,
            membership=self,
        )
        self.flows = FlowManager(cast(DriverContext, shared), cast(BackgroundTasks, self), lambda _: None)

    def holds(self, flow: str, topics: Collection[str] | None = None) -> bool:
        return flow in self.held

    def spawn(self, work: Coroutine[Any, Any, None], name: str) -> None:
        work.close()
        self.started.append(name)

    async def end(self, task: object) -> None: ...


async def test_a_slot_that_hangs_with_one_flow_does_not_delay_the_failover_of_another_one() -> None:
    slots = Slots("a")
    slots.flows.start(SPEC)
    failed_over = replace(SPEC, flows=[replace(flow, state="failed_over") for flow in SPEC.flows])
    editing = asyncio.create_task(slots.flows.apply_spec(failed_over))
    await until(lambda: slots.started == ["flow a", "flow b", "flow b"])
    assert not editing.done()
    slots.held.clear()
    await editing
    assert slots.started[-1] == "flow a"


async def test_the_duties_of_a_flow_end_when_another_job_has_taken_it_over_or_its_slots_release_it() -> None:
    """Otherwise two jobs would write the offsets of its groups, and clean its offset map."""

    class Taken:
        name, spec, phase, partitions = "a", SPEC.flows[0], FlowPhase.COPYING, dict[Any, Any]()

        async def run(self) -> None:
            self.phase = FlowPhase.SUPERSEDED

        def release(self) -> None:
            self.phase = FlowPhase.RELEASED

    duties: list[FlowPhase] = []
    shared = SimpleNamespace(changed=lambda: None, membership=Slots())
    flows = FlowManager(
        cast(DriverContext, shared), BackgroundTasks(), lambda flow: duties.append(flow.phase)
    )
    flows._start(cast(DriverFlow, Taken()))
    await until(lambda: len(duties) == 2)
    await flows._release("a")
    assert duties == [FlowPhase.COPYING, FlowPhase.SUPERSEDED, FlowPhase.RELEASED]


class Stopped:
    """The flow `flow` has stopped over the loss of one partition."""

    def __init__(self) -> None:
        self.accepted: frozenset[PartitionKey] = frozenset()
        self.runner = JobRunner(SPEC, {}, cast(SpecFile, None))
        self.runner._flows = Slots().flows
        self.runner._flows.by_name["flow"] = cast(DriverFlow, self)
        lost = PartitionStatus("flow", "orders", 0, PartitionState.DATA_LOSS, 0)
        report = SlotReport(0, 0, 1, partitions=[lost])
        self.runner._reporting = cast(Any, SimpleNamespace(reports={0: report}))

    def accept_loss(self, partitions: frozenset[PartitionKey]) -> None:
        self.accepted = partitions


@pytest.mark.parametrize(
    ("flow", "partitions", "refused", "accepted"),
    [
        ("flow", [("orders", 0)], "", 1),
        ("flow", [("orders", 0), ("orders", 1)], "orders-1 of flow.flow had not stopped", 1),
        ("gone", [("orders", 0), ("orders", 1)], "orders-0 and 1 more of flow.gone had not stopped", 0),
    ],
)
async def test_what_had_not_stopped_over_a_loss_is_named_in_the_answer(
    flow: str, partitions: list[tuple[str, int]], refused: str, accepted: int
) -> None:
    stopped = Stopped()
    command = AcceptLoss("1", flow, partitions)
    if refused:
        with pytest.raises(RefusedCommand, match=refused):
            stopped.runner._accept_loss(command)
    else:
        stopped.runner._accept_loss(command)
    assert len(stopped.accepted) == accepted


async def test_a_loss_that_is_accepted_stays_so_when_another_one_is_accepted() -> None:
    flows = Slots().flows
    flows.start(SPEC)
    first, second = (PartitionKey("a", "orders", number) for number in (0, 1))
    flows.accept_loss("a", [first, second], [("orders", 0)])
    flows.accept_loss("a", [first, second], [("orders", 1)])
    assert flows.by_name["a"].accepted == {first, second}


class AwayOnce(TransactionalTopics):
    """A destination that does not answer the first request of each kind."""

    def __init__(self) -> None:
        super().__init__({naming.STATUS: [], naming.LEDGER: []})
        self.answered: list[type] = []

    async def call(self, node: int, request: Any, purpose: str, within: float | None) -> Any:
        if type(request) not in self.answered:
            self.answered.append(type(request))
            raise Disconnected("dc2", "away", sent=False)
        return await super().call(node, request, purpose, within)


async def test_a_destination_that_does_not_answer_for_a_moment_ends_no_driver_that_starts() -> None:
    runner, destination = JobRunner(replace(SPEC, flows=[], slots=1), {}, cast(SpecFile, None)), AwayOnce()
    leading = SimpleNamespace(ensure=lambda: asyncio.sleep(0), request_heartbeat=lambda: None)
    runner._application = cast(Any, SimpleNamespace(id="", master=""))
    runner._destination, runner._leadership = cast(KafkaCluster, destination), cast(Any, leading)
    await runner._start(cast(KafkaCluster, destination), JobStatusTable(), cast(Any, leading))
    assert runner.status().state == "running"
    assert destination.answered == [ListOffsetsRequest, ProduceRequest]
    await runner._tasks.end_all()


async def test_a_second_cancellation_while_a_job_ends_leaves_no_connection_open() -> None:
    """Its tasks end slowly. The event loop would wait for the brokers to close what is left open."""
    runner, ending = JobRunner(SPEC, {}, cast(SpecFile, None)), asyncio.Event()
    cluster = Closing()
    runner._clusters._entries["dc2"].cluster = cast(KafkaCluster, cluster)

    async def ends_slowly() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            ending.set()
            await asyncio.sleep(3600)

    runner._tasks.spawn(ends_slowly(), "slow")
    running = asyncio.create_task(runner.run(asyncio.get_running_loop().create_future()))
    await until(lambda: cluster.is_used)
    running.cancel()
    await ending.wait()
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)
    assert cluster.is_closed


class Closing:
    """A cluster that never answers."""

    is_used = is_closed = False

    async def topics(self, names: list[str], fresh: bool) -> None:
        self.is_used = True
        await asyncio.Event().wait()

    async def close(self) -> None:
        self.is_closed = True


async def test_a_job_that_starts_ends_where_it_fails_while_it_waits_for_a_cluster() -> None:
    """It would wait for ever where its status topic was deleted: only its next start makes that again."""
    runner = JobRunner(SPEC, {}, cast(SpecFile, None))

    async def deleted() -> None:
        if not runner._tasks.failed.done():
            runner._tasks.failed.set_exception(StatusTopicLost("gone"))
        raise WireError("the status topic is unknown")

    with pytest.raises(StatusTopicLost):
        await asyncio.wait_for(runner._until_done(deleted, "dc2"), 60)


async def test_a_job_says_that_it_was_stopped_although_a_flow_cannot_be_stopped_in_the_ledger() -> None:
    """Otherwise a standby would start the job that repl has stopped."""
    runner, beats = JobRunner(SPEC, {}, cast(SpecFile, None)), list[str]()

    async def refused() -> None:
        raise WireError("the ledger's partition has no leader")

    async def stopped() -> None: ...

    async def beat() -> None:
        beats.append(runner.status().state)

    runner._flows = cast(Any, SimpleNamespace(stop_all=refused, views=list, all=list))
    runner._slots = runner._reporting = cast(Any, SimpleNamespace(stop=stopped, views=list, trouble=""))
    runner._leadership = cast(Any, SimpleNamespace(send_heartbeat=beat))
    await runner._stop_gracefully()
    assert beats == ["stopped"]
