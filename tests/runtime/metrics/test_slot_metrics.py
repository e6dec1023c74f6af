"""Counters that outlive the slots that counted."""

from typing import Any

from runtime.contract.records.job_status import FlowStats, PartitionState
from runtime.contract.records.ledger import PartitionKey
from runtime.metrics.snapshot import FlowCounts, SlotMetrics
from tests.runtime.metrics.given import NOW_MS, partition, report

KEY = PartitionKey("f", "t", 0)
BROKEN, FINE = PartitionState.DATA_LOSS, PartitionState.COPYING


def stats(commits: int, **told: Any) -> FlowStats:
    return FlowStats("f", commits=commits, **told)


def commits(book: SlotMetrics, slot: int = 0) -> float:
    return book.snapshot().flows[slot, "f"].commits


def test_what_an_ended_slot_counted_stays_counted():
    book = SlotMetrics()
    book.record_report(report(flows=[stats(7)], attempt=1))
    book.record_report(report(flows=[stats(2)], attempt=2))
    assert commits(book) == 9


def test_a_new_life_that_counted_more_than_the_old_one_is_told_by_its_attempt():
    book = SlotMetrics()
    book.record_report(report(flows=[stats(7)], attempt=1))
    book.record_report(report(flows=[stats(50)], attempt=2))
    assert commits(book) == 57


def test_a_flow_that_begins_anew_in_the_same_slot_counts_from_zero():
    book = SlotMetrics()
    book.record_report(report(flows=[stats(7)]))
    book.record_report(report(flows=[stats(3)]))
    assert commits(book) == 10


def test_a_flow_that_left_the_slot_and_came_back_is_another_life():
    book = SlotMetrics()
    for some in ([stats(7)], [], [stats(9)]):
        book.record_report(report(flows=some))
    assert commits(book) == 16


def test_the_same_report_twice_counts_once():
    book = SlotMetrics()
    for _ in range(2):
        book.record_report(report(partition(transactions=4), flows=[stats(7, latency_counts=[1] * 18)]))
    assert commits(book) == 7
    assert book.snapshot().flows[0, "f"].latency_counts == (1,) * 18
    assert book.snapshot().partitions[KEY].commits == 4


def test_a_partition_that_moves_to_another_slot_keeps_what_it_counted():
    book = SlotMetrics()
    book.record_report(report(partition(transactions=4, aborts=1), slot=0))
    book.record_report(report(slot=0))
    book.record_report(report(partition(transactions=6), slot=1))
    seen = book.snapshot().partitions[KEY]
    assert (seen.commits, seen.aborts, seen.slot) == (10, 1, 1)


def test_a_partition_that_left_a_slot_and_came_back_counts_from_zero():
    book = SlotMetrics()
    for some in ([partition(transactions=4)], [], [partition(transactions=6)]):
        book.record_report(report(*some))
    assert book.snapshot().partitions[KEY].commits == 10


def test_an_incident_counts_once_until_the_partition_goes_on():
    book = SlotMetrics()
    for attempt, state in enumerate([BROKEN, PartitionState.STARTING, BROKEN, FINE, BROKEN]):
        book.record_report(report(partition(state=state), attempt=attempt))
    assert book.snapshot().incidents == {("f", BROKEN): 2}


def test_caught_up_is_remembered_from_when_it_was():
    book = SlotMetrics()
    book.record_report(report(partition(), at_ms=NOW_MS))
    book.record_report(report(partition(state=FINE, source_end=500), at_ms=NOW_MS + 3_000))
    assert book.snapshot().partitions[KEY].caught_up_ms == NOW_MS


def test_what_is_not_copied_any_more_is_forgotten():
    book = SlotMetrics()
    book.record_report(report(partition(0), partition(1)))
    book.retain_only([KEY])
    assert book.snapshot().partitions.keys() == {KEY}
    book.record_report(report(partition(0), partition(1)))
    assert len(book.snapshot().partitions) == 2


def test_a_new_life_that_has_not_read_its_ledger_takes_no_total_back():
    book = SlotMetrics()
    book.record_report(report(partition(records=40, bytes=400), attempt=1))
    book.record_report(report(partition(state=PartitionState.STARTING, position=-1), attempt=2))
    seen = book.snapshot().partitions[KEY].status
    assert (seen.state, seen.records, seen.bytes) == (PartitionState.STARTING, 40, 400)


def test_each_count_of_a_flow_has_its_place():
    told = stats(
        4,
        records=1,
        bytes=2,
        dropped=3,
        aborts=5,
        throttled_ms=6,
        quarantined=7,
        tombstones=8,
        merged_files=9,
        latency_sum_ms=10,
        latency_counts=list(range(18)),
    )
    book = SlotMetrics()
    book.record_report(report(flows=[told]))
    seen = book.snapshot().flows[0, "f"]
    assert seen == FlowCounts(1, 2, 3, 4, 5, 6, 7, 8, 9, 10, tuple(range(18)))
