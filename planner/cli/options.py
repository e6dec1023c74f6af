"""Arguments and options that several commands share, so that each is spelt and explained one way."""

import functools
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar, cast

import click

Command = TypeVar("Command", bound=Callable[..., Any])


class DurationParam(click.ParamType[int]):
    """`60s` → milliseconds, as in a topology."""

    name = "duration"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        from planner.config.language.scalars import NotReadable, duration

        if isinstance(value, int):
            return value
        try:
            return duration(str(value))
        except NotReadable as wrong:
            self.fail(f'"{value}" is {wrong.what}: {wrong.hint}', param, ctx)


def topology_path(command: Command) -> Command:
    """Add `[PATH]` as the last argument and `--path PATH`: two ways to name the topology's file or folder.

    A command has one `path` parameter, the current folder by default. Both ways at once are an error, unless
    they name the same path.
    """

    @functools.wraps(command)
    def with_path(*arguments: Any, path_word: Path | None, path_option: Path | None, **options: Any) -> Any:
        return command(*arguments, path=_one_path(path_word, path_option), **options)

    return _path_argument(_path_option(cast(Command, with_path)))


def _path_argument(command: Command) -> Command:
    argument = click.argument(
        "path_word", type=click.Path(path_type=Path), required=False, default=None, metavar="[PATH]"
    )
    return argument(command)


def _path_option(command: Command) -> Command:
    option = click.option(
        "--path",
        "path_option",
        type=click.Path(path_type=Path),
        default=None,
        metavar="PATH",
        help="The topology's file or folder, as the argument PATH.  [default: the current folder]",
    )
    return option(command)


def _one_path(word: Path | None, option: Path | None) -> Path:
    if word is not None and option is not None and word != option:
        raise click.UsageError(f"the topology is given twice: {word} and --path {option}")
    return word or option or Path()


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
