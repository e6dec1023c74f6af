"""`repl ui`: pages for a browser over what status, plan, history and offsets know."""

from pathlib import Path

import click

from planner.cli.options import (
    every_option,
    json_option,
    timeout_option,
    topology_path,
    var_file_option,
)
from planner.cli.output import emit_event
from planner.model.diagnostic import ExitCode

FORMAT_VERSION = 1


@click.command()
@topology_path
@var_file_option
@click.option(
    "--port",
    type=click.IntRange(0, 65_535),
    default=8080,
    show_default=True,
    help="The port to listen on; 0 takes a free one.",
)
@click.option(
    "--address",
    default="127.0.0.1",
    show_default=True,
    help="The address to listen on. Any but loopback needs --token-file, and TLS in front.",
)
@click.option(
    "--token-file",
    type=click.Path(path_type=Path),
    default=None,
    metavar="FILE",
    help="A file with the token that viewers must have.",
)
@click.option(
    "--allow-host",
    "hosts",
    multiple=True,
    metavar="NAME",
    help="A name that browsers reach the server by, such as that of a proxy in front; repeatable.",
)
@click.option(
    "--reports",
    type=click.Path(path_type=Path, file_okay=False),
    metavar="DIR",
    help="Where reports of drills are stored.  [default: .repl/drills beside the topology]",
)
@every_option("How often the clusters are read.")
@timeout_option
@json_option
def command(
    path: Path,
    var_files: tuple[Path, ...],
    port: int,
    address: str,
    token_file: Path | None,
    hosts: tuple[str, ...],
    reports: Path | None,
    every: int,
    timeout: int,
    as_json: bool,
) -> int:
    """Serve live pages: whether it is safe to fail over, and why not; flows, jobs, groups, plan, history.

    They are read-only, and read the clusters as status, plan, history and offsets do. Ctrl-C ends it.
    Exit code: 1 where the topology has errors, the port is taken or a token is missing, 130 interrupted.
    """
    from planner.ui.server import ListenRequest, access_policy, listen, serve, site_of, url_of
    from planner.workflows.topology import TopologyRequest

    asked = ListenRequest(address, port, token_file, hosts)
    policy = access_policy(asked)
    watched = TopologyRequest(path, var_files, timeout)
    site = site_of(watched, policy, every, lambda text: click.echo(text, err=True), reports)
    listening = listen(asked)
    url = url_of(listening)
    if as_json:
        emit_event({"format_version": FORMAT_VERSION, "url": url, "token": policy.token is not None})
    else:
        click.echo(f"{url} shows {path}. Ctrl-C ends it.")
    if policy.token is not None:
        click.echo("The token and the pages travel in clear text: put TLS in front of this server.", err=True)
    serve(site, listening)
    return ExitCode.DONE
