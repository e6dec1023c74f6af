"""What a round notes of partitions, whatever the source and the sink are."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping, Sequence
from types import SimpleNamespace
from typing import Any, cast

import pytest

from runtime.contract.records.job_status import (
    FlowStats,
    PartitionState,
    PartitionStatus,
    SlotReport,
    decode_key,
)
from runtime.contract.records.ledger import PartitionKey
from runtime.contract.records.manifest import FilePosition
from runtime.contract.spec import naming
from runtime.driver.application import SparkSlotRunner, TasksFailed
from runtime.driver.flows import rounds
from runtime.driver.flows.flow import DriverFlow
from runtime.driver.flows.rounds import (
    Copied,
    Look,
    RecordSink,
    RecordSource,
    RoundCopier,
    RoundTasks,
    SourceRange,
)
from runtime.driver.process import JvmSilent
from runtime.driver.slots.round_reports import RoundReports
from runtime.kafka.cluster import KafkaCluster
from runtime.kafka.errors import WireError
from runtime.kafka.protocol.produce import ProduceRequest
from tests.fakes.internal_topics import TransactionalTopics
from tests.fakes.permits import settled

S = PartitionState
A, B = PartitionKey("flow", "a", 0), PartitionKey("flow", "b", 0)
Positions = Mapping[PartitionKey, FilePosition]


class Source(RecordSource[FilePosition]):
    """Both partitions have more; the tasks found `taken` of them."""

    def __init__(self, taken: Mapping[PartitionKey, PartitionState]) -> None:
        self.taken, self.selections = taken, 0

    async def look(self, cluster: KafkaCluster, positions: Positions) -> Look[FilePosition]:
        return Look(shown={key: SourceRange(0, 9, S.COPYING) for key in (A, B)}, read=[A])

    def take(self, look: Look[FilePosition], results: Sequence[Any], positions: Positions) -> bool:
        look.shown |= {key: SourceRange(0, 9, state, "why") for key, state in self.taken.items()}
        return True

    def selected(self, topics: Iterable[str]) -> dict[str, str]:
        self.selections += 1
        return {}


class Sink(RecordSink[FilePosition]):
    def __init__(self, failure: Exception | None = None) -> None:
        self.stats, self.failure = FlowStats("flow"), failure

    async def positions(self, cluster: KafkaCluster) -> Positions:
        return {}

    async def commit(self, moved: Mapping[PartitionKey, FilePosition | None]) -> None:
        raise AssertionError("nothing moved")

    async def copy(self, read: Sequence[Any], tasks: RoundTasks) -> Copied[FilePosition]:
        return Copied([], {}, self.failure)

    def committed(self, status: PartitionStatus, position: FilePosition | None) -> PartitionStatus:
        return status


class Flow:
    name = "flow"

    def __init__(self) -> None:
        async def nothing(*_: object) -> None:
            return

        self.job = SimpleNamespace(job="job", slots=1)
        leadership, ledger = SimpleNamespace(ensure=nothing), SimpleNamespace(decided=nothing)
        self.shared = SimpleNamespace(application=object(), leadership=leadership, ledger=ledger)
        self.source = nothing

    def own_generation(self) -> None:
        pass

    def started(self) -> None:
        pass


def copier(source: Source, sink: Sink) -> RoundCopier[FilePosition]:
    return RoundCopier(cast(DriverFlow, Flow()), source, sink, 1_000)


def states(copying: RoundCopier[FilePosition]) -> dict[str, tuple[PartitionState, str]]:
    partitions = copying.report("driver", 0).partitions
    return {partition.topic: (partition.state, partition.why) for partition in partitions}


async def test_what_a_failed_task_has_found_is_noted_before_the_flow_retries() -> None:
    copying = copier(Source({A: S.RECORD_CORRUPT}), Sink(WireError("the leader is gone")))
    with pytest.raises(WireError) as failed:
        await copying.copy_once()
    copying.fail(str(failed.value), lost=False)
    assert states(copying) == {"a": (S.RECORD_CORRUPT, "why"), "b": (S.RETRYING, "the leader is gone")}


@pytest.mark.parametrize("kept", [frozenset[PartitionState](), frozenset({S.RETRYING})])
async def test_a_failure_is_over_once_the_next_round_has_copied(
    kept: frozenset[PartitionState], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also for partitions that the round has not reached. Until then it is shown where the source says so."""
    monkeypatch.setattr(Source, "tried_again", kept)
    seen: list[PartitionState] = []
    copying = copier(Source({}), Sink())
    await copying.copy_once()
    copying.fail("the leader is gone", lost=False)

    async def copy(self: Sink, read: Sequence[Any], tasks: RoundTasks) -> Copied[FilePosition]:
        seen.extend(state for state, _ in states(copying).values())
        return Copied([], {})

    monkeypatch.setattr(Sink, "copy", copy)
    await copying.copy_once()
    assert seen == [S.RETRYING if kept else S.COPYING] * 2
    assert states(copying) == {"a": (S.COPYING, ""), "b": (S.COPYING, "")}


async def test_what_a_round_notes_takes_no_selection_of_topics() -> None:
    """That of 10,000 topics takes a third of a second, in which the driver does nothing else."""
    source = Source({})
    copying = copier(source, Sink())
    await copying.copy_once()
    assert set(states(copying)) == {"a", "b"}
    assert source.selections == 0


class SilentJvm:
    """Spark's JVM is silent when it is asked to cancel for the first time; the round ends with the second."""

    def __init__(self) -> None:
        self.asked = 0
        self.running: asyncio.Future[list[bytes]] = asyncio.get_running_loop().create_future()

    def submit_round(self, *_: object) -> asyncio.Future[list[bytes]]:
        return self.running

    async def cancel(self, group: str) -> None:
        self.asked += 1
        if self.asked == 1:
            raise JvmSilent("to cancel", 10.0)
        self.running.set_exception(TasksFailed("cancelled"))


async def stopped_round(jvm: SilentJvm) -> asyncio.Task[list[bytes]]:
    tasks = RoundTasks(cast(SparkSlotRunner, jvm), "flow", 1)
    running = asyncio.create_task(tasks.run(cast(Any, None), []))
    await settled()
    running.cancel()
    await asyncio.wait([running])
    return running


async def test_a_round_of_a_stopped_flow_is_cancelled_again_while_the_jvm_is_silent(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(rounds, "_CANCEL_AGAIN_S", 0.01)
    jvm = SilentJvm()
    assert (await stopped_round(jvm)).cancelled()
    assert (jvm.asked, jvm.running.done()) == (2, True)


async def test_a_round_that_does_not_end_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rounds, "_CANCEL_S", 0.05)
    jvm = SilentJvm()
    assert (await stopped_round(jvm)).cancelled()
    assert not jvm.running.done()


class Topic(TransactionalTopics):
    """The status topic; `sent` are the numbers of the flows that were reported, and deleted."""

    def __init__(self) -> None:
        super().__init__({naming.STATUS: []})
        self.refused = set[int]()
        self._calls = 0

    async def call(self, node: int, request: Any, purpose: str, within: float | None) -> Any:
        assert isinstance(request, ProduceRequest)
        self._calls += 1
        if self._calls - 1 in self.refused:
            raise WireError("it is too large")
        return await self.start(request, 1.0)

    def sent(self) -> list[tuple[int, bool]]:
        written, self._written = self._written, []
        return [
            (int(key.part), record.value is not None)
            for _, record in written
            if (key := decode_key(record.key)) is not None
        ]


async def test_a_report_that_is_refused_does_not_hold_up_those_of_other_flows() -> None:
    flows = [SimpleNamespace(name=name, copier=copier(Source({}), Sink())) for name in ("a", "b")]
    context, status = SimpleNamespace(job="job", driver="driver"), Topic()
    context.destination, context.leadership = status, Flow().shared.leadership
    reports = RoundReports(cast(Any, context), lambda: cast(Any, flows), lambda _: None)
    status.refused = {0}
    await reports.report_once()
    assert status.sent() == [(1, True)]
    status.refused = set()
    await reports.report_once()
    assert status.sent() == [(0, True)]


async def test_a_flow_keeps_its_number_when_another_one_leaves_the_job() -> None:
    """Counters go by it: under another number all that the flow has copied would be counted again."""
    flows = [SimpleNamespace(name=name, copier=copier(Source({}), Sink())) for name in ("b", "a")]
    context, status = SimpleNamespace(job="job", driver="driver"), Topic()
    context.destination, context.leadership = status, Flow().shared.leadership
    reported: list[SlotReport] = []
    reports = RoundReports(cast(Any, context), lambda: cast(Any, flows), reported.append)
    for flow in flows:
        flow.copier._sink.stats = FlowStats(flow.name, records=5)

    async def numbers() -> dict[str, int]:
        reported.clear()
        await reports.report_once()
        return {report.flows[0].flow: report.slot for report in reported}

    assert await numbers() == {"a": 0, "b": 1}
    assert status.sent() == [(0, True), (1, True)]
    (gone,) = [flow for flow in flows if flow.name == "a"]
    flows.remove(gone)
    assert await numbers() == {"b": 1}
    assert (list(reports.reports), status.sent()) == ([1], [(0, False)])
    flows.append(SimpleNamespace(name="c", copier=gone.copier))
    gone.copier._sink.stats = FlowStats("c")
    assert await numbers() == {"c": 0, "b": 1}
