"""`repl show PLANFILE`: the saved plan again, without a cluster."""

from pathlib import Path

import click

from planner.cli.options import json_option
from planner.cli.plan_output import failing_as_json, output, write_reports
from planner.model.diagnostic import ExitCode
from planner.store import planfile

FILE = click.Path(path_type=Path, dir_okay=False)


@click.command()
@click.argument("plan_file", type=click.Path(path_type=Path), metavar="PLANFILE")
@click.option("--markdown", "markdown_file", type=FILE, metavar="FILE", help="Write it as Markdown, too.")
@click.option("--html", "html_file", type=FILE, metavar="FILE", help="Write it as a page, too.")
@json_option
def command(plan_file: Path, markdown_file: Path | None, html_file: Path | None, as_json: bool) -> int:
    """Show a plan that repl plan --out saved."""
    with failing_as_json(as_json):
        plan = planfile.read(plan_file)
        write_reports(plan, markdown_file, html_file)
        output(plan, as_json=as_json)
    return ExitCode.DONE
