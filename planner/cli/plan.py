"""`repl plan`: observe, diff, show. Nothing is changed."""

from pathlib import Path

import click

from planner.cli.options import (
    json_option,
    target_option,
    timeout_option,
    topology_path,
    var_file_option,
)
from planner.cli.pipeline import apply_plan, see, with_waiting
from planner.cli.plan_output import exit_code, failing_as_json, output, reporting_failure, write_reports
from planner.cli.untrusted import check_operator, check_options, judged
from planner.cli.validate import checked
from planner.model.diagnostic import Failure, error
from planner.model.plan import Plan
from planner.plan import with_diagnostics

FILE = click.Path(path_type=Path, dir_okay=False)


@click.command()
@topology_path
@var_file_option
@target_option
@click.option("--out", type=FILE, metavar="FILE", help="Save the plan, for repl apply FILE to do exactly it.")
@click.option(
    "--markdown", "markdown_file", type=FILE, metavar="FILE", help="Write it as a comment for a pull request."
)
@click.option(
    "--html",
    "html_file",
    type=FILE,
    metavar="FILE",
    help="Write it as a page with a drawing of the topology.",
)
@click.option("--detailed-exitcode", "detailed", is_flag=True, help="Exit with 2 where there are changes.")
@click.option("--rollback", metavar="ID", help="Plan to take back an apply; repl history tells the ids.")
@click.option(
    "--untrusted",
    is_flag=True,
    help="For a topology of a stranger, such as a pull request: demand REPL_ALLOW_ENV, REPL_ALLOW_FILES and "
    "REPL_ALLOW_BOOTSTRAP, and refuse clear-text credentials, unchecked certificates, variables from other "
    "folders and --rollback.",
)
@timeout_option
@json_option
def command(
    path: Path,
    var_files: tuple[Path, ...],
    targets: tuple[str, ...],
    out: Path | None,
    markdown_file: Path | None,
    html_file: Path | None,
    detailed: bool,
    rollback: str | None,
    untrusted: bool,
    timeout: int,
    as_json: bool,
) -> int:
    """Show what must change for the clusters to match the topology.

    Exit code: 0 done, 1 an error or a cluster that could not be read, 3 refused by a guard;
    with --detailed-exitcode 2 where there are changes.
    """
    with failing_as_json(as_json):
        with reporting_failure(markdown_file):
            if untrusted:
                check_operator()
                check_options(path, var_files, rollback)
            plan = _plan(path, var_files, targets, rollback, timeout, untrusted=untrusted)
        write_reports(plan, markdown_file, html_file)
        output(plan, as_json=as_json)
        if out is not None:
            _save(plan, out)
    return exit_code(plan, detailed=detailed)


def _plan(
    path: Path,
    var_files: tuple[Path, ...],
    targets: tuple[str, ...],
    rollback: str | None,
    timeout: int,
    *,
    untrusted: bool,
) -> Plan:
    loaded = checked(path, var_files)
    if untrusted:
        judged(loaded.warnings)
    if rollback is not None:
        if targets:
            raise Failure(error("an apply is taken back as a whole", "leave out --target"))
        from planner.cli.rolling_back import rollback_plan

        return rollback_plan(loaded.topology, rollback, timeout)
    seen = see(loaded.topology, timeout)
    return with_waiting(with_diagnostics(apply_plan(seen, targets), loaded.warnings), seen)


def _save(plan: Plan, out: Path) -> None:
    """A plan that can't be applied is not kept: nobody shall find it later and try."""
    from planner.state import planfile
    from planner.state.signature import key_of

    if plan.errored:
        click.echo(f"{out} was not written: this plan can't be applied.", err=True)
        return
    key = key_of()
    digest = planfile.write(plan, out, key)
    signed = "" if key is None else " and signed"
    click.echo(f"Saved to {out}{signed}. To do exactly this: repl apply {out}", err=True)
    click.echo(f"Plan digest: {digest}", err=True)
