"""What an apply shows while it runs: a line a step for people, an event a line for programs."""

import json
import threading
from collections.abc import Sequence

import click

from planner.cli.terminal import say
from planner.model.outcome import ApplySummary, Result, StepsEnded, StepsSent
from planner.model.plan import Plan
from planner.model.step import LaunchJob, Reassign, ReconfigureJob, Step, StopJob
from planner.render.reports import progress
from runtime.contract.views.status_view import PartitionWaits

_COLOURS = {
    Result.DONE: None,
    Result.FAILED: "red",
    Result.SKIPPED: "yellow",
    Result.NOT_STARTED: "yellow",
}


class ApplyView:
    """Threads tell it what ended; one line at a time comes out."""

    def __init__(self, *, as_json: bool) -> None:
        self._as_json = as_json
        self._lock = threading.Lock()
        self._shown: frozenset[str] = frozenset()

    def begin(self, plan: Plan) -> None:
        self._shown = progress.shown(plan)

    def sent(self, event: StepsSent) -> None:
        """Only of what takes so long that somebody may wonder."""
        if self._as_json:
            return
        with self._lock:
            for step in event.steps:
                if isinstance(step, LaunchJob | ReconfigureJob | StopJob | Reassign):
                    self._say(progress.begun(step), err=True)

    def waits(self, step: Step, what: str) -> None:
        """Tells what a step that takes long waits for. Programs get the step's end alone."""
        if not self._as_json:
            with self._lock:
                self._say(f"{step.address}: {what} ...", err=True)

    def ended(self, event: StepsEnded) -> None:
        with self._lock:
            for outcome in event.outcomes:
                if self._as_json:
                    click.echo(json.dumps(progress.event(outcome), ensure_ascii=False))
                elif outcome.step.id in self._shown or outcome.result is Result.FAILED:
                    self._say(progress.line(outcome), err=True, colour=_COLOURS[outcome.result])

    def closing(
        self,
        plan: Plan,
        summary: ApplySummary,
        apply_id: str | None,
        finish_with: str,
        waits: Sequence[PartitionWaits] = (),
    ) -> None:
        """`apply_id` is None where nothing was to be done: no history tells of that. `waits` are partitions
        that no apply lets go on.
        """
        if self._as_json:
            told = progress.finished_event(plan, summary, apply_id, waits)
            click.echo(json.dumps(told, ensure_ascii=False))
            return
        text = progress.closing(plan, summary, finish_with, waits)
        complete = progress.complete(plan, summary, waits)
        click.echo()
        self._say(text, colour="green" if complete else "red", bold=complete)

    def _say(self, text: str, *, err: bool = False, colour: str | None = None, bold: bool = False) -> None:
        say(text, err=err, colour=colour, bold=bold)
