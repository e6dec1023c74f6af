"""The latency of records, from a record's timestamp to its commit at the destination, as histograms.

Records of one batch count with the timestamp of its newest record.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Hashable, Iterable, Sequence
from typing import TypeVar

import msgspec

LATENCY_BOUNDS_MS = (2, 5, 10, 15, 20, 30, 40, 60, 80, 120, 200, 400, 800, 2_000, 5_000, 30_000, 120_000)
_BUCKETS = len(LATENCY_BOUNDS_MS) + 1
_Key = TypeVar("_Key", bound=Hashable)


class TopicLatency(msgspec.Struct, frozen=True, omit_defaults=True):
    """Holds the latency of the records of one topic.

    `counts` has the records of each bound of `LATENCY_BOUNDS_MS`, then those of slower records; zeros at its
    end are left out.
    """

    topic: str
    records: int
    sum_ms: int
    min_ms: int
    max_ms: int
    counts: list[int]

    def quantile(self, q: float) -> float:
        """Returns a quantile in ms, which lies between the lowest and the highest latency."""
        return min(max(quantile(self.counts, q) or 0.0, self.min_ms), self.max_ms)

    @property
    def average_ms(self) -> float:
        """Returns the average latency of a record in ms."""
        return self.sum_ms / self.records


class _Tally:
    """Adds up the latencies of one topic; it is changed in place, once for each batch."""

    __slots__ = ("counts", "max_ms", "min_ms", "sum_ms")

    def __init__(self, latency_ms: int) -> None:
        self.counts = [0] * _BUCKETS
        self.sum_ms = 0
        self.min_ms = self.max_ms = latency_ms

    def add(self, latency_ms: int, records: int) -> None:
        self.counts[bucket_of(latency_ms)] += records
        self.sum_ms += latency_ms * records
        if latency_ms < self.min_ms:
            self.min_ms = latency_ms
        elif latency_ms > self.max_ms:
            self.max_ms = latency_ms

    def of(self, topic: str) -> TopicLatency:
        last = max(at for at, count in enumerate(self.counts) if count)
        counts = self.counts[: last + 1]
        return TopicLatency(topic, sum(counts), self.sum_ms, self.min_ms, self.max_ms, counts)


class LatencyWindow:
    """Adds up the latencies of topics, and discards those older than two periods.

    Its content covers the present period and the whole one before: `period_ms` to twice as long.
    """

    def __init__(self, period_ms: int = 30_000) -> None:
        self._period_ms = period_ms
        self._begun_ms = 0
        self._now: dict[str, _Tally] = {}
        self._before: dict[str, _Tally] = {}

    def add(self, topic: str, latency_ms: int, records: int, now_ms: int) -> None:
        """Counts at least one record of a topic that was committed now."""
        self._turn(now_ms)
        tally = self._now.get(topic)
        if tally is None:
            tally = self._now[topic] = _Tally(latency_ms)
        tally.add(latency_ms, records)

    def topics(self, now_ms: int) -> list[TopicLatency]:
        """Returns the latency of each topic of which records were committed lately."""
        self._turn(now_ms)
        tallies = [*self._before.items(), *self._now.items()]
        return list(by_topic(tally.of(topic) for topic, tally in tallies).values())

    def _turn(self, now_ms: int) -> None:
        """Starts a new period if the present one is over, also after the clock was set back."""
        passed = now_ms - self._begun_ms
        if 0 <= passed < self._period_ms:
            return
        self._before = self._now if 0 <= passed < 2 * self._period_ms else {}
        self._now = {}
        self._begun_ms = now_ms


def bucket_of(latency_ms: int) -> int:
    """Returns the place of a latency among the counts of a histogram."""
    return bisect_left(LATENCY_BOUNDS_MS, latency_ms)


def by_topic(latencies: Iterable[TopicLatency]) -> dict[str, TopicLatency]:
    """Returns one latency for each topic, in which those of several slots or periods are added up."""
    return merged_by((latency.topic, latency) for latency in latencies)


def merged_by(latencies: Iterable[tuple[_Key, TopicLatency]]) -> dict[_Key, TopicLatency]:
    """Returns one latency for each key, in which all of that key are added up."""
    by_key: dict[_Key, TopicLatency] = {}
    for key, latency in latencies:
        before = by_key.get(key)
        by_key[key] = latency if before is None else merged(before, latency)
    return by_key


def merged(latency: TopicLatency, more: TopicLatency) -> TopicLatency:
    """Returns the latency of the records of both, under the topic of the first."""
    counts = summed([latency.counts, more.counts])[: max(len(latency.counts), len(more.counts))]
    return TopicLatency(
        latency.topic,
        latency.records + more.records,
        latency.sum_ms + more.sum_ms,
        min(latency.min_ms, more.min_ms),
        max(latency.max_ms, more.max_ms),
        counts,
    )


def summed(counts: Iterable[Sequence[int]]) -> list[int]:
    """Returns the sums of histograms."""
    total = [0] * _BUCKETS
    for histogram in counts:
        for at, count in enumerate(histogram[:_BUCKETS]):
            total[at] += count
    return total


def quantile(counts: Sequence[int], q: float) -> float | None:
    """Returns a quantile of a histogram with the bounds of LATENCY_BOUNDS_MS, interpolated linearly.

    Values above the last bound count as that bound, because the histogram does not tell them apart. Returns
    None where nothing was counted, or where the counts are impossible.
    """
    total = sum(counts)
    if not 0 < total < 1 << 63 or min(counts) < 0:
        return None
    wanted = q * total
    passed = 0
    low = 0.0
    for bound, count in zip(LATENCY_BOUNDS_MS, counts, strict=False):
        if count and passed + count >= wanted:
            return low + (bound - low) * (wanted - passed) / count
        passed += count
        low = float(bound)
    return float(LATENCY_BOUNDS_MS[-1])
