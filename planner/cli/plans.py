"""The commands that plan and apply a topology, and those that check and write one."""

from collections import Counter
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import click
from msgspec.structs import replace

from planner.cli.command import ApprovedOutput, Output, command, given
from planner.cli.output import print_lines
from planner.cli.output import show as print_diagnostics
from planner.cli.plan_output import PlanOutput, SavedPlanOutput, exit_code
from planner.model.diagnostic import Diagnostic, ExitCode, Failure, Severity
from planner.render.readable import plural
from planner.workflows.options import Argument, Option, Policies, TopologyArgument
from planner.workflows.requests import (
    ApplyRequest,
    ChangeRequest,
    PlanRequest,
    SimulationRequest,
    TopologyRequest,
)

if TYPE_CHECKING:
    from planner.model.forecast import Simulation
    from planner.model.plan import Plan


@command
def plan(
    request: PlanRequest,
    forecast: SimulationRequest,
    output: SavedPlanOutput,
    detailed: Annotated[bool, Option("--detailed-exitcode", "Exit with 2 where there are changes.")] = False,
    simulate: Annotated[
        bool,
        Option("--simulate", "Forecast the first copy, an outage of the link, and the traffic of each flow."),
    ] = False,
) -> int:
    """Show what must change for the clusters to match the topology.

    Exit code: 0 done, 1 an error or a cluster that could not be read, 3 refused by a guard;
    with --detailed-exitcode 2 where there are changes.
    """
    from planner.workflows.plans import plan

    if not simulate and (given("rate") or given("outage_ms")):
        raise click.UsageError("--rate and --outage say what --simulate assumes: give --simulate too")

    def simulation(made: "Plan") -> "Simulation":
        from planner.model.address import Kind
        from planner.workflows.simulation import simulate

        if not request.targets:
            return simulate(forecast)
        planned = (change.address for change in made.changes)
        flows = tuple(address.name for address in planned if address.kind is Kind.FLOW)
        return simulate(replace(forecast, flows=flows))

    made = output.show_plan(
        lambda: plan(request, output.progress()), simulation if simulate else None, output.save
    )
    return exit_code(made, detailed=detailed)


@command
def apply(request: ApplyRequest, output: ApprovedOutput) -> int:
    """Make the clusters match the topology, or execute a saved plan exactly.

    PATH is a topology's file or folder, or a plan that `repl plan --out` wrote; a plan is known by its
    content. A topology is planned, shown and asked about; a saved plan was approved already. With
    REPL_PLAN_KEY (or REPL_PLAN_KEY_FILE) set, a saved plan must be signed with that key.
    """
    from planner.workflows.applying.apply import apply

    return apply(request, output.interaction()).exit_code


@command
def destroy(request: ChangeRequest, output: ApprovedOutput, policies: Policies = ()) -> int:
    """Stop the jobs, and delete what the topology owns with on_remove: delete.

    What was applied with on_remove: keep stays at the clusters and is only forgotten. Protection and
    policies.max_deletes guard this like any delete; of the latter only topics count here.
    """
    from planner.workflows.applying.apply import destroy

    return destroy(replace(request, policies=policies), output.interaction()).exit_code


@command
def drift(request: TopologyRequest, output: Output) -> int:
    """Show what changed outside the topology since it was applied.

    Compares what each cluster remembers as applied with what is there now. Exit code: 0 nothing,
    2 something changed, 1 an error or a cluster that could not be read.
    """
    from planner.workflows.plans import drift

    shown = PlanOutput(as_json=output.as_json)
    return exit_code(shown.show_plan(lambda: drift(request, output.progress())))


@command
def show(
    plan_file: Annotated[Path, Argument(metavar="PLANFILE")],
    output: PlanOutput,
) -> int:
    """Show a plan that repl plan --out saved, its digest, and whether it is signed."""
    from planner.workflows.applying.apply import open_plan

    with output.failures():
        saved = open_plan(plan_file)
        plan = saved.plan()
    output.show_plan(lambda: plan, signature=saved.signature.value)
    if not output.as_json:
        lines = (f"Plan digest: {saved.digest}", f"Plan signature: {saved.signature.value}")
        print_lines(iter(lines))
    return ExitCode.DONE


@partial(command, without=("timeout_ms",))
def validate(request: TopologyRequest, output: Output, policies: Policies = ()) -> int:
    """Check a topology offline: no cluster and no credentials are needed.

    All errors are shown at once, each as file:line:column: what — how to correct it.
    """
    from planner.workflows.plans import validate

    def found(diagnostics: Sequence[Diagnostic]) -> dict[str, object]:
        from planner.render.plan.json import diagnostic_trees

        severities = Counter(diagnostic.severity for diagnostic in diagnostics)
        return {
            "errors": severities[Severity.ERROR],
            "warnings": severities[Severity.WARNING],
            "diagnostics": diagnostic_trees(diagnostics),
        }

    try:
        loaded = validate(replace(request, policies=policies))
    except Failure as failure:
        if not output.as_json:
            raise
        output.emit({"valid": False, **found(failure.diagnostics)})
        return failure.exit_code
    topology = loaded.topology
    counts = {
        "clusters": len(topology.clusters),
        "topics": len(topology.topics),
        "acls": len(topology.acls),
        "quotas": len(topology.quotas),
        "flows": len(topology.job_flows),
        "jobs": len(topology.jobs),
    }
    if output.as_json:
        output.emit(
            {
                "valid": True,
                "topology": topology.name,
                "digest": topology.digest,
                "files": [str(file) for file in loaded.files],
                "counts": counts,
                **found(loaded.warnings),
            }
        )
        return ExitCode.DONE
    print_diagnostics(loaded.warnings)
    parts = [
        plural(count, ("ACL" if name == "acls" else name.removesuffix("s")))
        for name, count in counts.items()
        if count or name not in ("acls", "quotas")
    ]
    click.echo(f"Valid: {', '.join(parts)}.")
    return ExitCode.DONE


@command
def fmt(
    path: Annotated[Path, TopologyArgument()],
    output: Output,
    check: Annotated[bool, Option("--check", "Write nothing; exit 2 where a file is not formatted.")] = False,
) -> int:
    """Rewrite the files of a topology in one order and style, and print the names of those that changed.

    Keys come in the order of docs/topology.md, indents are two spaces, a blank line stands around each
    section, and what is in braces and longer than 110 columns goes to lines of its own. Your own names and
    the items of lists stay in your order. A comment moves with its key. What the topology says never
    changes: each result is read again and compared before it is written.
    """
    from planner.workflows.topology import format_files

    changed = format_files(path, write=not check)
    if output.as_json:
        output.emit({"check": check, "files": [str(file) for file in changed]})
    else:
        for file in changed:
            click.echo(file)
    if check and changed:
        if not output.as_json:
            where = "" if path == Path() else f" {path}"
            click.echo(f"Not formatted. Run: repl fmt{where}", err=True)
        return ExitCode.DIFFERENT
    return ExitCode.DONE
