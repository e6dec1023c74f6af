"""What a report says that the one before did not: the same object stands for a partition without news."""

from typing import Any

import pytest
from msgspec.structs import fields, replace

from runtime.contract.records.job_status import (
    OpenTransaction,
    PartitionState,
    PartitionStatus,
    SlotReport,
    changed_partitions,
    with_unchanged,
)

OTHER: dict[type, Any] = {
    str: "other",
    int: 7,
    bool: True,
    PartitionState: PartitionState.DATA_LOSS,
    type(None): OpenTransaction(1, 2),
}


def status(number: int, **told: Any) -> PartitionStatus:
    return PartitionStatus("f", "t", number, PartitionState.CAUGHT_UP, 0, **told)


def report(*partitions: PartitionStatus) -> SlotReport:
    return SlotReport(0, 1, 1, "d", 1, partitions=list(partitions))


def news(before: SlotReport, after: SlotReport) -> list[int]:
    """The partitions with news, by their number."""
    kept = with_unchanged(after, before)
    assert [one.key for one in kept.partitions] == [one.key for one in after.partitions]
    return [one.partition for one in kept.partitions if not any(one is old for old in before.partitions)]


@pytest.mark.parametrize(
    ("after", "expected"),
    [
        ([status(0), status(1)], []),
        ([status(0, last_fetch_ms=9), status(1, last_fetch_ms=9)], []),
        ([status(0, last_fetch_ms=9), status(1, last_fetch_ms=9, position=5)], [1]),
        ([status(1)], []),  # one left the slot
        ([status(5), status(0), status(1)], [5]),
        ([], []),
    ],
)
def test_only_what_changed_is_a_new_object(after: list[PartitionStatus], expected: list[int]) -> None:
    assert news(report(status(0), status(1)), report(*after)) == expected


@pytest.mark.parametrize("name", [field.name for field in fields(PartitionStatus)])
def test_each_field_is_news_but_the_time_of_the_last_fetch(name: str) -> None:
    before = status(0)
    changed = replace(before, **{name: OTHER[type(getattr(before, name))]})
    assert bool(news(report(before), report(changed))) is (name != "last_fetch_ms")


def test_changed_partitions_are_those_at_another_place_or_of_another_object() -> None:
    one, two, three = (status(number) for number in range(3))
    before = report(one, two)
    assert changed_partitions(report(one, two), None) == [one, two]
    assert changed_partitions(report(one, two), before) == []
    assert changed_partitions(report(one), before) == []
    assert changed_partitions(report(one, two, three), before) == [three]
    assert changed_partitions(report(two, one), before) == [two, one]
