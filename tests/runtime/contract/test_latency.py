"""The latency of records by topic: a window that forgets, and sums that agree with the records."""

import math
from collections.abc import Sequence

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from runtime.contract.records.job_status import FlowStats
from runtime.contract.records.latency import LATENCY_BOUNDS_MS, LatencyWindow, TopicLatency, bucket_of

START = 1_800_000_000_000


def only(window: LatencyWindow, now_ms: int) -> TopicLatency:
    (found,) = window.topics(now_ms)
    return found


def test_a_window_holds_the_present_period_and_the_one_before_by_topic():
    window = LatencyWindow(period_ms=1_000)
    window.add("orders", 5, 10, START)
    window.add("orders", 50, 1, START + 1_500)
    assert only(window, START + 1_500).records == 11
    assert (only(window, START + 2_600).records, only(window, START + 2_600).min_ms) == (1, 50)
    assert window.topics(START + 4_700) == []
    for topic in ("orders", "payments"):
        window.add(topic, 5, len(topic), START + 4_800)
    assert {one.topic: one.records for one in window.topics(START + 4_800)} == {"orders": 6, "payments": 8}
    assert window.topics(START - 60_000) == []  # a clock that is set back empties the window


def test_zeros_at_the_end_are_not_sent():
    window = LatencyWindow()
    window.add("orders", 4, 10, START)
    stats = FlowStats("f", latencies=window.topics(START))
    assert msgspec.json.decode(msgspec.json.encode(stats))["latencies"] == [
        {"topic": "orders", "records": 10, "sum_ms": 40, "min_ms": 4, "max_ms": 4, "counts": [0, 10]}
    ]


@given(st.lists(st.tuples(st.integers(0, 300_000), st.integers(1, 500)), min_size=1, max_size=40))
def test_the_sums_are_those_of_the_records(batches: Sequence[tuple[int, int]]):
    window = LatencyWindow(period_ms=len(batches))
    for at, (latency, records) in enumerate(batches):
        window.add("orders", latency, records, START + at)
    found = only(window, START + len(batches) - 1)
    each = sorted(latency for latency, records in batches for _ in range(records))
    assert (found.records, found.min_ms, found.max_ms) == (len(each), each[0], each[-1])
    assert found.average_ms == pytest.approx(sum(each) / len(each))
    for q in (0.5, 0.99):
        exact = each[max(math.ceil(q * len(each)) - 1, 0)]
        bounds = (0, *LATENCY_BOUNDS_MS, each[-1])
        low, high = bounds[bucket_of(exact)], bounds[bucket_of(exact) + 1]
        assert low <= found.quantile(q) <= high  # the histogram knows the bucket, no more
