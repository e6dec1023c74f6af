"""`repl doctor`: what a live cluster can do for flows."""

from pathlib import Path

import click

from planner.cli.options import json_option, timeout_option, topology_path_after, var_file_option
from planner.cli.output import emit
from planner.model.diagnostic import ExitCode

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
    from planner.cli.console import print_lines
    from planner.render.reports import doctor as rendered
    from planner.workflows.audit.reading import ClusterRequest, doctor

    report = doctor(ClusterRequest(path, var_files, timeout, cluster=cluster))
    if as_json:
        emit({"format_version": FORMAT_VERSION, **rendered.as_json(report)})
    else:
        print_lines(lambda width: rendered.screen(report, width))
    return ExitCode.DONE if report.can_be_source or report.can_be_destination else ExitCode.ERROR
