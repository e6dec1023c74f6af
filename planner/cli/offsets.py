"""`repl offsets`: a consumer group's offsets at both sides of a flow."""

from pathlib import Path

import click

from planner.cli.options import json_option, timeout_option, topology_path, var_file_option
from planner.cli.output import emit
from planner.model.diagnostic import ExitCode

FORMAT_VERSION = 1


@click.command()
@click.argument("flow")
@click.argument("group")
@topology_path
@var_file_option
@timeout_option
@json_option
def command(
    flow: str, group: str, path: Path, var_files: tuple[Path, ...], timeout: int, as_json: bool
) -> int:
    """Show a consumer group's offsets at the source and at the destination, per partition.

    They are translated now, from the ledger: right also when no job runs. Where the source does not answer,
    its side is what the job's last checkpoints say.
    """
    from msgspec import to_builtins

    from planner.cli.console import print_lines
    from planner.render.reports.offsets import screen
    from planner.workflows.audit.reading import OffsetsRequest, offsets

    seen = offsets(OffsetsRequest(path, var_files, timeout, flow=flow, group=group))
    if as_json:
        emit({"format_version": FORMAT_VERSION, **to_builtins(seen)})
    else:
        print_lines(lambda width: screen(seen, width))
    return ExitCode.DONE
