"""`repl read`: what a cluster holds, or records with their provenance."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from planner.cli.options import json_option, timeout_option, topology_path_after, var_file_option
from planner.cli.output import emit, new_file, say
from planner.model.diagnostic import ExitCode

if TYPE_CHECKING:
    from planner.workflows.audit.reading import Start

FORMAT_VERSION = 1
DEFAULT_LIMIT = 10
_MOST = 100_000


class StartParam(click.ParamType["Start"]):
    """`earliest`, `latest`, `PARTITION:OFFSET`, or a time as in a topology."""

    name = "from"

    def convert(self, value: object, param: click.Parameter | None, ctx: click.Context | None) -> Start:
        from planner.config.language.scalars import NotReadable, moment
        from planner.workflows.audit.reading import (
            ReadFromEarliest,
            ReadFromOffset,
            ReadFromTimestamp,
            ReadNewest,
        )

        text = str(value)
        partition, colon, offset = text.partition(":")
        if text == "earliest":
            return ReadFromEarliest()
        if text == "latest":
            return ReadNewest()
        if colon and partition.isdecimal() and offset.isdecimal():
            return ReadFromOffset(int(partition), int(offset))
        try:
            return ReadFromTimestamp(moment(text))
        except NotReadable:
            self.fail(
                f'"{text}" is none of earliest, latest, PARTITION:OFFSET, 2026-01-31T12:00:00Z', param, ctx
            )


@click.command()
@click.argument("cluster")
@click.argument("topic", required=False)
@click.option(
    "--limit",
    type=click.IntRange(1, _MOST),
    default=DEFAULT_LIMIT,
    show_default=True,
    metavar="N",
    help="At most this many records.",
)
@click.option(
    "--from",
    "start",
    type=StartParam(),
    default="latest",
    show_default=True,
    metavar="WHERE",
    help="latest: the last N. Or the first N from earliest, PARTITION:OFFSET, or a time on.",
)
@click.option("--full", is_flag=True, help="Show long values in full.")
@click.option(
    "--export",
    type=click.Path(path_type=Path, dir_okay=False),
    metavar="FILE",
    help="Write the records into a new file, each as a line of JSON: a sample for repl drill and try.",
)
@topology_path_after("topic")
@var_file_option
@timeout_option
@json_option
def command(
    cluster: str,
    topic: str | None,
    limit: int,
    start: Start,
    full: bool,
    export: Path | None,
    path: Path,
    var_files: tuple[Path, ...],
    timeout: int,
    as_json: bool,
) -> int:
    """Show what CLUSTER holds and how far each flow has copied into it, or committed records of TOPIC.

    Each record is shown with its provenance. CLUSTER is a name of the topology. With --export, records are
    written to a file and not shown.
    """
    from msgspec import to_builtins

    from planner.cli.console import print_lines
    from planner.render.reports import records as rendered
    from planner.workflows.audit.reading import ClusterRequest, cluster_content, records

    if export is not None and as_json:
        raise click.UsageError("--export writes JSON into a file: leave --json out")
    request = ClusterRequest(path, var_files, timeout, cluster=cluster, topic=topic)
    if topic is None:
        if export is not None:
            raise click.UsageError("--export goes with a topic: repl read CLUSTER TOPIC --export FILE")
        held = cluster_content(request)
        if as_json:
            emit({"format_version": FORMAT_VERSION, **to_builtins(held)})
        else:
            print_lines(lambda width: rendered.cluster_screen(held, width))
        return ExitCode.DONE
    if export is not None:
        with new_file(export) as write:
            seen = records(request, start, limit)
            for line in rendered.export_lines(seen):
                write(line)
        say(f"{len(seen.records):,} records of {topic} at {cluster} written to {export}", err=True)
        return ExitCode.DONE
    seen = records(request, start, limit)
    if as_json:
        emit({"format_version": FORMAT_VERSION, **rendered.document(seen)})
    else:
        print_lines(lambda _: rendered.screen(seen, full=full))
    return ExitCode.DONE
