"""`repl restore`: a backup in raw files is brought back into a cluster, as a plan."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from planner.cli.options import (
    PatternParam,
    auto_approve_option,
    json_option,
    lock_timeout_option,
    timeout_option,
    topology_path,
    var_file_option,
)

if TYPE_CHECKING:
    from planner.cli.view import TerminalView
    from planner.workflows.flows.restoring import RestoreBackupRequest

FILE = click.Path(path_type=Path, dir_okay=False)


class MomentParam(click.ParamType[int]):
    """`2026-01-31T23:59:59Z` → milliseconds since 1970, as in a topology."""

    name = "time"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        from planner.config.language.scalars import NotReadable, moment

        if isinstance(value, int):
            return value
        try:
            return moment(str(value))
        except NotReadable as wrong:
            self.fail(f'"{value}" is {wrong.what}: {wrong.hint}', param, ctx)


@click.command()
@click.argument("endpoint")
@topology_path
@var_file_option
@click.option("--to", required=True, metavar="CLUSTER", help="The cluster of the topology to restore into.")
@click.option(
    "--until",
    type=MomentParam(),
    metavar="TIME",
    help="End each partition before its first record that is later, such as 2026-01-31T12:00:00Z.",
)
@click.option(
    "--topics", type=PatternParam(), default=".*", metavar="RE", help="Only topics whose whole name matches."
)
@click.option("--prefix", metavar="P", help="Put P before the name of each topic.")
@click.option("--rename", metavar="TEXT", help="Name each topic TEXT, which holds {topic}: {topic}.restored.")
@click.option(
    "--groups",
    type=PatternParam(),
    metavar="RE",
    help="Restore the offsets of groups that match.  [default: all; none where topics are renamed]",
)
@click.option("--acls", is_flag=True, help="Restore ACLs of the topics too.")
@click.option(
    "--no-retention", "no_retention", is_flag=True, help="Keep all records: set retention to no limit."
)
@click.option("--flow", metavar="FLOW", help="The flow whose backup it is, where the endpoint holds several.")
@click.option(
    "--out", type=FILE, metavar="FILE", help="Save the plan and change nothing; repl apply FILE executes it."
)
@click.option("--markdown", "markdown_file", type=FILE, metavar="FILE", help="Write the plan as Markdown.")
@click.option("--html", "html_file", type=FILE, metavar="FILE", help="Write the plan as a page.")
@auto_approve_option
@lock_timeout_option
@timeout_option
@json_option
def command(
    endpoint: str,
    path: Path,
    var_files: tuple[Path, ...],
    to: str,
    until: int | None,
    topics: str,
    prefix: str | None,
    rename: str | None,
    groups: str | None,
    acls: bool,
    no_retention: bool,
    flow: str | None,
    out: Path | None,
    markdown_file: Path | None,
    html_file: Path | None,
    auto_approve: bool,
    lock_timeout: int,
    timeout: int,
    as_json: bool,
) -> int:
    """Restore the backup at ENDPOINT: topics, records and the offsets of consumer groups.

    Shows the plan, asks, and applies it; every record is compared with the backup in the end. With --out,
    --markdown or --html it writes the plan and changes nothing. Run it again after an interruption: it
    continues where it was. The folder of the endpoint must be mounted here, or its object store reachable.

    Exit code: 0 done, 1 an error, 3 refused, for example because a topic exists and holds records.
    """
    from planner.cli.view import TerminalView, interaction
    from planner.workflows.flows.restoring import RestoreBackupRequest, restore

    if prefix is not None and rename is not None:
        raise click.UsageError("--prefix and --rename both name the topics: give one of them")
    if rename is not None and rename.count("{topic}") != 1:
        raise click.UsageError("--rename holds {topic} once, such as {topic}.restored")
    request = RestoreBackupRequest(
        path,
        var_files,
        timeout,
        lock_timeout_ms=lock_timeout,
        endpoint=endpoint,
        to=to,
        flow=flow,
        until_ms=until,
        topics=topics,
        rename=rename or f"{prefix or ''}{{topic}}",
        groups=groups,
        acls=acls,
        retention=not no_retention,
    )
    view = TerminalView(as_json=as_json)
    if out is not None or markdown_file is not None or html_file is not None:
        return _show(request, out, markdown_file, html_file, view, as_json=as_json)
    return restore(request, interaction(view, auto_approve=auto_approve)).exit_code


def _show(
    request: RestoreBackupRequest,
    out: Path | None,
    markdown_file: Path | None,
    html_file: Path | None,
    view: TerminalView,
    *,
    as_json: bool,
) -> int:
    from planner.cli.plan import save
    from planner.cli.view import exit_code, failing_as_json, output, reporting_failure, write_reports
    from planner.workflows.flows.restoring import plan_restore

    with failing_as_json(as_json):
        with reporting_failure(markdown_file):
            plan = plan_restore(request, view)
        write_reports(plan, markdown_file, html_file)
        output(plan, as_json=as_json)
        if out is not None:
            save(plan, out)
    return exit_code(plan, detailed=False)
