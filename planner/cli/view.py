"""The terminal's side of a workflow: what it asks and reports, and Ctrl-C while steps are executed."""

import asyncio
import os
import shlex
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import closing, contextmanager, nullcontext, suppress
from types import FrameType
from typing import TYPE_CHECKING

import click
import msgspec

from planner.cli.output import emit_event, print_lines, print_plan, say, show
from planner.model.diagnostic import Diagnostic, ExitCode, Failure, Severity, WorkProgress, error
from planner.model.plan import Plan
from planner.model.step import Result, StepsEnded, StepsSent
from planner.render.plan.text import steps_text
from planner.render.reports import applies
from planner.workflows.interaction import (
    ApplyResult,
    ApplyStarted,
    FlowLosses,
    FlowsEnded,
    Interaction,
    PlanReady,
    ProgressEvent,
    Question,
    ReplayReady,
    StepWaits,
    UnsentRecords,
    WorkEnded,
    approve_all,
)

if TYPE_CHECKING:
    from rich.text import Text

    from planner.cli.console import ProgressBars
    from planner.workflows.flows.ending import Rehearsal
    from planner.workflows.interaction import Interruption
    from runtime.contract.results.groups import GroupTopics


_COLOURS = {
    Result.DONE: None,
    Result.FAILED: "red",
    Result.SKIPPED: "yellow",
    Result.NOT_STARTED: "yellow",
}
_FIRST_SIGNAL = (
    b"\nInterrupted: what is under way is finished and recorded, no further step starts."
    b" Once more stops at once.\n"
)
_SECOND_SIGNAL = b"\nStopped at once. The leases end by themselves; repl history shows what was done.\n"
_STDERR = 2
_COUNT_EVERY_S = 10.0


def interaction(view: "TerminalView", *, auto_approve: bool) -> Interaction:
    """Returns how a workflow speaks with the terminal. With `auto_approve` it asks nothing."""

    @contextmanager
    def steps(interruption: "Interruption") -> Iterator[None]:
        with interruptible(interruption), closing(view):  # also where an apply fails, no bar stays
            yield

    return Interaction(approve_all if auto_approve else ask, view, steps)


def ask(question: Question) -> bool:
    """Asks on the terminal. Only "yes" approves; without a terminal it is a Failure."""
    if not sys.stdin.isatty():
        raise Failure(error("there is no terminal to ask on, so nothing was changed", question.hint))
    with _ended_by_ctrl_c():
        click.echo(f"\n{question}")
        click.echo("  Only 'yes' will be accepted to approve.\n")
        answer: str = click.prompt("  Enter a value", default="", show_default=False, prompt_suffix=": ")
    return answer.strip() == "yes"


@contextmanager
def _ended_by_ctrl_c() -> Iterator[None]:
    """Ctrl-C raises KeyboardInterrupt inside the block, which blocks the event loop.

    The loop's own handler cancels the workflow, which would see it only after the block.
    """
    if threading.current_thread() is not threading.main_thread():
        yield  # signals reach the main thread alone
        return
    with _handled_by(signal.default_int_handler, signal.SIGINT):
        if _is_cancelled():  # by a Ctrl-C just before
            raise KeyboardInterrupt
        yield


def _is_cancelled() -> bool:
    """Returns whether the workflow that runs here is about to end."""
    try:
        task = asyncio.current_task()
    except RuntimeError:  # there is no event loop
        return False
    return task is not None and task.cancelling() > 0


@contextmanager
def interruptible(interruption: "Interruption") -> Iterator[None]:
    """Turns Ctrl-C, and the SIGTERM of a cancelled pipeline, into an interruption. The second one exits.

    A signal is recorded rather than raised: an exception could fall between a request and its journal record.
    """

    def handle(_number: int, _frame: FrameType | None) -> None:
        second = interruption.happened
        interruption.happened = True
        # os.write: the buffers above may be in use by the very line that was interrupted. The same Ctrl-C may
        # have ended what reads stderr (repl apply 2>&1 | tee log).
        with suppress(OSError):
            os.write(_STDERR, _SECOND_SIGNAL if second else _FIRST_SIGNAL)
        if second:
            os._exit(ExitCode.INTERRUPTED)

    with _handled_by(handle, signal.SIGINT, signal.SIGTERM):
        yield


@contextmanager
def terminable() -> Iterator[None]:
    """SIGTERM and a closed terminal clean up as Ctrl-C does."""

    def interrupt(number: int, frame: FrameType | None) -> None:
        handler = signal.getsignal(signal.SIGINT)  # in an event loop it cancels the workflow
        (handler if callable(handler) else signal.default_int_handler)(number, frame)

    with _handled_by(interrupt, signal.SIGTERM, signal.SIGHUP):
        yield


@contextmanager
def _handled_by(handle: Callable[[int, FrameType | None], None], *signals: signal.Signals) -> Iterator[None]:
    """Handles the signals so inside the block."""
    before = {number: signal.signal(number, handle) for number in signals}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


class TerminalView:
    """Shows the events of a workflow: lines for people, or with `as_json` one JSON event a line on stdout.

    Threads may report events; one line at a time is printed. `bars` show what is under way in place of those
    of the terminal.
    """

    def __init__(self, *, as_json: bool, bars: "ProgressBars | None" = None) -> None:
        self._as_json = as_json
        self._own_bars = bars
        self._lock = threading.RLock()
        self._shown: frozenset[str] = frozenset()
        self._bars: ProgressBars | None = None  # on a terminal, while something is under way
        self._subjects: set[str] = set()  # what is under way
        self._steps_ended = 0
        self._counted_at = 0.0

    def __call__(self, event: ProgressEvent) -> None:
        with self._lock:
            self._progress(event)
            room = self._bars is not None and not isinstance(event, WorkProgress | StepWaits)
            with self._bars.paused() if self._bars is not None and room else nullcontext():
                self._print(event)

    def close(self) -> None:
        """Takes the bars off the screen."""
        with self._lock:
            self._subjects.clear()
            if self._bars is not None:
                self._bars.stop()
                self._bars = None

    def _progress(self, event: ProgressEvent) -> None:
        """Keeps the bars on stderr."""
        match event:
            case WorkProgress(subject, what, done, total, parts):
                self._bar(subject, f"{parts} {what}" if parts else what, done, total)
            case WorkEnded(subject):
                self._remove(subject)
            case ApplyStarted(plan=plan):
                self._shown, self._steps_ended = applies.shown(plan), 0
                self._bar("apply", "steps", 0, len(self._shown))
            case StepWaits(step=step, what=what):
                self._bar(str(step.address), what, 0, 0)
            case StepsEnded(results=results):
                self._steps_ended += sum(step.id in self._shown for step, _ in results)
                self._bar("apply", "steps", self._steps_ended, len(self._shown))
                for step, _ in results:
                    self._remove(str(step.address))
            case ApplyResult():
                self.close()

    def _bar(self, subject: str, what: str, done: int, total: int) -> None:
        """Shows how far something is. rich is imported only where there is a terminal."""
        self._subjects.add(subject)
        if self._bars is None and (self._own_bars is not None or sys.stderr.isatty()):
            from planner.cli.console import ProgressBars

            self._bars = self._own_bars or ProgressBars()
            self._bars.start()
        if self._bars is not None:
            self._bars.progress(subject, what, done, total)

    def _remove(self, subject: str) -> None:
        self._subjects.discard(subject)
        if self._bars is not None:
            self._bars.remove(subject)
        if not self._subjects:
            self.close()

    def _print(self, event: ProgressEvent) -> None:
        match event:
            case Diagnostic():
                show([event])
            case str():
                say(event, err=True)
            case WorkProgress(parts=parts) if parts and self._bars is None:
                self._print_count(event)
            case PlanReady(plan, approved):
                self._plan(plan, approved=approved)
            case FlowLosses() | FlowsEnded() | UnsentRecords() | ReplayReady():
                self._records(event)
            case StepsSent() | StepWaits() | StepsEnded() | ApplyResult():
                self._applying(event)

    def _print_count(self, event: WorkProgress) -> None:
        """Prints the first count, one every ten seconds, and the last."""
        now = time.monotonic()
        if event.done == event.total or now - self._counted_at > _COUNT_EVERY_S:
            self._counted_at = now
            click.echo(f"{event.what} {event.done:,} of {event.total:,} {event.parts}", err=True)

    def _plan(self, plan: Plan, *, approved: bool) -> None:
        """Before an apply: people see the plan, or the steps of an approved one, programs its warnings."""
        if not self._as_json:
            print_lines(steps_text(plan)) if approved else print_plan(plan)
        elif not approved:
            show([diagnostic for diagnostic in plan.diagnostics if diagnostic.severity is not Severity.ERROR])

    def _applying(self, event: StepsSent | StepWaits | StepsEnded | ApplyResult) -> None:
        match event:
            case StepsSent(steps=steps) if not self._as_json:
                for step in steps:
                    if step.progress:
                        say(f"{step.address}: {step.progress} ...", err=True)
            case StepWaits(step, what) if not self._as_json and self._bars is None:
                say(f"{step.address}: {what} ...", err=True)
            case StepsEnded(results=results):
                for step, result in results:
                    if self._as_json:
                        emit_event(applies.event(step, result))
                    elif result.result is Result.NOT_STARTED:
                        continue  # the closing screen counts them
                    elif step.id in self._shown or result.result is Result.FAILED:
                        say(applies.line(step, result), err=True, colour=_COLOURS[result.result])
            case ApplyResult() if self._as_json:
                emit_event(applies.finished_event(event))
            case ApplyResult(complete=complete):
                click.echo()
                text = applies.closing(event, shlex.join(["repl", *sys.argv[1:]]))
                say(text, colour="green" if complete else "red", bold=complete)

    def _records(self, event: FlowLosses | FlowsEnded | UnsentRecords | ReplayReady) -> None:
        """Shows which records are lost, left or copied: each flow is a line, or an event."""
        from planner.render.reports import loss, salvage

        match event:
            case FlowLosses(cluster, losses, at_ms):
                title, lines = f"What the failover of {cluster} costs:", loss.flow_lines(losses, at_ms)
                print_each("loss", losses, title, lines, as_json=self._as_json, end="\n")
            case FlowsEnded(lost):
                lines = loss.flow_lines(lost, int(time.time() * 1000))
                print_each("lost", lost, "\nWhat did not arrive:", lines, as_json=self._as_json)
            case UnsentRecords(cluster, flows):
                left = [
                    {"flow": flow, "records": sum(topics.values()), "topics": topics}
                    for flow, topics in flows.items()
                ]
                title = f"Records that {cluster} never sent, and that stay only there:"
                print_each("left", left, title, loss.unsent_lines(flows), as_json=self._as_json, end="\n")
            case ReplayReady(salvaged, to) if not self._as_json:
                from planner.cli.console import print_lines

                print_lines(lambda width: salvage.replay_plan(salvaged, to, width))


def print_each(
    event: str, values: Sequence[object], title: str, lines: "Iterable[Text]", *, as_json: bool, end: str = ""
) -> None:
    """Prints a title and lines for people, or each value as an event."""
    if as_json:
        emit_each(event, values)
    elif values:
        from planner.cli.console import print_lines

        click.echo(title)
        print_lines(lambda _: lines)
        click.echo(end, nl=False)


def print_subscriptions(groups: "Sequence[GroupTopics]", *, as_json: bool) -> None:
    """Prints what the consumers of each group subscribe to at the destination of flows that end."""
    from planner.render.reports.loss import subscription_lines

    title = "\nWhat the consumers of each group subscribe to at the destination:"
    print_each("subscribe", groups, title, subscription_lines(groups), as_json=as_json)


def print_rehearsal(rehearsal: "Rehearsal", *, as_json: bool, begin: str = "", end: str = "") -> None:
    """Prints what the end of flows would mean: for people between two lines of the command, or as events."""
    if as_json:
        emit_each("left_to_copy", rehearsal.left)
        emit_each("group", rehearsal.groups)
        emit_each("schemas", rehearsal.schemas)
        print_subscriptions(rehearsal.subscriptions, as_json=True)
        emit_each("job", ({"job": name, "runs": runs} for name, runs in rehearsal.jobs))
        return
    from planner.cli.console import print_lines
    from planner.render.reports.loss import group_lines, schema_lines

    if begin:
        say(begin)
        click.echo()
    click.echo("What becomes of the groups, by partitions:")
    print_lines(lambda width: group_lines(rehearsal.groups, width))
    print_subscriptions(rehearsal.subscriptions, as_json=False)
    if rehearsal.schemas:
        click.echo("\nSchemas:")
        print_lines(lambda _: schema_lines(rehearsal.schemas))
    click.echo("\n" + "\n".join(filter(None, (end, "Nothing was changed."))))


def emit_each(event: str, values: "Iterable[object]") -> None:
    """Prints one JSON event for each value."""
    for value in values:
        emit_event({"version": 1, "event": event, **msgspec.to_builtins(value)})
