"""What is committed at the source, for people to look at."""

from functools import partial

from runtime.contract.records.job_status import PartitionState, PartitionStatus, SlotReport, SlotStatus
from runtime.driver.duties.flow_duties import ReportedPositions
from runtime.kafka.protocol.offsets import TopicPartition


def report(slot: int, at_ms: int, **positions: int) -> SlotReport:
    partitions = [
        PartitionStatus("f", topic, 0, PartitionState.COPYING, since_ms=0, position=position)
        for topic, position in positions.items()
    ]
    return SlotReport("driver", 1, SlotStatus(slot=slot, at_ms=at_ms, assignment=1, partitions=partitions))


def test_of_a_partition_that_moved_the_newer_report_counts() -> None:
    gone, alive = report(0, 1_000, orders=50, other=7), report(1, 9_000, orders=70, fresh=-1)

    for reports in ([gone, alive], [alive, gone]):
        reported = ReportedPositions(partial(list, reports))
        assert reported.of("f") == {TopicPartition("orders", 0): 70, TopicPartition("other", 0): 7}
        assert reported.of("g") == {}


def test_a_newer_report_of_a_slot_replaces_the_one_before() -> None:
    reports = [report(0, 1_000, orders=50, other=7)]
    reported = ReportedPositions(lambda: reports)
    assert reported.of("f") == {TopicPartition("orders", 0): 50, TopicPartition("other", 0): 7}
    reports[0] = report(0, 2_000, orders=60)
    assert reported.of("f") == {TopicPartition("orders", 0): 60}
    grouped = reported.of("f")
    reports[0] = report(0, 3_000, orders=60)
    assert reported.of("f") == grouped
    reports[0] = report(0, 4_000, other=60)
    assert reported.of("f") == {TopicPartition("other", 0): 60}
