"""A driver takes a flow over: it writes its generation, then fences the slots of the one before (R3)."""

import asyncio
from collections.abc import Callable, Iterable, Mapping
from types import SimpleNamespace
from typing import Any, cast

import pytest
from msgspec.structs import replace

from runtime.contract.client.settings import wire_settings
from runtime.contract.records.failback import restart_request
from runtime.contract.records.ledger import Generation, GenerationKey
from runtime.contract.spec import naming
from runtime.contract.spec.flow import Earliest, FlowState
from runtime.contract.spec.jobspec import CopySettings, FlowSpec, JobSpec
from runtime.driver.flows.flow import retry_pause
from runtime.driver.flows.flows import FlowManager
from runtime.driver.flows.start import DriverContext, take_over
from runtime.driver.leadership import DriverFenced
from runtime.driver.slots.membership import NO_SLOTS
from runtime.kafka.cluster import CONTROL, KafkaCluster
from runtime.kafka.errors import BrokerError, TimedOut, WireError
from runtime.kafka.protocol.transactions import CoordinatorKind, ProducerIdentity
from runtime.kafka.timing import BackgroundTasks
from runtime.ledger.ledger import Ledger
from tests.fakes.clock import virtual
from tests.fakes.internal_topics import InternalTopics, stored
from tests.runtime.slot.world import flow_spec

OLD = [f"repl.old.{slot}.flow.0" for slot in range(3)]
MINE = ["repl.job.0.flow.0"]
BEFORE = Generation(3, "old", "active", "driver-1", OLD, "id-1", "id-2", 1)


class Destination(KafkaCluster):
    """A coordinator that fences every id, and a driver's writer; `done` tells the order of both."""

    def __init__(self) -> None:
        super().__init__(wire_settings("localhost:1", {}))
        self.done: list[Any] = []
        self.silent_for: set[str] = set()  # requests with these ids are not answered
        self.succeeded = False  # by another driver

    async def coordinators(self, kind: CoordinatorKind, keys: Iterable[str]) -> dict[str, int | BrokerError]:
        keys = list(keys)
        self.know_coordinators(kind, dict.fromkeys(keys, 1))
        return dict.fromkeys(keys, 1)

    async def call(self, node: int, request: Any, purpose: str = CONTROL, within: float | None = None) -> Any:
        if request.transactional_id in self.silent_for:
            await asyncio.sleep(within or 0)
            raise TimedOut("broker 1", "no answer", sent=True)
        self.done.append(request.transactional_id)
        return ProducerIdentity(1, 1)

    async def ensure(self) -> None:
        if self.succeeded:
            raise DriverFenced

    async def commit(self, values: Mapping[GenerationKey, Generation]) -> None:
        (written,) = values.values()
        self.done.append((written.number, written.transactional_ids))


async def ledger_with(generation: Generation) -> Ledger:
    topics = InternalTopics({naming.LEDGER: stored({GenerationKey("flow"): generation})})
    return await Ledger.open(cast(KafkaCluster, topics))


async def taken_over(
    before: Generation,
    spec: FlowSpec,
    opposite: str | None = None,
    destination: Destination | None = None,
    waits: Callable[[str], None] = lambda _: None,
) -> tuple[Generation, Destination]:
    destination = destination or Destination()
    shared = SimpleNamespace(
        job="job",
        driver="driver-2",
        layout=NO_SLOTS,
        generations={"flow": 3},
        spec=SimpleNamespace(copy=CopySettings(lanes=1, spare_lanes=0)),
        ledger=await ledger_with(before),
        destination=destination,
        leadership=destination,
    )
    taken = await take_over(spec, cast(DriverContext, shared), "id-1", waits, opposite=opposite)
    return taken, destination


async def test_the_generation_is_committed_before_the_older_slots_are_fenced() -> None:
    """Between both, the record names the older ids too: a driver that comes next fences them."""
    taken, destination = await taken_over(BEFORE, flow_spec("flow"))
    assert (taken.number, taken.note) == (4, "")
    assert destination.done == [(4, [*MINE, *OLD]), *OLD, (4, MINE)]


@virtual
async def test_a_driver_that_was_succeeded_while_it_waited_fences_no_id_any_more() -> None:
    """The slots of the next driver have the same ids: their transactions would be aborted (R10)."""
    destination = Destination()
    destination.silent_for = {OLD[1]}

    def succeed(_: str) -> None:
        destination.silent_for.clear()
        destination.succeeded = True

    with pytest.raises(DriverFenced):
        await taken_over(BEFORE, flow_spec("flow"), destination=destination, waits=succeed)
    assert destination.done == [(4, [*MINE, *OLD]), OLD[0], OLD[2]]


@virtual
@pytest.mark.parametrize("state", ["active", "stopped"])
async def test_the_ids_of_a_flow_that_was_removed_are_fenced_until_none_is_left(state: FlowState) -> None:
    """The coordinator of one does not answer for a while. `stopped`: the first attempt fenced none."""
    before = replace(BEFORE, driver="driver-2", transactional_ids=OLD, state=state)
    destination = Destination()
    destination.silent_for = {OLD[1]}
    shared = SimpleNamespace(
        driver="driver-2",
        ledger=await ledger_with(before),
        destination=destination,
        leadership=destination,
        membership=SimpleNamespace(holds=lambda _: False),
        changed=lambda: None,
    )
    tasks = BackgroundTasks()
    flows = FlowManager(cast(DriverContext, shared), tasks, lambda _: None)
    flow = SimpleNamespace(name="flow", partitions={}, release=lambda: None)
    flows.by_name["flow"] = cast(Any, flow)
    await flows.apply_spec(JobSpec(job="job", topology="t", destination="dc2", clusters={}, flows=[]))
    assert (flows.by_name, destination.done) == ({}, [(4, OLD), OLD[0], OLD[2]])
    await asyncio.sleep(60)
    destination.silent_for.clear()
    await asyncio.sleep(60)
    assert destination.done[3:] == [OLD[1]]
    assert not tasks._tasks


FAILED_OVER = replace(BEFORE, state="failed_over")
PROMOTED = replace(BEFORE, state="promoted")


@pytest.mark.parametrize("state", ["active", "paused", "promoted"])
async def test_an_older_spec_does_not_bring_an_ended_flow_back(state: FlowState) -> None:
    with pytest.raises(WireError) as refused:
        await taken_over(FAILED_OVER, replace(flow_spec("flow"), state=state))
    assert "it is failed_over by the ledger" in str(refused.value)
    assert "Run repl apply with state: failed_over" in str(refused.value)


async def test_a_flow_whose_end_is_not_complete_does_not_run_even_with_an_opposite() -> None:
    with pytest.raises(WireError, match="it is failed_over"):
        await taken_over(replace(FAILED_OVER, note="its groups"), flow_spec("flow"), "back")


@pytest.mark.parametrize(
    ("before", "spec", "opposite", "state"),
    [
        (FAILED_OVER, flow_spec("flow"), "back", "active"),
        (FAILED_OVER, flow_spec("flow", restart_from=Earliest()), None, "active"),
        (replace(PROMOTED, note="its groups"), flow_spec("flow", state="failed_over"), None, "failed_over"),
        (PROMOTED, flow_spec("flow", state="promoted"), None, "promoted"),
    ],
)
async def test_an_ended_flow_runs_again_where_its_spec_says_so_and_an_end_may_be_repeated(
    before: Generation, spec: FlowSpec, opposite: str | None, state: str
) -> None:
    taken, _ = await taken_over(before, spec, opposite)
    assert (taken.state, taken.number) == (state, 4)


async def test_a_restart_that_was_done_before_the_flow_ended_does_not_bring_it_back() -> None:
    spec = flow_spec("flow", restart_from=Earliest())
    done = replace(FAILED_OVER, restarted=restart_request(spec))
    with pytest.raises(WireError, match="it is failed_over"):
        await taken_over(done, spec)


def test_a_flow_that_starts_is_tried_again_often_and_after_a_while_as_any_other() -> None:
    """An apply gives up after 8 s of failures: the newest one must not be from before a cluster was back."""
    started = [retry_pause(failures, starting=False) for failures in range(1, 40)]
    starting = [retry_pause(failures, starting=True) for failures in range(1, 40)]
    assert started[:6] == [0.6, 1.2, 2.4, 4.8, 9.6, 10.0]
    assert max(starting[:30]) == 2.0
    assert starting[-1] == started[-1] == 10.0
