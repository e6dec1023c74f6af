"""`repl drill`: rehearses the loss of each cluster on lab clusters, and reports RTO and RPO."""

import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

import click

from planner.cli.options import DurationParam, json_option, topology_path, var_file_option
from planner.cli.output import emit, say, write_report
from planner.model.diagnostic import ExitCode, Failure, error
from runtime.contract.extras import Extra, is_missing, missing_extra

if TYPE_CHECKING:
    from planner.model.drill import DrillReport

FILE = click.Path(path_type=Path, dir_okay=False)


@click.command()
@topology_path
@var_file_option
@click.option(
    "--max-rto",
    "max_rto",
    type=DurationParam(),
    metavar="DURATION",
    help="The longest time until consumers read on.  [default: drill.max_rto of the topology]",
)
@click.option(
    "--max-rpo",
    "max_rpo",
    type=click.IntRange(0),
    metavar="RECORDS",
    help="The most records that may be missing.  [default: drill.max_rpo of the topology]",
)
@click.option(
    "--load",
    "load",
    type=DurationParam(),
    metavar="DURATION",
    help="How long producers write before a cluster is killed.  [default: drill.load of the topology, 10s]",
)
@click.option(
    "--features",
    type=click.Path(path_type=Path, exists=True),
    metavar="DIR",
    help="Run the scenarios of these .feature files instead, a folder or one file.",
)
@click.option(
    "--against",
    type=click.Choice(["lab", "live"]),
    default="lab",
    show_default=True,
    help="Rehearse on clusters of this machine, or only read the live ones.",
)
@click.option(
    "--canaries",
    is_flag=True,
    help="With --against live: let canary records cross each flow in scratch topics, and remove them.",
)
@click.option("--steps", is_flag=True, help="Run nothing: show the steps that features may use.")
@click.option("--html", "html_file", type=FILE, metavar="FILE", help="Write the report as a page.")
@click.option("--junit", "junit_file", type=FILE, metavar="FILE", help="Write it as JUnit XML, for CI.")
@click.option(
    "--metrics",
    "metrics_file",
    type=FILE,
    metavar="FILE",
    help="Write it as metrics, for the textfile collector of Prometheus' node exporter.",
)
@click.option(
    "--reports",
    type=click.Path(path_type=Path, file_okay=False),
    metavar="DIR",
    help="Where reports are stored.  [default: .repl/drills beside the topology]",
)
@click.option("--history", is_flag=True, help="Run nothing: compare the stored reports.")
@click.option(
    "--check",
    "checked",
    type=FILE,
    metavar="REPORT",
    help="Run nothing: check the signature of a stored report.",
)
@json_option
def drill(
    path: Path,
    var_files: tuple[Path, ...],
    max_rto: int | None,
    max_rpo: int | None,
    load: int | None,
    features: Path | None,
    against: str,
    canaries: bool,
    steps: bool,
    html_file: Path | None,
    junit_file: Path | None,
    metrics_file: Path | None,
    reports: Path | None,
    history: bool,
    checked: Path | None,
    as_json: bool,
) -> int:
    """Rehearse the loss of each cluster that flows leave, on clusters of this machine.

    The topology is rebuilt on lab clusters: its flows, topics, groups and jobs, with other addresses. Its own
    clusters are not changed. While producers write and consumer groups read, each cluster is killed, failed
    over, brought back and failed back to. With --features, the scenarios of a team run instead. With
    --against live, the topology's own clusters are read as a failover would read them, and nothing is
    changed. With --canaries too, records cross each flow in scratch topics, which are removed. Exit code: 0
    every promise was kept, 2 one is broken, 1 an error, 3 canaries are not allowed or a right is missing.
    """
    _refuse_options(features, against, canaries=canaries)
    if checked is not None:
        return _check(checked)
    from planner.workflows.audit.drills import keep, reports_folder, signed

    folder = reports or reports_folder(path)
    if history:
        return _history(folder, as_json=as_json)
    if is_missing(Extra.DRILL):
        raise Failure(error(*missing_extra(Extra.DRILL, "a drill")))
    if steps:
        return _steps()
    from planner.cli.view import terminable
    from planner.drill.features import rehearse_features
    from planner.drill.live import rehearse_live
    from planner.drill.rehearsal import DrillRequest
    from planner.drill.standard import rehearse
    from planner.render.reports import drill as rendered

    request = DrillRequest(
        path, var_files, max_rto_ms=max_rto, max_rpo=max_rpo, load_ms=load, canaries=canaries
    )
    with terminable():
        progress = _silent if as_json else _said
        if features is not None:
            report = rehearse_features(request, features, progress)
        else:
            report = (rehearse_live if against == "live" else rehearse)(request, progress)
    tree = signed(rendered.as_json(report))
    stored = keep(report, tree, folder)
    if html_file is not None:
        write_report(html_file, rendered.page(report))
    if junit_file is not None:
        write_report(junit_file, rendered.junit(report))
    if metrics_file is not None:
        write_report(metrics_file, _metrics(report, folder))
    if as_json:
        emit(tree)
    else:
        from planner.cli.console import print_lines

        print_lines(lambda _width: rendered.screen(report))
        say(f"The report is stored in {stored}.", err=True)
    if any(scenario.problem for scenario in report.scenarios):
        return ExitCode.ERROR
    return ExitCode.DONE if report.passed else ExitCode.DIFFERENT


def _metrics(report: "DrillReport", folder: Path) -> str:
    from planner.render.reports.drill import metrics
    from planner.workflows.audit.drills import last_success_s

    return metrics(report, time.time(), report.every_ms, last_success_s(folder))


def _history(folder: Path, *, as_json: bool) -> int:
    from planner.cli.console import print_lines
    from planner.render.reports.drill import history_screen
    from planner.workflows.audit.drills import kept, signature_of

    reports = list(kept(folder))
    if as_json:
        emit({"format_version": 1, "drills": reports})
    else:
        signatures = [signature_of(report).value for report in reports]
        print_lines(lambda width: history_screen(reports, signatures, width))
    return ExitCode.DONE


def _check(file: Path) -> int:
    from planner.workflows.audit.drills import check_report

    say(f"{file}: {check_report(file)}")
    return ExitCode.DONE


def _refuse_options(features: Path | None, against: str, *, canaries: bool) -> None:
    if features is not None and against == "live":
        raise click.UsageError("--features are run on lab clusters: leave --against live out")
    if canaries and against != "live":
        raise click.UsageError("--canaries are written to live clusters: add --against live")


def _steps() -> int:
    """Prints the steps: to be read on a terminal, else as the Markdown of the documentation."""
    from planner.cli.console import print_lines
    from planner.drill.features import steps
    from planner.render.reports.drill import steps_markdown, steps_screen

    if sys.stdout.isatty():
        print_lines(lambda _width: steps_screen(steps()))
    else:
        say(steps_markdown(steps()).rstrip())
    return ExitCode.DONE


def _said(text: str) -> None:
    say(f"{time.strftime('%H:%M:%S')} {text}", err=True)


def _silent(_text: str) -> None:
    """Says nothing: the document on stdout is all."""
