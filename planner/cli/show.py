"""`repl show PLANFILE`: a saved plan again, without a cluster."""

from pathlib import Path

import click

from planner.cli.options import json_option
from planner.model.diagnostic import ExitCode

FILE = click.Path(path_type=Path, dir_okay=False)


@click.command()
@click.argument("plan_file", type=click.Path(path_type=Path), metavar="PLANFILE")
@click.option("--markdown", "markdown_file", type=FILE, metavar="FILE", help="Write it as Markdown, too.")
@click.option("--html", "html_file", type=FILE, metavar="FILE", help="Write it as a page, too.")
@json_option
def command(plan_file: Path, markdown_file: Path | None, html_file: Path | None, as_json: bool) -> int:
    """Show a plan that repl plan --out saved, its digest, and whether it is signed."""
    from planner.cli.view import failing_as_json, output, print_lines, write_reports
    from planner.workflows.applying.apply import open_plan

    with failing_as_json(as_json):
        opened = open_plan(plan_file)
        write_reports(opened.plan, markdown_file, html_file)
        output(opened.plan, as_json=as_json, signature=opened.signature.value)
        if not as_json:
            lines = (f"Plan digest: {opened.digest}", f"Plan signature: {opened.signature.value}")
            print_lines(iter(lines))
    return ExitCode.DONE
