"""`repl history`: who applied what, when, and how it ended, as the clusters remember it."""

from collections.abc import Mapping
from pathlib import Path

import click

from planner.cli import as_json as json_output
from planner.cli.app import show
from planner.cli.endpoints import endpoints_of
from planner.cli.options import json_option, topology_path, var_file_option
from planner.config import load
from planner.kafka import ClusterEndpoint
from planner.model.diagnostic import ExitCode, Failure, error, warning
from planner.model.observed import Unreachable
from planner.model.outcome import ApplyRecord
from planner.model.topology import Cluster
from planner.observe import Observer
from planner.render.reports import history as text
from planner.state.history import merge, read_history
from planner.state.planfile import step_of


@click.command()
@topology_path
@var_file_option
@click.option("--id", "apply_id", metavar="ID", help="One apply with every step of it.")
@json_option
def command(path: Path, var_files: tuple[Path, ...], apply_id: str | None, as_json: bool) -> int:
    """Show who applied what, when, and how it ended.

    Each cluster remembers the applies that wrote to it; a cluster that does not answer is left out and named.
    """
    topology = load(path, var_files)
    history = histories(topology.clusters, endpoints_of(topology.clusters.values()))
    if apply_id is not None:
        history = (find(history, apply_id),)
    if as_json:
        json_output.emit(text.as_json(history, with_steps=apply_id is not None))
    elif apply_id is not None:
        click.echo(text.one_text(history[0]))
    elif history:
        _table(history)
    else:
        click.echo("Nothing was applied yet.")
    return ExitCode.DONE


def histories(
    clusters: Mapping[str, Cluster], endpoints: Mapping[str, ClusterEndpoint]
) -> tuple[ApplyRecord, ...]:
    """All that the clusters remember, together. Failure where one is not the pinned one."""
    with Observer(clusters, endpoints) as observer:
        found = observer.identities()
    told = []
    problems = []
    for name, one in found.items():
        if isinstance(one, Unreachable):
            problems.append(error(f"{name} can't be read: {one.why}", one.way_out))
            continue
        try:
            told.append(read_history(endpoints[name], step_of, lambda one: show([one])))
        except Failure as failure:
            problems += list(failure.diagnostics)
    if not told and problems:
        raise Failure(problems)
    show([warning(one.summary, one.way_out) for one in problems])
    return merge(told)


def find(history: tuple[ApplyRecord, ...], apply_id: str) -> ApplyRecord:
    """By its id or an unmistakable beginning of it."""
    found = [one for one in history if one.id.startswith(apply_id)]
    if len(found) == 1:
        return found[0]
    what = "several applies begin" if found else "no apply begins"
    raise Failure(error(f"{what} with {apply_id!r}", "repl history lists their ids"))


def _table(history: tuple[ApplyRecord, ...]) -> None:
    from rich.table import Table
    from rich.text import Text

    from planner.cli.printing import console, terminal_width

    table = Table(box=None, pad_edge=False, header_style="bold")
    for name in ("ID", "STARTED", "BY", "TOPOLOGY", "MODE", "RESULT", "STEPS", "COMMIT"):
        table.add_column(name, no_wrap=True)
    for row in text.rows(history):
        table.add_row(*map(Text, row))
    # A row that is wider than the terminal is wrapped by it: an id that is cut can't be copied.
    console(max(terminal_width() or 0, 160)).print(table, soft_wrap=True)
