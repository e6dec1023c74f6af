"""`repl clients`: who writes and who reads the topics of a cluster."""

from pathlib import Path

import click

from planner.cli import as_json as json_output
from planner.cli.options import (
    DurationParam,
    json_option,
    timeout_option,
    topology_path_after,
    var_file_option,
)
from planner.config import load
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
    help="Look twice, so far apart, and tell how fast groups consume. Choose more than they commit by.",
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
    from planner.cli.answers import answered
    from planner.cli.printing import print_lines
    from planner.cli.reading import read_asked
    from planner.render.reports import clients as rendered
    from runtime.audit.read.clients import read_clients

    asked = read_asked(load(path, var_files), cluster)
    seen = answered(read_clients(asked, topic, over / 1000, timeout / 1000))
    if as_json:
        json_output.emit({"format_version": FORMAT_VERSION, **rendered.as_json(seen)})
    else:
        print_lines(lambda width: rendered.screen(seen, width))
    return ExitCode.DONE
