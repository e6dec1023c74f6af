"""What a round of a flow into files copies, and which partitions it stops (R4)."""

from msgspec.structs import replace

from runtime.contract.records.job_status import PartitionState as S
from runtime.contract.records.manifest import FilePosition
from runtime.contract.spec.files import FilesSpec
from runtime.contract.spec.jobspec import ClusterSpec
from runtime.driver.flows.file_rounds import (
    PlannedRound,
    SourcePartition,
    advanced,
    plan_round,
    progress_of,
    tickets_of,
)
from runtime.files.export import ExportedPartition, ExportPartition, ExportTicket

KEY = ("orders", 0)


def planned(position: int, start: int, end: int, *, accepts: bool = False) -> PlannedRound:
    known = FilePosition(topic="orders", topic_id="aa", partition=0, position=position, records=7)
    found = [SourcePartition("orders", b"\xaa", 0, start, end)]
    return plan_round(found, {KEY: known}, lambda _: accepts, 42)


def test_it_copies_from_the_position_to_the_last_stable_offset() -> None:
    found = planned(5, 0, 9)
    assert found.copy == [ExportPartition("orders", b"\xaa", 0, 5, 9)]
    assert found.states == {KEY: (S.COPYING, "")}
    assert found.moved == []


def test_a_partition_at_its_end_is_not_asked() -> None:
    assert planned(9, 0, 9) == PlannedRound(states={KEY: (S.CAUGHT_UP, "")})


def test_a_leader_that_does_not_answer_stops_nothing() -> None:
    found = planned(5, -1, -1)
    assert (found.copy, found.states[KEY][0]) == ([], S.RETRYING)


def test_lost_records_stop_the_partition_until_that_is_accepted() -> None:
    assert planned(5, 8, 9).states == {KEY: (S.DATA_LOSS, "the offsets 5 to 7 are gone and were not copied")}
    assert planned(5, 8, 9).copy == []
    accepted = planned(5, 8, 9, accepts=True)
    assert [(one.position, one.records) for one in accepted.moved] == [(8, 7)]
    assert [(gap.low, gap.end, gap.why) for gap in accepted.moved[0].gaps] == [(5, 8, "data_loss")]
    assert accepted.copy == [ExportPartition("orders", b"\xaa", 0, 8, 9)]


def test_a_log_that_ends_before_the_position_diverged() -> None:
    assert planned(9, 0, 6).states == {KEY: (S.DIVERGED, "the source ends at 6, 9 was copied already")}
    accepted = planned(9, 0, 6, accepts=True)
    assert accepted.moved[0].position == 6
    assert accepted.states == {KEY: (S.CAUGHT_UP, "")}


def test_tasks_get_about_as_many_records_each() -> None:
    copy = [ExportPartition("t", b"", at, 0, size) for at, size in enumerate([100, 10, 60, 40, 1])]
    empty = ExportTicket(
        "f", 1, "dc1", ClusterSpec(bootstrap="b:1"), "c",
        FilesSpec(endpoint="lake", folder="/a", format="raw"), [], 1.0,
    )  # fmt: skip
    tickets = tickets_of(copy, 2, lambda partitions: replace(empty, partitions=partitions))
    assert [sorted(one.partition for one in ticket.partitions) for ticket in tickets] == [[0, 1], [2, 3, 4]]
    assert len(tickets_of(copy, 9, lambda _: empty)) == 5


def test_records_that_do_not_travel_move_the_position_and_are_counted() -> None:
    before = FilePosition(topic="orders", topic_id="aa", partition=0, position=5, records=3, dropped=1)
    after = advanced(before, ExportedPartition("orders", 0, 9, records=2, filtered=4, tombstones=2))
    assert (after.position, after.records, after.dropped, after.tombstones) == (9, 5, 5, 2)
    source = SourcePartition("orders", b"\xaa", 0, 0, 9)
    told = progress_of(source, after, 1, 42)
    assert (told.dropped, told.tombstones) == (5, 2)
