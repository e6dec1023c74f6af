"""`repl apply`: executes a saved plan exactly, or plans, shows, asks, and then executes."""

import shlex
import sys
from collections.abc import Callable, Collection, Sequence
from pathlib import Path

import click

from planner.cli.app import show
from planner.cli.apply_view import ApplyView
from planner.cli.applying import ApplySession, carry_out
from planner.cli.endpoints import check_jobs, endpoints_of
from planner.cli.launching import home_of, launchers
from planner.cli.looking import PlanRecheck
from planner.cli.options import (
    auto_approve_option,
    json_option,
    lock_timeout_option,
    target_option,
    timeout_option,
    topology_path,
    var_file_option,
)
from planner.cli.pipeline import apply_plan, folder_of, see, with_waiting
from planner.cli.plan_output import show_plan
from planner.cli.saved_plan import approved, refuse_expect_without_a_plan
from planner.cli.validate import checked
from planner.cli.waiting import REPORTED_S, waiting
from planner.model.diagnostic import Diagnostic, ExitCode, Failure, Severity, error, worst
from planner.model.outcome import NOTHING_DONE
from planner.model.plan import Plan
from planner.plan import with_diagnostics
from planner.state import planfile


@click.command()
@topology_path
@var_file_option
@target_option
@auto_approve_option
@lock_timeout_option
@timeout_option
@click.option(
    "--expect",
    metavar="DIGEST",
    help="Refuse any other saved plan than this one: the sha256:... that repl plan printed.",
)
@click.option("--no-wait", is_flag=True, help="Do not wait until launched jobs really copy.")
@json_option
def command(
    path: Path,
    var_files: tuple[Path, ...],
    targets: tuple[str, ...],
    auto_approve: bool,
    lock_timeout: int,
    timeout: int,
    expect: str | None,
    no_wait: bool,
    as_json: bool,
) -> int:
    """Make the clusters match the topology, or execute a saved plan exactly.

    PATH is a topology's file or folder, or a plan that `repl plan --out` wrote; a plan is known by its
    content. A topology is planned, shown and asked about; a saved plan was approved already. With
    REPL_PLAN_KEY (or REPL_PLAN_KEY_FILE) set, a saved plan must be signed with that key.
    """
    view = ApplyView(as_json=as_json)
    if path.is_file() and planfile.is_plan_file(path):
        if var_files or targets:
            raise Failure(error("a saved plan is executed as it is", "leave out --var-file and --target"))
        plan = approved(path, expect, quiet=as_json)
        return execute(
            plan,
            path,
            auto_approve=True,
            lock_timeout=lock_timeout,
            timeout=timeout,
            view=view,
            wait=not no_wait,
            trusted=(path.resolve().parent, Path.cwd()),
            ask_of=None,
        )
    refuse_expect_without_a_plan(expect)
    loaded = checked(path, var_files)
    seen = see(loaded.topology, timeout)
    plan = with_waiting(with_diagnostics(apply_plan(seen, targets), loaded.warnings), seen)
    show_plan(plan, as_json=as_json)
    return execute(
        plan,
        path,
        auto_approve=auto_approve,
        lock_timeout=lock_timeout,
        timeout=timeout,
        view=view,
        wait=not no_wait,
        ask_of=None,
    )


def execute(
    plan: Plan,
    path: Path,
    *,
    auto_approve: bool,
    lock_timeout: int,
    timeout: int,
    view: ApplyView,
    wait: bool = True,
    trusted: Sequence[Path] | None = None,
    write: Callable[[], None] | None = None,
    ask_of: Collection[str] | None = (),
) -> int:
    """What every command does that changes clusters: refuse, or ask and carry out.

    `trusted` is for a saved plan: the folder whose files it refers to counts only inside these. `write`
    writes what the plan was made from to its files; it is called right before the first step.
    `ask_of` are flows that must have no partition that waits for a decision when it ends; None is all.
    """
    errors = [one for one in plan.diagnostics if one.severity is Severity.ERROR]
    if errors:
        raise Failure(errors, worst(errors))
    finish_with = shlex.join(["repl", *sys.argv[1:]])
    if not plan.steps:
        if write is not None:
            write()
        waits = waiting(plan, timeout, only=ask_of)
        view.closing(plan, NOTHING_DONE, None, finish_with, waits)
        return _of_the_unknown(plan, ExitCode.ERROR if waits else ExitCode.DONE)
    if not auto_approve:
        approve(plan)
    endpoints = endpoints_of(plan.connections.values(), trusted)
    if trusted is not None:
        check_jobs(plan, trusted)
    home = home_of(plan, path)
    applying = ApplySession(
        endpoints=endpoints,
        look=PlanRecheck(endpoints, timeout),
        lock_timeout_ms=lock_timeout,
        view=view,
        finish_with=finish_with,
        folder=folder_of(path.resolve()),
        launchers=launchers(home),
        wait=wait,
        errors=home.parent / "errors",
        write=write,
        waiting=lambda done: waiting(done, timeout, REPORTED_S if wait else 0.0, ask_of),
    )
    return _of_the_unknown(plan, carry_out(plan, applying))


def approve(plan: Plan) -> None:
    ask(
        f"Do you want to perform these actions on {', '.join(sorted(plan.clusters))}?",
        "add --auto-approve, or apply a plan that was saved with repl plan --out",
    )


def ask(question: str, way_out: str) -> None:
    """Only a yes from a person; without a terminal there is nobody to ask."""
    if not sys.stdin.isatty():
        raise Failure(error("there is no terminal to ask on, so nothing was changed", way_out))
    click.echo(f"\n{question}")
    click.echo("  Only 'yes' will be accepted to approve.\n")
    answer = click.prompt("  Enter a value", default="", show_default=False, prompt_suffix=": ")
    if answer.strip() != "yes":
        raise Failure(error("not approved, so nothing was changed"), ExitCode.ERROR)


def _of_the_unknown(plan: Plan, code: int) -> int:
    """What could not be read was not done: the clusters don't match the topology yet."""
    if plan.complete or code != ExitCode.DONE:
        return code
    refused = [_refused(what, why) for what, why in sorted(plan.unknown.items())]
    show(refused)
    return ExitCode.ERROR


def _refused(what: str, why: str) -> Diagnostic:
    return error(f"{what} was left out, because it could not be read: {why}", "mend that and apply again")
