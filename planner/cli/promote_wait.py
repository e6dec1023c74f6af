"""Until what is to be promoted is copied, with progress. Edge: status is read again and again."""

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import click

from planner.graph.messages import few
from planner.model.diagnostic import Failure, error
from planner.model.topology import Flow, Topology
from planner.plan.guards.promotions import source_is_silent
from runtime.contract.records.status import PartitionState

if TYPE_CHECKING:
    from runtime.contract.views.status_view import FlowStatusView, StatusView, TopicStatusView

SILENT_MS = 10_000
_LOOK_S = 1.0
_ANOTHER_LOG = (PartitionState.RECREATED, PartitionState.DIVERGED)  # their lag is not known

Chosen = Callable[["FlowStatusView"], "Sequence[TopicStatusView]"]
Late = Callable[[str, float, str], Failure]  # the flow, how long it was waited for, what is left


@dataclass(frozen=True, slots=True)
class _GivesUp:
    """What is raised when it takes too long (`late`), while the job does not run (`down`, told what is left),
    and while the source does not answer (`silent`, told why); the last two may let it go on.
    """

    late: Late
    down: Callable[[str], None]
    silent: Callable[[str], None]


async def drained(topology: Topology, flow: Flow, seconds: float, chosen: Chosen | None = None) -> None:
    """Until nothing is left to copy, of the whole flow or of what is chosen of it. A job that does not run is
    not waited for: the plan starts it. A source that does not answer is refused: nothing of it can be copied.
    `chosen` may raise Failure.
    """

    def silent(why: str) -> None:
        click.echo(f"flow.{flow.name}: {why}", err=True)
        raise Failure(source_is_silent(flow))

    await _until_copied(
        topology, flow, seconds, chosen, _GivesUp(_not_promoted(chosen), lambda _: None, silent)
    )


async def copied(topology: Topology, flow: Flow, seconds: float, late: Late) -> None:
    """The same by a job that must run, and by a source that may come back meanwhile."""

    def down(left: str) -> None:
        raise Failure(error(f"job.{flow.job} does not run any more: {left}", "run the same command again"))

    await _until_copied(topology, flow, seconds, None, _GivesUp(late, down, lambda _: None))


def _not_promoted(chosen: Chosen | None) -> Late:
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
    topology: Topology, flow: Flow, seconds: float, chosen: Chosen | None, gives_up: _GivesUp
) -> None:
    from planner.cli.status_asking import asked_of
    from runtime.audit.status.join import join
    from runtime.audit.status.reader import StatusReader

    loop = asyncio.get_running_loop()
    deadline = loop.time() + seconds
    silence = SourceSilence()
    shown = ""
    async with StatusReader(asked_of(topology), SILENT_MS / 1000) as looker:
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
                click.echo(f"flow.{flow.name}: {left}", err=True)
                shown = left
            if loop.time() > deadline:
                raise gives_up.late(flow.name, seconds, left)
            before = now
            await asyncio.sleep(_LOOK_S)


class SourceSilence:
    """Of a source: one that never answered is silent at once, one that did has a moment to come back."""

    def __init__(self) -> None:
        self._answered_at: float | None = None

    def lasts(self, answers: bool, now_s: float) -> bool:
        if answers:
            self._answered_at = now_s
        return not answers and (self._answered_at is None or now_s - self._answered_at > SILENT_MS / 1000)


def _up(status: "StatusView", flow: "FlowStatusView") -> bool:
    return any(job.up for job in status.jobs if job.name == flow.job and job.destination == flow.destination)


def left_to_copy(topics: "Sequence[TopicStatusView]") -> str:
    """What is not copied yet, the most first; before all, partitions that stand still until someone acts."""
    stopped = [part for one in topics for part in one.partitions if part.state in _ANOTHER_LOG]
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
