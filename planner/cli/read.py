"""`repl read`: what a cluster holds, and records with where they came from."""

from pathlib import Path

import click

from planner.cli import as_json as json_output
from planner.cli.options import json_option, timeout_option, topology_path_after, var_file_option
from planner.config import load
from planner.model.diagnostic import ExitCode
from runtime.audit.read.records import ReadFromEarliest, ReadFromOffset, ReadFromTimestamp, ReadNewest, Start

FORMAT_VERSION = 1
DEFAULT_LIMIT = 10
_MOST = 100_000


class StartParam(click.ParamType[Start]):
    """`earliest`, `latest`, `PARTITION:OFFSET`, or a time as in a topology."""

    name = "from"

    def convert(self, value: object, param: click.Parameter | None, ctx: click.Context | None) -> Start:
        from planner.config.language.scalars import NotReadable, moment

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
    help="At most so many records.",
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
@click.option("--full", is_flag=True, help="Long values to their end.")
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
    path: Path,
    var_files: tuple[Path, ...],
    timeout: int,
    as_json: bool,
) -> int:
    """Show what CLUSTER holds and how far each flow has come there, or records of TOPIC.

    Each committed record with its provenance. CLUSTER is a name of the topology.
    """
    from planner.cli.answers import answered
    from planner.cli.printing import print_lines
    from planner.cli.reading import read_asked
    from planner.render.reports import read as rendered
    from runtime.audit.read.reading import read_cluster
    from runtime.audit.read.records import read_records

    asked = read_asked(load(path, var_files), cluster)
    if topic is None:
        held = answered(read_cluster(asked, timeout / 1000))
        if as_json:
            json_output.emit({"format_version": FORMAT_VERSION, **rendered.cluster_json(held)})
        else:
            print_lines(lambda width: rendered.cluster_screen(held, width))
        return ExitCode.DONE
    seen = answered(read_records(asked, topic, start, limit, timeout / 1000))
    if as_json:
        json_output.emit({"format_version": FORMAT_VERSION, **rendered.records_json(seen)})
    else:
        print_lines(lambda _: rendered.records_screen(seen, full=full))
    return ExitCode.DONE
