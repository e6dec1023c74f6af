"""The edge between workflows, which are coroutines, and callers without an event loop.

A command, a thread of the page or a script calls a workflow. Its event loop runs until it has returned.
"""

import functools
from collections.abc import Callable, Coroutine
from typing import Any, Generic, ParamSpec, TypeVar

from planner.kafka import run

P = ParamSpec("P")
R = TypeVar("R", covariant=True)


class Workflow(Generic[P, R]):
    """Decorates a coroutine function. A call runs it in an event loop of its own and returns its result.

    Another workflow awaits its `coroutine` instead: there is one loop for everything that a caller wants.
    """

    def __init__(self, coroutine: Callable[P, Coroutine[Any, Any, R]]) -> None:
        self.coroutine = coroutine
        functools.update_wrapper(self, coroutine)

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R:
        return run(self.coroutine(*args, **kwargs))
