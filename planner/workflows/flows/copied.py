"""Waits until a flow has copied everything. The status is read again and again."""

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from planner.graph.messages import few
from planner.model.diagnostic import Failure, error
from planner.model.topology import Flow, Topology
from planner.plan.transitions import source_is_silent
from planner.workflows.interaction import CopyAwaited, ProgressHandler
from runtime.contract.records.status import PartitionState

if TYPE_CHECKING:
    from runtime.contract.views.status_view import FlowStatusView, StatusView, TopicStatusView

SILENT_MS = 10_000  # after this silence a cluster is unreachable
_EVERY_S = 1.0
_LAG_UNKNOWN = (PartitionState.RECREATED, PartitionState.DIVERGED)  # they belong to another log

Chosen = Callable[["FlowStatusView"], "Sequence[TopicStatusView]"]
TimedOutFailure = Callable[[str, float, str], Failure]  # the flow, the seconds waited, what is left


@dataclass(frozen=True, slots=True)
class _GivesUp:
    """What happens at the timeout (`late`), while the job does not run (`down`, called with what is left),
    and while the source does not answer (`silent`, called with the reason).

    `down` and `silent` may return: the wait then ends without a failure, or goes on.
    """

    late: TimedOutFailure
    down: Callable[[str], None]
    silent: Callable[[str], None]


async def drained(
    topology: Topology,
    flow: Flow,
    seconds: float,
    progress: ProgressHandler,
    chosen: Chosen | None = None,
) -> None:
    """Waits until nothing is left to copy, of the whole flow or of the topics that `chosen` selects.

    A job that does not run is not waited for: the plan starts it. Failure: the source does not answer, or the
    time is up. `chosen` may raise Failure too.
    """

    def silent(why: str) -> None:
        progress(CopyAwaited(flow.name, why))
        raise Failure(source_is_silent(flow))

    gives_up = _GivesUp(_not_promoted(chosen), lambda _: None, silent)
    await _until_copied(topology, flow, seconds, chosen, gives_up, progress)


async def copied(
    topology: Topology, flow: Flow, seconds: float, late: TimedOutFailure, progress: ProgressHandler
) -> None:
    """Waits likewise, but the job must run, and a source that does not answer may come back."""

    def down(left: str) -> None:
        raise Failure(error(f"job.{flow.job} does not run any more: {left}", "run the same command again"))

    await _until_copied(topology, flow, seconds, None, _GivesUp(late, down, lambda _: None), progress)


def _not_promoted(chosen: Chosen | None) -> TimedOutFailure:
    def late(flow: str, seconds: float, left: str) -> Failure:
        what = f"flow.{flow} is" if chosen is None else f"topics of flow.{flow} are"
        return Failure(
            error(
                f"{what} not promoted after {seconds:.0f} s, it goes on copying: {left}",
                "are the producers stopped? then give it more time: --timeout",
            )
        )

    return late


async def _until_copied(
    topology: Topology,
    flow: Flow,
    seconds: float,
    chosen: Chosen | None,
    gives_up: _GivesUp,
    progress: ProgressHandler,
) -> None:
    from planner.workflows.audit.requests import status_request
    from runtime.audit.status.join import join
    from runtime.audit.status.reader import StatusReader

    loop = asyncio.get_running_loop()
    deadline = loop.time() + seconds
    silence = SourceSilence()
    shown = ""
    async with StatusReader(status_request(topology), SILENT_MS / 1000) as looker:
        before = await looker.read()
        while True:
            now = await looker.read()
            status = join(looker.asked, now, before)
            seen = next(one for one in status.flows if one.name == flow.name)
            answers = seen.source_answers and seen.destination_answers
            left = left_to_copy(chosen(seen) if chosen is not None else seen.topics) if answers else seen.why
            if not left:
                return
            if seen.destination_answers and silence.lasts(seen.source_answers, loop.time()):
                gives_up.silent(left)
            if not _up(status, seen):
                gives_up.down(left)
                return
            if left != shown:
                progress(CopyAwaited(flow.name, left))
                shown = left
            if loop.time() > deadline:
                raise gives_up.late(flow.name, seconds, left)
            before = now
            await asyncio.sleep(_EVERY_S)


class SourceSilence:
    """A source that never answered is silent at once, one that answered before after SILENT_MS."""

    def __init__(self) -> None:
        self._answered_at: float | None = None

    def lasts(self, answers: bool, now_s: float) -> bool:
        if answers:
            self._answered_at = now_s
        return not answers and (self._answered_at is None or now_s - self._answered_at > SILENT_MS / 1000)


def _up(status: "StatusView", flow: "FlowStatusView") -> bool:
    return any(job.up for job in status.jobs if job.name == flow.job and job.destination == flow.destination)


def left_to_copy(topics: "Sequence[TopicStatusView]") -> str:
    """Says what is not copied yet, the largest lag first. Partitions that wait for a decision come first."""
    stopped = [part for one in topics for part in one.partitions if part.state in _LAG_UNKNOWN]
    if stopped:
        first = stopped[0]
        named = few([f"{one.topic}-{one.partition}" for one in stopped])
        return f"{named}: {first.state}, {first.why}. Next: {first.next}"
    lags = {one.topic: one.lag_records for one in topics if one.lag_records != 0}
    unknown = sorted(topic for topic, lag in lags.items() if lag is None)
    if unknown:
        return f"the lag of {', '.join(unknown[:3])} is not known yet"
    known = sorted(((lag or 0, topic) for topic, lag in lags.items()), reverse=True)
    if not known:
        return ""
    some = ", ".join(f"{topic} {lag:,}" for lag, topic in known[:3])
    more = f", and {len(known) - 3} more topics" if len(known) > 3 else ""
    return f"{sum(lag for lag, _ in known):,} records are left to copy ({some}{more})"
