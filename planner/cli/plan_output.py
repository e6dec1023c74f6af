"""A plan on the terminal."""

import os
import shutil
import sys

import click

from planner.model.plan import Plan
from planner.render.text import text


def print_plan(plan: Plan) -> None:
    """To stdout; what is wrong with it is told on stderr by who refuses it."""
    on_terminal = sys.stdout.isatty()
    width = shutil.get_terminal_size().columns if on_terminal else None
    for line in text(plan, width=width, colour=on_terminal and not os.environ.get("NO_COLOR")):
        click.echo(line)
