"""`repl apply`: executes a saved plan exactly, or plans, shows, asks, and then executes."""

from pathlib import Path

import click

from planner.cli.options import (
    auto_approve_option,
    json_option,
    lock_timeout_option,
    policy_option,
    target_option,
    timeout_option,
    topology_path,
    var_file_option,
)


@click.command()
@topology_path
@var_file_option
@policy_option
@target_option
@auto_approve_option
@lock_timeout_option
@timeout_option
@click.option(
    "--expect",
    metavar="DIGEST",
    help="Refuse any other saved plan than this one: the sha256:... that repl plan printed.",
)
@click.option("--no-wait", is_flag=True, help="Do not wait until launched jobs really copy.")
@json_option
def command(
    path: Path,
    var_files: tuple[Path, ...],
    policies: tuple[Path, ...],
    targets: tuple[str, ...],
    auto_approve: bool,
    lock_timeout: int,
    timeout: int,
    expect: str | None,
    no_wait: bool,
    as_json: bool,
) -> int:
    """Make the clusters match the topology, or execute a saved plan exactly.

    PATH is a topology's file or folder, or a plan that `repl plan --out` wrote; a plan is known by its
    content. A topology is planned, shown and asked about; a saved plan was approved already. With
    REPL_PLAN_KEY (or REPL_PLAN_KEY_FILE) set, a saved plan must be signed with that key.
    """
    from planner.cli.view import TerminalView, interaction
    from planner.workflows.applying.apply import ApplyRequest, apply

    request = ApplyRequest(
        path,
        var_files,
        timeout,
        policies,
        lock_timeout_ms=lock_timeout,
        wait=not no_wait,
        targets=targets,
        expect=expect,
    )
    return apply(request, interaction(TerminalView(as_json=as_json), auto_approve=auto_approve)).exit_code
