"""`repl try`: what a flow's transform makes of records of its source."""

from pathlib import Path

import click

from planner.cli.options import json_option, timeout_option, topology_path, var_file_option
from planner.cli.output import emit
from planner.model.diagnostic import ExitCode

FORMAT_VERSION = 1
_MOST = 10_000


@click.command()
@click.argument("flow")
@click.option(
    "--limit",
    type=click.IntRange(1, _MOST),
    default=20,
    show_default=True,
    metavar="N",
    help="At most this many records: the newest at the source.",
)
@click.option(
    "--sample",
    type=click.Path(dir_okay=False, path_type=Path),
    metavar="FILE",
    help="Take the records from FILE: one value a line, or the output of repl read --json.",
)
@click.option("--full", is_flag=True, help="Show long values in full.")
@topology_path
@var_file_option
@timeout_option
@json_option
def command(
    flow: str,
    limit: int,
    sample: Path | None,
    full: bool,
    path: Path,
    var_files: tuple[Path, ...],
    timeout: int,
    as_json: bool,
) -> int:
    """Show what the transform of FLOW makes of records of its source; nothing is written.

    Shows each record before and after, which ones do not travel, and which ones are bad and why. Spark
    evaluates the transform on this machine, as the flow's job would. Exit code 2 where a record is bad.

    The output has RAW VALUES of the source, also of fields that the transform hides: run it where they may be
    seen, and keep the output there.
    """
    from planner.cli.console import print_lines
    from planner.cli.view import TerminalView
    from planner.render.reports.trial import document, screen
    from planner.workflows.one_off import TryFlowRequest, try_transform

    request = TryFlowRequest(path, var_files, timeout, flow=flow, limit=limit, sample=sample)
    report = try_transform(request, TerminalView(as_json=as_json))
    if as_json:
        emit({"format_version": FORMAT_VERSION, **document(report)})
    else:
        print_lines(lambda _: screen(report, full=full))
    return ExitCode.DIFFERENT if any(one.bad for one in report.results) else ExitCode.DONE
