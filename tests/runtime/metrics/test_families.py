"""What Prometheus is told, by what was reported; each row names series and their values."""

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from runtime.contract.records.job_status import (
    FlowStats,
    PartitionState,
    PartitionStatus,
    SlotReport,
    SlotView,
)
from runtime.contract.records.latency import LATENCY_BOUNDS_MS, TopicLatency
from runtime.contract.records.ledger import PartitionKey
from runtime.metrics.families import FAMILIES
from runtime.metrics.snapshot import FlowSnapshot, GroupSnapshot, SlotMetrics
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
AT = '{flow="f",topic="t",partition="0"}'
GROUP = '{flow="f",group="app"}'


def told(
    *reports: SlotReport,
    flows: FlowSnapshot | None = None,
    slots: list[SlotView] | None = None,
    recorded: bool = True,
    after_s: float = 0.0,
    **seen: Any,
) -> dict[str, float]:
    """The series of one flow in one running slot, after these reports."""
    book = SlotMetrics()
    for one in reports if recorded else ():
        book.record_report(one)
    made = picture(flows or flow(), slots=[running()] if slots is None else slots, reports=reports, **seen)
    return series(collected(made, book, after_s=after_s))


def state_of(state: str) -> str:
    return "repl_partition_state" + AT.replace("}", f',state="{state}"}}')


def latency(name: str, count: int, ms: int, bucket: int, spread: int = 0) -> TopicLatency:
    return TopicLatency(name, count, count * ms, ms - spread, ms + spread, [0] * bucket + [count])


COUNTS = [5, 0, 2, *[0] * (len(LATENCY_BOUNDS_MS) - 3), 1]
HISTOGRAM = "repl_slot_record_latency_seconds"
TOPIC = 'repl_topic_latency_seconds{flow="f",topic="t",statistic='
LATE = partition(state=COPYING, source_end=200, last_timestamp=1)
SLOTS = [running(attempts=3), running(1, state="unscheduled", attempts=0)]
APP = GroupSnapshot("f", "app", translated=9, refused=2, pending=1, pending_since=NOW_S - 30)
WHOLE = partition(records=9, bytes=900, dropped=2, lost=1, transactions=3, aborts=1, tombstones=4)
SLOW = report(flows=[FlowStats("f", latencies=[latency("t", 10, 100, 9, 10)])], slot=1)
FAST = report(flows=[FlowStats("f", latencies=[latency("t", 90, 4, 1), latency("u", 1, 7, 2)])])


@pytest.mark.parametrize(
    ("collect", "expected", "absent"),
    [
        (
            partial(told, report(WHOLE)),
            {
                f"repl_partition_records_total{AT}": 9,
                f"repl_partition_bytes_total{AT}": 900,
                f"repl_partition_dropped_records_total{AT}": 2,
                f"repl_partition_filtered_tombstones_total{AT}": 4,
                f"repl_partition_lost_offsets_total{AT}": 1,
                f"repl_partition_transactions_committed_total{AT}": 3,
                f"repl_partition_transactions_aborted_total{AT}": 1,
                f"repl_partition_replicated_offset{AT}": 100,
                state_of("caught_up"): 1,
                'repl_flow_partitions{flow="f",state="caught_up"}': 1,
                'repl_flow_partitions{flow="f",state="diverged"}': 0,
            },
            "",
        ),
        (
            partial(
                told,
                report(
                    partition(0, records=9),
                    partition(1, state=COPYING, source_end=130, records=5, last_timestamp=NOW_MS - 4_000),
                ),
                flows=flow(partitions=2),
                partitions=1,
            ),
            {
                'repl_partition_records_total{flow="f",topic="t"}': 14,
                'repl_partition_lag_records{flow="f",topic="t"}': 30,
                'repl_partition_state{flow="f",topic="t",state="copying"}': 1,
            },
            'partition="',
        ),
        # However old the timestamps are, a partition that had caught up 3 s ago is 3 s behind at most.
        (
            partial(told, report(partition(last_timestamp=1)), report(LATE, at_ms=NOW_MS + 3_000), after_s=3),
            {f"repl_partition_lag_seconds{AT}": 3},
            "",
        ),
        (
            partial(told, report(partition(state=PartitionState.DIVERGED)), slots=[running(state="waiting")]),
            {
                'repl_flow_partitions{flow="f",state="diverged"}': 1,
                'repl_flow_incidents_total{flow="f",state="diverged"}': 1,
                'repl_flow_incidents_total{flow="f",state="recreated"}': 0,
            },
            "",
        ),
        (
            partial(
                told, report(partition()), flows=replace(flow(), promoted=(PartitionKey("f", "gone", 0),))
            ),
            {
                'repl_partition_state{flow="f",topic="gone",partition="0",state="promoted"}': 1,
                'repl_flow_partitions{flow="f",state="promoted"}': 1,
            },
            'repl_partition_lag_records{flow="f",topic="gone"',
        ),
        (partial(told), {state_of("starting"): 1}, "repl_partition_lag"),  # no report yet
        (
            partial(told, report(flows=[FlowStats("f", latency_counts=COUNTS, latency_sum_ms=200_000)])),
            {
                f'{HISTOGRAM}_bucket{{slot="0",flow="f",le="0.002"}}': 5,
                f'{HISTOGRAM}_bucket{{slot="0",flow="f",le="120.0"}}': 7,
                f'{HISTOGRAM}_bucket{{slot="0",flow="f",le="+Inf"}}': 8,
                f'{HISTOGRAM}_count{{slot="0",flow="f"}}': 8,
                f'{HISTOGRAM}_sum{{slot="0",flow="f"}}': 200,
            },
            "",
        ),
        # The latency of a topic covers all its running slots.
        (
            partial(
                told,
                FAST,
                SLOW,
                replace(SLOW, slot=2),
                slots=[running(), running(1), running(2, state="waiting")],
                recorded=False,
            ),
            {
                f'{TOPIC}"min"}}': 0.004,
                f'{TOPIC}"avg"}}': pytest.approx((90 * 4 + 10 * 100) / 100 / 1000),
                f'{TOPIC}"max"}}': 0.11,
                f'{TOPIC}"p50"}}': pytest.approx(0.0045, abs=0.0005),
                f'{TOPIC}"p99"}}': pytest.approx(0.095, abs=0.015),
                'repl_topic_latency_seconds{flow="f",topic="u",statistic="p99"}': 0.007,
            },
            "",
        ),
        # Those of many topics are added up by flow.
        (
            partial(
                told,
                report(flows=[FlowStats("f", latencies=[latency("t", 1, 3, 1), latency("u", 1, 5, 1)])]),
                partitions=1,
            ),
            {'repl_topic_latency_seconds{flow="f",statistic="avg"}': 0.004},
            'repl_topic_latency_seconds{flow="f",topic=',
        ),
        (
            partial(
                told,
                report(partition(state=COPYING, source_end=140)),
                flows=flow(rpo_ms=5_000),
                slots=SLOTS,
                after_s=2,
            ),
            {
                "repl_job_up": 1,
                "repl_job_heartbeat_age_seconds": 2.5,
                "repl_job_start_time_seconds": NOW_S - 60,
                'repl_job_slots{state="running"}': 1,
                'repl_job_slots{state="unscheduled"}': 1,
                'repl_slot_restarts_total{slot="0"}': 2,
                'repl_slot_restarts_total{slot="1"}': 0,
                'repl_slot_resident_memory_bytes{slot="0"}': 60 << 20,
                'repl_slot_lag_records{slot="0",flow="f"}': 40,
                'repl_cluster_under_replicated_partitions{cluster="dc2"}': 2,
                'repl_cluster_leaderless_partitions{cluster="dc2"}': 1,
                'repl_flow_rpo_seconds{flow="f"}': 5,
                'repl_flow_sync_actions_total{flow="f",what="topics"}': 1,
            },
            "",
        ),
        (partial(told, after_s=11), {"repl_job_up": 0}, ""),  # its heartbeat is old
        (lambda: series(collected(None, SlotMetrics())), {"repl_job_up": 0}, "repl_flow"),
        (
            partial(
                told,
                groups=[
                    GroupSnapshot("f", "app", translated=9, refused=2, pending=1, pending_since=NOW_S - 30)
                ],
            ),
            {
                f"repl_group_translated_offsets_total{GROUP}": 9,
                f"repl_group_refused_total{GROUP}": 2,
                f"repl_group_pending_partitions{GROUP}": 1,
                f"repl_group_pending_seconds{GROUP}": 30,
            },
            "repl_group_checkpoint_latency_seconds",
        ),
        (
            partial(
                told,
                flows=flow(partitions=0),
                groups=[
                    GroupSnapshot("f", name, translated=4, latency_s=s) for name, s in (("a", 1), ("b", 3))
                ],
                partitions=1,
            ),
            {
                'repl_group_translated_offsets_total{flow="f"}': 8,
                'repl_group_checkpoint_latency_seconds{flow="f"}': 3,
            },
            "group=",
        ),
    ],
    ids=[
        "a partition with all of its labels",
        "above the limit, by topic",
        "caught up a moment ago",
        "a loss without a slot",
        "a promoted topic",
        "no report",
        "a histogram with the bounds of the contract",
        "latency by topic",
        "latency by flow",
        "the job, its slots and clusters",
        "an old heartbeat",
        "nothing is known",
        "groups",
        "above the limit, groups by flow",
    ],
)
def test_series(collect: Callable[[], dict[str, float]], expected: dict[str, Any], absent: str) -> None:
    found = collect()
    assert {name: found.get(name) for name in expected} == expected
    assert not absent or not [name for name in found if absent in name]


@pytest.mark.parametrize(
    ("status", "after_s", "seconds"),
    [
        (partition(last_timestamp=1), 0, 0),
        (partition(last_timestamp=NOW_MS - 60_000), 20, 20),  # silent: from then on nothing is known
        (partition(state=COPYING, source_end=200, last_timestamp=NOW_MS - 4_000), 0, 4),
        (partition(state=COPYING, source_end=200, last_timestamp=NOW_MS - 4_000), 3, 4),  # not silent yet
        (partition(state=COPYING, source_end=200, last_timestamp=NOW_MS - 4_000), 20, 24),
        (partition(state=COPYING, source_end=200), 20, 20),  # nothing was ever copied: since it was seen
        (partition(state=COPYING, source_end=200, last_timestamp=NOW_MS + 60_000), 0, 0),
    ],
)
def test_lag_in_seconds_is_how_old_the_oldest_missing_record_may_be(
    status: PartitionStatus, after_s: float, seconds: float
) -> None:
    assert told(report(status), after_s=after_s)[f"repl_partition_lag_seconds{AT}"] == seconds


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
def test_a_state_holds_while_the_slot_that_reported_it_runs(slot: SlotView, state: str) -> None:
    assert told(report(partition(state=COPYING)), slots=[slot])[state_of(state)] == 1


def test_every_family_is_named_by_convention_collected_and_documented() -> None:
    stats = FlowStats("f", latencies=[latency("t", 1, 4, 1)])
    one = report(partition(last_timestamp=NOW_MS, last_commit_ms=NOW_MS), flows=[stats])
    book = SlotMetrics()
    book.record_report(one)
    groups = [GroupSnapshot("f", "app", latency_s=1.0)]
    seen = picture(flow(rpo_ms=1, rate_limit=1), slots=[running()], reports=[one], groups=groups)
    made = {metric.name for metric in collected(seen, book) if metric.samples}
    assert {family.name.removesuffix("_total") for family in FAMILIES} == made
    assert len({family.name for family in FAMILIES}) == len(FAMILIES)
    page = DOCS.read_text()
    for family in FAMILIES:
        assert family.name.startswith("repl_")
        assert not family.name.endswith(("_ms", "_milliseconds", "_kb", "_mb")), family.name
        assert family.help.endswith("."), family.name
        labels = ", ".join(f"`{label}`" for label in family.labels)
        assert f"| `{family.name}` | {labels} | {family.help} |" in page, family.name
