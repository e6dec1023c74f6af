"""What status shows for what was read: a row each."""

import dataclasses
from typing import Any

import pytest
from msgspec import structs
from msgspec.structs import replace

from runtime.audit.status.facts import ClusterFacts, LedgerFacts, TopicFacts
from runtime.audit.status.join import join
from runtime.audit.status.retention import kept_ms
from runtime.contract.records.job_status import PartitionState as S
from runtime.contract.records.job_status import SourceEnds
from runtime.contract.records.latency import TopicLatency
from runtime.contract.records.ledger import Gap, PartitionKey
from runtime.contract.views.status_view import FlowStatusView, PartitionStatusView, StatusView
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
    ledger,
    look,
    progress,
    report,
    said,
    source,
)


def seen(
    here: ClusterFacts | None = None,
    there: ClusterFacts | None = None,
    written: LedgerFacts | None = None,
    **declared: Any,
) -> StatusView:
    return join(asked(**declared), look(here or source(), there or destination(), written))


def flow_of(status: StatusView) -> FlowStatusView:
    (flow,) = status.flows
    return flow


def partition_of(status: StatusView) -> PartitionStatusView:
    (partition,) = flow_of(status).partitions
    return partition


def test_caught_up():
    status = seen(written=ledger(progress(), job(), report(said(S.CAUGHT_UP))))
    partition = partition_of(status)
    assert (partition.state, partition.lag_records, partition.lag_ms) == ("caught_up", 0, 0)
    assert partition.caught_up_since_ms == NOW - 20_000
    assert partition.since_ms == NOW - 30_000
    assert (partition.source_start, partition.source_end, partition.destination_end) == (0, 100, 100)
    assert (status.jobs[0].up, status.jobs[0].state, status.jobs[0].heartbeat_age_ms) == (
        True,
        "running",
        400,
    )
    assert (flow_of(status).source_cluster_id, flow_of(status).destination_cluster_id) == ("id-1", "id-2")
    assert flow_of(status).states == {"caught_up": 1}


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
):
    here = source(end=110 if waits_ms else 100, first_missing={KEY: NOW - waits_ms}, retention=retention)
    word = report(said(S.COPYING, 100, 110))
    flow = flow_of(seen(here, written=ledger(progress(), job(), word, generation(declared)), state=declared))

    assert flow.time_to_loss_ms == left_ms
    assert flow.topics[0].time_to_loss_ms == left_ms


@pytest.mark.parametrize(
    ("config", "kept"),
    [
        ({"retention.ms": "1000", "cleanup.policy": "delete"}, 1000),
        ({"retention.ms": "1000", "cleanup.policy": "compact,delete"}, 1000),
        ({"retention.ms": "1000", "cleanup.policy": "compact"}, None),
        ({"retention.ms": "-1", "cleanup.policy": "delete"}, None),
    ],
)
def test_what_a_topic_keeps_by_time(config: dict[str, str], kept: int | None):
    assert kept_ms(config) == kept


BLOCKED = report(said(S.RECORD_TOO_LARGE, 90, why="2 MB"))
# What the job says of the partition, how old its heartbeat is, where the ledger stands → what is shown.
STATES = [
    ("copies", report(said(S.COPYING, 90)), 400, {}, "copying"),
    ("says caught up, the end is further", report(said(S.CAUGHT_UP, 90, 90)), 400, {}, "copying"),
    ("waits for someone", BLOCKED, 400, {}, "record_too_large"),
    ("no report yet", None, 400, {}, "starting"),
    ("another driver's last word", report(said(S.COPYING, 90), driver="old"), 400, {}, "starting"),
    ("dead, its word is old", report(said(S.COPYING, 90)), 60_000, {}, "down"),
    ("dead, it waited for someone", BLOCKED, 60_000, {}, "down"),
    ("its slot is silent", report(said(S.COPYING, 90), age_ms=40_000), 400, {}, "retrying"),
    (
        "nothing moves",
        report(said(S.COPYING, 90)),
        400,
        {"last_timestamp": NOW - 90_000, "written_at": NOW - 90_000},
        "stalled",
    ),
]


@pytest.mark.parametrize(
    ("word", "age_ms", "ledger_says", "state"), [row[1:] for row in STATES], ids=[row[0] for row in STATES]
)
def test_a_state_is_what_the_data_allows(word: Any, age_ms: int, ledger_says: dict[str, Any], state: str):
    made = replace(progress(90), **ledger_says)
    partition = partition_of(seen(written=ledger(made, job(age_ms), word)))
    assert (partition.state, partition.lag_records) == (state, 10)


@pytest.mark.parametrize(("every_ms", "state"), [(60_000, "copying"), (20_000, "stalled")])
def test_a_flow_into_files_commits_only_so_often(every_ms: int, state: str):
    made = replace(progress(90), last_timestamp=NOW - 90_000, written_at=NOW - 90_000)
    written = look(source(), destination(), ledger(made, job(), report(said(S.COPYING, 90))))
    status = join(asked(endpoint="lake", every_ms=every_ms), written)
    assert (partition_of(status).state, flow_of(status).destination) == (state, "lake")


def test_a_flow_from_files_shows_its_files_by_what_the_job_reports():
    """The topics of the cluster that takes the lines are none of its files."""
    files: dict[str, Any] = {"source_endpoint": "inbox", "lines_topic": "lines"}
    written = ledger(progress(), job(), report(said(S.COPYING, 100, 130)))
    flow = flow_of(seen(written=written, **files))
    assert (flow.source, flow.state, flow.lag_records) == ("inbox", "copying", 30)
    assert [(one.topic, one.destination_topic) for one in flow.topics] == [(TOPIC, "lines")]
    down = flow_of(seen(written=ledger(progress(), job(), None), **files))
    assert (down.source_answers, down.topics[0].topic) == (True, TOPIC)


def test_a_dead_job_tells_what_it_waited_for():
    partition = partition_of(seen(written=ledger(progress(90), job(60_000), BLOCKED)))
    assert partition.why == "job dc2: its heartbeat stopped 60 s ago; before that record_too_large: 2 MB"


OTHER = b"o" * 16
FINDINGS = [
    ("retention passed", source(start=95), destination(), "data_loss", "offsets 90 to 94 are gone"),
    ("source ends before", source(end=80), destination(), "diverged", "dc1 ends at 80"),
    ("destination ends before", source(), destination(end=70), "diverged", "dc2 ends at 70"),
    ("source made again", source(topics={TOPIC: TopicFacts(OTHER, 1)}), destination(), "recreated", "at dc1"),
    ("mirror made again", source(), destination(topics={TOPIC: TopicFacts(OTHER, 1)}), "recreated", "at dc2"),
    ("mirror gone", source(), destination(topics={}), "recreated", "gone from dc2"),
    ("source gone", source(topics={}), destination(), "source_deleted", "gone from dc1"),
]


@pytest.mark.parametrize("age_ms", [400, 60_000], ids=["alive", "dead"])
@pytest.mark.parametrize(
    ("here", "there", "state", "why"), [row[1:] for row in FINDINGS], ids=[row[0] for row in FINDINGS]
)
def test_what_both_sides_show_outweighs_the_job(here: Any, there: Any, state: str, why: str, age_ms: int):
    written = ledger(progress(90), job(age_ms), report(said(S.COPYING, 90)))
    partition = partition_of(seen(here, there, written))
    assert partition.state == state
    assert why in partition.why
    assert partition.needs_someone
    assert (partition.lag_records is None) == (state in ("recreated", "diverged"))


@pytest.mark.parametrize("state", ["paused", "promoted", "failed_over"])
def test_a_flow_that_was_told_to_stand_still(state: str):
    written = ledger(progress(90), job(), who=generation(state))
    flow = flow_of(seen(written=written, state=state))
    assert (flow.state, flow.declared, flow.why, flow.lag_records) == (state, state, "", 10)


def test_what_is_declared_and_not_applied_is_said():
    flow = flow_of(seen(written=ledger(progress(), job(), report(said(S.CAUGHT_UP))), state="paused"))
    assert flow.state == "caught_up"
    assert flow.why == "the topology says paused, it is active"


def test_a_topic_promoted_on_its_own():
    who = replace(generation("active"), promoted=["ord.*"])
    status = seen(written=ledger(progress(90), job(), report(said(S.COPYING, 90)), who=who))
    partition = partition_of(status)
    assert (partition.state, partition.lag_records, partition.lag_ms) == ("promoted", 0, 0)
    assert flow_of(status).lag_records == 0


def test_a_topic_that_is_to_be_promoted_is_not_yet():
    who = replace(generation("active"), promoting=["ord.*"])
    written = ledger(progress(90), job(), report(said(S.COPYING, 90)), who=who)
    assert partition_of(seen(written=written)).state == "copying"


def test_a_promoted_topic_stays_so_when_the_rest_fails_over():
    who = replace(generation("failed_over"), promoted=["orders"])
    assert partition_of(seen(written=ledger(progress(90), job(), who=who))).state == "promoted"


def test_of_a_flow_that_fails_over_one_topic_was_promoted_before():
    who, payments = (
        replace(generation("failed_over"), promoted=["payments"]),
        PartitionKey(FLOW, "payments", 0),
    )
    written = ledger(progress(90), job(), who=who)
    written = dataclasses.replace(written, progress={FLOW: {**written.progress[FLOW], payments: progress()}})
    flow = flow_of(seen(written=written, state="failed_over"))
    assert (flow.state, flow.why, flow.states) == ("failed_over", "", {"failed_over": 1, "promoted": 1})


@pytest.mark.parametrize(("after", "lag"), [(-1, 10), (0, 0)])
def test_what_is_at_the_source_of_a_flow_whose_way_home_began(after: int, lag: int):
    """It came from the other side, or was left where it is."""
    back = replace(generation(), after=after)
    written = ledger(progress(90), job(), who=generation("failed_over"))
    now = look(source(), destination(), written)
    now = structs.replace(now, ledgers={**now.ledgers, "dc1": LedgerFacts(generations={"home": back})})
    flow = flow_of(join(asked(state="failed_over", opposite="home"), now))
    assert (flow.state, flow.lag_records) == ("failed_over", lag)


def test_a_job_that_never_ran():
    status = seen(written=LedgerFacts())
    assert (status.jobs[0].up, status.jobs[0].state) == (False, "down")
    partition = partition_of(status)
    assert (partition.state, partition.position, partition.lag_records) == ("down", None, 100)
    assert "never run" in flow_of(status).why


def test_a_job_that_was_stopped():
    status = seen(written=ledger(progress(90), job(60_000, state="stopped"), who=generation("stopped")))
    assert (status.jobs[0].up, status.jobs[0].state) == (False, "stopped")
    assert partition_of(status).state == "down"


def test_a_paused_flow_whose_source_does_not_answer():
    """Its driver went on looking where the source ends; what was heard last counts."""
    told = {(JOB, FLOW): SourceEnds(NOW - 300, {TOPIC: {0: 97}})}
    before = report(replace(said(S.PAUSED, 90, source_end=92), last_fetch_ms=NOW - 9_000))
    for word in (None, before):
        written = ledger(progress(90), job(), word, generation("paused"))
        partition = partition_of(seen(here=SILENT, written=dataclasses.replace(written, ends=told)))
        assert (partition.source_end, partition.lag_records) == (97, 7)
        assert partition.source_end_seen_ms == NOW - 300


def test_the_source_does_not_answer():
    word = report(said(S.RETRYING, 90, source_end=95, why="disconnected"))
    status = seen(here=SILENT, written=ledger(progress(90), job(), word))
    partition, flow = partition_of(status), flow_of(status)
    assert (partition.lag_records, partition.lag_ms, partition.source_end_seen_ms) == (5, None, NOW - 200)
    assert (partition.state, flow.source_answers) == ("retrying", False)
    assert flow.why.startswith("source dc1 does not answer: no bootstrap broker answers")
    assert flow.source_cluster_id == "id-1"


def test_a_job_that_had_caught_up_with_a_source_that_is_silent_now_knows_nothing():
    word = report(said(S.CAUGHT_UP, 90, source_end=90))
    partition = partition_of(seen(here=SILENT, written=ledger(progress(90), job(), word)))
    assert (partition.state, partition.lag_ms) == ("unknown", None)
    assert partition.why == "dc1 does not answer; the job says caught_up, but there may be more"


def test_the_destination_does_not_answer():
    dead = ClusterFacts("dc2", answers=False, why="timed out")
    status = seen(there=dead)
    partition, flow = partition_of(status), flow_of(status)
    assert (partition.state, partition.source_end, partition.lag_records) == ("unknown", 100, None)
    assert (flow.state, flow.destination_answers) == ("unknown", False)
    assert (status.jobs[0].state, status.jobs[0].up) == ("unknown", False)


def test_another_job_has_the_flow():
    status = seen(written=ledger(progress(), job(), report(said(S.CAUGHT_UP)), generation(job="other")))
    assert [one.name for one in status.jobs] == ["dc2", "other"]
    assert "job other has it, not dc2" in flow_of(status).why


def test_clocks_that_differ_hide_no_living_job_and_revive_no_dead_one():
    ahead, behind = -300_000, 300_000
    for age_ms in (ahead, behind):
        first = look(source(), destination(), ledger(progress(), job(age_ms + 1_000)), NOW - 1_000)
        still = look(source(), destination(), ledger(progress(), job(age_ms + 1_000)))
        beats = look(source(), destination(), ledger(progress(), job(age_ms)))
        assert join(asked(), beats, first).jobs[0].up
        assert not join(asked(), still, first).jobs[0].up


def test_rates_are_what_the_ledger_moved():
    first = look(source(), destination(), ledger(progress(50), job(), report(said(S.COPYING))), NOW - 2_000)
    now = look(source(), destination(), ledger(progress(90), job(), report(said(S.COPYING))))
    status = join(asked(), now, first)
    assert (flow_of(status).records_per_s, flow_of(status).bytes_per_s) == (20, 200)
    assert status.over_ms == 2_000
    assert flow_of(join(asked(), now)).records_per_s is None


def test_lag_in_seconds_is_the_oldest_records_wait():
    written = ledger(progress(90), job(), report(said(S.COPYING, 90)))
    here = source(first_missing={KEY: NOW - 7_000})
    assert partition_of(seen(here, written=written)).lag_ms == 7_000
    old_news = source(first_missing={KEY: NOW - 10**9})  # written long before it was sent
    just_caught_up = ledger(progress(90), job(), report(said(S.CAUGHT_UP, 90, 90)))  # as fetched 200 ms ago
    assert partition_of(seen(old_news, written=just_caught_up)).lag_ms == 200


def test_the_rpo_is_judged_by_it():
    written = ledger(progress(90), job(), report(said(S.COPYING, 90)))
    here = source(first_missing={KEY: NOW - 7_000})
    assert flow_of(seen(here, written=written, rpo_ms=5_000)).rpo_met is False
    assert flow_of(seen(here, written=written, rpo_ms=8_000)).rpo_met is True


def test_a_topic_that_was_never_begun_lags_by_all_it_holds():
    topics = {TOPIC: TopicFacts(HERE, 1), "payments": TopicFacts(HERE, 1)}
    fresh = (("payments", 0), 5, 25)
    (name, number), start, end = fresh
    here = source(
        topics=topics,
        starts={AT: 0, type(AT)(name, number): start},
        ends={AT: 100, type(AT)(name, number): end},
    )
    status = seen(here, written=ledger(progress(), job(), report(said(S.CAUGHT_UP))))
    assert [(one.topic, one.state, one.lag_records) for one in flow_of(status).partitions] == [
        ("orders", "caught_up", 0),
        ("payments", "starting", 20),
    ]


def test_what_was_dropped_and_given_up_is_counted():
    made = replace(progress(), dropped=7, gaps=(Gap(10, 14, "lost", NOW),))
    partition = partition_of(seen(written=ledger(made, job(), report(said(S.CAUGHT_UP)))))
    assert (partition.dropped, partition.given_up) == (7, 4)


def test_the_link_is_as_old_as_the_newest_heartbeat_that_crossed():
    beats = replace(progress(5), last_timestamp=NOW - 1_200)
    written = ledger(progress(), job(), report(said(S.CAUGHT_UP)))
    both = {KEY: progress(), PartitionKey(FLOW, "__repl.heartbeats", 0): beats}
    flow = flow_of(
        seen(written=LedgerFacts({FLOW: both}, written.generations, written.jobs, written.reports))
    )
    assert flow.link_age_ms == 1_200
    assert [one.topic for one in flow.topics] == [TOPIC]


def test_latencies_are_the_histograms():
    counts = [0] * 18
    counts[3], counts[9] = 99, 1  # ≤ 15 ms, ≤ 120 ms
    flow = flow_of(seen(written=ledger(progress(), job(), report(said(S.CAUGHT_UP), counts=counts))))
    assert flow.latency_p50_ms is not None
    assert 10 < flow.latency_p50_ms < 15
    assert (flow.latency_p99_ms, flow.latency_over_ms) == (15, None)


def test_the_latency_of_a_topic_is_that_of_the_last_minute():
    made = [TopicLatency(TOPIC, 4, 400, 20, 300, [0, 0, 0, 0, 3, 0, 0, 0, 0, 0, 0, 1])]
    flow = flow_of(seen(written=ledger(progress(), job(), report(said(S.CAUGHT_UP), latencies=made))))
    (topic,) = flow.topics
    assert topic.latency is not None
    assert (topic.latency.records, topic.latency.min_ms, topic.latency.max_ms) == (4, 20, 300)
    assert topic.latency.avg_ms == 100
    assert topic.latency.p50_ms == 20
    assert 200 < topic.latency.p99_ms <= 300
    quiet = flow_of(seen(written=ledger(progress(), job(), report(said(S.CAUGHT_UP)))))
    assert quiet.topics[0].latency is None


def test_latencies_are_recent_where_something_was_copied_between_the_looks():
    slow, both = [0] * 18, [0] * 18
    slow[14] = both[14] = 1_000  # ≤ 5 s: a catch-up, long ago
    both[1] = 10  # ≤ 5 ms: since then
    first = look(
        source(), destination(), ledger(progress(), job(), report(said(S.COPYING), counts=slow)), NOW - 1_000
    )
    now = look(source(), destination(), ledger(progress(), job(), report(said(S.COPYING), counts=both)))
    flow = flow_of(join(asked(), now, first))
    assert (flow.latency_p99_ms or 0) <= 5
    assert flow.latency_over_ms == 1_000
