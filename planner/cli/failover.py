"""`repl failover`: a cluster is given up; its flows end with what arrived."""

from __future__ import annotations

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
from planner.model.diagnostic import ExitCode

if TYPE_CHECKING:
    from planner.workflows.flows.failover import FailoverRehearsal


@click.command()
@click.argument("cluster")
@topology_path
@var_file_option
@click.option("--rehearse", is_flag=True, help="Show the cost and how long it takes; change nothing.")
@auto_approve_option
@lock_timeout_option
@timeout_option
@json_option
def command(
    cluster: str,
    path: Path,
    var_files: tuple[Path, ...],
    rehearse: bool,
    auto_approve: bool,
    lock_timeout: int,
    timeout: int,
    as_json: bool,
) -> int:
    """Fail over from the lost CLUSTER: end its flows, and move their consumer groups to the destinations.

    Shows what is lost and the plan, asks, and applies. Writes state: failed_over into the topology.
    CLUSTER need not answer, and is waited for 3 s at most. Run it again after an interruption: it
    finishes the rest. Consumers at a destination need isolation.level=read_committed.
    """
    from planner.cli.view import TerminalView, interaction
    from planner.workflows.flows.failover import FailoverRequest, failover, rehearse_failover

    request = FailoverRequest(path, var_files, timeout, lock_timeout_ms=lock_timeout, cluster=cluster)
    view = TerminalView(as_json=as_json)
    if rehearse:
        _show(rehearse_failover(request, view), as_json=as_json)
        return ExitCode.DONE
    return failover(request, interaction(view, auto_approve=auto_approve)).applied.exit_code


def _show(rehearsal: FailoverRehearsal, *, as_json: bool) -> None:
    from planner.cli.console import print_lines
    from planner.cli.view import emit_structs, print_subscriptions
    from planner.render.reports.loss import duration_line, group_lines

    if as_json:
        emit_structs("group", rehearsal.groups)
        return
    click.echo("What becomes of the groups, by partitions:")
    print_lines(lambda width: group_lines(rehearsal.groups, width))
    print_subscriptions(rehearsal.subscriptions)
    click.echo(f"\n{duration_line(rehearsal.jobs)}")
    click.echo("Nothing was changed.")
