"""A plan on the terminal and in files. Its errors go to stderr and decide the exit code."""

import os
import shutil
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import islice
from pathlib import Path

import click

from planner.cli.output import reader_is_gone, show, unguarded
from planner.model.diagnostic import ExitCode, Failure, Severity, error, worst
from planner.model.forecast import Simulation
from planner.model.plan import Mode, Plan
from planner.render.plan.text import text

LINES_A_WRITE = 500


def print_plan(plan: Plan) -> None:
    """Prints a plan to stdout. Its errors are printed by the caller, on stderr."""
    on_terminal = sys.stdout.isatty()
    width = shutil.get_terminal_size().columns if on_terminal else None
    print_lines(text(plan, width=width, colour=on_terminal and not os.environ.get("NO_COLOR")))


def print_steps(plan: Plan) -> None:
    """Prints what is executed to stdout, as the steps themselves say it."""
    from planner.render.plan.text import steps_text

    print_lines(steps_text(plan))


def print_lines(lines: Iterator[str]) -> None:
    """Prints lines to stdout, many at once, as long as they are read."""
    while some := list(islice(lines, LINES_A_WRITE)):
        if not _written("\n".join(some), escaped=True):
            return


def _written(words: str, *, escaped: bool = False) -> bool:
    """Prints text. False: the reader went away (repl plan | head), and only the exit code is left."""
    try:
        click.echo(words, file=unguarded() if escaped else None)
    except BrokenPipeError:
        reader_is_gone()
        return False
    return True


def output(
    plan: Plan, *, as_json: bool, signature: str | None = None, simulation: Simulation | None = None
) -> None:
    """Prints a plan to stdout and its errors to stderr; JSON holds them. `signature`: of a saved plan."""
    if as_json:
        from planner.render.plan.json import json_text

        _written(json_text(plan, signature, simulation))
        return
    print_plan(plan)
    if simulation is not None:
        _print_simulation(simulation)
    show([one for one in plan.diagnostics if one.severity is Severity.ERROR])


def _print_simulation(simulation: Simulation) -> None:
    from planner.cli.console import print_lines as print_styled
    from planner.render.plan.simulation import text as simulated

    click.echo()
    print_styled(lambda width: simulated(simulation, width))


def write_reports(
    plan: Plan, markdown_file: Path | None, html_file: Path | None, simulation: Simulation | None = None
) -> None:
    """Writes the comment of a pull request and the page, where they are asked for."""
    if markdown_file is not None:
        from planner.render.plan.documents import markdown

        _write(markdown_file, markdown(plan, simulation=simulation))
    if html_file is not None:
        from planner.render.plan.documents import html

        _write(html_file, html(plan, simulation))


@contextmanager
def reporting_failure(markdown_file: Path | None) -> Iterator[None]:
    """Writes a failure into the comment too: a pull request must not keep an older plan."""
    try:
        yield
    except Failure as failure:
        if markdown_file is None:
            raise
        from planner.render.plan.documents import failed

        try:
            _write(markdown_file, failed(failure.diagnostics))
        except Failure as unwritten:
            raise Failure([*failure.diagnostics, *unwritten.diagnostics], failure.exit_code) from None
        raise


def _write(file: Path, text: str) -> None:
    try:
        file.write_text(text, encoding="utf-8")
    except OSError as wrong:
        why = wrong.strerror or str(wrong)
        raise Failure(error(f"{file}: the report can't be written: {why}", "name another file")) from None


def exit_code(plan: Plan, *, detailed: bool = False) -> int:
    """Returns 1 or 3 for errors, 1 for what could not be read, 2 for changes where that was asked."""
    refusal = worst(plan.diagnostics)
    if refusal is not ExitCode.DONE:
        return refusal
    if not plan.complete:
        return ExitCode.ERROR
    return ExitCode.DIFFERENT if plan.changed and (detailed or plan.mode is Mode.DRIFT) else ExitCode.DONE


@contextmanager
def failing_as_json(as_json: bool) -> Iterator[None]:
    """With --json, a plan that can't be made is a document on stdout too."""
    try:
        yield
    except Failure as failure:
        if not as_json:
            raise
        from planner.render.plan.json import as_json as rendered
        from planner.render.plan.json import failure_tree

        click.echo(rendered(failure_tree(failure.diagnostics)))
        raise click.exceptions.Exit(int(failure.exit_code)) from None
