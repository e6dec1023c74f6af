"""Arguments and options that several commands share, so that each is spelt and explained one way."""

from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import click

Command = TypeVar("Command", bound=Callable[..., Any])


class Duration(click.ParamType[int]):
    """`60s` → milliseconds, as in a topology."""

    name = "duration"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        from planner.declare.scalars import NotReadable, duration

        if isinstance(value, int):
            return value
        try:
            return duration(str(value))
        except NotReadable as wrong:
            self.fail(f'"{value}" is {wrong.what}: {wrong.mend}', param, ctx)


def path_argument(command: Command) -> Command:
    """`[PATH]`: the topology's file or folder, the current folder by default."""
    argument = click.argument("path", type=click.Path(path_type=Path), default=Path(), metavar="[PATH]")
    return argument(command)


def path_option(command: Command) -> Command:
    """`--path PATH`, for commands whose argument is something else."""
    option = click.option(
        "--path",
        type=click.Path(path_type=Path),
        default=Path(),
        metavar="PATH",
        help="The topology's file or folder.  [default: the current folder]",
    )
    return option(command)


def var_file_option(command: Command) -> Command:
    option = click.option(
        "--var-file",
        "var_files",
        type=click.Path(path_type=Path),
        multiple=True,
        metavar="FILE",
        help="Values for the topology's variables; repeatable, the later file wins.",
    )
    return option(command)


def json_option(command: Command) -> Command:
    return click.option(
        "--json", "as_json", is_flag=True, help="Machine-readable output, stable and versioned."
    )(command)


def auto_approve_option(command: Command) -> Command:
    return click.option("--auto-approve", is_flag=True, help="Do not ask before changing anything.")(command)


def lock_timeout_option(command: Command) -> Command:
    """In milliseconds."""
    option = click.option(
        "--lock-timeout",
        type=Duration(),
        default="60s",
        show_default=True,
        metavar="DURATION",
        help="How long to wait for another apply to finish.",
    )
    return option(command)


def target_option(command: Command) -> Command:
    option = click.option(
        "--target",
        "targets",
        multiple=True,
        metavar="ADDRESS",
        help="Only this object and what it needs, for example topic.dc1.orders; repeatable.",
    )
    return option(command)


def copied_within_option(command: Command) -> Command:
    """In milliseconds."""
    option = click.option(
        "--timeout",
        type=Duration(),
        default="10m",
        show_default=True,
        metavar="DURATION",
        help="How long to wait until everything is copied.",
    )
    return option(command)


def timeout_option(command: Command) -> Command:
    """In milliseconds."""
    option = click.option(
        "--timeout",
        type=Duration(),
        default="10s",
        show_default=True,
        metavar="DURATION",
        help="How long a cluster may keep silent before it counts as unreachable.",
    )
    return option(command)
