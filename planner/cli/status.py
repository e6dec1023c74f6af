"""`repl status`: how replication stands, read from the data."""

import asyncio
from pathlib import Path
from typing import TYPE_CHECKING

import click

from planner.cli import as_json as json_output
from planner.cli.options import DurationParam, json_option, timeout_option, topology_path, var_file_option
from planner.config import load
from planner.model.diagnostic import ExitCode

if TYPE_CHECKING:
    from runtime.contract.views.status_view import StatusView

FORMAT_VERSION = 1


@click.command()
@topology_path
@var_file_option
@click.option("--watch", is_flag=True, help="Look again and again until Ctrl-C, with what came before.")
@click.option(
    "--every",
    type=DurationParam(),
    default="2s",
    show_default=True,
    metavar="DURATION",
    help="How often --watch looks.",
)
@click.option(
    "--over",
    type=DurationParam(),
    default="1s",
    show_default=True,
    metavar="DURATION",
    help="How long to count for the rates; 0s looks once and tells none.",
)
@click.option("--topics", is_flag=True, help="A line for each topic, too.")
@click.option("--all", "every_partition", is_flag=True, help="A line for each partition, too.")
@timeout_option
@json_option
def command(
    path: Path,
    var_files: tuple[Path, ...],
    watch: bool,
    every: int,
    over: int,
    topics: bool,
    every_partition: bool,
    timeout: int,
    as_json: bool,
) -> int:
    """Show jobs, flows, lag, rates and latency, and which partitions need someone.

    All of it is read from the clusters: right also when a job is dead, or when one datacenter is down.
    Exit code: 0 done, 1 where a destination could not be read (the rest is shown).
    """
    from planner.cli.status_asking import asked_of
    from planner.render.status.screen import DetailLevel
    from runtime.audit.status.reader import read_status

    asked = asked_of(load(path, var_files))
    depth = DetailLevel.PARTITIONS if every_partition else DetailLevel.TOPICS if topics else DetailLevel.FLOWS
    if watch:
        from planner.cli.status_watch import watch as follow

        asyncio.run(follow(asked, every / 1000, timeout / 1000, depth, as_json=as_json))
        return ExitCode.DONE
    status = asyncio.run(read_status(asked, over / 1000, timeout / 1000))
    if as_json:
        json_output.emit(document(status))
    elif status.flows:
        show(status, depth)
    else:
        click.echo(f"{status.topology} declares no flow: there is nothing to replicate.")
    return exit_code(status)


def document(status: "StatusView") -> dict[str, object]:
    import msgspec

    return {"format_version": FORMAT_VERSION, **msgspec.to_builtins(status)}


def exit_code(status: "StatusView") -> int:
    return ExitCode.DONE if all(flow.destination_answers for flow in status.flows) else ExitCode.ERROR


def show(status: "StatusView", depth: "object") -> None:
    from planner.cli.printing import print_lines
    from planner.render.status.screen import DetailLevel, screen

    assert isinstance(depth, DetailLevel)
    print_lines(lambda width: screen(status, width, depth))
