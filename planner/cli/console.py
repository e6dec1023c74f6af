"""Styled lines to stdout, as wide as the terminal or as they need, and the bar while clusters are read.

It imports rich: commands import it only when they print.
"""

import os
import shutil
import sys
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from itertools import accumulate

from rich.console import Console, ConsoleOptions, RenderableType
from rich.progress import BarColumn, Progress, ProgressColumn, Task, TaskID, TextColumn, TimeElapsedColumn
from rich.segment import Segment
from rich.table import Column
from rich.text import Span, Text

from planner.cli.output import unguarded, unwritten
from planner.render import readable

_PLAIN_WIDTH = 100_000  # without a terminal no line is broken
DELAY_S = 1.0  # what is read within this time shows no bar


class SafeConsole(Console):
    """A console that escapes each piece of text before it is styled. It keeps its own cursor movements."""

    def render(self, renderable: RenderableType, options: ConsoleOptions | None = None) -> Iterable[Segment]:
        for segment in super().render(renderable, options):
            text, style, control = segment
            yield segment if control else Segment(readable.lines(text), style)


def terminal_width() -> int | None:
    return shutil.get_terminal_size().columns if sys.stdout.isatty() else None


def console(width: int | None, *, err: bool = False) -> Console:
    """Returns a console on stdout or stderr: colours on a terminal alone, and none with NO_COLOR."""
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
    """Returns a console for bars on stderr, as wide as the terminal."""
    return SafeConsole(file=unguarded(err=True), markup=False, emoji=False)


def print_lines(lines: Callable[[int | None], Iterable[Text]]) -> None:
    """Prints lines that are made for the terminal's width, as long as they are read."""
    width = terminal_width()
    printer = console(width)
    for line in lines(width):
        printer.print(on_one_line(line), soft_wrap=width is None)
        if unwritten() is not None:
            return
    printer.file.flush()


def on_one_line(line: Text) -> Text:
    """Returns the line with everything unshowable escaped, line breaks too. Its styles stay in place."""
    plain = line.plain
    if plain.isascii() and plain.isprintable():
        return line
    written = [readable.one_line(sign) for sign in plain]
    ends = [0, *accumulate(map(len, written))]
    made = line.blank_copy("".join(written))
    made.spans = [Span(ends[span.start], ends[min(span.end, len(plain))], span.style) for span in line.spans]
    return made


class ProgressBars:
    """A bar for each thing that is under way, such as a cluster that is read. Threads may call it.

    Bars appear on a terminal alone, and only after a second. Lines are printed inside `paused`.
    """

    def __init__(self, console: Console | None = None, delay_s: float = DELAY_S) -> None:
        self._console = console or progress_console()
        self._delay_s = delay_s
        self._lock = threading.Lock()
        self._timer: threading.Timer | None = None
        self._bar: Progress | None = None
        self._state: dict[str, tuple[str, int, int]] = {}
        self._tasks: dict[str, TaskID] = {}

    @property
    def on_terminal(self) -> bool:
        return self._console.is_terminal

    def start(self) -> None:
        if self.on_terminal:
            self._timer = threading.Timer(self._delay_s, self._begin)
            self._timer.daemon = True
            self._timer.start()

    def stop(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        with self._lock:
            self._timer = None
            if self._bar is not None:
                self._bar.stop()
                self._bar = None
            self._state.clear()
            self._tasks.clear()

    def progress(self, name: str, what: str, done: int, total: int) -> None:
        """Shows how far something is. A total of 0 is not known: then the bar moves and shows no numbers."""
        with self._lock:
            self._state[name] = (what, done, total)
            self._show(name)

    def remove(self, name: str) -> None:
        with self._lock:
            self._state.pop(name, None)
            if self._bar is not None and name in self._tasks:
                self._bar.remove_task(self._tasks.pop(name))

    @contextmanager
    def paused(self) -> Iterator[None]:
        """Takes the bars off the screen while lines are printed."""
        with self._lock:
            if self._bar is None:
                yield
                return
            self._bar.stop()
            try:
                yield
            finally:
                self._bar.start()
                self._console.show_cursor()

    def _begin(self) -> None:
        with self._lock:
            if self._timer is None:  # it ended just now
                return
            # transient: a finished bar leaves nothing on the screen
            self._bar = Progress(
                TextColumn(
                    "{task.description}", markup=False, table_column=Column(no_wrap=True, overflow="ellipsis")
                ),
                BarColumn(bar_width=20),
                _Count(),
                TimeElapsedColumn(),
                console=self._console,
                transient=True,
            )
            self._bar.start()
            self._console.show_cursor()  # it would stay hidden where a process is killed
            for name in sorted(self._state):
                self._show(name)

    def _show(self, name: str) -> None:
        if self._bar is None:
            return
        what, done, total = self._state[name]
        if name not in self._tasks:
            self._tasks[name] = self._bar.add_task("", total=total or None)
        self._bar.update(
            self._tasks[name],
            description=readable.one_line(f"{name}: {what}" if what else name),
            completed=done,
            total=total or None,
        )


class _Count(ProgressColumn):
    """`412/1,003`; nothing where the total is not known."""

    def render(self, task: Task) -> Text:
        return Text(f"{task.completed:,.0f}/{task.total:,.0f}" if task.total else "")
