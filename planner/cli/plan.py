"""`repl plan`: observe, diff, show. Nothing is changed, whatever it finds."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import click

from planner.cli.app import show
from planner.cli.options import (
    json_option,
    path_argument,
    target_option,
    timeout_option,
    var_file_option,
)
from planner.cli.pipeline import apply_plan, see
from planner.cli.plan_output import print_plan
from planner.cli.validate import checked
from planner.model.diagnostic import ExitCode, Failure, Severity, error, worst
from planner.model.plan import Plan
from planner.model.topology import Topology
from planner.store import planfile


@click.command()
@path_argument
@var_file_option
@target_option
@click.option(
    "--out", type=click.Path(path_type=Path), metavar="FILE", help="Save the plan, to apply exactly it."
)
@click.option(
    "--markdown", type=click.Path(path_type=Path), metavar="FILE", help="A comment for a pull request."
)
@click.option("--html", type=click.Path(path_type=Path), metavar="FILE", help="One self-contained page.")
@click.option("--detailed-exitcode", is_flag=True, help="Exit 2 if there are changes, 0 if there are none.")
@click.option("--rollback", "rollback_id", metavar="ID", help="Plan the inverse of an apply (repl history).")
@timeout_option
@json_option
def command(
    path: Path,
    var_files: tuple[Path, ...],
    targets: tuple[str, ...],
    out: Path | None,
    markdown: Path | None,
    html: Path | None,
    detailed_exitcode: bool,
    rollback_id: str | None,
    timeout: int,
    as_json: bool,
) -> int:
    """Show what must change for the clusters to match the topology. Nothing is changed.

    Exit codes: 0 done, 1 an error or a cluster that could not be read, 2 changes (--detailed-exitcode),
    3 refused by a guard, a policy, a pinned cluster id or ownership.
    """
    loaded = checked(path, var_files)
    if rollback_id is not None:
        plan = _rollback(loaded.topology, rollback_id, timeout, targets)
    else:
        plan = apply_plan(see(loaded.topology, timeout), targets)
    plan = replace(plan, diagnostics=tuple(dict.fromkeys((*loaded.warnings, *plan.diagnostics))))
    _write(plan, out, markdown, html)
    print_or_json(plan, as_json=as_json)
    if out is not None and not as_json:
        click.echo(f"\nSaved: repl apply {out} carries out exactly this plan.", err=True)
    return exit_code(plan, detailed=detailed_exitcode)


def _rollback(topology: Topology, apply_id: str, timeout: int, targets: tuple[str, ...]) -> Plan:
    from planner.cli.rolling_back import rollback_plan

    if targets:
        raise Failure(error("an apply is taken back as a whole", "leave out --target"))
    return rollback_plan(topology, apply_id, timeout)


def _write(plan: Plan, out: Path | None, markdown: Path | None, html: Path | None) -> None:
    if out is not None and not plan.errored:
        planfile.write(plan, out)
    if markdown is not None:
        from planner.render.markdown import markdown as rendered

        _save(markdown, lambda: rendered(plan))
    if html is not None:
        from planner.render.html import html as page

        _save(html, lambda: page(plan))


def _save(path: Path, render: Callable[[], str]) -> None:
    try:
        path.write_text(render(), encoding="utf-8")
    except OSError as wrong:
        raise Failure(error(f"{path} can't be written: {wrong.strerror}", "name another file")) from None


def print_or_json(plan: Plan, *, as_json: bool) -> None:
    if as_json:
        from planner.render.json import json_text

        click.echo(json_text(plan))
        return
    print_plan(plan)
    show([one for one in plan.diagnostics if one.severity is Severity.ERROR])


def exit_code(plan: Plan, *, detailed: bool) -> int:
    if plan.errored:
        return worst(plan.diagnostics)
    if not plan.complete:
        return ExitCode.ERROR
    return ExitCode.DIFFERENT if detailed and plan.changed else ExitCode.DONE
