"""What a workflow asks and reports while it runs, and where the traceback of an unexpected error is kept.

A workflow never prints and never reads a terminal. It asks questions through an `Approval` and reports frozen
events to a `ProgressHandler`. Both are silent by default: nothing is approved and nothing is shown.
"""

import os
import traceback
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from msgspec import Struct

from planner.model.diagnostic import Diagnostic, Failure, error
from planner.model.plan import Plan
from planner.model.step import NOTHING_DONE, ApplySummary, Step, StepsEnded, StepsSent

if TYPE_CHECKING:
    from planner.apply.executor import Interruption as Interruption
    from planner.state.lease import LeaseState
    from runtime.contract.records.job_status import PartitionStatus
    from runtime.contract.results.groups import FlowLoss, GroupTopics
    from runtime.contract.results.records import Salvage
    from runtime.contract.results.status import PartitionWaits


# Questions: each is asked before a change, and False changes nothing.


class ApprovePlan(Struct, frozen=True):
    """Asks whether the steps of a plan may be executed."""

    plan: Plan


class ApproveLoss(Struct, frozen=True):
    """Asks whether a flow may continue without the records that these partitions lost."""

    flow: str
    lost: tuple["PartitionStatus", ...]


class ApproveReplay(Struct, frozen=True):
    """Asks whether salvaged records may be copied into the destination cluster."""

    destination: str


Question = ApprovePlan | ApproveLoss | ApproveReplay


class Approval(Protocol):
    """Answers a workflow's question. It may raise Failure where no answer can be had."""

    def __call__(self, question: Question, /) -> bool: ...


def approve_nothing(_question: Question) -> bool:
    """The default: a workflow without an explicit approval changes nothing."""
    return False


def approve_all(_question: Question) -> bool:
    """Approves every question, as `--auto-approve` does."""
    return True


# Events: what a caller may show while a workflow runs.


class Noticed(Struct, frozen=True):
    """A diagnostic was found. The workflow's result holds it too."""

    diagnostic: Diagnostic


class ReadingStarted(Struct, frozen=True):
    """The clusters are being read."""


class ReadingProgressed(Struct, frozen=True):
    """`done` of `total` parts of one cluster's reading are complete. Threads report it."""

    cluster: str
    what: str
    done: int
    total: int


class ReadingEnded(Struct, frozen=True):
    """The clusters are read, or reading failed."""


class PlanReady(Struct, frozen=True):
    """A plan was made. The question follows, unless the plan has errors or no steps."""

    plan: Plan


class SavedPlanReady(Struct, frozen=True):
    """A saved plan was opened and is about to be executed without a question."""

    plan: Plan


class LeaseAwaited(Struct, frozen=True):
    """Another apply holds the lease of a cluster."""

    cluster: str
    held: "LeaseState"


class ApplyStarted(Struct, frozen=True):
    """The first step follows."""

    plan: Plan


class StepWaits(Struct, frozen=True):
    """A long step waits for this. Threads report it."""

    step: Step
    what: str


class UnexpectedError(Struct, frozen=True):
    """The traceback of an exception that no handler expects, where it could not be written to a file."""

    traceback: str


class ApplyEnded(Struct, frozen=True):
    """An apply ended, one way or another. Of a plan without steps, `apply_id` is None.

    `waits` are partitions that no apply lets continue.
    """

    plan: Plan
    summary: ApplySummary = NOTHING_DONE
    apply_id: str | None = None
    waits: "tuple[PartitionWaits, ...]" = ()


class LossAccepted(Struct, frozen=True):
    """These partitions of a flow continue behind the records that they lost."""

    flow: str
    partitions: tuple["PartitionStatus", ...]


class CopyAwaited(Struct, frozen=True):
    """`left` says what a flow has not copied yet."""

    flow: str
    left: str


class CopyCompleted(Struct, frozen=True):
    """A failback flow has copied everything."""

    flow: str


class FailoverCost(Struct, frozen=True):
    """What the failover of a cluster would lose, as far as its source is known."""

    cluster: str
    losses: "tuple[FlowLoss, ...]"
    at_ms: int


class RecordsLost(Struct, frozen=True):
    """What had not arrived when the flows ended."""

    losses: "tuple[FlowLoss, ...]"
    at_ms: int


class SubscriptionsRead(Struct, frozen=True):
    """What the consumers of each group subscribe to at the destination after a failover."""

    groups: "tuple[GroupTopics, ...]"


class UnsentRecords(Struct, frozen=True):
    """Records of one flow's source that never reached the destination, by topic."""

    flow: str
    topics: Mapping[str, int]

    @property
    def records(self) -> int:
        return sum(self.topics.values())


class UnsentRecordsFound(Struct, frozen=True):
    """What a failback leaves at `cluster`: records that were never sent."""

    cluster: str
    flows: tuple[UnsentRecords, ...]


class ReplayReady(Struct, frozen=True):
    """The salvaged records that are about to be copied, and into which topic; None is the flow's own."""

    salvaged: "Salvage"
    to: str | None


class SparkOutput(Struct, frozen=True):
    """One line that a Spark application printed for people."""

    line: str


class SparkStarted(Struct, frozen=True):
    """A Spark application is being started for this command, such as `verify`."""

    command: str


class SparkProgressed(Struct, frozen=True):
    """A Spark application has done so many of its parts: `compared 3 of 40 stretches`."""

    command: str
    what: str
    done: int
    total: int
    parts: str


class SparkEnded(Struct, frozen=True):
    """The Spark application of this command ended, one way or another."""

    command: str


ProgressEvent = (
    Noticed
    | ReadingStarted
    | ReadingProgressed
    | ReadingEnded
    | PlanReady
    | SavedPlanReady
    | LeaseAwaited
    | ApplyStarted
    | StepsSent
    | StepsEnded
    | StepWaits
    | UnexpectedError
    | ApplyEnded
    | LossAccepted
    | CopyAwaited
    | CopyCompleted
    | FailoverCost
    | RecordsLost
    | SubscriptionsRead
    | UnsentRecordsFound
    | ReplayReady
    | SparkOutput
    | SparkStarted
    | SparkProgressed
    | SparkEnded
)


class ProgressHandler(Protocol):
    """Receives the events of a workflow, some of them from several threads."""

    def __call__(self, event: ProgressEvent, /) -> None: ...


def silent(_event: ProgressEvent) -> None:
    """The default: shows nothing."""


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
            raise Failure(error("not approved, so nothing was changed"))

    def notice(self, found: Sequence[Diagnostic]) -> None:
        for one in found:
            self.progress(Noticed(one))


UNATTENDED = Interaction()


class DiagnosticCollector:
    """Passes on every event, and keeps the diagnostics for the workflow's result."""

    def __init__(self, progress: ProgressHandler) -> None:
        self._progress = progress
        self._found: list[Diagnostic] = []

    def __call__(self, event: ProgressEvent) -> None:
        if isinstance(event, Noticed):
            self._found.append(event.diagnostic)
        self._progress(event)

    def notice(self, *found: Diagnostic) -> None:
        for one in found:
            self(Noticed(one))

    @property
    def found(self) -> tuple[Diagnostic, ...]:
        return tuple(self._found)


def traceback_reporter(
    folder: Path | None, name: str, show: Callable[[str], None]
) -> Callable[[BaseException], str]:
    """Returns a function that keeps a traceback in `folder/name.log` and says where it is.

    Only the file's owner may read it. `show` receives the traceback where no file can be written, and with
    REPL_LOG=debug as well.
    """

    def report(wrong: BaseException) -> str:
        text = "".join(traceback.format_exception(wrong))
        why_not = "there is no folder for it"
        if folder is not None:
            file = folder / f"{name}.log"
            try:
                folder.mkdir(mode=0o700, parents=True, exist_ok=True)
                with os.fdopen(os.open(file, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600), "w") as opened:
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
