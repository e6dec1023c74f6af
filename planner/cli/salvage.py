"""`repl salvage`: what the old primary holds and never sent."""

import asyncio
import os
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import click

from planner.cli import as_json as json_output
from planner.cli.offsets import flow_of, unreadable
from planner.cli.options import json_option, path_option, timeout_option, var_file_option
from planner.declare import load
from planner.model.diagnostic import ExitCode, Failure, error
from runtime.contract.seen_salvage import Salvaged, SalvageSeen

FORMAT_VERSION = 1


@click.command()
@click.argument("flow")
@click.option(
    "--export",
    type=click.Path(path_type=Path, dir_okay=False),
    metavar="FILE",
    help="Write every record as a line of JSON into a new file.",
)
@path_option
@var_file_option
@timeout_option
@json_option
def command(
    flow: str, export: Path | None, path: Path, var_files: tuple[Path, ...], timeout: int, as_json: bool
) -> int:
    """Show the records of FLOW's source that never reached the other side.

    By the ledger: what is committed at the source, lies beyond what the flow copied or was given up, and was
    not kept back by provenance. Nothing is changed anywhere.
    """
    from planner.cli.printing import print_lines
    from planner.render.salvage import as_json as document
    from planner.render.salvage import screen

    with _exported(export) as take:
        seen = _salvaged(flow, path, var_files, timeout, take)
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


def _salvaged(
    flow: str, path: Path, var_files: tuple[Path, ...], timeout: int, take: Callable[[Salvaged], None]
) -> SalvageSeen:
    from planner.cli.flow_specs import flow_spec
    from planner.expand.routes import router_of
    from runtime.audit.ledger import AuditFailure
    from runtime.audit.salvage import SalvageAsked, salvage

    topology = load(path, var_files)
    spec, clusters = flow_spec(topology, flow_of(topology, flow), timeout)
    source, destination = clusters[spec.source], clusters[spec.destination]
    asked = SalvageAsked(spec, source, destination, router_of(topology), timeout / 1000)
    try:
        return asyncio.run(salvage(asked, take))
    except AuditFailure as failure:
        raise Failure(error(str(failure), unreadable(failure.cluster))) from None


@contextmanager
def _exported(file: Path | None) -> Iterator[Callable[[Salvaged], None]]:
    """The whole file is there in the end, or none."""
    if file is None:
        yield lambda _: None
        return
    from planner.render.salvage import line

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
