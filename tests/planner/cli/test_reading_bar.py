"""The bars: only on a terminal, only after a while, and nothing of them stays on the screen."""

import io
import time
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from rich.console import Console

from planner.cli.console import ProgressBars


def terminal(*, is_one: bool = True, width: int = 80) -> tuple[Console, io.StringIO]:
    screen = io.StringIO()
    return Console(file=screen, force_terminal=is_one, width=width, legacy_windows=False), screen


@contextmanager
def reading(console: Console, delay_s: float) -> Iterator[ProgressBars]:
    bar = ProgressBars(console, delay_s)
    bar.start()
    try:
        yield bar
    finally:
        bar.stop()


def shown(screen: io.StringIO, text: str) -> bool:
    deadline = time.monotonic() + 5
    while text not in screen.getvalue() and time.monotonic() < deadline:
        time.sleep(0.02)
    return text in screen.getvalue()


@pytest.mark.parametrize("width", [80, 40])
def test_it_tells_what_is_read_of_each_cluster(width: int) -> None:
    console, screen = terminal(width=width)
    with reading(console, delay_s=0) as bar:
        bar.progress("dc1", "reading configs", 1_000, 10_000)
        bar.progress("dc2", "listing topics", 0, 1)
        assert shown(screen, "dc1: reading")
        assert shown(screen, "dc2: listing")


def test_lines_are_printed_above_it() -> None:
    console, screen = terminal()
    with reading(console, delay_s=0) as bar:
        bar.progress("apply", "steps", 1, 2)
        assert shown(screen, "apply: steps")
        with bar.paused():
            before = len(screen.getvalue())
            screen.write("a line\n")
        assert screen.getvalue()[:before].endswith("\x1b[2K")  # the bar's line is empty by then
        bar.progress("apply", "steps", 2, 2)
        assert shown(screen, "2/2")


@pytest.mark.parametrize(
    ("is_terminal", "delay_s"), [(True, 60), (False, 0)], ids=["what is quick", "a pipe"]
)
def test_nothing_is_shown(is_terminal: bool, delay_s: float) -> None:
    console, screen = terminal(is_one=is_terminal)
    with reading(console, delay_s) as bar:
        bar.progress("dc1", "reading configs", 1, 2)
    assert screen.getvalue() == ""
