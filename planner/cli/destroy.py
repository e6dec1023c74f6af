"""`repl destroy`: what the topology owns leaves it, guarded like any delete."""

from pathlib import Path

import click

from planner.cli.apply import execute
from planner.cli.apply_view import ApplyView
from planner.cli.options import (
    auto_approve_option,
    json_option,
    lock_timeout_option,
    timeout_option,
    topology_path,
    var_file_option,
)
from planner.cli.plan_output import show_plan
from planner.cli.validate import checked
from planner.diff.differ import declaring_nothing
from planner.plan import with_diagnostics
from planner.workflows.planning.observing import observe
from planner.workflows.planning.plans import destroy_plan


@click.command()
@topology_path
@var_file_option
@auto_approve_option
@lock_timeout_option
@timeout_option
@json_option
def command(
    path: Path,
    var_files: tuple[Path, ...],
    auto_approve: bool,
    lock_timeout: int,
    timeout: int,
    as_json: bool,
) -> int:
    """Stop the jobs, and delete what the topology owns with on_remove: delete.

    What was applied with on_remove: keep stays at the clusters and is only forgotten. Protection and
    policies.max_deletes guard this like any delete.
    """
    loaded = checked(path, var_files, may_declare_nothing=True)
    plan = destroy_plan(loaded.topology, observe(declaring_nothing(loaded.topology), timeout))
    plan = with_diagnostics(plan, loaded.warnings)
    show_plan(plan, as_json=as_json)
    return execute(
        plan,
        path,
        auto_approve=auto_approve,
        lock_timeout=lock_timeout,
        timeout=timeout,
        view=ApplyView(as_json=as_json),
    )
