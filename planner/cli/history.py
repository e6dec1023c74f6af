"""`repl history`: who applied what, when, and how it ended, as the clusters remember it."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from planner.cli.options import json_option, topology_path, var_file_option
from planner.cli.output import emit
from planner.model.diagnostic import ExitCode

if TYPE_CHECKING:
    from planner.model.step import ApplyRecord


@click.command()
@topology_path
@var_file_option
@click.option("--id", "apply_id", metavar="ID", help="One apply with every step of it.")
@json_option
def command(path: Path, var_files: tuple[Path, ...], apply_id: str | None, as_json: bool) -> int:
    """Show who applied what, when, and how it ended.

    Each cluster remembers the applies that wrote to it; a cluster that does not answer is left out and named.
    """
    from planner.cli.view import TerminalView
    from planner.render.reports import history as text
    from planner.workflows.audit.history import HistoryRequest, history

    request = HistoryRequest(path, var_files, apply_id=apply_id)
    found = history(request, TerminalView(as_json=as_json)).applies
    if as_json:
        emit(text.document(found, with_steps=apply_id is not None))
    elif apply_id is not None:
        click.echo(text.one_text(found[0]))
    elif found:
        _table(found)
    else:
        click.echo("Nothing was applied yet.")
    return ExitCode.DONE


def _table(history: tuple[ApplyRecord, ...]) -> None:
    from rich.table import Table
    from rich.text import Text

    from planner.cli.console import console, terminal_width
    from planner.render.reports import history as text

    table = Table(box=None, pad_edge=False, header_style="bold")
    for name in ("ID", "STARTED", "BY", "TOPOLOGY", "MODE", "RESULT", "STEPS", "COMMIT"):
        table.add_column(name, no_wrap=True)
    for row in text.rows(history):
        table.add_row(*map(Text, row))
    # The terminal wraps a row that is too wide: an id that is cut can't be copied.
    console(max(terminal_width() or 0, 160)).print(table, soft_wrap=True)
