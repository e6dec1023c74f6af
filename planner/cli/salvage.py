"""`repl salvage`: lists or replays the records that a source holds and never sent."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import click

from planner.cli.options import (
    auto_approve_option,
    json_option,
    lock_timeout_option,
    timeout_option,
    topology_path,
    var_file_option,
)
from planner.cli.output import emit, new_file
from planner.model.diagnostic import ExitCode, Failure, error

if TYPE_CHECKING:
    from planner.cli.view import TerminalView
    from planner.workflows.audit.comparison import ReplaySalvageRequest, SalvageFlowRequest
    from planner.workflows.interaction import Interaction
    from runtime.contract.views.records_view import SalvagedRecord

FORMAT_VERSION = 1


@click.command()
@click.argument("flow")
@click.option(
    "--export",
    type=click.Path(path_type=Path, dir_okay=False),
    metavar="FILE",
    help="Write every record as a line of JSON into a new file.",
)
@click.option("--replay", is_flag=True, help="Copy them into the flow's own topics at the destination.")
@click.option("--to", metavar="TOPIC", help="With --replay: into this topic of the destination.")
@topology_path
@var_file_option
@auto_approve_option
@lock_timeout_option
@timeout_option
@json_option
def command(
    flow: str,
    export: Path | None,
    replay: bool,
    to: str | None,
    path: Path,
    var_files: tuple[Path, ...],
    auto_approve: bool,
    lock_timeout: int,
    timeout: int,
    as_json: bool,
) -> int:
    """Show the records of FLOW's source that never reached its destination, or copy them there.

    These are the committed records that the flow did not copy, or that were given up, and that provenance did
    not filter. Without --replay it only reads. With --replay each of them is copied exactly once; its header
    __repl names its origin.
    """
    from planner.cli.view import TerminalView, interaction
    from planner.workflows.audit.comparison import ReplaySalvageRequest, SalvageFlowRequest

    if to is not None and not replay:
        raise click.UsageError("--to goes with --replay")
    if replay and export is not None:
        raise click.UsageError("--export and --replay are two commands")
    view = TerminalView(as_json=as_json)
    if not replay:
        return _list(SalvageFlowRequest(path, var_files, timeout, flow=flow), export, view, as_json=as_json)
    request = ReplaySalvageRequest(path, var_files, timeout, lock_timeout_ms=lock_timeout, flow=flow, to=to)
    return _replay(request, interaction(view, auto_approve=auto_approve), as_json=as_json)


def _replay(request: ReplaySalvageRequest, interaction: Interaction, *, as_json: bool) -> int:
    from planner.cli.console import print_lines
    from planner.render.reports.salvage import replay_document, replay_screen
    from planner.workflows.audit.comparison import replay_salvage

    result = replay_salvage(request, interaction)
    if as_json:
        emit({"format_version": FORMAT_VERSION, **replay_document(result.salvaged, request.to, result.parts)})
    elif result.parts:
        print_lines(lambda width: replay_screen(result.parts, width))
    return ExitCode.DONE if result.complete else ExitCode.ERROR


def _list(request: SalvageFlowRequest, export: Path | None, view: TerminalView, *, as_json: bool) -> int:
    from planner.cli.console import print_lines
    from planner.render.reports.salvage import document, screen
    from planner.workflows.audit.comparison import salvage

    with _exported(export) as take:
        seen = salvage(request, take, view)
        if seen.unread and export is not None:
            why = next(f"{one.topic}-{one.partition}: {one.unread}" for one in seen.partitions if one.unread)
            raise Failure(
                error(f"{export} was not written: {why}", "without --export, what was read is shown")
            )
    if as_json:
        emit({"format_version": FORMAT_VERSION, **document(seen)})
    else:
        print_lines(lambda width: screen(seen, width))
    if export is not None:
        click.echo(f"{seen.records:,} records written to {export}", err=True)
    return ExitCode.ERROR if seen.unread else ExitCode.DONE


@contextmanager
def _exported(file: Path | None) -> Iterator[Callable[[SalvagedRecord], None]]:
    """Writes each record as a line. In the end the whole file exists, or none."""
    from planner.workflows.audit.comparison import ignore_record

    if file is None:
        yield ignore_record
        return
    from planner.render.reports.salvage import line

    with new_file(file) as write:
        yield lambda record: write(line(record))
