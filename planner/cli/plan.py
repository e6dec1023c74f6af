"""`repl plan`: observe, diff, show. Nothing is changed."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from planner.cli.options import (
    DurationParam,
    RateParam,
    json_option,
    policy_option,
    target_option,
    timeout_option,
    topology_path,
    var_file_option,
)

if TYPE_CHECKING:
    from planner.model.forecast import Simulation
    from planner.model.plan import Plan
    from planner.workflows.plans import PlanRequest

FILE = click.Path(path_type=Path, dir_okay=False)


@click.command()
@topology_path
@var_file_option
@policy_option
@target_option
@click.option("--out", type=FILE, metavar="FILE", help="Save the plan; repl apply FILE executes exactly it.")
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
@click.option("--rollback", metavar="ID", help="Plan to take back an apply; repl history lists the ids.")
@click.option(
    "--untrusted",
    is_flag=True,
    help="For a topology from somebody else, such as a pull request: demand REPL_ALLOW_ENV, "
    "REPL_ALLOW_FILES and REPL_ALLOW_BOOTSTRAP, and refuse clear-text credentials, unchecked certificates, "
    "variables from other folders and --rollback.",
)
@click.option(
    "--simulate",
    is_flag=True,
    help="Forecast the first copy, an outage of the link, and the traffic of each flow.",
)
@click.option(
    "--rate",
    type=RateParam(),
    metavar="RATE",
    help="With --simulate: how fast a flow copies. A lower rate_limit of the flow counts.  [default: 50MB/s]",
)
@click.option(
    "--outage",
    type=DurationParam(),
    metavar="DURATION",
    help="With --simulate: how long the link is down.  [default: 6h]",
)
@timeout_option
@json_option
def command(
    path: Path,
    var_files: tuple[Path, ...],
    policies: tuple[Path, ...],
    targets: tuple[str, ...],
    out: Path | None,
    markdown_file: Path | None,
    html_file: Path | None,
    detailed: bool,
    rollback: str | None,
    untrusted: bool,
    simulate: bool,
    rate: int | None,
    outage: int | None,
    timeout: int,
    as_json: bool,
) -> int:
    """Show what must change for the clusters to match the topology.

    Exit code: 0 done, 1 an error or a cluster that could not be read, 3 refused by a guard;
    with --detailed-exitcode 2 where there are changes.
    """
    from planner.cli.view import (
        TerminalView,
        exit_code,
        failing_as_json,
        output,
        reporting_failure,
        write_reports,
    )
    from planner.workflows.plans import PlanRequest
    from planner.workflows.plans import plan as make_plan

    request = PlanRequest(
        path, var_files, timeout, policies, targets=targets, rollback=rollback, untrusted=untrusted
    )
    if not simulate and (rate is not None or outage is not None):
        raise click.UsageError("--rate and --outage say what --simulate assumes: give --simulate too")
    with failing_as_json(as_json):
        with reporting_failure(markdown_file):
            plan = make_plan(request, TerminalView(as_json=as_json))
            simulation = _simulated(request, rate, outage) if simulate else None
        write_reports(plan, markdown_file, html_file, simulation)
        output(plan, as_json=as_json, simulation=simulation)
        if out is not None:
            save(plan, out)
    return exit_code(plan, detailed=detailed)


def _simulated(request: PlanRequest, rate: int | None, outage: int | None) -> Simulation:
    from planner.workflows.simulation import ASSUMED_RATE, OUTAGE_MS, SimulationRequest
    from planner.workflows.simulation import simulate as forecast

    return forecast(
        SimulationRequest(
            request.path,
            request.var_files,
            request.timeout_ms,
            rate=ASSUMED_RATE if rate is None else rate,
            outage_ms=OUTAGE_MS if outage is None else outage,
        )
    )


def save(plan: Plan, out: Path) -> None:
    """Saves a plan. One that can't be applied is not saved: it could be found later and tried."""
    from planner.workflows.applying.apply import save_plan

    if plan.errored:
        click.echo(f"{out} was not written: this plan can't be applied.", err=True)
        return
    saved = save_plan(plan, out)
    signed = " and signed" if saved.signed else ""
    click.echo(f"Saved to {out}{signed}. To do exactly this: repl apply {out}", err=True)
    click.echo(f"Plan digest: {saved.digest}", err=True)
