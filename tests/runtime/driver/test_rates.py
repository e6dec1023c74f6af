"""Bytes a second by partition, from what slots report."""

from runtime.contract.records.job_status import PartitionState, PartitionStatus
from runtime.contract.records.ledger import PartitionKey
from runtime.driver.slots.membership import PartitionRates

KEY = PartitionKey("f", "t", 0)


def status(count: int) -> list[PartitionStatus]:
    return [PartitionStatus(*KEY, PartitionState.COPYING, 0, bytes=count)]


def rates(*reports: tuple[int, int]) -> PartitionRates:
    made = PartitionRates()
    for at_ms, count in reports:
        made.update(at_ms, status(count))
    return made


def test_one_report_tells_nothing():
    assert rates((1000, 500)).by_partition == {}


def test_two_reports_tell_a_rate():
    assert rates((1000, 500), (2000, 1500)).by_partition == {KEY: 1000.0}


def test_a_slot_that_began_anew_counts_from_zero():
    assert rates((1000, 5000), (2000, 100)).by_partition == {KEY: 100.0}


def test_the_rate_follows_slowly():
    after = rates((0, 0), (1000, 1000), (2000, 1000)).by_partition[KEY]
    assert 0 < after < 1000


def test_the_same_report_twice_changes_nothing():
    assert rates((1000, 500), (2000, 1500), (2000, 1500)).by_partition == {KEY: 1000.0}
