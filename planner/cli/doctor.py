"""`repl doctor`: what a live cluster can do for flows."""

from pathlib import Path

import click

from planner.cli import as_json as json_output
from planner.cli.options import json_option, timeout_option, topology_path_after, var_file_option
from planner.config import load
from planner.model.diagnostic import ExitCode, Failure, error

FORMAT_VERSION = 1


@click.command()
@click.argument("cluster")
@topology_path_after("cluster")
@var_file_option
@timeout_option
@json_option
def command(cluster: str, path: Path, var_files: tuple[Path, ...], timeout: int, as_json: bool) -> int:
    """Show what CLUSTER can do for flows: versions, features, rights, clock and round trip.

    Every broker is asked, and nothing is changed. The exit code is 1 where no flow can copy from the cluster
    or to it. CLUSTER is a name of the topology.
    """
    from planner.cli.endpoints import endpoints_of
    from planner.cli.known import cluster_of
    from planner.cli.printing import print_lines
    from planner.kafka.connections import WireFailure
    from planner.observe.doctor import examine
    from planner.render.reports import doctor as rendered

    known = cluster_of(load(path, var_files), cluster)
    try:
        report = examine(endpoints_of([known])[cluster], timeout / 1000)
    except WireFailure as failure:
        raise Failure(error(f"{cluster}: {failure.why}", failure.way_out)) from None
    if as_json:
        json_output.emit({"format_version": FORMAT_VERSION, **rendered.as_json(report)})
    else:
        print_lines(lambda width: rendered.screen(report, width))
    return ExitCode.DONE if report.can_be_source or report.can_be_destination else ExitCode.ERROR
