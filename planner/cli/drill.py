"""`repl drill`: rehearses the loss of each cluster on lab clusters, and reports RTO and RPO."""

import sys
import time
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import click

from planner.cli.command import FORMAT_VERSION, Output, command
from planner.cli.output import say, write_report
from planner.model.diagnostic import ExitCode, Failure, error
from planner.workflows.options import Option
from planner.workflows.requests import DrillRequest
from runtime.contract.extras import Extra, is_missing, missing_extra

if TYPE_CHECKING:
    from planner.model.drill import DrillReport


@partial(command, without=("timeout_ms",))
def drill(
    request: DrillRequest,
    output: Output,
    steps: Annotated[bool, Option("--steps", "Run nothing: show the steps that features may use.")] = False,
    html: Annotated[Path | None, Option("--html", "Write the report as a page.", "FILE", path="file")] = None,
    junit: Annotated[
        Path | None, Option("--junit", "Write it as JUnit XML, for CI.", "FILE", path="file")
    ] = None,
    metrics: Annotated[
        Path | None,
        Option(
            "--metrics",
            "Write it as metrics, for the textfile collector of Prometheus' node exporter.",
            "FILE",
            path="file",
        ),
    ] = None,
    reports: Annotated[
        Path | None,
        Option(
            "--reports",
            "Where reports are stored.  [default: .repl/drills beside the topology]",
            "DIR",
            path="folder",
        ),
    ] = None,
    history: Annotated[bool, Option("--history", "Run nothing: compare the stored reports.")] = False,
    check: Annotated[
        Path | None,
        Option("--check", "Run nothing: check the signature of a stored report.", "REPORT", path="file"),
    ] = None,
) -> int:
    """Rehearse the loss of each cluster that flows leave, on clusters of this machine.

    The topology is rebuilt on lab clusters: its flows, topics, groups and jobs, with other addresses. Its own
    clusters are not changed. While producers write and consumer groups read, each cluster is killed, failed
    over, brought back and failed back to. With --features, the scenarios of a team run instead. With
    --against live, the topology's own clusters are read as a failover would read them, and nothing is
    changed. With --canaries too, records cross each flow in scratch topics, which are removed. Exit code: 0
    every promise was kept, 2 one is broken, 1 an error, 3 canaries are not allowed or a right is missing.
    """
    if request.features is not None and request.against == "live":
        raise click.UsageError("--features are run on lab clusters: leave --against live out")
    if request.canaries and request.against != "live":
        raise click.UsageError("--canaries are written to live clusters: add --against live")
    from planner.render.reports import drill as rendered
    from planner.workflows.audit import drills

    if check is not None:
        return _print_signature(check, drills.check_report(check), output)
    folder = reports or drills.reports_folder(request.path)
    if history:
        stored, _ = drills.stored_drills(folder, checked=True)
        output.show(
            lambda: {"drills": [report.tree for report in stored]},
            lambda width: rendered.history_screen(stored, width),
        )
        return ExitCode.DONE
    if is_missing(Extra.DRILL):
        raise Failure(error(*missing_extra(Extra.DRILL, "a drill")))
    if steps:
        return _print_steps(output)
    report = _rehearse(request, as_json=output.as_json)
    document = {"format_version": FORMAT_VERSION, **rendered.document(report)}
    kept = drills.store_drill(report, document, folder)
    if html is not None:
        write_report(html, rendered.page(report))
    if junit is not None:
        write_report(junit, rendered.junit(report))
    if metrics is not None:
        passed = drills.last_passed(drills.lab_drills(folder, report.topology)[0])
        success_s = passed.report.started_ms / 1000 if passed is not None else None
        write_report(metrics, rendered.metrics(report, time.time(), success_s))
    output.show(lambda: kept.tree, lambda _width: rendered.screen(report))
    if not output.as_json:
        say(f"The report is stored in {folder / kept.file}.", err=True)
    if any(scenario.problem for scenario in report.scenarios):
        return ExitCode.ERROR
    return ExitCode.DONE if report.passed else ExitCode.DIFFERENT


def _rehearse(request: DrillRequest, *, as_json: bool) -> "DrillReport":
    from planner.cli.view import terminable
    from planner.drill.rehearsal import rehearse

    def progress(text: str) -> None:
        if not as_json:
            say(f"{time.strftime('%H:%M:%S')} {text}", err=True)

    with terminable():
        return rehearse(request, progress)


def _print_signature(report: Path, signature: str, output: Output) -> int:
    """Prints what the check of a stored report's signature has found."""
    if output.as_json:
        output.emit({"report": str(report), "signature": signature})
    else:
        say(f"{report}: {signature}")
    return ExitCode.DONE


def _print_steps(output: Output) -> int:
    """Prints the steps: to be read on a terminal, as JSON, else as the Markdown of the documentation."""
    from planner.cli.console import print_lines
    from planner.drill.steps.sentences import table
    from planner.render.reports.drill import steps_document, steps_markdown, steps_screen

    if output.as_json:
        output.emit(steps_document(table()))
    elif sys.stdout.isatty():
        print_lines(lambda _width: steps_screen(table()))
    else:
        say(steps_markdown(table()).rstrip())
    return ExitCode.DONE
