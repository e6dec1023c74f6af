"""Counters that outlive the slots that counted."""

from typing import Any

import pytest
from msgspec.structs import replace

from runtime.contract.records.job_status import FlowStats, PartitionState, SlotReport
from runtime.contract.records.ledger import PartitionKey
from runtime.metrics.snapshot import SlotMetrics
from tests.runtime.metrics.given import NOW_MS, partition, report

KEY = PartitionKey("f", "t", 0)
BROKEN, FINE, STARTING = PartitionState.DATA_LOSS, PartitionState.COPYING, PartitionState.STARTING


def commits(number: int | None, attempt: int = 1) -> SlotReport:
    """Of the flow, by one life of a slot; None is a report without the flow."""
    flows = [] if number is None else [FlowStats("f", commits=number)]
    return report(flows=flows, attempt=attempt)


def recorded(*reports: SlotReport) -> SlotMetrics:
    book = SlotMetrics()
    for one in reports:
        book.record_report(one)
    return book


@pytest.mark.parametrize(
    ("reports", "counted"),
    [
        ([commits(7, 1), commits(2, 2)], 9),
        ([commits(7, 1), commits(50, 2)], 57),  # a new life is told by its attempt
        ([commits(7), commits(3)], 10),  # the flow begins anew in the same slot
        ([commits(7), commits(None), commits(9)], 16),  # it left the slot and came back
        ([commits(7), commits(7)], 7),
    ],
)
def test_commits_of_an_ended_slot_stay_counted(reports: list[SlotReport], counted: int) -> None:
    assert recorded(*reports).flows[0, "f"].commits == counted


@pytest.mark.parametrize(
    ("reports", "expected"),
    [
        # A partition that moves to another slot keeps its counts.
        (
            [
                report(partition(transactions=4, aborts=1)),
                report(),
                report(partition(transactions=6), slot=1),
            ],
            {"commits": 10, "aborts": 1, "slot": 1},
        ),
        # One that left a slot and came back counts from zero.
        ([report(partition(transactions=4)), report(), report(partition(transactions=6))], {"commits": 10}),
        ([report(partition(transactions=4))] * 2, {"commits": 4}),
        # Caught up is remembered from when it was.
        (
            [report(partition()), report(partition(state=FINE, source_end=500), at_ms=NOW_MS + 3_000)],
            {"caught_up_ms": NOW_MS},
        ),
    ],
)
def test_a_partition_is_counted(reports: list[SlotReport], expected: dict[str, Any]) -> None:
    seen = recorded(*reports).partitions[KEY]
    assert {name: getattr(seen, name) for name in expected} == expected


def test_only_partitions_with_news_are_recorded_again_and_the_time_of_the_others_moves() -> None:
    quiet, busy = (partition(number) for number in range(2))
    book = recorded(report(quiet, busy))
    before = dict(book.partitions)
    more = replace(busy, state=FINE, source_end=500)
    book.record_report(report(quiet, more, at_ms=NOW_MS + 3_000))
    after = book.partitions
    assert [key.partition for key, seen in after.items() if seen is not before[key]] == [1]
    assert [(seen.at_ms, seen.caught_up_ms) for seen in after.values()] == [
        (NOW_MS + 3_000, NOW_MS + 3_000),
        (NOW_MS + 3_000, NOW_MS),
    ]


def test_a_partition_that_left_its_slot_keeps_the_time_of_its_last_report() -> None:
    left, stays = (partition(number) for number in range(2))
    book = recorded(report(left, stays), report(left, stays, at_ms=NOW_MS + 1_000))
    book.record_report(report(stays, at_ms=NOW_MS + 9_000))
    assert [seen.at_ms - NOW_MS for seen in book.partitions.values()] == [1_000, 9_000]


def test_a_partition_that_was_forgotten_is_recorded_from_an_unchanged_status() -> None:
    one, other = (partition(number) for number in range(2))
    book = recorded(report(one, other))
    book.retain_only([KEY])
    book.record_report(report(one, other))
    assert len(book.partitions) == 2


def test_an_incident_counts_once_until_the_partition_goes_on() -> None:
    states = enumerate([BROKEN, STARTING, BROKEN, FINE, BROKEN])
    book = recorded(*(report(partition(state=state), attempt=attempt) for attempt, state in states))
    assert book.incidents == {("f", BROKEN): 2}


def test_partitions_that_are_not_copied_any_more_are_forgotten() -> None:
    both = report(partition(0), partition(1))
    book = recorded(both)
    book.retain_only([KEY])
    assert book.partitions.keys() == {KEY}
    book.record_report(both)
    assert len(book.partitions) == 2


def test_a_new_life_that_has_not_read_its_ledger_takes_no_total_back() -> None:
    before = report(partition(records=40, bytes=400), attempt=1)
    book = recorded(before, report(partition(state=STARTING, position=-1), attempt=2))
    seen = book.partitions[KEY].status
    assert (seen.state, seen.records, seen.bytes) == (STARTING, 40, 400)


def test_each_count_of_a_flow_has_its_place() -> None:
    names = "records bytes dropped commits aborts throttled_ms quarantined tombstones merged_files"
    counts: dict[str, Any] = {
        name: number for number, name in enumerate([*names.split(), "latency_sum_ms"], 1)
    }
    told = FlowStats("f", latency_counts=list(range(18)), **counts)
    seen = recorded(report(flows=[told]), report(flows=[told], attempt=2)).flows[0, "f"]
    assert {name: getattr(seen, name) for name in counts} == {name: 2 * one for name, one in counts.items()}
    assert seen.latency_counts == [2 * count for count in range(18)]
