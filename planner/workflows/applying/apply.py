"""`repl apply` and `repl destroy`: a topology is planned, approved and executed; a saved plan is executed.

A saved plan is executed only if it is the approved one and signed as required.
Jobs are started by the launchers of this machine, each in the folder for its jobs.
"""

import re
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import replace
from pathlib import Path, PurePath

from planner.apply.context import ApplyTools, Launchers
from planner.model.address import Kind
from planner.model.diagnostic import Diagnostic, ExitCode, Failure, Severity, error, note, worst
from planner.model.plan import PREFIX, ApplyResult, Mode, Plan
from planner.plan.make import with_diagnostics
from planner.state import planfile
from planner.state.planfile import KEY, KEY_FILE, SavedPlan, Signature, key_of
from planner.workflows.applying.session import ApplySession
from planner.workflows.audit.access import endpoints_of
from planner.workflows.edge import Workflow
from planner.workflows.interaction import (
    UNATTENDED,
    ApprovePlan,
    DiagnosticCollector,
    Interaction,
    PlanReady,
    ProgressHandler,
    StepWaits,
    silent,
)
from planner.workflows.observing import (
    REPORTED_S,
    observe,
    read_waiting_partitions,
)
from planner.workflows.one_off import SparkRestorer
from planner.workflows.plans import plan_now, plan_with_warnings
from planner.workflows.preflight import check_jobs, missing_here, schema_registries
from planner.workflows.requests import ApplyRequest, ChangeRequest
from planner.workflows.rules import verdicts_on
from planner.workflows.topology import launcher_home, load_and_lint
from runtime.contract.launching import Launcher
from runtime.contract.spec.launch import LaunchSpec
from runtime.contract.spec.schemas import RegistrySpec

_DIGEST = re.compile(rf"{PREFIX}[0-9a-f]{{64}}")


def save_plan(plan: Plan, file: Path) -> SavedPlan:
    """Writes a plan to a file, signed where a key is set. Failure: it can't be written or holds a secret."""
    key = key_of()
    digest = planfile.write(plan, file, key)
    return SavedPlan(file, plan.inputs, digest, Signature.NOT_SIGNED if key is None else Signature.VALID)


def remove_plan(file: Path) -> bool:
    """Removes a saved plan, and returns whether there was one. Failure where it can't be removed."""
    return planfile.remove(file)


def open_plan(file: Path) -> SavedPlan:
    """Reads a saved plan to show it. Its method `plan` makes the plan again."""
    return planfile.load(file, key_of())


def approved(path: Path, expect: str | None, progress: ProgressHandler = silent) -> Plan:
    """Returns the saved plan to execute and reports its steps. Failure where it is not the approved one."""
    key = key_of()
    saved = planfile.load(path, key)
    if expect is not None:
        _refuse_another(saved, expect)
    _refuse_unsigned(saved, progress, has_key=key is not None)
    plan = saved.plan()
    if plan.applyable:
        progress(PlanReady(plan, approved=True))
    return plan


def refuse_expect_without_a_plan(expect: str | None) -> None:
    if expect is not None:
        what = "--expect names a saved plan, and this is a topology"
        raise Failure(error(what, "name the file that repl plan --out wrote", code="expect"))


def _refuse_another(saved: SavedPlan, expect: str) -> None:
    wanted = expect.strip().lower()
    if not _DIGEST.fullmatch(wanted):
        what = f"--expect {expect!r} is no digest of a plan"
        hint = f"write {PREFIX} and 64 hex digits, as repl plan printed them"
        raise Failure(error(what, hint, code="expect"))
    if wanted != saved.digest:
        raise Failure(
            error(
                f"{saved.path} is not the plan that was approved: its digest is {saved.digest}, "
                f"expected is {wanted}",
                "apply the file that was approved, or have this one approved (repl show FILE)",
                code="expect",
                exit=ExitCode.REFUSED,
            )
        )


def _refuse_unsigned(saved: SavedPlan, progress: ProgressHandler, *, has_key: bool) -> None:
    match saved.signature:
        case Signature.NOT_CHECKED:
            unchecked = note(
                f"{saved.path} is signed, and its signature is not checked: no key is set",
                f"set {KEY} or {KEY_FILE} to the key that it was signed with",
                code="plan-signature",
            )
            progress(unchecked)
        case Signature.NOT_SIGNED if has_key:
            raise _refused(saved, "is not signed, and a key is set")
        case Signature.OTHER_KEY:
            raise _refused(saved, "is not signed with the key that is set")
        case _:
            pass


def _refused(saved: SavedPlan, what: str) -> Failure:
    return Failure(
        error(
            f"{saved.path} {what} ({KEY} or {KEY_FILE})",
            "make the plan again where that key is set: repl plan --out FILE",
            code="plan-signature",
            exit=ExitCode.REFUSED,
        )
    )


@Workflow
async def apply(request: ApplyRequest, interaction: Interaction = UNATTENDED) -> ApplyResult:
    """Executes a plan under the leases of its clusters.

    A topology is planned first, and its plan must be approved; a plan or a saved plan is approved already.
    Failure: nothing was changed. A step that fails is part of the result, and its independent steps continue.
    """
    if request.plan is not None:
        return await execute(
            request.plan, request, interaction, approved=True, wait_for=None, stale=_PLAN_AGAIN
        )
    if request.path.is_file() and planfile.is_plan_file(request.path):
        return await _apply_saved(request, interaction)
    refuse_expect_without_a_plan(request.expect)
    loaded = load_and_lint(request)
    plan = await plan_with_warnings(loaded, request.targets, request.timeout_s, interaction.progress)
    plan = with_diagnostics(plan, missing_here(plan, error))
    return await execute(plan, request, interaction, wait_for=None)


async def _apply_saved(request: ApplyRequest, interaction: Interaction) -> ApplyResult:
    if request.var_files or request.targets:
        raise Failure(error("a saved plan is executed as it is", "leave out --var-file and --target"))
    reported = DiagnosticCollector(interaction.progress)
    plan = approved(request.path, request.expect, reported)
    plan = with_diagnostics(plan, missing_here(plan, error))
    trusted = (request.path.resolve().parent, Path.cwd())
    result = await execute(
        plan, request, interaction, approved=True, trusted=trusted, wait_for=None, stale=planfile.AGAIN
    )
    return replace(result, diagnostics=(*reported.diagnostics, *result.diagnostics))


# What to do about a stale plan, by where it comes from.
_RUN_AGAIN = "run it again: the plan is made anew"
_PLAN_AGAIN = "make the plan again, and apply that one"


def with_next_step(failure: Failure, stale: str) -> Failure:
    """Returns the failure of an apply, with `stale` as the hint of each reason why its plan is stale."""
    diagnostics = (
        replace(diagnostic, hint=stale) if diagnostic.exit is ExitCode.STALE else diagnostic
        for diagnostic in failure.diagnostics
    )
    return Failure(diagnostics, failure.exit_code)


@Workflow
async def destroy(request: ChangeRequest, interaction: Interaction = UNATTENDED) -> ApplyResult:
    """Stops the jobs, and deletes what the topology owns with `on_remove: delete`."""
    loaded = load_and_lint(request, may_declare_nothing=True)
    undeclared = loaded.topology.declaring_nothing()
    observed = await observe(undeclared, request.timeout_s, progress=interaction.progress)
    plan = with_diagnostics(plan_now(Mode.DESTROY, loaded.topology, observed), loaded.warnings)
    return await execute(plan, request, interaction)


def review(plan: Plan, request: ChangeRequest, interaction: Interaction) -> Plan:
    """Judges a plan by the rules, shows it and asks; returns it with the verdicts.

    Failure: it has errors, or breaks a rule.
    """
    plan = with_diagnostics(plan, verdicts_on(plan, request.policies))
    interaction.progress(PlanReady(plan))
    _refuse_errors(plan.diagnostics)
    if plan.steps:
        interaction.require(ApprovePlan(plan))
    return plan


def _refuse_errors(diagnostics: Iterable[Diagnostic]) -> None:
    errors = [diagnostic for diagnostic in diagnostics if diagnostic.severity is Severity.ERROR]
    if errors:
        raise Failure(errors, worst(errors))


async def execute(
    plan: Plan,
    request: ChangeRequest,
    interaction: Interaction,
    *,
    approved: bool = False,
    trusted: Sequence[Path] | None = None,
    write: Callable[[], None] | None = None,
    wait_for: Collection[str] | None = (),
    stale: str = "",
) -> ApplyResult:
    """Reviews a plan unless it is approved, and executes its steps.

    Failure: the plan has errors, or breaks a rule. What the rules say of a plan that is approved is reported
    beside it: its digest stays that of the plan that people approved.

    `trusted` is for a saved plan: files that it refers to must be inside these folders. `write` writes the
    files that the plan was made from, right before the first step. `wait_for` names the flows of which no
    partition may wait for a decision at the end; None is every flow. `stale` is the hint where a plan
    that another command made no longer holds; "" where this command made it.
    """
    reported = DiagnosticCollector(interaction.progress)
    if approved:
        verdicts = verdicts_on(plan, request.policies)
        new = [verdict for verdict in verdicts if verdict not in plan.diagnostics]
        _refuse_errors((*plan.diagnostics, *new))
        reported.notice(*new)
    else:
        plan = review(plan, request, interaction)
    if not plan.steps:
        if write is not None:
            write()
        waits = await read_waiting_partitions(plan, request.timeout_s, only=wait_for, progress=reported)
        return _ended(ApplyResult(plan, waits=waits), reported)
    endpoints = endpoints_of(plan.connections.values(), trusted)
    if trusted is not None:
        check_jobs(plan, trusted)
    home = home_of(plan, request.path)
    wait_s = REPORTED_S if request.wait else 0.0
    registries = _registries(plan, trusted)
    session = ApplySession(
        plan=plan,
        request=request,
        endpoints=endpoints,
        tools=ApplyTools(
            launchers=launchers(home),
            restore=SparkRestorer(plan, registries, reported).restore,
            registries=registries,
            wait=request.wait,
            on_wait=lambda step, what: reported(StepWaits(step, what)),
        ),
        progress=reported,
        interrupts=interaction.interrupts,
        errors=home.parent / "errors",
        write=write,
        is_new=not stale,
    )
    try:
        result = await session.carry_out()
        if result.summary.complete:
            waits = await read_waiting_partitions(plan, request.timeout_s, wait_s, wait_for, reported)
            result = replace(result, waits=waits)
        return _ended(result, reported)
    except Failure as failure:
        raise with_next_step(failure, stale or _RUN_AGAIN) from None


def _registries(plan: Plan, trusted: Sequence[Path] | None) -> dict[str, RegistrySpec]:
    """Returns how the schema registries are reached that the plan changes, or whose ids a restore writes."""
    backup = plan.inputs.backup
    translated = backup is not None and backup.translated
    if not translated and not any(step.address.kind is Kind.SCHEMA for step in plan.steps):
        return {}
    restored = backup.cluster if backup is not None else ""
    return schema_registries(plan.topology, PurePath(plan.inputs.folder), trusted, restored)


def _ended(result: ApplyResult, reported: DiagnosticCollector) -> ApplyResult:
    """Reports the end. What could not be read was not changed: the clusters don't match the topology yet."""
    reported(result)
    if result.summary.complete and not result.waits:
        for what, why in sorted(result.plan.unknown.items()):
            left_out = f"{what} was left out, because it could not be read: {why}"
            reported.notice(error(left_out, "correct that and apply again"))
    return replace(result, diagnostics=reported.diagnostics)


def home_of(plan: Plan, path: Path) -> Path:
    """Returns the folder of this machine's jobs: beside the topology, wherever its plan was saved."""
    files = [cluster.source.file for cluster in plan.connections.values() if cluster.source is not None]
    return launcher_home(Path(files[0]) if files and Path(files[0]).exists() else path) / "jobs"


def launchers(home: Path) -> Launchers:
    """Returns what chooses the launcher of a job."""

    def choose(launch: LaunchSpec, destination: str) -> Launcher:
        from runtime.launch.choose import launcher_for  # most applies start no job

        return launcher_for(launch, home, destination)

    return choose
