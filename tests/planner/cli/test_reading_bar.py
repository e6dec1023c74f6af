"""The bar: only on a terminal, only after a while, and nothing of it stays on the screen."""

import io
import time

import pytest
from rich.console import Console

from planner.cli.reading_bar import ReadingBar


def terminal(*, is_one: bool = True, width: int = 80) -> tuple[Console, io.StringIO]:
    screen = io.StringIO()
    return Console(file=screen, force_terminal=is_one, width=width, legacy_windows=False), screen


def shown(screen: io.StringIO, text: str) -> bool:
    deadline = time.monotonic() + 5
    while text not in screen.getvalue() and time.monotonic() < deadline:
        time.sleep(0.02)
    return text in screen.getvalue()


@pytest.mark.parametrize("width", [80, 40])
def test_it_tells_what_is_read_of_each_cluster(width: int) -> None:
    console, screen = terminal(width=width)
    with ReadingBar(console, delay_s=0) as bar:
        bar("dc1", "reading configs", 1_000, 10_000)
        bar("dc2", "listing topics", 0, 1)
        assert shown(screen, "dc1: reading")
        assert shown(screen, "dc2: listing")


def test_what_is_quick_shows_nothing() -> None:
    console, screen = terminal()
    with ReadingBar(console, delay_s=60) as bar:
        bar("dc1", "reading configs", 1, 2)
    assert screen.getvalue() == ""


def test_a_pipe_gets_nothing() -> None:
    console, screen = terminal(is_one=False)
    with ReadingBar(console, delay_s=0) as bar:
        bar("dc1", "reading configs", 1, 2)
    assert screen.getvalue() == ""


def test_a_failure_ends_it() -> None:
    console, screen = terminal()
    bar = ReadingBar(console, delay_s=0)

    def fail() -> None:
        with bar:
            bar("dc1", "reading configs", 1, 2)
            assert shown(screen, "dc1: reading")
            raise RuntimeError("broken")

    with pytest.raises(RuntimeError, match="broken"):
        fail()
    ended = screen.getvalue()
    bar("dc1", "reading configs", 2, 2)
    assert screen.getvalue() == ended
