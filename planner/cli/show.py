"""`repl show PLANFILE`: the saved plan again, without a cluster."""

from pathlib import Path

import click

from planner.cli.options import json_option
from planner.cli.plan_output import failing_as_json, output, print_lines, write_reports
from planner.model.diagnostic import ExitCode
from planner.state import planfile
from planner.state.signature import key_of

FILE = click.Path(path_type=Path, dir_okay=False)


@click.command()
@click.argument("plan_file", type=click.Path(path_type=Path), metavar="PLANFILE")
@click.option("--markdown", "markdown_file", type=FILE, metavar="FILE", help="Write it as Markdown, too.")
@click.option("--html", "html_file", type=FILE, metavar="FILE", help="Write it as a page, too.")
@json_option
def command(plan_file: Path, markdown_file: Path | None, html_file: Path | None, as_json: bool) -> int:
    """Show a plan that repl plan --out saved, its digest, and whether it is signed."""
    with failing_as_json(as_json):
        saved = planfile.load(plan_file)
        signature = saved.checked_with(key_of())
        plan = saved.agreed()
        write_reports(plan, markdown_file, html_file)
        output(plan, as_json=as_json, signature=signature.value)
        if not as_json:
            print_lines(iter([f"Plan digest: {saved.digest}", f"Plan signature: {signature.value}"]))
    return ExitCode.DONE
