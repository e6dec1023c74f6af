"""What Prometheus is told, by what was reported."""

from pathlib import Path

import pytest
from msgspec.structs import replace

from runtime.contract.records.job_status import FlowStats, PartitionState, PartitionStatus
from runtime.contract.records.latency import LATENCY_BOUNDS_MS, TopicLatency
from runtime.contract.records.ledger import PartitionKey
from runtime.metrics.endpoint import FAMILIES
from runtime.metrics.snapshot import GroupSnapshot, SlotMetrics
from tests.runtime.metrics.given import (
    NOW_MS,
    NOW_S,
    collected,
    flow,
    partition,
    picture,
    report,
    running,
    series,
)

DOCS = Path(__file__).parents[3] / "docs" / "metrics.md"
COPYING = PartitionState.COPYING


def told(*partitions: PartitionStatus, by_topic: bool = False, after_s: float = 0.0) -> dict[str, float]:
    """One flow of these partitions in one running slot."""
    book = SlotMetrics()
    one = report(*partitions)
    book.record_report(one)
    limit = len(partitions) - 1 if by_topic else len(partitions)
    seen = picture(flow(partitions=len(partitions)), slots=[running()], reports=[one], partitions=limit)
    return series(collected(seen, book, after_s=after_s))


def test_a_partition_is_told_with_all_of_its_labels():
    found = told(partition(records=9, bytes=900, dropped=2, lost=1, transactions=3, aborts=1, tombstones=4))
    at = '{flow="f",topic="t",partition="0"}'
    assert found[f"repl_partition_records_total{at}"] == 9
    assert found[f"repl_partition_bytes_total{at}"] == 900
    assert found[f"repl_partition_dropped_records_total{at}"] == 2
    assert found[f"repl_partition_filtered_tombstones_total{at}"] == 4
    assert found[f"repl_partition_lost_offsets_total{at}"] == 1
    assert found[f"repl_partition_transactions_committed_total{at}"] == 3
    assert found[f"repl_partition_transactions_aborted_total{at}"] == 1
    assert found[f"repl_partition_replicated_offset{at}"] == 100
    assert found['repl_partition_state{flow="f",topic="t",partition="0",state="caught_up"}'] == 1
    assert found['repl_flow_partitions{flow="f",state="caught_up"}'] == 1
    assert found['repl_flow_partitions{flow="f",state="diverged"}'] == 0


def test_above_the_limit_partitions_are_summed_by_topic():
    late = partition(1, state=COPYING, source_end=130, records=5, last_timestamp=NOW_MS - 4_000)
    found = told(partition(0, records=9), late, by_topic=True)
    at = '{flow="f",topic="t"}'
    assert found[f"repl_partition_records_total{at}"] == 14
    assert found[f"repl_partition_lag_records{at}"] == 30
    assert found['repl_partition_state{flow="f",topic="t",state="copying"}'] == 1
    assert not [one for one in found if 'partition="' in one]


@pytest.mark.parametrize(
    ("status", "after_s", "seconds"),
    [
        (partition(last_timestamp=1), 0, 0),
        (partition(last_timestamp=NOW_MS - 60_000), 20, 20),  # silent: from here on nobody knows
        (partition(state=COPYING, source_end=200, last_timestamp=NOW_MS - 4_000), 0, 4),
        (partition(state=COPYING, source_end=200, last_timestamp=NOW_MS - 4_000), 3, 4),  # not silent yet
        (partition(state=COPYING, source_end=200, last_timestamp=NOW_MS - 4_000), 20, 24),
        (partition(state=COPYING, source_end=200), 20, 20),  # nothing was ever copied: since it was seen
        (partition(state=COPYING, source_end=200, last_timestamp=NOW_MS + 60_000), 0, 0),
    ],
)
def test_lag_in_seconds_is_how_old_the_oldest_missing_record_may_be(
    status: PartitionStatus, after_s: float, seconds: float
):
    found = told(status, after_s=after_s)
    assert found['repl_partition_lag_seconds{flow="f",topic="t",partition="0"}'] == seconds


def test_what_was_caught_up_a_moment_ago_can_not_be_further_behind():
    """However old the timestamps are of what is copied."""
    book = SlotMetrics()
    late = partition(state=COPYING, source_end=200, last_timestamp=1)
    for one in (report(partition(last_timestamp=1)), report(late, at_ms=NOW_MS + 3_000)):
        book.record_report(one)
    found = series(collected(picture(flow(), slots=[running()]), book, after_s=3))
    assert found['repl_partition_lag_seconds{flow="f",topic="t",partition="0"}'] == 3


@pytest.mark.parametrize(
    ("slot", "state"),
    [
        (running(), "copying"),
        (running(attempts=2), "starting"),
        (running(state="waiting"), "retrying"),
        (running(state="unscheduled"), "unscheduled"),
        (running(state="submitted", attempts=2), "starting"),
    ],
)
def test_a_state_holds_while_the_slot_that_said_it_runs(slot, state: str):
    book, one = SlotMetrics(), report(partition(state=COPYING))
    book.record_report(one)
    found = series(collected(picture(flow(), slots=[slot], reports=[one]), book))
    assert found[f'repl_partition_state{{flow="f",topic="t",partition="0",state="{state}"}}'] == 1


def test_what_needs_someone_does_so_without_a_slot():
    book = SlotMetrics()
    book.record_report(report(partition(state=PartitionState.DIVERGED)))
    found = series(collected(picture(flow(), slots=[running(state="waiting")]), book))
    assert found['repl_flow_partitions{flow="f",state="diverged"}'] == 1
    assert found['repl_flow_incidents_total{flow="f",state="diverged"}'] == 1
    assert found['repl_flow_incidents_total{flow="f",state="recreated"}'] == 0


def test_a_topic_that_was_promoted_on_its_own_has_its_state_and_no_lag():
    book = SlotMetrics()
    book.record_report(report(partition()))
    one = replace(flow(), promoted=[PartitionKey("f", "gone", 0)])
    found = series(collected(picture(one, slots=[running()]), book))
    assert found['repl_partition_state{flow="f",topic="gone",partition="0",state="promoted"}'] == 1
    assert found['repl_flow_partitions{flow="f",state="promoted"}'] == 1
    assert 'repl_partition_lag_records{flow="f",topic="gone",partition="0"}' not in found


def test_a_partition_that_nobody_reported_is_starting_and_has_no_lag():
    found = series(collected(picture(flow(), slots=[running()]), SlotMetrics()))
    assert found['repl_partition_state{flow="f",topic="t",partition="0",state="starting"}'] == 1
    assert not [one for one in found if one.startswith("repl_partition_lag")]


def test_latency_is_a_histogram_with_the_bounds_of_the_contract():
    counts = [0] * (len(LATENCY_BOUNDS_MS) + 1)
    counts[0], counts[2], counts[-1] = 5, 2, 1
    book = SlotMetrics()
    book.record_report(report(flows=[FlowStats("f", latency_counts=counts, latency_sum_ms=200_000)]))
    found = series(collected(picture(flow(), slots=[running()]), book))
    name = "repl_slot_record_latency_seconds"
    assert found[f'{name}_bucket{{slot="0",flow="f",le="0.002"}}'] == 5
    assert found[f'{name}_bucket{{slot="0",flow="f",le="120.0"}}'] == 7
    assert found[f'{name}_bucket{{slot="0",flow="f",le="+Inf"}}'] == 8
    assert found[f'{name}_count{{slot="0",flow="f"}}'] == 8
    assert found[f'{name}_sum{{slot="0",flow="f"}}'] == 200


def test_the_latency_of_a_topic_covers_all_its_slots():
    book = SlotMetrics()
    fast = TopicLatency("t", 90, 90 * 4, 4, 4, [0, 90])
    slow = TopicLatency("t", 10, 10 * 100, 90, 110, [0] * 9 + [10])
    reports = [
        report(flows=[FlowStats("f", latencies=[fast, TopicLatency("u", 1, 7, 7, 7, [0, 0, 1])])]),
        report(flows=[FlowStats("f", latencies=[slow])], slot=1),
        report(flows=[FlowStats("f", latencies=[slow])], slot=2),
    ]
    slots = [running(), running(1), running(2, state="waiting")]
    found = series(collected(picture(flow(), slots=slots, reports=reports), book))
    name = 'repl_topic_latency_seconds{flow="f",topic="t",statistic='
    assert found[f'{name}"min"}}'] == 0.004
    assert found[f'{name}"avg"}}'] == pytest.approx((90 * 4 + 10 * 100) / 100 / 1000)
    assert found[f'{name}"max"}}'] == 0.11
    assert 0.004 <= found[f'{name}"p50"}}'] <= 0.005
    assert 0.08 < found[f'{name}"p99"}}'] <= 0.11
    assert found['repl_topic_latency_seconds{flow="f",topic="u",statistic="p99"}'] == 0.007


def test_the_latencies_of_many_topics_are_added_up_by_flow():
    latencies = [TopicLatency(name, 1, ms, ms, ms, [0, 1]) for name, ms in (("t", 3), ("u", 5))]
    reports = [report(flows=[FlowStats("f", latencies=latencies)])]
    found = series(
        collected(picture(flow(), slots=[running()], reports=reports, partitions=1), SlotMetrics())
    )
    assert found['repl_topic_latency_seconds{flow="f",statistic="avg"}'] == 0.004
    assert not [one for one in found if one.startswith("repl_topic_latency") and "topic=" in one]


def test_the_job_its_slots_and_clusters():
    book, one = SlotMetrics(), report(partition(state=COPYING, source_end=140))
    book.record_report(one)
    slots = [running(attempts=3), running(1, state="unscheduled", attempts=0)]
    found = series(collected(picture(flow(rpo_ms=5_000), slots=slots, reports=[one]), book, after_s=2))
    assert found["repl_job_up"] == 1
    assert found["repl_job_heartbeat_age_seconds"] == 2.5
    assert found["repl_job_start_time_seconds"] == NOW_S - 60
    assert found['repl_job_slots{state="running"}'] == 1
    assert found['repl_job_slots{state="unscheduled"}'] == 1
    assert found['repl_slot_restarts_total{slot="0"}'] == 2
    assert found['repl_slot_restarts_total{slot="1"}'] == 0
    assert found['repl_slot_resident_memory_bytes{slot="0"}'] == 60 << 20
    assert found['repl_slot_lag_records{slot="0",flow="f"}'] == 40
    assert found['repl_cluster_under_replicated_partitions{cluster="dc2"}'] == 2
    assert found['repl_cluster_leaderless_partitions{cluster="dc2"}'] == 1
    assert found['repl_flow_rpo_seconds{flow="f"}'] == 5
    assert found['repl_flow_sync_actions_total{flow="f",what="topics"}'] == 1


def test_a_job_whose_heartbeat_is_old_is_not_up():
    found = series(collected(picture(flow()), SlotMetrics(), after_s=11))
    assert found["repl_job_up"] == 0


def test_before_anything_is_known_the_job_is_not_up():
    assert series(collected(None, SlotMetrics())) == {"repl_job_up": 0}


def test_groups():
    group = GroupSnapshot("f", "app", translated=9, refused=2, pending=1, pending_since=NOW_S - 30)
    found = series(collected(picture(flow(), groups=[group]), SlotMetrics()))
    at = '{flow="f",group="app"}'
    assert found[f"repl_group_translated_offsets_total{at}"] == 9
    assert found[f"repl_group_refused_total{at}"] == 2
    assert found[f"repl_group_pending_partitions{at}"] == 1
    assert found[f"repl_group_pending_seconds{at}"] == 30
    assert f"repl_group_checkpoint_latency_seconds{at}" not in found


def test_above_the_limit_groups_are_summed_by_flow():
    groups = [
        GroupSnapshot("f", name, translated=4, latency_s=lasted) for name, lasted in (("a", 1), ("b", 3))
    ]
    found = series(collected(picture(flow(partitions=0), groups=groups, partitions=1), SlotMetrics()))
    assert found['repl_group_translated_offsets_total{flow="f"}'] == 8
    assert found['repl_group_checkpoint_latency_seconds{flow="f"}'] == 3


def test_names_follow_the_conventions():
    for family in FAMILIES:
        assert family.name.startswith("repl_")
        assert family.name.endswith("_total") == (family.kind == "counter"), family.name
        assert not family.name.endswith(("_ms", "_milliseconds", "_kb", "_mb")), family.name
        assert family.help.endswith("."), family.name
    assert len({family.name for family in FAMILIES}) == len(FAMILIES)


def test_every_family_is_collected_and_stands_in_the_docs():
    stats = FlowStats("f", latencies=[TopicLatency("t", 1, 4, 4, 4, [0, 1])])
    book = SlotMetrics()
    one = report(partition(last_timestamp=NOW_MS, last_commit_ms=NOW_MS), flows=[stats])
    book.record_report(one)
    group = GroupSnapshot("f", "app", latency_s=1.0)
    seen = picture(flow(rpo_ms=1, rate_limit=1), slots=[running()], reports=[one], groups=[group])
    metrics = collected(seen, book)
    made = {metric.name for metric in metrics if metric.samples}
    assert {family.name.removesuffix("_total") for family in FAMILIES} == made
    page = DOCS.read_text()
    for family in FAMILIES:
        labels = ", ".join(f"`{label}`" for label in family.labels)
        assert f"| `{family.name}` | {labels} | {family.help} |" in page, family.name
