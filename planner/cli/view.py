"""The terminal's side of a workflow: what it asks and reports, and Ctrl-C while steps are executed."""

import os
import shlex
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import closing, contextmanager, nullcontext
from types import FrameType
from typing import TYPE_CHECKING

import click
import msgspec

from planner.cli.output import emit_event, print_lines, print_plan, say, show
from planner.graph.messages import few
from planner.model.diagnostic import ExitCode, Failure, Severity, error
from planner.model.plan import Plan
from planner.model.step import Result, StepsEnded, StepsSent
from planner.render.plan.text import steps_text
from planner.render.readable import one_line
from planner.render.reports import applies
from planner.workflows.interaction import (
    ApplyEnded,
    ApplyStarted,
    ApproveLoss,
    ApprovePlan,
    ApproveReplay,
    CopyAwaited,
    CopyCompleted,
    FailoverCost,
    Interaction,
    LeaseAwaited,
    LossAccepted,
    Noticed,
    PlanReady,
    ProgressEvent,
    Question,
    ReadingEnded,
    ReadingProgressed,
    ReadingStarted,
    RecordsLost,
    ReplayReady,
    SavedPlanReady,
    SparkEnded,
    SparkOutput,
    SparkProgressed,
    SparkStarted,
    StepWaits,
    SubscriptionsRead,
    UnexpectedError,
    UnsentRecords,
    UnsentRecordsFound,
    approve_all,
)

if TYPE_CHECKING:
    from planner.cli.console import ProgressBars
    from planner.workflows.interaction import Interruption
    from runtime.contract.records.job_status import PartitionStatus
    from runtime.contract.results.groups import FlowLoss, GroupTopics


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
    text, hint = _question(question)
    if not sys.stdin.isatty():
        raise Failure(error("there is no terminal to ask on, so nothing was changed", hint))
    click.echo(f"\n{text}")
    click.echo("  Only 'yes' will be accepted to approve.\n")
    answer: str = click.prompt("  Enter a value", default="", show_default=False, prompt_suffix=": ")
    return answer.strip() == "yes"


def _question(question: Question) -> tuple[str, str]:
    """Returns the question, and what to do where there is no terminal."""
    match question:
        case ApprovePlan(plan=plan):
            return (
                f"Do you want to perform these actions on {', '.join(sorted(plan.clusters))}?",
                "add --auto-approve, or apply a plan that was saved with repl plan --out",
            )
        case ApproveLoss(flow=flow, lost=lost):
            names = _partitions(lost)
            return (
                f"flow.{flow} has lost records ({names}). Do you want it to continue without them?",
                f"add --auto-approve, and it continues without what {names} lost",
            )
        case ApproveReplay(destination=destination):
            return f"Do you want to copy these records into {destination}?", "add --auto-approve"


@contextmanager
def interruptible(interruption: "Interruption") -> Iterator[None]:
    """Turns Ctrl-C, and the SIGTERM of a cancelled pipeline, into an interruption. The second one exits.

    A signal is recorded rather than raised: an exception could fall between a request and its journal record.
    """

    def handle(_number: int, _frame: FrameType | None) -> None:
        # os.write: the buffers above may be in use by the very line that was interrupted.
        if interruption.happened:
            os.write(_STDERR, _SECOND_SIGNAL)
            os._exit(ExitCode.INTERRUPTED)
        interruption.happened = True
        os.write(_STDERR, _FIRST_SIGNAL)

    with _handled_by(handle, signal.SIGINT, signal.SIGTERM):
        yield


@contextmanager
def terminable() -> Iterator[None]:
    """SIGTERM and a closed terminal clean up as Ctrl-C does."""

    def interrupt(_number: int, _frame: FrameType | None) -> None:
        raise KeyboardInterrupt

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
        self._under_way = 0
        self._steps: tuple[int, int] = (0, 0)  # of the apply: how many ended, of how many
        self._told_at = 0.0

    def __call__(self, event: ProgressEvent) -> None:
        with self._lock:
            self._progress(event)
            with self._bars.paused() if self._bars is not None and _prints(event) else nullcontext():
                self._print(event)

    def _print(self, event: ProgressEvent) -> None:
        match event:
            case ReadingStarted() | ReadingProgressed() | ReadingEnded() | SparkStarted() | SparkEnded():
                pass
            case SparkProgressed():
                self._tell_count(event)
            case Noticed(diagnostic=found):
                show([found])
            case PlanReady(plan=plan):
                self._plan(plan)
            case SavedPlanReady(plan=plan):
                if not self._as_json:
                    print_lines(steps_text(plan))
            case ApplyStarted() | StepsSent() | StepWaits() | StepsEnded() | ApplyEnded():
                self._applying(event)
            case FailoverCost() | RecordsLost() | SubscriptionsRead() | UnsentRecordsFound():
                self._losses(event)
            case ReplayReady():
                self._replay(event)
            case _:
                click.echo(_line(event), err=True)

    def _progress(self, event: ProgressEvent) -> None:
        """Keeps the bars on stderr. rich is imported only where there is a terminal."""
        match event:
            case ReadingStarted() | SparkStarted() | ApplyStarted():
                self._begin()
            case ReadingEnded() | SparkEnded() | ApplyEnded():
                self._end()
        if self._bars is None:
            return
        match event:
            case ReadingProgressed(cluster=cluster, what=what, done=done, total=total):
                self._bars.progress(cluster, what, done, total)
            case SparkStarted(command=command):
                self._bars.progress(command, "Spark is starting", 0, 0)
            case SparkProgressed(command=command, what=what, done=done, total=total, parts=parts):
                self._bars.progress(command, f"{parts} {what}", done, total)
            case SparkEnded(command=command):
                self._bars.remove(command)
            case ApplyStarted(plan=plan):
                self._shown = applies.shown(plan)
                self._steps = (0, len(self._shown))
                self._bars.progress("apply", "steps", *self._steps)
            case StepsEnded(outcomes=outcomes):
                done, total = self._steps
                self._steps = (done + sum(one.step.id in self._shown for one in outcomes), total)
                self._bars.progress("apply", "steps", *self._steps)
                for outcome in outcomes:
                    self._bars.remove(str(outcome.step.address))
            case StepWaits(step=step, what=what):
                self._bars.progress(str(step.address), what, 0, 0)

    def _begin(self) -> None:
        self._under_way += 1
        if self._bars is None and (self._own_bars is not None or sys.stderr.isatty()):
            from planner.cli.console import ProgressBars

            self._bars = self._own_bars or ProgressBars()
            self._bars.start()

    def _end(self) -> None:
        self._under_way -= 1
        if self._under_way <= 0:
            self.close()

    def close(self) -> None:
        """Takes the bars off the screen."""
        with self._lock:
            self._under_way = 0
            if self._bars is not None:
                self._bars.stop()
                self._bars = None

    def _tell_count(self, event: SparkProgressed) -> None:
        """Prints a count where no bar shows it: the first, one every ten seconds, and the last."""
        now = time.monotonic()
        if self._bars is None and (event.done == event.total or now - self._told_at > _COUNT_EVERY_S):
            self._told_at = now
            click.echo(f"{event.what} {event.done:,} of {event.total:,} {event.parts}", err=True)

    def _plan(self, plan: Plan) -> None:
        """Before an apply: people see the plan, programs its diagnostics on stderr."""
        if self._as_json:
            show([one for one in plan.diagnostics if one.severity is not Severity.ERROR])
        else:
            print_plan(plan)

    def _applying(self, event: ApplyStarted | StepsSent | StepWaits | StepsEnded | ApplyEnded) -> None:
        match event:
            case ApplyStarted(plan=plan):
                self._shown = applies.shown(plan)
            case StepsSent(steps=steps) if not self._as_json:
                for step in steps:
                    if step.progress:
                        say(f"{step.address}: {step.progress} ...", err=True)
            case StepWaits(step=step, what=what) if not self._as_json and self._bars is None:
                say(f"{step.address}: {what} ...", err=True)
            case StepsEnded():
                self._ended(event)
            case ApplyEnded():
                self._closing(event)
            case _:
                pass

    def _ended(self, event: StepsEnded) -> None:
        for outcome in event.outcomes:
            if self._as_json:
                emit_event(applies.event(outcome))
            elif outcome.step.id in self._shown or outcome.result is Result.FAILED:
                say(applies.line(outcome), err=True, colour=_COLOURS[outcome.result])

    def _closing(self, event: ApplyEnded) -> None:
        plan, summary, waits = event.plan, event.summary, event.waits
        if self._as_json:
            emit_event(applies.finished_event(plan, summary, event.apply_id, waits))
            return
        text = applies.closing(plan, summary, shlex.join(["repl", *sys.argv[1:]]), waits)
        complete = applies.complete(plan, summary, waits)
        click.echo()
        say(text, colour="green" if complete else "red", bold=complete)

    def _losses(self, event: FailoverCost | RecordsLost | SubscriptionsRead | UnsentRecordsFound) -> None:
        match event:
            case FailoverCost(cluster=cluster, losses=losses, at_ms=at_ms):
                self._flow_losses(f"What the failover of {cluster} costs:", "loss", losses, at_ms)
            case RecordsLost(losses=losses, at_ms=at_ms):
                self._flow_losses("\nWhat did not arrive:", "lost", losses, at_ms)
            case SubscriptionsRead(groups=groups):
                if self._as_json:
                    emit_structs("subscribe", groups)
                else:
                    print_subscriptions(groups)
            case UnsentRecordsFound(cluster=cluster, flows=flows):
                self._unsent(cluster, flows)

    def _flow_losses(self, title: str, event: str, losses: "Sequence[FlowLoss]", at_ms: int) -> None:
        if self._as_json:
            emit_structs(event, losses)
        elif losses:
            from planner.cli.console import print_lines
            from planner.render.reports.loss import flow_lines

            click.echo(title)
            print_lines(lambda _: flow_lines(losses, at_ms))
            click.echo()

    def _unsent(self, cluster: str, flows: Sequence[UnsentRecords]) -> None:
        if self._as_json:
            for one in flows:
                body = {"flow": one.flow, "records": one.records, "topics": one.topics}
                emit_event({"version": 1, "event": "left", **body})
            return
        click.echo(f"Records that {cluster} never sent, and that stay only there:")
        for one in flows:
            click.echo(f"  flow.{one.flow}  {_unsent_text(one)}")
        click.echo()

    def _replay(self, event: ReplayReady) -> None:
        if not self._as_json:
            from planner.cli.console import print_lines
            from planner.render.reports.salvage import replay_plan

            print_lines(lambda width: replay_plan(event.salvaged, event.to, width))


def _prints(event: ProgressEvent) -> bool:
    """Returns whether an event may print lines, for which bars make room."""
    return not isinstance(event, ReadingProgressed | SparkProgressed | StepWaits)


def emit_structs(event: str, found: Iterable[msgspec.Struct]) -> None:
    """Prints one JSON event for each."""
    for one in found:
        emit_event({"version": 1, "event": event, **msgspec.to_builtins(one)})


def print_subscriptions(groups: "Sequence[GroupTopics]") -> None:
    from planner.cli.console import print_lines
    from planner.render.reports.loss import subscription_lines

    if groups:
        click.echo("\nWhat the consumers of each group subscribe to at the destination:")
        print_lines(lambda _: subscription_lines(groups))


def _line(
    event: LeaseAwaited | UnexpectedError | LossAccepted | CopyAwaited | CopyCompleted | SparkOutput,
) -> str:
    match event:
        case LeaseAwaited(cluster=cluster, held=held):
            since = time.strftime("%H:%M:%S UTC", time.gmtime(held.since_ms / 1000))
            holder = one_line(f"{held.holder.user}@{held.holder.host}, pid {held.holder.pid}")
            return f"Waiting for another apply to {cluster}: {holder}, since {since} ..."
        case UnexpectedError(traceback=text):
            return text
        case LossAccepted(flow=flow, partitions=partitions):
            return f"flow.{flow}: continues behind the lost records: {_partitions(partitions)}"
        case CopyAwaited(flow=flow, left=left):
            return f"flow.{flow}: {left}"
        case CopyCompleted(flow=flow):
            return f"flow.{flow}: all records are copied back"
        case SparkOutput(line=line):
            return line


def _partitions(found: "Iterable[PartitionStatus]") -> str:
    return few([f"{one.topic}-{one.partition} ({one.state})" for one in found])


def _unsent_text(one: UnsentRecords) -> str:
    if not one.topics:
        return "none: all of them had arrived"
    most = sorted(one.topics.items(), key=lambda item: -item[1])
    some = ", ".join(f"{topic} {records:,}" for topic, records in most[:3])
    more = f", and {len(most) - 3} more topics" if len(most) > 3 else ""
    return f"up to {one.records:,} records ({some}{more}); repl salvage {one.flow} shows them"
