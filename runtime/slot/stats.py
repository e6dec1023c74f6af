"""Counts the records, bytes, commits and latencies of a flow in this slot since it began."""

from bisect import bisect_left

from runtime.contract.records.status import LATENCY_BOUNDS_MS, FlowStats
from runtime.slot.write.events import Committed


class FlowCounters:
    """The counters of a flow in this slot; a latency is the time from a record's timestamp to its commit."""

    def __init__(self) -> None:
        self.records = 0
        self.bytes = 0
        self.dropped = 0
        self.commits = 0
        self._latency_counts = [0] * (len(LATENCY_BOUNDS_MS) + 1)
        self._latency_sum_ms = 0.0

    def committed(self, event: Committed, now_ms: int) -> None:
        """Counts a committed transaction."""
        self.commits += 1
        for entry in event.entries:
            self.dropped += entry.step.dropped if entry.step is not None else 0
            if entry.part is not None:
                self.records += entry.part.records
                self.bytes += entry.part.bytes
        for newest, records in event.latencies:
            latency = max(now_ms - newest, 0)
            self._latency_counts[bisect_left(LATENCY_BOUNDS_MS, latency)] += records
            self._latency_sum_ms += latency * records

    def stats(self, flow: str, aborts: int, throttled_ms: int, stuck_lanes: list[str]) -> FlowStats:
        """Returns the counters as a record for the slot's status."""
        return FlowStats(
            flow=flow,
            records=self.records,
            bytes=self.bytes,
            dropped=self.dropped,
            commits=self.commits,
            aborts=aborts,
            throttled_ms=throttled_ms,
            latency_counts=list(self._latency_counts),
            latency_sum_ms=self._latency_sum_ms,
            stuck_lanes=stuck_lanes,
        )
