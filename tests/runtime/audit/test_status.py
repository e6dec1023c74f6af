"""What status shows for what was read: a row each."""

import asyncio
import dataclasses
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, cast

import pytest
from msgspec import structs
from msgspec.structs import replace

from runtime.audit.status import reader as status_reader
from runtime.audit.status.facts import (
    ClusterFacts,
    LedgerFacts,
    StatusSnapshot,
    TopicFacts,
    lag_ms,
    rate,
    sum_known,
)
from runtime.audit.status.join import join
from runtime.audit.status.reader import StatusReader, read_status
from runtime.audit.status.retention import kept_ms
from runtime.batch.layout import DELETE_HORIZON
from runtime.contract.records import job_status
from runtime.contract.records.job_status import (
    JobStatusTable,
    PartitionStatus,
    SlotView,
    SourceEnds,
    StatusKey,
)
from runtime.contract.records.job_status import PartitionState as S
from runtime.contract.records.latency import LATENCY_BOUNDS_MS, TopicLatency, quantile, summed
from runtime.contract.records.ledger import Gap, Generation, PartitionKey, Progress
from runtime.contract.results.status import FlowHealth, PartitionHealth, ReplicationStatus
from runtime.contract.spec.files import LinesSpec
from runtime.contract.spec.naming import TopicPartition
from runtime.kafka.cluster import KafkaCluster
from runtime.kafka.protocol.metadata import TopicMetadata
from tests.fakes.clock import jumping
from tests.fakes.partition_logs import PartitionLog, PartitionLogs
from tests.runtime.audit.given import (
    AT,
    FLOW,
    HERE,
    JOB,
    KEY,
    NOW,
    SILENT,
    TOPIC,
    asked,
    destination,
    generation,
    job,
    lake,
    ledger,
    look,
    progress,
    report,
    said,
    source,
    with_reported,
)
from tests.runtime.batch.forge import overflowing


def told(
    state: PartitionStatus | S | None = None,
    position: int = 90,
    source_end: int = 100,
    *,
    age_ms: int = 400,
    slot_age_ms: int = 700,
    driver: str = "me",
    made: Progress | None = None,
    who: Generation | None = None,
    job_state: str = "running",
    **statistics: Any,
) -> LedgerFacts:
    """The ledger has a job with a heartbeat of `age_ms`, and a slot that says `state` of the partition."""
    word = None
    if state is not None:
        partition = state if isinstance(state, PartitionStatus) else said(state, position, source_end)
        word = report(partition, age_ms=slot_age_ms, driver=driver, **statistics)
    return ledger(made or progress(position), job(age_ms, state=job_state), word, who)


def seen(
    written: LedgerFacts | None = None,
    here: ClusterFacts | None = None,
    there: ClusterFacts | None = None,
    **declared: Any,
) -> ReplicationStatus:
    return join(asked(**declared), look(here or source(), there or destination(), written))


def flow_of(status: ReplicationStatus) -> FlowHealth:
    (flow,) = status.flows
    return flow


def partition_of(status: ReplicationStatus) -> PartitionHealth:
    (partition,) = flow_of(status).partitions
    return partition


BLOCKED = said(S.RECORD_TOO_LARGE, 90, why="2 MB")
OLD = replace(progress(90), last_timestamp=NOW - 90_000, written_at=NOW - 90_000)
DEAD = ClusterFacts("dc2", answers=False, why="timed out")
CAUGHT_UP = told(S.CAUGHT_UP, 100)
RECREATED = {TOPIC: TopicFacts(b"o" * 16, 1)}
PASSED_ON = replace(progress(), dropped=7, gaps=(Gap(10, 14, "lost", NOW),))
WAITED = source(first_missing={KEY: NOW - 7_000})
LEADERLESS = dataclasses.replace(WAITED, topics={TOPIC: TopicFacts(HERE, 2)})  # partition 1 is


def promoted(state: str = "active", **topics: list[str]) -> LedgerFacts:
    who = replace(generation(state), **topics)
    return told(S.COPYING if state == "active" else None, who=who)


@pytest.mark.parametrize(
    ("read", "state", "expected"),
    [
        (
            partial(seen, CAUGHT_UP),
            "caught_up",
            {
                "lag_records": 0,
                "lag_ms": 0,
                "since_ms": NOW - 30_000,
                "caught_up_since_ms": NOW - 20_000,
                "source_start": 0,
                "source_end": 100,
                "destination_end": 100,
            },
        ),
        # A state is what the data allows.
        (partial(seen, told(S.COPYING)), "copying", {"lag_records": 10}),
        (partial(seen, told(S.CAUGHT_UP, 90, 90)), "copying", {"lag_records": 10}),
        (partial(seen, told(BLOCKED)), "record_too_large", {"lag_records": 10}),
        (partial(seen, told()), "starting", {"lag_records": 10}),
        (partial(seen, told(S.COPYING, driver="old")), "starting", {"lag_records": 10}),
        (partial(seen, told(S.COPYING, age_ms=60_000)), "down", {"lag_records": 10}),
        (
            partial(seen, told(BLOCKED, age_ms=60_000)),
            "down",
            {"why": "job dc2: its heartbeat stopped 60 s ago; before that record_too_large: 2 MB"},
        ),
        (partial(seen, told(S.COPYING, slot_age_ms=40_000)), "retrying", {"lag_records": 10}),
        (partial(seen, told(S.COPYING, made=OLD)), "stalled", {"lag_records": 10}),
        (partial(seen, told(job_state="stopped", age_ms=60_000, who=generation("stopped"))), "down", {}),
        (partial(seen, LedgerFacts()), "down", {"position": None, "lag_records": 100}),
        # A flow into files commits only so often.
        (partial(seen, told(S.COPYING, made=OLD), files=lake(60_000)), "copying", {}),
        (partial(seen, told(S.COPYING, made=OLD), files=lake(20_000)), "stalled", {}),
        # A topic that was promoted on its own.
        (partial(seen, promoted(promoted=["ord.*"])), "promoted", {"lag_records": 0, "lag_ms": 0}),
        (partial(seen, promoted(promoting=["ord.*"])), "copying", {}),
        (partial(seen, promoted("failed_over", promoted=["orders"])), "promoted", {}),
        # One side does not answer.
        (
            partial(seen, told(said(S.RETRYING, 90, source_end=95, why="disconnected")), SILENT),
            "retrying",
            {"lag_records": 5, "lag_ms": None, "source_end_seen_ms": NOW - 200},
        ),
        (
            partial(seen, told(S.CAUGHT_UP, 90, 90), SILENT),
            "unknown",
            {"lag_ms": None, "why": "dc1 does not answer; the job says caught_up, but there may be more"},
        ),
        (partial(seen, None, there=DEAD), "unknown", {"source_end": 100, "lag_records": None}),
        # The oldest missing record waits so long, but never longer than since it was caught up.
        (partial(seen, told(S.COPYING), WAITED), "copying", {"lag_ms": 7_000}),
        (
            partial(seen, told(S.CAUGHT_UP, 90, 90), source(first_missing={KEY: NOW - 10**9})),
            "copying",
            {"lag_ms": 200},
        ),
        (partial(seen, told(S.CAUGHT_UP, 100, made=PASSED_ON)), "caught_up", {"dropped": 7, "given_up": 4}),
    ],
)
def test_a_partition_is_shown(
    read: Callable[[], ReplicationStatus], state: str, expected: dict[str, Any]
) -> None:
    status = read()
    partition = partition_of(status)
    assert partition.state == state
    assert {name: getattr(partition, name) for name in expected} == expected


@pytest.mark.parametrize("age_ms", [400, 60_000], ids=["alive", "dead"])
@pytest.mark.parametrize(
    ("here", "there", "state", "why"),
    [
        (source(start=95), destination(), "data_loss", "offsets 90 to 94 are gone"),
        (source(end=80), destination(), "diverged", "dc1 ends at 80"),
        (source(), destination(end=70), "diverged", "dc2 ends at 70"),
        (source(topics=RECREATED), destination(), "recreated", "at dc1"),
        (source(), destination(topics=RECREATED), "recreated", "at dc2"),
        (source(), destination(topics={}), "recreated", "gone from dc2"),
        (source(topics={}), destination(), "source_deleted", "gone from dc1"),
    ],
)
def test_the_logs_of_both_sides_outweigh_the_job(
    here: ClusterFacts, there: ClusterFacts, state: str, why: str, age_ms: int
) -> None:
    partition = partition_of(seen(told(S.COPYING, age_ms=age_ms), here, there))
    assert partition.state == state
    assert why in partition.why
    assert partition.needs_someone
    assert (partition.lag_records is None) == (state in ("recreated", "diverged"))


def topics_of(written: LedgerFacts, topic: str, more: Progress) -> LedgerFacts:
    """The ledger has progress of one more topic of the flow."""
    both = {**written.progress[FLOW], PartitionKey(FLOW, topic, 0): more}
    return dataclasses.replace(written, progress={FLOW: both})


BEATS = replace(progress(5), last_timestamp=NOW - 1_200)
PAYMENTS = replace(generation("failed_over"), promoted=("payments",))


@pytest.mark.parametrize(
    ("read", "expected"),
    [
        (
            partial(seen, CAUGHT_UP),
            {
                "source_cluster_id": "id-1",
                "destination_cluster_id": "id-2",
                "states": {"caught_up": 1},
                "records_per_s": None,
            },
        ),
        *(
            (
                partial(seen, told(who=generation(state)), state=state),
                {"state": state, "declared": state, "why": "", "lag_records": 10},
            )
            for state in ("paused", "promoted", "failed_over")
        ),
        (
            partial(seen, CAUGHT_UP, state="paused"),
            {"state": "caught_up", "why": "the topology says paused, it is active"},
        ),
        (partial(seen, promoted(promoted=["ord.*"])), {"lag_records": 0}),
        (
            partial(seen, topics_of(told(who=PAYMENTS), "payments", progress()), state="failed_over"),
            {"state": "failed_over", "why": "", "states": {"failed_over": 1, "promoted": 1}},
        ),
        (partial(seen, None, there=DEAD), {"state": "unknown", "destination_answers": False}),
        # Why it is not copied.
        (partial(seen, LedgerFacts()), {"why": "job dc2: it has never run at dc2"}),
        (
            partial(seen, told(S.CAUGHT_UP, who=generation(job="other"))),
            {"why": "job other: it has never run at dc2; job other has it, not dc2"},
        ),
        (
            partial(seen, told(S.RETRYING), SILENT),
            {"why": "source dc1 does not answer: no bootstrap broker answers"},
        ),
        (
            partial(seen, told(said(S.RETRYING, 90, source_end=95)), SILENT),
            {"source_answers": False, "source_cluster_id": "id-1"},
        ),
        (partial(seen, told(S.COPYING, note="no GUIDs")), {"notes": ["no GUIDs"]}),
        (partial(seen, told(S.COPYING), WAITED, rpo_ms=5_000), {"rpo_met": False}),
        (partial(seen, told(S.COPYING), WAITED, rpo_ms=8_000), {"rpo_met": True}),
        (partial(seen, told(S.COPYING), LEADERLESS, rpo_ms=5_000), {"rpo_met": False}),
        (partial(seen, told(S.COPYING), LEADERLESS, rpo_ms=8_000), {"rpo_met": None, "lag_ms": 7_000}),
        (partial(seen, told(S.COPYING), files=lake(60_000)), {"destination": "lake"}),
        (
            partial(seen, topics_of(CAUGHT_UP, "__repl.heartbeats", BEATS)),
            {"link_age_ms": 1_200, "states": {"caught_up": 1}},
        ),
    ],
)
def test_a_flow_is_shown(read: Callable[[], ReplicationStatus], expected: dict[str, Any]) -> None:
    status = read()
    flow = flow_of(status)
    assert {name: getattr(flow, name) for name in expected} == expected


@pytest.mark.parametrize(
    ("read", "jobs"),
    [
        (partial(seen, CAUGHT_UP), [("dc2", "running", True)]),
        (partial(seen, LedgerFacts()), [("dc2", "down", False)]),
        (partial(seen, told(job_state="stopped", age_ms=60_000)), [("dc2", "stopped", False)]),
        (partial(seen, None, there=DEAD), [("dc2", "unknown", False)]),
        (
            partial(seen, told(S.CAUGHT_UP, who=generation(job="other"))),
            [("dc2", "running", True), ("other", "down", False)],
        ),
    ],
)
def test_jobs_are_shown(read: Callable[[], ReplicationStatus], jobs: list[tuple[str, str, bool]]) -> None:
    status = read()
    assert [(one.name, one.state, one.up) for one in status.jobs] == jobs
    assert status.jobs[0].heartbeat_age_ms == (400 if status.jobs[0].up else status.jobs[0].heartbeat_age_ms)


@pytest.mark.parametrize(
    ("retention", "waits_ms", "declared", "left_ms"),
    [
        ({TOPIC: 100_000}, 30_000, "active", 70_000),
        ({TOPIC: 100_000}, 0, "active", 100_000),
        ({TOPIC: 100_000}, 150_000, "active", 0),
        ({TOPIC: None}, 30_000, "active", None),
        ({}, 30_000, "active", None),
        ({TOPIC: 100_000}, 30_000, "failed_over", None),
    ],
)
def test_the_time_to_loss_is_what_is_left_of_the_retention(
    retention: dict[str, int | None], waits_ms: int, declared: str, left_ms: int | None
) -> None:
    here = source(end=110 if waits_ms else 100, first_missing={KEY: NOW - waits_ms}, retention=retention)
    flow = flow_of(seen(told(S.COPYING, 100, 110, who=generation(declared)), here, state=declared))
    assert flow.time_to_loss_ms == flow.topics[0].time_to_loss_ms == left_ms


@pytest.mark.parametrize(
    ("policy", "retention", "kept"),
    [
        ("delete", "1000", 1000),
        ("compact,delete", "1000", 1000),
        ("compact", "1000", None),
        ("delete", "-1", None),
    ],
)
def test_the_time_that_a_topic_keeps_its_records(policy: str, retention: str, kept: int | None) -> None:
    assert kept_ms({"retention.ms": retention, "cleanup.policy": policy}) == kept


def test_a_flow_from_files_shows_its_files_by_what_the_job_reports() -> None:
    """The topics of the cluster that takes the lines are none of its files."""
    files = LinesSpec(endpoint="inbox", folder="/inbox", format="text", topic="lines")
    flow = flow_of(seen(told(S.COPYING, 100, 130), lines=files))
    assert (flow.source, flow.state, flow.lag_records) == ("inbox", "copying", 30)
    assert [(one.topic, one.destination_topic) for one in flow.topics] == [(TOPIC, "lines")]
    down = flow_of(seen(told(), lines=files))
    assert (down.source_answers, down.topics[0].topic) == (True, TOPIC)


@pytest.mark.parametrize(("after", "lag"), [(-1, 10), (0, 0)])
def test_records_at_the_source_of_a_flow_whose_failback_began_are_no_lag(after: int, lag: int) -> None:
    """They came from the other side, or were left where they are."""
    now = look(source(), destination(), told(who=generation("failed_over")))
    back = LedgerFacts(generations={"home": replace(generation(), after=after)})
    now = structs.replace(now, ledgers={**now.ledgers, "dc1": back})
    flow = flow_of(join(asked(state="failed_over", reverse_of="home"), now))
    assert (flow.state, flow.lag_records) == ("failed_over", lag)


@pytest.mark.parametrize("state", [None, replace(said(S.PAUSED, 90, 92), last_fetch_ms=NOW - 9_000)])
def test_of_a_paused_flow_the_source_s_end_that_its_driver_saw_last_counts(
    state: PartitionStatus | None,
) -> None:
    written = told(state, who=generation("paused"))
    ends = {(JOB, FLOW): SourceEnds(NOW - 300, {TOPIC: {0: 97}})}
    partition = partition_of(seen(with_reported(written, ends=ends), SILENT))
    assert (partition.source_end, partition.lag_records) == (97, 7)
    assert partition.source_end_seen_ms == NOW - 300


def test_a_topic_that_was_never_begun_lags_by_all_it_holds() -> None:
    fresh = TopicPartition("payments", 0)
    topics = {TOPIC: TopicFacts(HERE, 1), "payments": TopicFacts(HERE, 1)}
    here = source(topics=topics, starts={AT: 0, fresh: 5}, ends={AT: 100, fresh: 25})
    assert [(one.topic, one.state, one.lag_records) for one in flow_of(seen(CAUGHT_UP, here)).partitions] == [
        ("orders", "caught_up", 0),
        ("payments", "starting", 20),
    ]


# Two reads, one after the other


def at(written: LedgerFacts, ago_ms: int = 0) -> StatusSnapshot:
    return look(source(), destination(), written, NOW - ago_ms)


@pytest.mark.parametrize("skew_ms", [-300_000, 300_000])
def test_clocks_that_differ_hide_no_living_job_and_revive_no_dead_one(skew_ms: int) -> None:
    first = at(told(age_ms=skew_ms + 1_000), 1_000)
    assert join(asked(), at(told(age_ms=skew_ms)), first).jobs[0].up
    assert not join(asked(), at(told(age_ms=skew_ms + 1_000)), first).jobs[0].up


def test_rates_are_what_the_ledger_moved() -> None:
    status = join(asked(), at(told(S.COPYING)), at(told(S.COPYING, 50), 2_000))
    assert (flow_of(status).records_per_s, flow_of(status).bytes_per_s) == (20, 200)
    assert status.over_ms == 2_000


class OfferedLogs(PartitionLogs):
    """A cluster that lists its topics."""

    cluster_id = "id"

    async def all_topics(self) -> dict[str, TopicMetadata]:
        return await self.topics(self.ids)

    async def close(self) -> None: ...


class SlowLedger:
    """A ledger whose reading takes two seconds, of a flow that copies 100 records in each second."""

    def __init__(self, cluster: OfferedLogs) -> None:
        self.cluster = cluster
        self._read_ms = 0

    async def refresh(self, flows: Sequence[str], within: float) -> None:
        self._read_ms = round(asyncio.get_running_loop().time() * 1000)
        await asyncio.sleep(2)

    def facts(self, flows: Sequence[str]) -> LedgerFacts:
        made = progress(self._read_ms // 10)
        return dataclasses.replace(ledger(made), read_ms=self._read_ms)


@pytest.mark.parametrize(
    ("over_s", "over_ms"),
    [(1.0, 2_000), (5.0, 5_000)],  # they count from the moment at which reading began
)
def test_a_status_has_the_rates_since_the_one_before(
    monkeypatch: pytest.MonkeyPatch, over_s: float, over_ms: int
) -> None:
    cluster = OfferedLogs({AT: PartitionLog()}, {TOPIC: HERE})

    async def connect(*_: object) -> OfferedLogs:
        return cluster

    @jumping
    async def read_twice() -> None:
        async with StatusReader(asked(), within_s=600) as reader:
            first, second = await reader.status(over_s), await reader.status(over_s)
        assert flow_of(first).records_per_s is None
        assert second.over_ms == pytest.approx(over_ms, abs=500)
        assert flow_of(second).records_per_s == pytest.approx(100, rel=0.05)

    monkeypatch.setattr(status_reader, "connect", connect)
    monkeypatch.setattr(status_reader, "StatusLedgerReader", SlowLedger)
    read_twice()


class BeatingLedger:
    """A ledger of a job that sends a heartbeat each second of its life, by the event loop's clock."""

    began_s = lives_s = 0.0

    def __init__(self, cluster: OfferedLogs) -> None:
        self.cluster = cluster

    async def refresh(self, flows: Sequence[str], within: float) -> None: ...

    def facts(self, flows: Sequence[str]) -> LedgerFacts:
        last_s = min(int(asyncio.get_running_loop().time() - self.began_s), self.lives_s)
        return LedgerFacts(reported=JobStatusTable(jobs={JOB: job(age_ms=-int(last_s * 1000))}))


@pytest.mark.parametrize(
    ("lives_s", "took_s", "up"),
    [(60, 1.0, True), (0, 3.5, False)],  # the next heartbeat ends the wait, a dead job takes all of it
)
def test_the_next_heartbeat_of_a_job_ends_the_wait_for_it(
    monkeypatch: pytest.MonkeyPatch, lives_s: int, took_s: float, up: bool
) -> None:
    async def connect(*_: object) -> OfferedLogs:
        return OfferedLogs({AT: PartitionLog()}, {TOPIC: HERE})

    @jumping
    async def read_once() -> None:
        clock = asyncio.get_running_loop().time
        began = clock()
        monkeypatch.setattr(BeatingLedger, "began_s", began)
        monkeypatch.setattr(BeatingLedger, "lives_s", lives_s)
        seen = await read_status(asked(), 3.5, 600, until_alive=[JOB])
        assert clock() - began == pytest.approx(took_s, abs=0.5)
        assert [job.up for job in seen.jobs] == [up]

    monkeypatch.setattr(status_reader, "connect", connect)
    monkeypatch.setattr(status_reader, "StatusLedgerReader", BeatingLedger)
    read_once()


@pytest.mark.parametrize(
    ("slot", "state"),
    [
        (SlotView(0, "running", NOW, 2, 1), "starting"),
        (SlotView(0, "submitted", NOW, 2, 0), "starting"),  # its partitions went to other slots
        (SlotView(0, "submitted", NOW, 2, 1), "copying"),  # it starts again for the same ones
        (SlotView(0, "waiting", NOW, 1, 1), "copying"),
    ],
)
def test_a_report_of_an_earlier_attempt_counts_only_until_the_next_one_reports(
    slot: SlotView, state: str
) -> None:
    known = with_reported(told(S.COPYING), jobs={JOB: job(slots=[slot])})
    assert partition_of(seen(known)).state == state


def test_a_report_that_the_driver_removed_is_gone() -> None:
    table = JobStatusTable()
    key = job_status.encode_key(StatusKey("slot", JOB, 0))
    table.update([(key, job_status.encode(report(said(S.COPYING))))])
    assert list(table.reports) == [(JOB, 0)]
    before = table.copy()
    table.update([(key, None)])
    assert (table.reports, list(before.reports)) == ({}, [(JOB, 0)])


def test_a_job_whose_heartbeat_is_of_another_release_is_unknown_and_has_run() -> None:
    unread = with_reported(told(), jobs={}, unreadable={JOB: (b"", "status: another shape")})
    (seen_job,) = seen(unread).jobs
    assert (seen_job.state, seen_job.up) == ("unknown", False)
    assert seen_job.why == "its heartbeat can't be read, as one of another release: status: another shape"


def test_a_partition_that_moved_between_slots_counts_once_in_the_report_that_is_newer() -> None:
    """The former slot reports it too, until its next report."""
    before, after = report(said(S.COPYING, 90, 120), age_ms=2_000), report(said(S.COPYING, 100, 120))
    after = structs.replace(after, slot=1)
    table = JobStatusTable(jobs={JOB: job()}, reports={(JOB, 1): after, (JOB, 0): before})
    assert [partition.position for partition in table.partitions(JOB)] == [100]
    assert table.lag(JOB) == {FLOW: 20}


def counts(**records: int) -> list[int]:
    """`counts(b3=99)`: the third bucket of the histogram has 99 records."""
    made = [0] * 18
    for bucket, count in records.items():
        made[int(bucket[1:])] = count
    return made


def test_latencies_are_the_histograms_and_recent_where_something_was_copied_between_the_reads() -> None:
    flow = flow_of(seen(told(S.CAUGHT_UP, counts=counts(b3=99, b9=1))))  # ≤ 15 ms, ≤ 120 ms
    assert flow.latency_p50_ms is not None
    assert 10 < flow.latency_p50_ms < 15
    assert (flow.latency_p99_ms, flow.latency_over_ms) == (15, None)
    slow = at(told(S.COPYING, counts=counts(b14=1_000)), 1_000)  # ≤ 5 s: a catch-up, long ago
    flow = flow_of(join(asked(), at(told(S.COPYING, counts=counts(b14=1_000, b1=10))), slow))
    assert (flow.latency_p99_ms or 0) <= 5
    assert flow.latency_over_ms == 1_000


def test_the_latency_of_a_topic_is_that_of_the_last_minute() -> None:
    made = [TopicLatency(TOPIC, 4, 400, 20, 300, [0, 0, 0, 0, 3, 0, 0, 0, 0, 0, 0, 1])]
    latency = flow_of(seen(told(S.CAUGHT_UP, latencies=made))).topics[0].latency
    assert latency is not None
    assert (latency.records, latency.min_ms, latency.max_ms, latency.avg_ms) == (4, 20, 300, 100)
    assert latency.p50_ms == 20
    assert 200 < latency.p99_ms <= 300
    assert flow_of(seen(CAUGHT_UP)).topics[0].latency is None


@pytest.mark.parametrize("attributes", [DELETE_HORIZON, 0])
async def test_a_delete_horizon_is_not_the_time_of_the_first_missing_record(attributes: int) -> None:
    """It lies in the future. The log cleaner sets it with its bit; a copy of the batch has no bit."""
    batch = overflowing(5, NOW + 86_400_000, NOW - 60_000, NOW, attributes=attributes)
    logs = PartitionLogs({AT: PartitionLog([batch])}, {TOPIC: HERE})
    assert await status_reader._first_timestamp(cast(KafkaCluster, logs), AT, 5) == NOW - 60_000
    assert await status_reader._first_timestamp(cast(KafkaCluster, logs), AT, 6) == NOW


# The numbers


@pytest.mark.parametrize(
    ("records", "known", "expected"),
    [
        (None, {"first_missing_ms": 900}, None),
        (0, {"first_missing_ms": 900}, 0),
        (3, {"first_missing_ms": 900}, 100),  # the record's age
        (3, {"first_missing_ms": 10, "caught_up_ms": 950}, 50),
        (3, {"newest_copied_ms": 800}, 200),  # the newest copied stands for it
        (3, {"first_missing_ms": 700, "newest_copied_ms": 800}, 300),
        (3, {"first_missing_ms": 2_000}, 0),  # a timestamp of tomorrow
        (3, {}, None),
    ],
)
def test_lag_in_time(records: int | None, known: dict[str, Any], expected: int | None) -> None:
    assert lag_ms(records, 1_000, **known) == expected


@pytest.mark.parametrize(
    ("counts", "q", "expected"),
    [
        ([10, 0, 0], 0.5, 1),
        ([10, 0, 0], 1.0, 2),
        ([0, 10, 0], 0.5, 3.5),
        ([*[0] * len(LATENCY_BOUNDS_MS), 10], 0.5, 120_000),
        ([5, 0, 0, 5], 0.5, 2),  # between two buckets
        ([], 0.5, None),
        (summed([]), 0.5, None),
    ],
)
def test_a_quantile_lies_in_its_bucket(counts: list[int], q: float, expected: float | None) -> None:
    assert quantile(counts, q) == expected


def test_unknown_numbers_are_not_made_up() -> None:
    assert [rate(30, 10, 2_000), rate(5, 10, 2_000), rate(30, None, 2_000), rate(30, 10, 0)] == [
        10,
        0,
        None,
        None,
    ]
    assert sum_known([None, None]) is None
    assert sum_known([1, None]) == 1
    assert summed([[1, 2], [3]])[:3] == [4, 2, 0]
