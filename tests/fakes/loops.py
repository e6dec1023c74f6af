"""Tests that are coroutines, each in an event loop of its own."""

import asyncio
import functools
from collections.abc import Callable, Coroutine
from typing import Any, ParamSpec

import uvloop

P = ParamSpec("P")
LIMIT_S = 60


def in_loop(test: Callable[P, Coroutine[Any, Any, None]]) -> Callable[P, None]:
    """Runs the test until it ends, for a minute at most."""

    @functools.wraps(test)
    def run(*args: P.args, **kwargs: P.kwargs) -> None:
        asyncio.run(asyncio.wait_for(test(*args, **kwargs), LIMIT_S))

    return run


def in_uvloop(test: Callable[P, Coroutine[Any, Any, None]]) -> Callable[P, None]:
    """The same in the loop that jobs use."""

    @functools.wraps(test)
    def run(*args: P.args, **kwargs: P.kwargs) -> None:
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            runner.run(asyncio.wait_for(test(*args, **kwargs), LIMIT_S))

    return run
