"""`repl destroy`: what the topology owns leaves it, guarded like any delete."""

from pathlib import Path

import click

from planner.cli.options import (
    auto_approve_option,
    json_option,
    lock_timeout_option,
    policy_option,
    timeout_option,
    topology_path,
    var_file_option,
)


@click.command()
@topology_path
@var_file_option
@policy_option
@auto_approve_option
@lock_timeout_option
@timeout_option
@json_option
def command(
    path: Path,
    var_files: tuple[Path, ...],
    policies: tuple[Path, ...],
    auto_approve: bool,
    lock_timeout: int,
    timeout: int,
    as_json: bool,
) -> int:
    """Stop the jobs, and delete what the topology owns with on_remove: delete.

    What was applied with on_remove: keep stays at the clusters and is only forgotten. Protection and
    policies.max_deletes guard this like any delete; of the latter only topics count here.
    """
    from planner.cli.view import TerminalView, interaction
    from planner.workflows.applying.apply import destroy
    from planner.workflows.topology import ChangeRequest

    request = ChangeRequest(path, var_files, timeout, policies, lock_timeout_ms=lock_timeout)
    return destroy(request, interaction(TerminalView(as_json=as_json), auto_approve=auto_approve)).exit_code
