"""Lines with styles → stdout: as wide as the terminal, or as it takes where there is none."""

import os
import shutil
import sys
from collections.abc import Callable, Iterable

from rich.console import Console
from rich.text import Text

_PLAIN_WIDTH = 100_000  # where no terminal says how wide it is, nothing is broken


def terminal_width() -> int | None:
    return shutil.get_terminal_size().columns if sys.stdout.isatty() else None


def console(width: int | None) -> Console:
    """Colour on a terminal alone, and not where NO_COLOR asks for none."""
    return Console(
        file=sys.stdout,
        width=width or _PLAIN_WIDTH,
        highlight=False,
        no_color=bool(os.environ.get("NO_COLOR")) or None,
        soft_wrap=width is None,
    )


def print_lines(lines: Callable[[int | None], Iterable[Text]]) -> None:
    """Stops quietly when the reader goes away (repl … | head)."""
    width = terminal_width()
    printer = console(width)
    try:
        for line in lines(width):
            printer.print(line, soft_wrap=width is None)
        sys.stdout.flush()
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
