"""The one reader behind all viewers: it follows the status, and keeps the last hour and what was last known.

It runs in a thread with a loop of its own, so that a long reading does not delay a page. What it publishes is
frozen: a page takes one `Reading` and shows only that. Where reading fails, the last reading stays, `trouble`
says why, and everything counts as old. The last hour is 360 buckets of 10 s for each number. A topic takes
about 4 KB, and at most `MOST_TOPICS` topics are kept. The feed's thread writes; pages read.
"""

import asyncio
import math
import threading
import time
from array import array
from collections import defaultdict
from collections.abc import AsyncGenerator, Callable, Iterator, Mapping, Sequence
from contextlib import aclosing, suppress
from dataclasses import dataclass, field
from typing import Generic, TypeVar

from planner.model.diagnostic import Diagnostic, Failure, error
from runtime.contract.results.failover import FailoverVerdict, verdicts
from runtime.contract.results.status import FlowHealth, JobHealth, ReplicationStatus, TopicHealth

BUCKET_MS = 10_000
BUCKETS = 360
MOST_TOPICS = 20_000
_NONE = math.nan

Values = list[float | None]
Item = TypeVar("Item")


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
        values: Values = []
        for bucket in range(last - BUCKETS + 1, last + 1):
            is_kept = self._newest - BUCKETS < bucket <= self._newest
            value = self._values[bucket % BUCKETS] if is_kept else _NONE
            values.append(None if math.isnan(value) else value)
        return values

    def is_older_than_an_hour(self, now_ms: int) -> bool:
        return now_ms // BUCKET_MS - self._newest >= BUCKETS


Trail = defaultdict[str, Series]  # the numbers of one flow or topic that are charted, by their names


def _put(trail: Trail, at_ms: int, seen: FlowHealth | TopicHealth) -> None:
    for name in ("lag_records", "lag_ms", "records_per_s"):
        trail[name].put(at_ms, getattr(seen, name))
    if isinstance(seen, FlowHealth):  # of a topic it is not measured
        trail["latency_p99_ms"].put(at_ms, None if seen.latency_over_ms is None else seen.latency_p99_ms)


class Hour:
    """The trails of all flows, and of their topics."""

    def __init__(self) -> None:
        self._flows: dict[str, Trail] = {}
        self._topics: dict[tuple[str, str], Trail] = {}
        self._tidied_ms = 0

    def take(self, status: ReplicationStatus) -> None:
        """Stores one reading. What was not read for an hour is forgotten, each ten minutes."""
        at_ms = status.at_ms
        for flow in status.flows:
            _put(self._flows.setdefault(flow.name, Trail(Series)), at_ms, flow)
            for topic in flow.topics:
                key = flow.name, topic.topic
                if key in self._topics or len(self._topics) < MOST_TOPICS:
                    _put(self._topics.setdefault(key, Trail(Series)), at_ms, topic)
        if at_ms - self._tidied_ms >= BUCKETS * BUCKET_MS // 6:
            self._tidied_ms = at_ms
            self._flows = {key: trail for key, trail in self._flows.items() if _is_kept(trail, at_ms)}
            self._topics = {key: trail for key, trail in self._topics.items() if _is_kept(trail, at_ms)}

    def flow(self, name: str) -> Trail | None:
        return self._flows.get(name)

    def topic(self, flow: str, topic: str) -> Trail | None:
        return self._topics.get((flow, topic))


def _is_kept(trail: Trail, now_ms: int) -> bool:
    return not trail["lag_records"].is_older_than_an_hour(now_ms)


WIDTH, HEIGHT = 720.0, 88.0


class Chart:
    """A line over the last hour, as SVG paths between the unknown times. `highest` is the upper edge."""

    def __init__(self, values: Sequence[float | None]) -> None:
        present = [value for value in values if value is not None]
        self.latest = next((value for value in reversed(values) if value is not None), None)
        self.highest = max(present, default=None)
        self.lines = [_path(stretch, self.highest or 1.0, len(values)) for stretch in _stretches(values)]


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


Readings = Callable[[], AsyncGenerator[ReplicationStatus, None]]
RETRY_S = 2.0
_OLD_AFTER_MS = 15_000  # a cluster that does not answer delays a reading by seconds
JOIN_S = 5.0


def now_ms() -> int:
    return int(time.time() * 1000)


@dataclass(frozen=True, slots=True)
class LastKnown(Generic[Item]):
    """A flow as it was when both of its clusters answered last, or a job when its destination did."""

    at_ms: int
    status: Item


@dataclass(frozen=True, slots=True)
class Reading:
    """One reading of the status, and what is derived from it once for all viewers.

    `known_flows` are by name, `known_jobs` by name and destination, `answered_ms` is the time of each
    cluster's last answer.
    """

    status: ReplicationStatus
    verdicts: tuple[FailoverVerdict, ...]
    known_flows: Mapping[str, LastKnown[FlowHealth]] = field(default_factory=dict)
    known_jobs: Mapping[tuple[str, str], LastKnown[JobHealth]] = field(default_factory=dict)
    answered_ms: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Trouble:
    """Why the status cannot be read, since `since_ms`."""

    since_ms: int
    why: tuple[Diagnostic, ...]


class StatusFeed:
    """Follows the status once for all viewers.

    `readings` yields the status again and again; it raises Failure. `stamp` identifies the topology's files:
    when it changes, the status of the new topology is followed.
    """

    def __init__(
        self,
        readings: Readings,
        stamp: Callable[[], object] = lambda: None,
        unexpected: Callable[[Exception], str] = repr,
    ) -> None:
        self._readings = readings
        self._stamp = stamp
        self._unexpected = unexpected
        self.hour = Hour()
        self.reading: Reading | None = None
        self.trouble: Trouble | None = None
        self.changes = 0  # counts what viewers may have to see
        self._viewers: asyncio.AbstractEventLoop | None = None
        self._changed = asyncio.Event()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._task: asyncio.Task[None] | None = None
        self._thread = threading.Thread(target=self._run, name="status", daemon=True)

    # Called in the viewers' loop:

    def start(self) -> None:
        self._viewers = asyncio.get_running_loop()
        self._thread.start()

    async def stop(self) -> None:
        """Ends the thread. A reading that does not end in time is left behind: the thread is a daemon."""
        loop, task = self._loop, self._task
        if loop is not None and task is not None:
            loop.call_soon_threadsafe(task.cancel)
            await asyncio.to_thread(self._thread.join, JOIN_S)

    async def change(self, seen: int, within_s: float) -> bool:
        """Waits until there is more than the `seen` changes; False where `within_s` went by."""
        if self.changes > seen:
            return True
        try:
            await asyncio.wait_for(self._changed.wait(), within_s)
        except TimeoutError:
            return False
        return True

    def ring(self) -> None:
        """Tells all viewers to look again."""
        self.changes += 1
        changed, self._changed = self._changed, asyncio.Event()
        changed.set()

    def old(self, at_ms: int) -> bool:
        """Returns whether the last reading must not be taken for the present."""
        reading = self.reading
        return (
            reading is None
            or self.trouble is not None
            or not -_OLD_AFTER_MS <= at_ms - reading.status.at_ms <= _OLD_AFTER_MS
        )

    # Called in the feed's own thread:

    def _run(self) -> None:
        async def main() -> None:
            self._loop = asyncio.get_running_loop()
            self._task = asyncio.ensure_future(self._follow())
            await asyncio.wait([self._task])

        asyncio.run(main())

    async def _follow(self) -> None:
        while True:
            try:
                await self._until_changed()
            except Failure as failure:
                self._failed(failure.diagnostics)
            except Exception as wrong:  # noqa: BLE001 - the thread's outermost edge: the page shows it
                self._failed([error(f"unexpected {type(wrong).__name__}: {self._unexpected(wrong)}")])
            else:
                continue
            await asyncio.sleep(RETRY_S)

    async def _until_changed(self) -> None:
        """Takes readings until the topology's files change."""
        stamp = self._stamp()
        async with aclosing(self._readings()) as readings:
            async for status in readings:
                self.hour.take(status)
                self.reading = read_after(self.reading, status)
                self.trouble = None
                self._publish()
                if self._stamp() != stamp:
                    return

    def _failed(self, why: Sequence[Diagnostic]) -> None:
        since = self.trouble.since_ms if self.trouble is not None else now_ms()
        self.trouble = Trouble(since, tuple(why))
        self._publish()

    def _publish(self) -> None:
        assert self._viewers is not None
        with suppress(RuntimeError):  # the server has ended meanwhile
            self._viewers.call_soon_threadsafe(self.ring)


def read_after(before: Reading | None, status: ReplicationStatus) -> Reading:
    """Returns the reading of a status, with what was last known before it."""
    at_ms = status.at_ms
    silent = {flow.destination for flow in status.flows if not flow.destination_answers}
    flows = {
        flow.name: LastKnown(at_ms, flow)
        for flow in status.flows
        if flow.destination_answers and flow.source_answers
    }
    jobs = {
        (job.name, job.destination): LastKnown(at_ms, job)
        for job in status.jobs
        if job.destination not in silent
    }
    answered = {cluster.name: at_ms for cluster in status.clusters if cluster.answers}
    if before is not None:
        flows = {**before.known_flows, **flows}
        jobs = {**before.known_jobs, **jobs}
        answered = {**before.answered_ms, **answered}
    names = {flow.name for flow in status.flows}
    held = {(job.name, job.destination) for job in status.jobs}
    clusters = {cluster.name for cluster in status.clusters}
    return Reading(
        status=status,
        verdicts=tuple(verdicts(status)),
        known_flows={name: flow for name, flow in flows.items() if name in names},
        known_jobs={key: job for key, job in jobs.items() if key in held},
        answered_ms={name: answered_ms for name, answered_ms in answered.items() if name in clusters},
    )
