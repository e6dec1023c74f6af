from typing import Any

import pytest

from runtime.audit.status.facts import lag_ms, rate, sum_known
from runtime.contract.records.latency import LATENCY_BOUNDS_MS, quantile, summed

LAGS: list[tuple[str, int | None, dict[str, Any], int | None]] = [
    ("not known", None, {"first_missing_ms": 900}, None),
    ("nothing missing", 0, {"first_missing_ms": 900}, 0),
    ("the record's age", 3, {"first_missing_ms": 900}, 100),
    ("never longer than since it was caught up", 3, {"first_missing_ms": 10, "caught_up_ms": 950}, 50),
    ("the newest copied stands for it", 3, {"newest_copied_ms": 800}, 200),
    ("but not where it was looked at", 3, {"first_missing_ms": 700, "newest_copied_ms": 800}, 300),
    ("a timestamp of tomorrow", 3, {"first_missing_ms": 2_000}, 0),
    ("nothing to go by", 3, {}, None),
]


@pytest.mark.parametrize(
    ("records", "known", "expected"), [row[1:] for row in LAGS], ids=[row[0] for row in LAGS]
)
def test_lag_in_time(records: int | None, known: dict[str, Any], expected: int | None):
    assert lag_ms(records, 1_000, **known) == expected


def test_a_rate_is_never_negative_nor_made_up():
    assert rate(30, 10, 2_000) == 10
    assert rate(5, 10, 2_000) == 0
    assert rate(30, None, 2_000) is None
    assert rate(30, 10, 0) is None


@pytest.mark.parametrize(
    ("at", "q", "expected"), [(0, 0.5, 1), (0, 1.0, 2), (1, 0.5, 3.5), (len(LATENCY_BOUNDS_MS), 0.5, 120_000)]
)
def test_a_quantile_lies_in_its_bucket(at: int, q: float, expected: float):
    counts = [0] * (len(LATENCY_BOUNDS_MS) + 1)
    counts[at] = 10
    assert quantile(counts, q) == expected


def test_no_records_no_quantile():
    assert quantile([], 0.5) is None
    assert quantile(summed([]), 0.5) is None


def test_sums():
    assert summed([[1, 2], [3]])[:3] == [4, 2, 0]
    assert sum_known([None, None]) is None
    assert sum_known([1, None]) == 1
