"""Duties beside copying: heartbeats of flows, positions that are committed, and the state of group sync."""

import asyncio
from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any, cast

import pytest
from msgspec.structs import replace

from runtime.contract.groups import PendingTranslation, TranslatedOffset
from runtime.contract.records import heartbeat
from runtime.contract.records.group_records import CheckpointState as State
from runtime.contract.records.group_records import GroupPartition
from runtime.contract.records.job_status import PartitionState, PartitionStatus, SlotReport
from runtime.contract.spec import naming
from runtime.contract.spec.flow import OriginCommitsSpec
from runtime.contract.spec.jobspec import JobSpec
from runtime.contract.spec.naming import TopicPartition
from runtime.driver.duties import heartbeats
from runtime.driver.duties.flow_duties import FlowDuties, ReportedPositions, commit_at_origin
from runtime.driver.duties.group_offset_writer import GroupSyncState
from runtime.driver.duties.group_sync import CommittedOffsetsReader, DrainingTopics, GroupSync
from runtime.driver.duties.heartbeats import MAX_PER_S, NOTE, FlowHeartbeats, interval_s
from runtime.driver.flows.flow import DriverFlow, FlowPhase
from runtime.driver.flows.start import DriverContext
from runtime.driver.leadership import DriverFenced, Leadership
from runtime.groups.translation import GroupOffsetSides
from runtime.kafka.errors import Disconnected, ErrorCode
from runtime.kafka.records import InternalRecord
from runtime.kafka.timing import BackgroundTasks
from tests.fakes import permits
from tests.fakes.clock import jumping
from tests.fakes.groups import GroupCluster
from tests.runtime.metrics.given import flow_spec, picture


class Leader:
    """The leadership of a driver, or of one that another driver has replaced."""

    def __init__(self, *, fenced: bool = False) -> None:
        self.fenced = fenced

    async def ensure(self) -> None:
        if self.fenced:
            raise DriverFenced("another driver has the job")


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
        self.leadership = Leader()

    def add(self, flow: str, source: str = "dc1", every_ms: int | None = 10) -> dict[str, str]:
        notes: dict[str, str] = {}
        spec = replace(flow_spec(flow), source=source, heartbeats_every_ms=every_ms)
        self.writer.add(spec, cast(Leadership, self.leadership), notes)
        return notes


async def test_flows_of_one_source_and_interval_share_a_batch(monkeypatch: pytest.MonkeyPatch) -> None:
    scene = Scene(monkeypatch)
    scene.add("a")
    scene.add("b")
    scene.add("far", source="dc3")
    scene.add("off", every_ms=None)
    while len(scene.sources.batches) < 4:
        await scene.sources.next_write()
    await scene.tasks.end_all()
    assert set(map(str, scene.sources.batches)) == {"('dc1', ['a', 'b'])", "('dc3', ['far'])"}


async def test_a_flow_that_ends_is_left_out_and_the_last_one_ends_the_writing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
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


async def test_a_failure_is_noted_at_each_flow_until_it_is_over(monkeypatch: pytest.MonkeyPatch) -> None:
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


async def test_a_driver_that_was_replaced_writes_no_heartbeat(monkeypatch: pytest.MonkeyPatch) -> None:
    """It may have been suspended: the flow's heartbeats would have two writers (R10)."""
    scene = Scene(monkeypatch)
    scene.leadership.fenced = True
    scene.add("a")
    with pytest.raises(DriverFenced):
        await asyncio.wait_for(scene.tasks.failed, 10)
    assert not scene.sources.batches
    await scene.tasks.end_all()


@pytest.mark.parametrize(
    ("every_ms", "flows", "seconds"),
    [(1_000, 1, 1.0), (1_000, MAX_PER_S, 1.0), (1_000, 5 * MAX_PER_S, 5.0), (10_000, 5 * MAX_PER_S, 10.0)],
)
def test_many_flows_write_less_often(every_ms: int, flows: int, seconds: float) -> None:
    assert interval_s(every_ms, flows) == seconds


# Positions that are committed at the source, for people to look at


def report(slot: int, at_ms: int, **positions: int) -> SlotReport:
    state = PartitionState.COPYING
    told = [PartitionStatus("f", topic, 0, state, 0, position=one) for topic, one in positions.items()]
    return SlotReport(slot, at_ms, 1, "driver", 1, partitions=told)


def positions(**offsets: int) -> dict[TopicPartition, int]:
    return {TopicPartition(topic, 0): offset for topic, offset in offsets.items()}


def test_the_newer_report_of_a_partition_or_a_slot_counts() -> None:
    gone, alive = report(0, 1_000, orders=50, other=7), report(1, 9_000, orders=70, fresh=-1)
    for reports in ([gone, alive], [alive, gone]):
        reported = ReportedPositions(lambda reports=reports: reports)  # type: ignore[misc]
        assert reported.of("f") == positions(orders=70, other=7)
        assert reported.of("g") == {}

    newest = [gone]
    reported = ReportedPositions(lambda: newest)
    for made, expected in (
        (gone, positions(orders=50, other=7)),
        (report(0, 2_000, orders=60), positions(orders=60)),
        (report(0, 3_000, orders=60), positions(orders=60)),
        (report(0, 4_000, other=60), positions(other=60)),
    ):
        newest[0] = made
        assert reported.of("f") == expected


def test_positions_of_slots_and_flows_that_left_are_forgotten() -> None:
    newest = [report(0, 1_000, orders=50), report(1, 1_000, other=7)]
    reported = ReportedPositions(lambda: newest)
    assert reported.of("f") == positions(orders=50, other=7)

    newest.pop()
    assert reported.of("f") == positions(orders=50)
    assert "other" not in repr(vars(reported))

    newest.clear()
    reported.of("g")
    reported.forget("f")
    assert "orders" not in repr(vars(reported))


def test_positions_are_the_same_object_until_one_of_the_flow_changes() -> None:
    """So a flow that commits them at its source compares no positions while it is idle."""
    quiet, idle = (
        PartitionStatus(flow, "t", 0, PartitionState.CAUGHT_UP, 0, position=5) for flow in ("quiet", "idle")
    )
    beats = [
        PartitionStatus("quiet", naming.HEARTBEATS, 0, PartitionState.CAUGHT_UP, 0, position=number)
        for number in range(3)
    ]
    newest = SlotReport(0, 1, 1, partitions=[quiet, idle, beats[0]])
    reported = ReportedPositions(lambda: [newest])
    before = reported.of("quiet"), reported.of("idle")
    for number, partitions in enumerate(
        [[quiet, idle, beats[1]], [replace(quiet), idle, beats[1]], [idle, quiet, beats[2]]]
    ):
        newest = SlotReport(0, 2 + number, 1, partitions=partitions)
        assert reported.of("quiet") is before[0]
        assert reported.of("idle") is before[1]
    newest = SlotReport(0, 9, 1, partitions=[idle, replace(quiet, position=6), beats[2]])
    assert reported.of("quiet") == {TopicPartition("t", 0): 6}
    assert reported.of("idle") is before[1]
    newest = SlotReport(0, 10, 1, partitions=[idle, beats[2]])
    assert reported.of("quiet") == {}
    assert reported.of("idle") is before[1]


@pytest.mark.parametrize("fenced", [False, True])
async def test_only_the_jobs_driver_commits_positions_at_the_source(*, fenced: bool) -> None:
    """A driver that was suspended and replaced would commit older positions than its successor (R10)."""
    source = GroupCluster({}, {})

    async def cluster(_: str) -> GroupCluster:
        return source

    spec = replace(flow_spec("f"), origin_commits=OriginCommitsSpec(group="copied", every_ms=1))
    shared = SimpleNamespace(clusters=SimpleNamespace(cluster=cluster), leadership=Leader(fenced=fenced))
    flow = cast(DriverFlow, SimpleNamespace(name="f", spec=spec, shared=shared))
    reported = ReportedPositions(lambda: [report(0, 1_000, orders=50)])
    committing = asyncio.create_task(commit_at_origin(flow, reported, {}))
    async with asyncio.timeout(30):
        while not (source.commits or committing.done()):
            await asyncio.sleep(0.001)
    assert source.commits == ([] if fenced else ["copied"])
    committing.cancel()
    with pytest.raises(DriverFenced if fenced else asyncio.CancelledError):
        await committing


# What group sync remembers, counts and reads again

ITEM = GroupPartition("g", "orders", 0)
OTHER = GroupPartition("h", "orders", 1)


def test_a_commit_that_was_translated_is_read_again_only_after_another_commit() -> None:
    state = GroupSyncState("f")
    entry = state.entry(ITEM, 5, 0.0)
    assert not entry.settled
    for position, of, settled in (
        (TranslatedOffset(7), State.TRANSLATED, True),
        (TranslatedOffset(7, settled=False), State.TRANSLATED, False),  # in a merge
        (TranslatedOffset(7), State.PENDING, False),
        (TranslatedOffset(7), State.REFUSED, False),
        (TranslatedOffset(7), State.TRANSLATED, True),
    ):
        entry.position, entry.state = position, of
        assert state.entry(ITEM, 5, 1.0).settled is settled
    assert not state.entry(ITEM, 6, 2.0).settled
    assert state.entry(ITEM, 6, 3.0).seen_at == 2.0
    entry.position, entry.state = TranslatedOffset(7), State.TRANSLATED
    state.recheck_all()
    assert not entry.settled
    assert entry.position is None


def test_numbers_are_of_now_and_counters_go_on() -> None:
    book = GroupSyncState("f")
    written = book.entry(ITEM, 5, 10.0)
    written.position, written.state = TranslatedOffset(7, clamped=True), State.TRANSLATED
    book.wrote(ITEM, written, clamped=True, now_s=11.5)
    waits = book.entry(OTHER, 9, 10.0)
    waits.position, waits.state = PendingTranslation("…"), State.PENDING
    book.record_pass(100.0)
    book.record_pass(105.0)
    first, second = book.snapshots()
    assert (first.group, first.translated, first.clamped, first.latency_s) == ("g", 1, 1, 1.5)
    assert (second.group, second.pending, second.pending_since) == ("h", 1, 100.0)

    waits.state = State.REFUSED
    book.record_pass(110.0)
    book.record_pass(115.0)
    _, second = book.snapshots()
    assert (second.refused, second.pending, second.pending_since) == (2, 0, None)


@jumping
async def test_a_dead_group_is_not_counted_though_another_one_cannot_be_read() -> None:
    """What an unreadable group had committed stays, and so does everything while a broker lists no group."""
    at = TopicPartition("orders", 0)
    source = GroupCluster({}, {"billing": {at: 3}, "dead": {at: 1}, "hidden": {at: 2}})
    flow = flow_spec("f")
    job = JobSpec(job="j", topology="t", destination=flow.destination, clusters={}, flows=[flow])
    sync = GroupSync(job, flow, cast(DriverContext, None), CommittedOffsetsReader(), {})

    async def counted() -> set[str]:
        await asyncio.sleep(60)  # a later read
        await sync._read(cast(GroupOffsetSides, SimpleNamespace(source=source, times=None)))
        for item, offset in sync._offsets.items():
            sync._state.entry(item, offset.offset, 0.0).state = State.TRANSLATED
        sync._state.record_pass(0.0)
        return {snapshot.group for snapshot in sync.snapshots()}

    assert await counted() == {"billing", "dead", "hidden"}
    source.unreadable["hidden"] = [ErrorCode.GROUP_AUTHORIZATION_FAILED] * 9
    del source.committed["dead"]
    source.brokers[2] = ("localhost", 2)
    source.silent.add(2)
    assert await counted() == {"billing", "dead", "hidden"}
    source.silent.clear()
    assert await counted() == {"billing", "hidden"}


class Unreached:
    """Clusters that do not answer, and the leadership of a driver."""

    async def cluster(self, name: str) -> Any:
        raise Disconnected(name, "no answer", sent=False)


@pytest.mark.parametrize("phase", [FlowPhase.SUPERSEDED, FlowPhase.RELEASED])
async def test_a_flow_that_this_driver_does_not_have_any_more_has_no_duties(phase: FlowPhase) -> None:
    """The counts of its groups stay those of the job."""
    job = replace(picture().spec, flows=[flow_spec("a", state="paused")])
    shared = SimpleNamespace(clusters=Unreached())
    flow = SimpleNamespace(name="a", spec=job.flows[0], shared=shared, phase=FlowPhase.PAUSED)
    flow.copier, flow.draining = SimpleNamespace(mirrors=True), DrainingTopics()
    flow.is_taken = asyncio.Event()
    tasks = BackgroundTasks()
    duties = FlowDuties(lambda: job, cast(Any, shared.clusters), tasks, list)
    duties.restart(cast(DriverFlow, flow))
    groups = duties._by_flow["a"].groups
    assert {task.get_name() for task in tasks._tasks} == {"groups of a", "source ends of a"}
    await permits.settled()
    assert not duties._by_flow["a"].notes  # the ledger may say that it has ended
    flow.is_taken.set()
    await permits.settled()
    assert duties._by_flow["a"].notes.keys() == {"source", "groups"}
    flow.phase = phase
    duties.restart(cast(DriverFlow, flow))
    await permits.settled()
    assert not tasks._tasks
    assert duties._by_flow["a"].groups is groups
