"""`repl salvage`: what the old primary holds and never sent."""

import os
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import click

from planner.cli import as_json as json_output
from planner.cli.known import flow_of
from planner.cli.options import (
    auto_approve_option,
    json_option,
    lock_timeout_option,
    timeout_option,
    topology_path,
    var_file_option,
)
from planner.config import load
from planner.model.diagnostic import ExitCode, Failure, error
from planner.model.topology import Flow, Topology
from runtime.contract.views.salvage_view import SalvagedRecord, SalvageView

if TYPE_CHECKING:
    from runtime.audit.salvage.salvage import SalvageRequest

FORMAT_VERSION = 1


@click.command()
@click.argument("flow")
@click.option(
    "--export",
    type=click.Path(path_type=Path, dir_okay=False),
    metavar="FILE",
    help="Write every record as a line of JSON into a new file.",
)
@click.option("--replay", is_flag=True, help="Copy them into the flow's own topic at the destination.")
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
    if to is not None and not replay:
        raise click.UsageError("--to goes with --replay")
    if replay and export is not None:
        raise click.UsageError("--export and --replay are two commands")
    topology = load(path, var_files)
    declared = flow_of(topology, flow)
    if not replay:
        return _shown(_asked(topology, declared, timeout), export, as_json=as_json)
    from planner.cli.salvage_replay import ReplayCommand, refuse_while_running
    from planner.cli.salvage_replay import replay as replayed

    refuse_while_running(declared)
    replaying = ReplayCommand(topology, declared, to, auto_approve, lock_timeout, as_json)
    asked = _asked(topology, declared, timeout)
    return replayed(replaying, asked, lambda: _salvaged(asked, lambda _: None))


def _shown(asked: "SalvageRequest", export: Path | None, *, as_json: bool) -> int:
    from planner.cli.printing import print_lines
    from planner.render.reports.salvage import as_json as document
    from planner.render.reports.salvage import screen

    with _exported(export) as take:
        seen = _salvaged(asked, take)
        if seen.unread and export is not None:
            why = next(f"{one.topic}-{one.partition}: {one.unread}" for one in seen.partitions if one.unread)
            raise Failure(
                error(f"{export} was not written: {why}", "without --export, what was read is shown")
            )
    if as_json:
        json_output.emit({"format_version": FORMAT_VERSION, **document(seen)})
    else:
        print_lines(lambda width: screen(seen, width))
    if export is not None:
        click.echo(f"{seen.records:,} records written to {export}", err=True)
    return ExitCode.ERROR if seen.unread else ExitCode.DONE


def _asked(topology: Topology, flow: Flow, timeout: int) -> "SalvageRequest":
    from planner.cli.flow_specs import flow_spec
    from planner.graph.routes import router_of
    from runtime.audit.salvage.salvage import SalvageRequest

    spec, clusters = flow_spec(topology, flow, timeout)
    source, destination = clusters[spec.source], clusters[spec.destination]
    return SalvageRequest(spec, source, destination, router_of(topology), timeout / 1000)


def _salvaged(asked: "SalvageRequest", take: Callable[[SalvagedRecord], None]) -> SalvageView:
    from planner.cli.answers import answered
    from runtime.audit.salvage.salvage import salvage

    return answered(salvage(asked, take))


@contextmanager
def _exported(file: Path | None) -> Iterator[Callable[[SalvagedRecord], None]]:
    """The whole file is there in the end, or none."""
    if file is None:
        yield lambda _: None
        return
    from planner.render.reports.salvage import line

    if file.exists():
        raise Failure(error(f"{file} is there already", "name a new file"))
    try:
        with tempfile.NamedTemporaryFile(
            "w", encoding="utf-8", dir=file.absolute().parent, prefix=f".{file.name}.", delete=False
        ) as begun:
            try:
                yield lambda record: _write(begun.write, line(record))
                begun.flush()
                os.fsync(begun.fileno())
                os.link(begun.name, file)  # unlike a rename, it never takes the place of another file
            finally:
                Path(begun.name).unlink()
    except OSError as problem:
        raise Failure(
            error(f"{file} can't be written: {problem.strerror or problem}", "name another")
        ) from None


def _write(write: Callable[[str], int], text: str) -> None:
    write(text)
