"""`repl apply` and `repl destroy`: a topology is planned, approved and executed; a saved plan is executed."""

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from pathlib import Path

from planner.diff.differ import declaring_nothing
from planner.model.diagnostic import Diagnostic, ExitCode, Failure, Severity, error, worst
from planner.model.plan import Plan
from planner.model.step import ApplySummary
from planner.plan import with_diagnostics
from planner.state import planfile
from planner.workflows.applying.saved_plan import approved, refuse_expect_without_a_plan
from planner.workflows.applying.session import ApplySession, PlanRecheck, carry_out
from planner.workflows.clusters import check_jobs, endpoints_of
from planner.workflows.interaction import (
    UNATTENDED,
    ApplyEnded,
    ApprovePlan,
    DiagnosticCollector,
    Interaction,
    PlanReady,
)
from planner.workflows.observing import REPORTED_S, observe, waiting
from planner.workflows.plans import apply_plan, destroy_plan, see, with_waiting
from planner.workflows.spark import SparkRestorer, home_of, launchers
from planner.workflows.topology import ChangeRequest, checked, folder_of
from runtime.contract.views.status_view import PartitionWaits


@dataclass(frozen=True, slots=True, kw_only=True)
class ApplyRequest(ChangeRequest):
    """A request to make the clusters match a topology, or to execute a plan.

    `path` is a topology, or a file that `save_plan` wrote. `plan` was approved by its caller: exactly its
    steps are executed, and `path` is its topology. `expect`: the digest that a saved plan must have.
    """

    targets: tuple[str, ...] = ()
    expect: str | None = None
    plan: Plan | None = None


@dataclass(frozen=True, slots=True)
class ApplyResult:
    """How an apply ended. Of a plan without steps, `apply_id` is None: no history records it.

    `waits` are partitions that wait for a decision: no apply lets them continue.
    """

    plan: Plan
    summary: ApplySummary
    apply_id: str | None = None
    waits: tuple[PartitionWaits, ...] = ()
    diagnostics: tuple[Diagnostic, ...] = ()

    @property
    def complete(self) -> bool:
        """Every step is done, everything could be read, and no partition waits for a decision."""
        return self.summary.complete and self.plan.complete and not self.waits

    @property
    def exit_code(self) -> ExitCode:
        if self.complete:
            return ExitCode.DONE
        cut = self.summary.interrupted and not self.summary.complete
        return ExitCode.INTERRUPTED if cut else ExitCode.ERROR


def apply(request: ApplyRequest, interaction: Interaction = UNATTENDED) -> ApplyResult:
    """Executes a plan under the leases of its clusters.

    A topology is planned first, and its plan must be approved; a plan or a saved plan is approved already.
    Failure: nothing was changed. A step that fails is part of the result, and its independent steps continue.
    """
    if request.plan is not None:
        return execute(request.plan, request, interaction, approved=True, wait_for=None)
    if request.path.is_file() and planfile.is_plan_file(request.path):
        return _apply_saved(request, interaction)
    refuse_expect_without_a_plan(request.expect)
    loaded = checked(request.path, request.var_files)
    seen = see(loaded.topology, request.timeout_ms, progress=interaction.progress)
    plan = with_waiting(with_diagnostics(apply_plan(seen, request.targets), loaded.warnings), seen)
    interaction.progress(PlanReady(plan))
    return execute(plan, request, interaction, wait_for=None)


def _apply_saved(request: ApplyRequest, interaction: Interaction) -> ApplyResult:
    if request.var_files or request.targets:
        raise Failure(error("a saved plan is executed as it is", "leave out --var-file and --target"))
    found = DiagnosticCollector(interaction.progress)
    plan = approved(request.path, request.expect, found)
    trusted = (request.path.resolve().parent, Path.cwd())
    result = execute(plan, request, interaction, approved=True, trusted=trusted, wait_for=None)
    return ApplyResult(
        plan, result.summary, result.apply_id, result.waits, (*found.found, *result.diagnostics)
    )


def destroy(request: ChangeRequest, interaction: Interaction = UNATTENDED) -> ApplyResult:
    """Stops the jobs, and deletes what the topology owns with `on_remove: delete`."""
    loaded = checked(request.path, request.var_files, may_declare_nothing=True)
    undeclared = declaring_nothing(loaded.topology)
    observed = observe(undeclared, request.timeout_ms, progress=interaction.progress)
    plan = with_diagnostics(destroy_plan(loaded.topology, observed), loaded.warnings)
    interaction.progress(PlanReady(plan))
    return execute(plan, request, interaction)


def execute(
    plan: Plan,
    request: ChangeRequest,
    interaction: Interaction,
    *,
    approved: bool = False,
    trusted: Sequence[Path] | None = None,
    write: Callable[[], None] | None = None,
    wait_for: Collection[str] | None = (),
) -> ApplyResult:
    """Refuses a plan with errors, asks unless it is approved, and executes its steps.

    `trusted` is for a saved plan: files that it refers to must be inside these folders. `write` writes the
    files that the plan was made from, right before the first step. `wait_for` names the flows of which no
    partition may wait for a decision at the end; None is every flow.
    """
    errors = [one for one in plan.diagnostics if one.severity is Severity.ERROR]
    if errors:
        raise Failure(errors, worst(errors))
    found = DiagnosticCollector(interaction.progress)
    if not plan.steps:
        if write is not None:
            write()
        waits = waiting(plan, request.timeout_ms, only=wait_for, progress=found)
        return _ended(ApplyEnded(plan, waits=waits), found)
    if not approved:
        interaction.require(ApprovePlan(plan))
    endpoints = endpoints_of(plan.connections.values(), trusted)
    if trusted is not None:
        check_jobs(plan, trusted)
    home = home_of(plan, request.path)
    wait_s = REPORTED_S if request.wait else 0.0
    session = ApplySession(
        endpoints=endpoints,
        recheck=PlanRecheck(endpoints, request.timeout_ms),
        lock_timeout_ms=request.lock_timeout_ms,
        progress=found,
        interrupts=interaction.interrupts,
        folder=folder_of(request.path.resolve()),
        launchers=launchers(home),
        restorer=SparkRestorer(plan, found),
        wait=request.wait,
        errors=home.parent / "errors",
        write=write,
        waiting=lambda done: waiting(done, request.timeout_ms, wait_s, wait_for, found),
    )
    return _ended(carry_out(plan, session), found)


def _ended(ended: ApplyEnded, found: DiagnosticCollector) -> ApplyResult:
    """Reports the end. What could not be read was not changed: the clusters don't match the topology yet."""
    found(ended)
    plan = ended.plan
    if ended.summary.complete and not ended.waits:
        found.notice(*(_left_out(what, why) for what, why in sorted(plan.unknown.items())))
    return ApplyResult(plan, ended.summary, ended.apply_id, ended.waits, found.found)


def _left_out(what: str, why: str) -> Diagnostic:
    return error(f"{what} was left out, because it could not be read: {why}", "correct that and apply again")
