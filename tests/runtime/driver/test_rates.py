"""Bytes a second by partition, from what slots report."""

from runtime.contract.records.job_status import PartitionState, PartitionStatus
from runtime.contract.records.ledger import PartitionKey
from runtime.driver.slots.membership import MEASURED_MS, PartitionRates

KEY = PartitionKey("f", "t", 0)
LONG = MEASURED_MS


def rates(*reports: tuple[int, int], made: PartitionRates | None = None) -> PartitionRates:
    """Each report is a time in ms, and the bytes of the partition until then."""
    made = made or PartitionRates()
    for at_ms, count in reports:
        made.update(at_ms, [PartitionStatus(*KEY, PartitionState.COPYING, 0, bytes=count)])
    return made


def test_one_report_tells_nothing():
    assert rates((LONG, 500)).take() == {}


def test_a_short_measurement_tells_nothing_and_goes_on():
    made = rates((0, 0), (LONG - 1, 20_000))
    assert made.take() == {}
    assert rates((2 * LONG, 40_000), made=made).take() == {KEY: 1000.0}


def test_a_burst_counts_over_the_whole_measurement():
    assert rates((0, 0), (1000, 20_000), (LONG, 20_000)).take() == {KEY: 1000.0}


def test_a_partition_that_counts_from_zero_again():
    assert rates((0, 5000), (1000, 6000), (2000, 500), (LONG, 19_000)).take() == {KEY: 1000.0}


def test_an_older_measurement_counts_half():
    made = rates((0, 0), (LONG, 20_000))
    assert made.take() == {KEY: 1000.0}
    assert rates((2 * LONG, 20_000), made=made).take() == {KEY: 500.0}


def test_without_new_reports_the_rate_stays():
    made = rates((0, 0), (LONG, 20_000))
    assert made.take() == made.take() == {KEY: 1000.0}
