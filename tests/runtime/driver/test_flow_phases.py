"""A flow walks its table of phases, whatever fails, is edited or is taken over by another job in between."""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Iterable, Mapping
from types import SimpleNamespace
from typing import ClassVar, cast

import hypothesis.strategies as st
import pytest
from hypothesis import settings
from hypothesis.stateful import initialize, invariant, precondition, rule
from msgspec.structs import replace

from runtime.contract.records.ledger import (
    Generation,
    GenerationKey,
    LedgerKey,
    LedgerValue,
    ProgressKey,
)
from runtime.contract.spec import naming
from runtime.contract.spec.flow import FlowState, GroupsSpec
from runtime.contract.spec.jobspec import CopySettings, FlowSpec, JobSpec
from runtime.contract.spec.naming import NO_TOPIC_ID
from runtime.driver.flows.flow import NEXT_PHASES, Copier, DriverFlow, FlowPhase
from runtime.driver.flows.start import DriverContext
from runtime.driver.slots.membership import NO_SLOTS
from runtime.kafka.cluster import KafkaCluster
from runtime.kafka.errors import ErrorCode, WireError
from runtime.kafka.protocol.metadata import TopicMetadata
from runtime.kafka.records import InternalRecord
from runtime.ledger.ledger import Ledger
from tests.fakes.internal_topics import InternalTopics, TransactionalTopics, stored
from tests.fakes.machine import VirtualTimeMachine, assert_reachable
from tests.fakes.progress import progress
from tests.runtime.slot.world import assigned, flow_spec

P = FlowPhase
FLOW, TOPICS = "flow", ("orders", "pay")
ENDS = {"promoted": P.ENDED, "failed_over": P.ENDED, "paused": P.PAUSED, "active": P.COPYING}


class Clusters(TransactionalTopics):
    """The topics of the source, and the ledger and the coordinator of the destination.

    Requests to the source, and commits of the driver, fail as often as `refusals` says. What `lost` commits
    have written is there all the same.
    """

    cluster_id = "cluster"

    def __init__(self) -> None:
        super().__init__({naming.LEDGER: [], **{topic: [] for topic in TOPICS}})
        self.refusals = {"source": 0, "commit": 0, "lost": 0}
        self.mirrors = set(TOPICS)
        self.copied: dict[str, int] = {}  # the positions
        self.generation: Generation | None = None  # the newest one

    def refuse(self, what: str) -> None:
        if self.refusals[what]:
            self.refusals[what] -= 1
            raise WireError(f"{what} is refused")

    def write(self, values: Mapping[LedgerKey, LedgerValue]) -> None:
        for value in values.values():
            self.generation = value if isinstance(value, Generation) else self.generation
        for record in stored(values):
            self.grow(naming.LEDGER, record)

    async def cluster(self, name: str) -> InternalTopics:
        self.refuse("source")
        return self

    async def listing(self, name: str) -> Mapping[str, TopicMetadata]:
        if name == "dc2":
            return {
                topic: TopicMetadata(topic, NO_TOPIC_ID, ErrorCode.NONE, False, {}) for topic in self.mirrors
            }
        return {topic: self.topic(topic) for topic in TOPICS if topic not in self.gone | self.unlisted}


class Driver:
    """One run of a driver: it writes the ledger, and holds what its slots have not released."""

    def __init__(self, clusters: Clusters, name: str) -> None:
        self.clusters, self.name = clusters, name
        self.held: set[str] = set()
        self.flow: DriverFlow | None = None
        self.ended_at: dict[str, int] = {}  # how far the source was when the generation ended

    async def open(self) -> None:
        spec = SimpleNamespace(job="job", copy=CopySettings(lanes=1, spare_lanes=0))
        self.ledger = await Ledger.open(cast(KafkaCluster, self.clusters))
        self.context = cast(
            DriverContext,
            SimpleNamespace(
                job="job",
                spec=spec,
                driver=self.name,
                clusters=self.clusters,
                destination=self.clusters,
                ledger=self.ledger,
                leadership=self,
                membership=self,
                layout=NO_SLOTS,
                generations={},
                changed=lambda: None,
            ),
        )

    async def ensure(self) -> None: ...

    def request_heartbeat(self) -> None: ...

    def holds(self, flow: str, topics: Collection[str] | None = None) -> bool:
        return bool(self.held if topics is None else self.held & set(topics))

    async def commit(self, records: Mapping[LedgerKey, LedgerValue]) -> None:
        assert self.flow is not None
        assert self.flow.phase in {P.TAKING_OVER, P.DRAINING, P.ENDING}, "no other phase writes generations"
        self.clusters.refuse("commit")
        self.clusters.write(records)
        generation, newest = records.get(GenerationKey(FLOW)), self.clusters.generation
        if isinstance(generation, Generation) and generation.note and newest is not None:
            repeated = newest.ended and newest.state == generation.state
            assert not repeated, "its groups may have continued at the destination meanwhile"
        if isinstance(generation, Generation) and generation.note:
            self.ended_at = {key.topic: self.clusters._end(key.topic) for key in self.flow.partitions}
        self.clusters.refuse("lost")


class Passes(Copier):
    """The flow copies both topics, each of one partition."""

    mirrors: ClassVar[bool] = True

    def __init__(self, flow: DriverFlow) -> None:
        self.flow = flow

    async def copy_once(self) -> bool:
        flow = self.flow
        await flow.source()
        await flow.shared.ledger.decided(FLOW)
        flow.own_generation()
        flow.partitions = {one.key: one for topic in self.selected(TOPICS) for one in assigned(FLOW, topic)}
        return False

    def pause_s(self, took_s: float) -> float:
        return 1.0

    def selected(self, topics: Iterable[str]) -> dict[str, str]:
        flow = self.flow
        return {one: one for one in topics if one in flow.draining.topics or one not in flow.spec.promoted}

    def inherit(self, before: Copier) -> None: ...


class FollowOff(Passes):
    """The flow follows its source once an hour. A mirror can't be made in the first two passes."""

    passes = 0

    async def copy_once(self) -> bool:
        self.passes += 1
        return await super().copy_once()

    def pause_s(self, took_s: float) -> float:
        return 3600.0

    @property
    def is_incomplete(self) -> bool:
        return self.passes < 3


class Flows(VirtualTimeMachine):
    """Records come, slots copy them, clusters refuse, specs change, drivers and jobs take over."""

    copier: type[Copier] = Passes

    @initialize(state=st.sampled_from(sorted(ENDS)), promoted=st.booleans())
    def begin(self, state: FlowState, promoted: bool) -> None:
        self.spec = flow_spec(
            FLOW,
            state=state,
            promoted=("pay",) if promoted else (),
            groups=GroupsSpec(sync=False),
            heartbeats_every_ms=None,
        )
        self.drivers = 0
        self.clusters = Clusters()
        self.foreign = False  # another job has the flow
        self.noticed = True  # this one sees that before it writes a generation
        self.run(self._start_driver())

    async def _start_driver(self) -> None:
        self.drivers += 1
        self.driver = Driver(self.clusters, f"driver-{self.drivers}")
        await self.driver.open()
        self._start(self._made())

    def _made(self) -> DriverFlow:
        job = JobSpec(job="job", topology="t", destination="dc2", clusters={}, flows=[self.spec])
        return DriverFlow(self.spec, job, self.driver.context, self.copier)

    def _start(self, flow: DriverFlow) -> None:
        self.flow = self.driver.flow = flow
        self.task = asyncio.create_task(flow.run())

    async def _stop(self) -> None:
        self.task.cancel()
        await asyncio.gather(self.task, return_exceptions=True)

    def _slots_copy(self) -> None:
        """The slots of this driver copy all that the source holds."""
        if self.flow.active and not self.foreign:
            for key in self.flow.partitions:
                end = self.clusters._end(key.topic)
                self.clusters.write({ProgressKey(key): progress(end, end)})
                self.clusters.copied[key.topic] = end

    @rule(topic=st.sampled_from(TOPICS), copied=st.booleans(), seconds=st.sampled_from((0.0, 0.2, 5.0)))
    def write(self, topic: str, copied: bool, seconds: float) -> None:
        self.clusters.grow(topic, InternalRecord(b"", b"value"))
        self.act(self._slots_copy if copied else lambda: None, seconds)

    @rule(what=st.sampled_from(("source", "commit", "lost")), times=st.integers(1, 3))
    def refuse(self, what: str, times: int) -> None:
        self.clusters.refusals[what] = times

    @rule(holds=st.booleans(), seconds=st.sampled_from((0.0, 1.0)))
    def hold(self, holds: bool, seconds: float) -> None:
        self.driver.held = {"pay"} if holds else set()
        self.act(seconds=seconds)

    @rule(state=st.sampled_from(sorted(ENDS)), promoted=st.booleans())
    def edit(self, state: FlowState, promoted: bool) -> None:
        self.run(self._edit(replace(self.spec, state=state, promoted=("pay",) if promoted else ())))

    async def _edit(self, spec: FlowSpec) -> None:
        before, self.spec = self.flow, spec
        await self._stop()
        version = self._made()
        if before.spec.state == spec.state:
            version.inherit(before)
        else:
            before.release()
        self._start(version)
        self.foreign = self.foreign and version.phase is P.SUPERSEDED

    @rule()
    def remove_and_add_again(self) -> None:
        """The end of its generation is written, and the driver has not seen the answer."""
        self.run(self._add_again())

    async def _add_again(self) -> None:
        before = self.flow
        await self._stop()
        before.release()
        last = self.clusters.generation
        if last is not None and last.driver == self.driver.name and not last.ended:
            stopped = replace(last, number=last.number + 1, state="stopped")
            self.clusters.write({GenerationKey(FLOW): stopped})
        version = self._made()
        version.inherit(before)
        self._start(version)
        self.foreign = False

    @rule()
    def succeed(self) -> None:
        """The driver dies, and the next one runs the same spec."""
        self.run(self._succeed())

    async def _succeed(self) -> None:
        await self._stop()
        await self._start_driver()
        self.foreign = False

    @precondition(lambda self: self.flow.taken is not None and not self.clusters.generation.ended)
    @rule(seconds=st.sampled_from((0.0, 0.2, 30.0)))
    def another_job_takes_over(self, seconds: float) -> None:
        last = self.clusters.generation
        assert last is not None
        taken = replace(last, number=last.number + 100, job="other", driver="other", state="active", note="")
        self.clusters.write({GenerationKey(FLOW): taken})
        self.foreign, self.noticed = True, self.flow.active
        self.act(seconds=seconds)

    @invariant()
    def slots_copy_only_a_flow_that_was_taken_over(self) -> None:
        flow = self.flow
        assert not flow.active or flow.generation > 0
        assert flow.is_taken.is_set() or not (flow.active or flow.phase is P.PAUSED)
        assert flow.active == (flow.phase in {P.STARTING, P.COPYING, P.DRAINING})
        assert flow.phase is not P.SUPERSEDED or (not flow.partitions and "has it now" in flow.why)

    @invariant()
    def a_flow_is_not_taken_back_from_another_job(self) -> None:
        newest = self.clusters.generation
        assert not (self.foreign and self.noticed) or (newest is not None and newest.driver == "other")

    @invariant()
    def a_flow_has_ended_when_its_generation_has_and_nothing_is_lost_by_a_promotion(self) -> None:
        newest = self.clusters.generation
        if self.flow.phase is P.ENDED and newest is not None and newest.driver == self.driver.name:
            assert newest.ended
            assert newest.state == self.spec.state
            assert self.flow.view().ended
        if self.flow.phase is P.ENDED and self.spec.state == "promoted":
            for topic, end in self.driver.ended_at.items():
                assert self.clusters.copied.get(topic, 0) >= end

    @invariant()
    def the_task_ends_with_the_last_phase_alone(self) -> None:
        assert self.task.done() == (self.flow.phase in {P.PAUSED, P.ENDED, P.SUPERSEDED})
        assert not self.task.done() or self.task.exception() is None

    def teardown(self) -> None:
        self.clusters.refusals = dict.fromkeys(self.clusters.refusals, 0)
        self.driver.held = set()
        for _ in range(8):
            self.act(self._slots_copy, 30.0)
        if self.flow.phase is P.SUPERSEDED:
            assert self.foreign
        elif "by the ledger" in self.flow.why:  # an older spec of a flow that has ended
            assert self.flow.phase in {P.TAKING_OVER, P.ENDING}
            assert not self.flow.is_taken.is_set(), "its groups would be synced"
        else:
            assert self.flow.phase is ENDS[self.spec.state], self.flow.view()
            view = self.flow.view()
            assert (view.why, view.attempts) == ("", 0)
            assert view.is_done_with(self.spec)
        self.run(self._stop())
        self.loop.close()


TestFlows = pytest.mark.slow(Flows.TestCase)
TestFlows.settings = settings(max_examples=30, stateful_step_count=20, deadline=None)


def test_every_phase_can_be_reached_and_only_a_released_flow_ends_for_good() -> None:
    assert_reachable(NEXT_PHASES, P.TAKING_OVER, P.RELEASED, P)


@pytest.mark.parametrize("answered", range(3))
def test_topics_are_promoted_although_the_answer_to_a_commit_was_lost(answered: int) -> None:
    """An apply waits until the flow says that they are. The commit behind `answered` others has no answer."""
    walk = Flows()
    walk.begin("active", promoted=True)
    before = walk.clusters.write

    def write(values: Mapping[LedgerKey, LedgerValue]) -> None:
        nonlocal answered
        before(values)
        if GenerationKey(FLOW) in values:
            walk.clusters.refusals["lost"] = int(answered == 0)
            answered -= 1

    walk.clusters.write = write  # type: ignore[method-assign]
    walk.run(walk._succeed())
    for _ in range(4):
        walk.act(walk._slots_copy, 30.0)
    assert answered < 0
    walk.teardown()


def test_a_mirror_that_could_not_be_made_is_tried_again_within_seconds_without_follow() -> None:
    walk = Flows()
    walk.copier = FollowOff
    walk.begin("active", promoted=False)
    walk.act(seconds=20.0)
    copier = walk.flow.copier
    assert isinstance(copier, FollowOff)
    assert (walk.flow.phase, copier.passes) == (P.COPYING, 3)
    walk.act(seconds=60.0)
    assert copier.passes == 3
    walk.teardown()


@pytest.mark.parametrize(("state", "phase"), [("active", P.COPYING), ("promoted", P.ENDED)])
def test_a_topic_that_is_gone_from_the_source_holds_up_no_promotion(
    state: FlowState, phase: FlowPhase
) -> None:
    """A topic that the principal may not describe is not listed either: it is waited for."""
    walk = Flows()
    walk.begin("active", promoted=False)
    for _ in range(2):
        walk.act(walk._slots_copy, 30.0)
    walk.clusters.unlisted.add("pay")
    walk.run(walk._edit(replace(walk.spec, state=state, promoted=("pay",) if state == "active" else ())))
    walk.act(walk._slots_copy, 30.0)
    assert walk.flow.phase is P.DRAINING
    assert walk.flow.why.startswith("asking about pay-0: TOPIC_AUTHORIZATION_FAILED")
    walk.clusters.unlisted.clear()
    walk.clusters.gone.add("pay")
    walk.act(walk._slots_copy, 30.0)
    assert walk.flow.phase is phase
    assert walk.flow.view().notes == ["pay is gone from dc1: no record of it is left to copy"]
    walk.run(walk._stop())
    walk.loop.close()


@pytest.mark.parametrize("is_back", [True, False])
def test_a_promoted_topic_is_not_called_gone_once_it_is_back_or_its_mirror_was_removed(
    *, is_back: bool
) -> None:
    walk = Flows()
    walk.begin("active", promoted=False)
    for _ in range(2):
        walk.act(walk._slots_copy, 30.0)
    walk.clusters.gone.add("pay")
    walk.run(walk._edit(replace(walk.spec, promoted=("pay",))))
    for _ in range(2):
        walk.act(walk._slots_copy, 30.0)
    assert (walk.flow.phase, len(walk.flow.view().notes)) == (P.COPYING, 1)
    if is_back:
        walk.clusters.gone.clear()
    else:
        walk.clusters.mirrors.remove("pay")
    walk.act(walk._slots_copy, 30.0)
    assert (walk.flow.phase, walk.flow.view().notes) == (P.COPYING, [])
    walk.run(walk._stop())
    walk.loop.close()
