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


class RateParam(click.ParamType[int]):
    """`50MB/s` → bytes per second, as in a topology."""

    name = "rate"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        from planner.config.language.scalars import NotReadable, rate

        if isinstance(value, int):
            return value
        try:
            return rate(str(value))
        except NotReadable as wrong:
            self.fail(f'"{value}" is no rate: {wrong.hint}', param, ctx)


class PatternParam(click.ParamType[str]):
    """A regex in the syntax of a topology."""

    name = "regex"

    def convert(self, value: object, param: click.Parameter | None, ctx: click.Context | None) -> str:
        from runtime.contract.spec.selection import UnreadableRegex, regex

        try:
            return regex(str(value)).pattern
        except UnreadableRegex as wrong:
            self.fail(f'"{value}" is no regular expression that is read here: it {wrong}', param, ctx)


def topology_path(command: Command) -> Command:
    """Add `[PATH]` as the last argument and `--path PATH`: two ways to name the topology's file or folder.

    A command has one `path` parameter, the current folder by default. Both ways at once are an error, unless
    they name the same path.
    """

    @functools.wraps(command)
    def with_path(*arguments: Any, path_word: Path | None, path_option: Path | None, **options: Any) -> Any:
        return command(*arguments, path=_one_path(path_word, path_option), **options)

    return _path_argument(_path_option(cast(Command, with_path)))


def topology_path_after(optional: str, *, repeated: bool = False) -> Callable[[Command], Command]:
    """Add what `topology_path` adds to a command whose argument `optional` may be left out, or be `repeated`.

    The last word is PATH where it contains a slash, is `.` or `..`, or names an existing YAML file: none of
    these is the name of a cluster, and only the last could be the name of a topic.
    """

    def add(command: Command) -> Command:
        @functools.wraps(command)
        def with_path(*arguments: Any, path_option: Path | None, **options: Any) -> Any:
            word: Path | None = options.pop("path_word", None)
            given = options[optional]
            words = given if isinstance(given, tuple) else (given,) if given is not None else ()
            if word is None and words and _is_path(words[-1]):
                word = Path(words[-1])
                options[optional] = words[:-1] if isinstance(given, tuple) else None
            return command(*arguments, path=_one_path(word, path_option), **options)

        added = _path_option(cast(Command, with_path))
        return added if repeated else _path_argument(added)

    return add


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


def _is_path(word: str) -> bool:
    return "/" in word or word in (".", "..") or (word.endswith((".yaml", ".yml")) and Path(word).is_file())


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


def policy_option(command: Command) -> Command:
    option = click.option(
        "--policy",
        "policies",
        type=click.Path(path_type=Path),
        multiple=True,
        metavar="FILE",
        help="A file with rules of the operator, beside those of the topology; repeatable. REPL_POLICY names"
        " files for every command.",
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
        type=DurationParam(),
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
        type=DurationParam(),
        default="10m",
        show_default=True,
        metavar="DURATION",
        help="How long to wait until everything is copied.",
    )
    return option(command)


def every_option(about: str) -> Callable[[Command], Command]:
    """In milliseconds. `about` is the help."""
    return click.option(
        "--every", type=DurationParam(), default="2s", show_default=True, metavar="DURATION", help=about
    )


def timeout_option(command: Command) -> Command:
    """In milliseconds."""
    option = click.option(
        "--timeout",
        type=DurationParam(),
        default="10s",
        show_default=True,
        metavar="DURATION",
        help="How long a cluster may keep silent before it counts as unreachable.",
    )
    return option(command)
