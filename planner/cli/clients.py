"""`repl clients`: the producers and consumer groups of a cluster's topics."""

from pathlib import Path

import click

from planner.cli.options import (
    DurationParam,
    json_option,
    timeout_option,
    topology_path_after,
    var_file_option,
)
from planner.cli.output import emit
from planner.model.diagnostic import ExitCode

FORMAT_VERSION = 1


@click.command()
@click.argument("cluster")
@click.argument("topic", required=False)
@click.option(
    "--over",
    type=DurationParam(),
    default="0s",
    metavar="DURATION",
    help="Read twice, this far apart, to show how fast groups consume; longer than their commit interval.",
)
@topology_path_after("topic")
@var_file_option
@timeout_option
@json_option
def command(
    cluster: str,
    topic: str | None,
    over: int,
    path: Path,
    var_files: tuple[Path, ...],
    timeout: int,
    as_json: bool,
) -> int:
    """Show which groups consume from each topic of CLUSTER, and which producers write to it.

    Groups with members, client ids, hosts and lag; producers as the brokers remember them. CLUSTER is a name
    of the topology.
    """
    from planner.cli.console import print_lines
    from planner.render.reports.clients import document, screen
    from planner.workflows.audit.reading import ClusterRequest, clients

    seen = clients(ClusterRequest(path, var_files, timeout, cluster=cluster, topic=topic), over)
    if as_json:
        emit({"format_version": FORMAT_VERSION, **document(seen)})
    else:
        print_lines(lambda width: screen(seen, width))
    return ExitCode.DONE
