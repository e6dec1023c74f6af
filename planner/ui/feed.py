"""The one reader behind all viewers: it follows the status, and keeps the last hour and what was last known.

It runs in a thread with a loop of its own, so that a long reading does not delay a page. What it publishes is
frozen: a page takes one `Reading` and shows only that. Where reading fails, the last reading stays, `trouble`
says why, and everything counts as old.
"""

import asyncio
import threading
import time
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from contextlib import aclosing, suppress
from dataclasses import dataclass, field

from planner.model.diagnostic import Diagnostic, Failure, error
from planner.ui.hour import Hour
from runtime.contract.views.status_view import FlowStatusView, JobStatusView, StatusView
from runtime.contract.views.verdict_view import FailoverVerdict, verdicts

Readings = Callable[[], AsyncGenerator[StatusView, None]]
RETRY_S = 2.0
_OLD_AFTER_MS = 15_000  # a cluster that does not answer delays a reading by seconds
JOIN_S = 5.0


def now_ms() -> int:
    return int(time.time() * 1000)


@dataclass(frozen=True, slots=True)
class KnownFlow:
    """A flow as it was when both of its clusters answered last."""

    at_ms: int
    flow: FlowStatusView


@dataclass(frozen=True, slots=True)
class KnownJob:
    """A job as it was when its destination answered last."""

    at_ms: int
    job: JobStatusView


@dataclass(frozen=True, slots=True)
class Reading:
    """One reading of the status, and what is derived from it once for all viewers.

    The `known_…` hold what a cluster that does not answer now told last, by name: of flows, of jobs by name
    and destination, and the time of the last answer of clusters.
    """

    number: int
    status: StatusView
    verdicts: tuple[FailoverVerdict, ...]
    known_flows: Mapping[str, KnownFlow] = field(default_factory=dict)
    known_jobs: Mapping[tuple[str, str], KnownJob] = field(default_factory=dict)
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
        asyncio.run(self._main())

    async def _main(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._task = asyncio.ensure_future(self._follow())
        await asyncio.wait([self._task])

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
                self._took(status)
                if self._stamp() != stamp:
                    return

    def _took(self, status: StatusView) -> None:
        self.hour.take(status)
        self.reading = read_after(self.reading, status)
        self.trouble = None
        self._publish()

    def _failed(self, why: Sequence[Diagnostic]) -> None:
        since = self.trouble.since_ms if self.trouble is not None else now_ms()
        self.trouble = Trouble(since, tuple(why))
        self._publish()

    def _publish(self) -> None:
        assert self._viewers is not None
        with suppress(RuntimeError):  # the server has ended meanwhile
            self._viewers.call_soon_threadsafe(self.ring)


def read_after(before: Reading | None, status: StatusView) -> Reading:
    """Returns the reading of a status, with what was last known before it."""
    answered = dict(before.answered_ms) if before is not None else {}
    answered |= {one.name: status.at_ms for one in status.clusters if one.answers}
    flows = dict(before.known_flows) if before is not None else {}
    flows |= {
        one.name: KnownFlow(status.at_ms, one)
        for one in status.flows
        if one.destination_answers and one.source_answers
    }
    silent = {one.destination for one in status.flows if not one.destination_answers}
    jobs = dict(before.known_jobs) if before is not None else {}
    jobs |= {
        (one.name, one.destination): KnownJob(status.at_ms, one)
        for one in status.jobs
        if one.destination not in silent
    }
    names = {one.name for one in status.flows}
    held = {(one.name, one.destination) for one in status.jobs}
    return Reading(
        number=before.number + 1 if before is not None else 1,
        status=status,
        verdicts=tuple(verdicts(status)),
        known_flows={name: one for name, one in flows.items() if name in names},
        known_jobs={key: one for key, one in jobs.items() if key in held},
        answered_ms={one.name: answered[one.name] for one in status.clusters if one.name in answered},
    )
