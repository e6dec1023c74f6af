"""What a workflow asks and reports while it runs, and where the traceback of an unexpected error is kept.

A workflow never prints and never reads a terminal. It asks questions through an `Approval` and reports frozen
events to a `ProgressHandler`. Both are silent by default: nothing is approved and nothing is shown.
"""

import os
import traceback
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar, Protocol

from msgspec import Struct

from planner.graph.messages import few
from planner.model.diagnostic import Diagnostic, Failure, WorkProgress, error
from planner.model.plan import ApplyResult as ApplyResult
from planner.model.plan import Plan
from planner.model.step import Step, StepsEnded, StepsSent
from runtime.contract.client.secrets import redacted

if TYPE_CHECKING:
    from planner.apply.executor import Interruption as Interruption
    from runtime.contract.records.job_status import PartitionStatus
    from runtime.contract.results.groups import FlowLoss
    from runtime.contract.results.records import Salvage


# Questions: each is asked before a change, and False changes nothing. Without a terminal, `hint` is the way.


class ApprovePlan(Struct, frozen=True):
    """Asks whether the steps of a plan may be executed."""

    hint: ClassVar[str] = "add --auto-approve, or apply a plan that was saved with repl plan --out"
    plan: Plan

    def __str__(self) -> str:
        return f"Do you want to perform these actions on {', '.join(sorted(self.plan.clusters))}?"


class ApproveLoss(Struct, frozen=True):
    """Asks whether a flow may continue without the records that these partitions lost."""

    flow: str
    lost: tuple["PartitionStatus", ...]

    def __str__(self) -> str:
        lost = partitions_text(self.lost)
        return f"flow.{self.flow} has lost records ({lost}). Do you want it to continue without them?"

    @property
    def hint(self) -> str:
        return f"add --auto-approve, and it continues without what {partitions_text(self.lost)} lost"


class ApproveReplay(Struct, frozen=True):
    """Asks whether salvaged records may be copied into the destination cluster."""

    hint: ClassVar[str] = "add --auto-approve"
    destination: str

    def __str__(self) -> str:
        return f"Do you want to copy these records into {self.destination}?"


Question = ApprovePlan | ApproveLoss | ApproveReplay


def partitions_text(partitions: "Iterable[PartitionStatus]") -> str:
    return few([f"{partition.topic}-{partition.partition} ({partition.state})" for partition in partitions])


class Approval(Protocol):
    """Answers a workflow's question. It may raise Failure where no answer can be had."""

    def __call__(self, question: Question, /) -> bool: ...


def approve_nothing(_question: Question) -> bool:
    """The default: a workflow without an explicit approval changes nothing."""
    return False


def approve_all(_question: Question) -> bool:
    """Approves every question, as `--auto-approve` does."""
    return True


# Events: what a caller may show while a workflow runs. A diagnostic is one too, which the workflow's result
# holds as well, and a text: news in a line for people, such as which lease is waited for.


class WorkEnded(Struct, frozen=True):
    """The work on this subject ended, one way or another."""

    subject: str


class PlanReady(Struct, frozen=True):
    """A plan was made, and the question follows, unless it has errors or no steps.

    `approved`: it is a saved plan, whose steps follow without a question.
    """

    plan: Plan
    approved: bool = False


class ApplyStarted(Struct, frozen=True):
    """The first step follows."""

    plan: Plan


class StepWaits(Struct, frozen=True):
    """A long step waits for this."""

    step: Step
    what: str


class FlowLosses(Struct, frozen=True):
    """What the failover of `cluster` would lose, as of `at_ms`.

    What was lost in the end is `FlowsEnded.lost`.
    """

    cluster: str
    losses: "tuple[FlowLoss, ...]"
    at_ms: int


class FlowsEnded(Struct, frozen=True):
    """What had not arrived when flows failed over, counted after their last transaction."""

    lost: "tuple[FlowLoss, ...]"


class UnsentRecords(Struct, frozen=True):
    """What a failback leaves at `cluster`: by flow and topic, records that never reached the destination."""

    cluster: str
    flows: Mapping[str, Mapping[str, int]]


class ReplayReady(Struct, frozen=True):
    """The salvaged records that are about to be copied, and into which topic; None is the flow's own."""

    salvaged: "Salvage"
    to: str | None


ProgressEvent = (
    Diagnostic
    | str
    | WorkProgress
    | WorkEnded
    | PlanReady
    | ApplyStarted
    | StepsSent
    | StepsEnded
    | StepWaits
    | ApplyResult
    | FlowLosses
    | FlowsEnded
    | UnsentRecords
    | ReplayReady
)


class ProgressHandler(Protocol):
    """Receives the events of a workflow."""

    def __call__(self, event: ProgressEvent, /) -> None: ...


def silent(_event: ProgressEvent) -> None:
    """The default: shows nothing."""


@contextmanager
def under_way(progress: ProgressHandler, subjects: Iterable[str], what: str) -> Iterator[None]:
    """Reports the beginning of work on these subjects, and its end."""
    begun = list(subjects)
    for subject in begun:
        progress(WorkProgress(subject, what))
    try:
        yield
    finally:
        for subject in begun:
            progress(WorkEnded(subject))


Interrupts = Callable[["Interruption"], AbstractContextManager[None]]


def without_signals(_interruption: "Interruption") -> AbstractContextManager[None]:
    """The default: no signal interrupts the steps of an apply."""
    return nullcontext()


class Interaction(Struct, frozen=True):
    """How a workflow that changes clusters speaks with its caller.

    `interrupts` surrounds the execution of steps and sets the interruption that it is given: what is under
    way is then finished and recorded, and no further step starts.
    """

    approval: Approval = approve_nothing
    progress: ProgressHandler = silent
    interrupts: Interrupts = without_signals

    def require(self, question: Question) -> None:
        """Raises Failure where the question is not approved."""
        if not self.approval(question):
            raise Failure(error("not approved, so nothing was changed", question.hint))


UNATTENDED = Interaction()


class DiagnosticCollector:
    """Passes on every event, and keeps the diagnostics for the workflow's result."""

    def __init__(self, progress: ProgressHandler) -> None:
        self._progress = progress
        self._diagnostics: list[Diagnostic] = []

    def __call__(self, event: ProgressEvent) -> None:
        if isinstance(event, Diagnostic):
            self._diagnostics.append(event)
        self._progress(event)

    def notice(self, *diagnostics: Diagnostic) -> None:
        for diagnostic in diagnostics:
            self(diagnostic)

    @property
    def diagnostics(self) -> tuple[Diagnostic, ...]:
        return tuple(self._diagnostics)


_APPEND = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW  # a checkout may have a link there


def traceback_reporter(
    folder: Path | None, name: str, show: Callable[[str], None]
) -> Callable[[BaseException], str]:
    """Returns a function that keeps a traceback in `folder/name.log` and says where it is.

    Only the file's owner may read it. `show` receives the traceback where no file can be written, and with
    REPL_LOG=debug as well.
    """

    def report(wrong: BaseException) -> str:
        text = redacted("".join(traceback.format_exception(wrong)))
        why_not = "there is no folder for it"
        if folder is not None:
            file = folder / f"{name}.log"
            try:
                folder.mkdir(mode=0o700, parents=True, exist_ok=True)
                with os.fdopen(os.open(file, _APPEND, 0o600), "w") as opened:
                    opened.write(text)
            except OSError as failure:
                why_not = f"{file} can't be written: {failure.strerror}"
            else:
                if os.environ.get("REPL_LOG") == "debug":
                    show(text)
                return f"its traceback is in {file}"
        show(text)
        return f"its traceback stands above ({why_not})"

    return report
