"""`repl failback`: what was written at the destination is copied back; then the flows run as before."""

from pathlib import Path

import click

from planner.cli.options import (
    auto_approve_option,
    copied_within_option,
    json_option,
    lock_timeout_option,
    topology_path,
    var_file_option,
)


@click.command()
@click.argument("cluster")
@topology_path
@var_file_option
@click.option(
    "--switch", is_flag=True, help="All records are copied back: make the original flows active again."
)
@auto_approve_option
@lock_timeout_option
@copied_within_option
@click.option("--no-wait", is_flag=True, help="Do not wait until all records are copied back.")
@json_option
def command(
    cluster: str,
    path: Path,
    var_files: tuple[Path, ...],
    switch: bool,
    auto_approve: bool,
    lock_timeout: int,
    timeout: int,
    no_wait: bool,
    as_json: bool,
) -> int:
    """Copy back to CLUSTER what was written at the destinations since its flows were promoted or failed over.

    Adds a reverse flow (NAME-back) for each such flow to the topology, plans, asks, applies, and waits
    until all records are copied back that the destinations hold then. Producers may go on writing there.
    Then stop them and run it again with --switch: the reverse flows are promoted, consumer groups move to
    CLUSTER, and the original flows are active again. Run it again after an interruption.
    """
    from planner.cli.view import TerminalView, interaction
    from planner.workflows.flows.failover import FailbackRequest, failback, switch_back

    request = FailbackRequest(
        path,
        var_files,
        lock_timeout_ms=lock_timeout,
        wait=not no_wait,
        cluster=cluster,
        copied_within_ms=timeout,
    )
    view = interaction(TerminalView(as_json=as_json), auto_approve=auto_approve)
    if switch:
        switched = switch_back(request, view)
        if switched.applied.complete:
            click.echo(f"Next: start the consumers at {cluster}, then the producers", err=True)
        return switched.applied.exit_code
    returned = failback(request, view)
    if returned.switch_follows:
        step = f"stop the producers at {returned.destination}, then repl failback {cluster} --switch"
        click.echo(f"Next: {step}", err=True)
    return returned.applied.exit_code
