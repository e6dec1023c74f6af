"""Lines with styles → stdout: as wide as the terminal, or as it takes where there is none."""

import os
import shutil
import sys
from collections.abc import Callable, Iterable
from itertools import accumulate

from rich.console import Console, ConsoleOptions, RenderableType
from rich.segment import Segment
from rich.text import Span, Text

from planner.cli.terminal import unguarded
from planner.render import escape

_PLAIN_WIDTH = 100_000  # where no terminal says how wide it is, nothing is broken


class SafeConsole(Console):
    """A console that escapes each piece of text before it is styled. Its own cursor movements are kept."""

    def render(self, renderable: RenderableType, options: ConsoleOptions | None = None) -> Iterable[Segment]:
        for segment in super().render(renderable, options):
            text, style, control = segment
            yield segment if control else Segment(escape.lines(text), style)


def terminal_width() -> int | None:
    return shutil.get_terminal_size().columns if sys.stdout.isatty() else None


def console(width: int | None, *, err: bool = False) -> Console:
    """Colour on a terminal alone, and not where NO_COLOR asks for none."""
    return SafeConsole(
        file=unguarded(err=err),
        width=width or _PLAIN_WIDTH,
        highlight=False,
        markup=False,
        emoji=False,
        no_color=bool(os.environ.get("NO_COLOR")) or None,
        soft_wrap=width is None,
    )


def progress_console() -> Console:
    """For bars on stderr, as wide as the terminal is."""
    return SafeConsole(file=unguarded(err=True), markup=False, emoji=False)


def print_lines(lines: Callable[[int | None], Iterable[Text]]) -> None:
    """Stops quietly when the reader goes away (repl … | head)."""
    width = terminal_width()
    printer = console(width)
    try:
        for line in lines(width):
            printer.print(on_one_line(line), soft_wrap=width is None)
        printer.file.flush()
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def on_one_line(line: Text) -> Text:
    """The line with everything unshowable escaped, line breaks too; its styles stay where they are."""
    plain = line.plain
    if plain.isascii() and plain.isprintable():
        return line
    written = [escape.one_line(sign) for sign in plain]
    ends = [0, *accumulate(map(len, written))]
    made = line.blank_copy("".join(written))
    made.spans = [Span(ends[one.start], ends[min(one.end, len(plain))], one.style) for one in line.spans]
    return made
