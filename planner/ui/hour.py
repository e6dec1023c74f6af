"""The last hour of flows and topics, in memory and bounded: 360 buckets of 10 s for each number.

A topic takes about 4 KB, and at most `MOST_TOPICS` topics are kept. The feed's thread writes; pages read.
"""

import math
from array import array
from collections.abc import Iterator, Sequence

from runtime.contract.views.status_view import FlowStatusView, StatusView, TopicStatusView

BUCKET_MS = 10_000
BUCKETS = 360
MOST_TOPICS = 20_000
_NONE = math.nan

Values = list[float | None]


class Series:
    """One number over the last hour. In a bucket, the highest value of its time stays."""

    __slots__ = ("_newest", "_values")

    def __init__(self) -> None:
        self._values = array("f", [_NONE]) * BUCKETS
        self._newest = -1

    def put(self, at_ms: int, value: float | None) -> None:
        """Stores a value. Buckets that were passed over become unknown; a time that went by is ignored."""
        bucket = at_ms // BUCKET_MS
        if bucket < self._newest:
            return
        for passed in range(max(self._newest + 1, bucket - BUCKETS + 1), bucket + 1):
            self._values[passed % BUCKETS] = _NONE
        self._newest = bucket
        if value is not None:
            before = self._values[bucket % BUCKETS]
            self._values[bucket % BUCKETS] = value if math.isnan(before) else max(before, value)

    def until(self, now_ms: int) -> Values:
        """Returns the buckets of the hour before `now_ms`, the oldest first; None where nothing is known."""
        last = now_ms // BUCKET_MS
        return [self._at(bucket) for bucket in range(last - BUCKETS + 1, last + 1)]

    def is_older_than_an_hour(self, now_ms: int) -> bool:
        return now_ms // BUCKET_MS - self._newest >= BUCKETS

    def _at(self, bucket: int) -> float | None:
        if not self._newest - BUCKETS < bucket <= self._newest:
            return None
        value = self._values[bucket % BUCKETS]
        return None if math.isnan(value) else value


class Trail:
    """The numbers of one flow or topic. A topic's latency is not measured: its series stay empty."""

    __slots__ = ("bytes_per_s", "lag_ms", "lag_records", "latency_p50_ms", "latency_p99_ms", "records_per_s")

    def __init__(self, *, latency: bool) -> None:
        self.lag_records = Series()
        self.lag_ms = Series()
        self.records_per_s = Series()
        self.bytes_per_s = Series() if latency else None
        self.latency_p50_ms = Series() if latency else None
        self.latency_p99_ms = Series() if latency else None

    def put(self, at_ms: int, one: FlowStatusView | TopicStatusView) -> None:
        self.lag_records.put(at_ms, one.lag_records)
        self.lag_ms.put(at_ms, one.lag_ms)
        self.records_per_s.put(at_ms, one.records_per_s)
        if isinstance(one, FlowStatusView):
            for series, value in (
                (self.bytes_per_s, one.bytes_per_s),
                (self.latency_p50_ms, one.latency_p50_ms if one.latency_over_ms is not None else None),
                (self.latency_p99_ms, one.latency_p99_ms if one.latency_over_ms is not None else None),
            ):
                assert series is not None
                series.put(at_ms, value)


class Hour:
    """The trails of all flows, and of their topics."""

    def __init__(self) -> None:
        self._flows: dict[str, Trail] = {}
        self._topics: dict[tuple[str, str], Trail] = {}
        self._tidied_ms = 0

    def take(self, status: StatusView) -> None:
        """Stores one reading."""
        for flow in status.flows:
            trail = self._flows.get(flow.name)
            if trail is None:
                trail = self._flows[flow.name] = Trail(latency=True)
            trail.put(status.at_ms, flow)
            for topic in flow.topics:
                kept = self._topics.get((flow.name, topic.topic))
                if kept is None and len(self._topics) < MOST_TOPICS:
                    kept = self._topics[flow.name, topic.topic] = Trail(latency=False)
                if kept is not None:
                    kept.put(status.at_ms, topic)
        if status.at_ms - self._tidied_ms >= BUCKETS * BUCKET_MS // 6:
            self._tidied_ms = status.at_ms
            self._tidy(status.at_ms)

    def _tidy(self, now_ms: int) -> None:
        """Forgets flows and topics that were not read for an hour."""
        for flow in [
            key for key, one in self._flows.items() if one.lag_records.is_older_than_an_hour(now_ms)
        ]:
            del self._flows[flow]
        for key in [
            key for key, one in self._topics.items() if one.lag_records.is_older_than_an_hour(now_ms)
        ]:
            del self._topics[key]

    def flow(self, name: str) -> Trail | None:
        return self._flows.get(name)

    def topic(self, flow: str, topic: str) -> Trail | None:
        return self._topics.get((flow, topic))


WIDTH, HEIGHT = 720.0, 88.0


class Chart:
    """A line over the last hour, as SVG paths between the unknown times. `highest` is the upper edge."""

    def __init__(self, values: Sequence[float | None]) -> None:
        known = [one for one in values if one is not None]
        self.latest = next((one for one in reversed(values) if one is not None), None)
        self.highest = max(known, default=None)
        self.lines = [_path(one, self.highest or 1.0, len(values)) for one in _stretches(values)]


def _stretches(values: Sequence[float | None]) -> Iterator[list[tuple[int, float]]]:
    """Yields the stretches of known values, each with its positions."""
    stretch: list[tuple[int, float]] = []
    for at, value in enumerate(values):
        if value is not None:
            stretch.append((at, value))
        elif stretch:
            yield stretch
            stretch = []
    if stretch:
        yield stretch


def _path(stretch: Sequence[tuple[int, float]], highest: float, number: int) -> str:
    """Returns the path. A single value is a short line: a path without a length is not drawn."""
    step = WIDTH / max(number - 1, 1)
    points = [f"{at * step:.1f},{HEIGHT - 2 - value / highest * (HEIGHT - 6):.1f}" for at, value in stretch]
    return f"M{points[0]}h2" if len(points) == 1 else "M" + "L".join(points)
