"""Which files the status of a flow from files shows."""

import pytest

from runtime.contract.records.ledger import PartitionKey
from runtime.driver.flows.shown_files import shown_files


def keys(names: str) -> set[PartitionKey]:
    return {PartitionKey("f", name, 0) for name in names}


def by_name(**values: int) -> dict[PartitionKey, int]:
    return {PartitionKey("f", name, 0): value for name, value in values.items()}


@pytest.mark.parametrize(
    ("most", "shown", "notes"),
    [
        (7, "abcdxyz", []),
        (6, "abcdyz", ["1 more files are not shown"]),
        (3, "abd", ["4 more files are not shown, and 5 rows of 1 of them are not read yet"]),
        (1, "a", ["6 more files are not shown, and 25 rows of 2 of them are not read yet"]),
    ],
)
def test_stopped_files_come_first_then_those_with_the_most_to_read(
    most: int, shown: str, notes: list[str]
) -> None:
    waiting, read = by_name(c=5, d=20, a=0), by_name(x=1, y=2, z=3, d=9)
    assert shown_files(keys("ab"), waiting, read, "rows", most) == (keys(shown), notes)
