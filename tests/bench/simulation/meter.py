"""Measures what each duty of an event loop costs: seconds of CPU, seconds from begin to end, and calls.

A duty is a function or a method. The CPU of what it calls counts for it, unless that is a duty of its own.
Tasks that a duty starts count for it, too. The wall time of a duty is that in which at least one call of it
had begun and not ended.
"""

from __future__ import annotations

import asyncio
import functools
import time
from collections.abc import Awaitable, Callable, Coroutine, Generator
from contextvars import ContextVar
from typing import Any

import msgspec

_current: ContextVar[str | None] = ContextVar("duty", default=None)


class DutyCost(msgspec.Struct):
    """What a duty has cost so far, in seconds."""

    cpu_s: float = 0.0
    wall_s: float = 0.0
    calls: int = 0


class DriverCost(msgspec.Struct, frozen=True):
    """What a driver has cost. `assigned`: the partitions that its slots have. Memory is the peak."""

    duties: dict[str, DutyCost]
    loop_s: float
    cpu_s: float
    peak_mb: float
    assigned: int


class DutyMeter:
    """Measures duties in the thread of one event loop."""

    def __init__(self) -> None:
        self.costs: dict[str, DutyCost] = {}
        self._stack: list[str] = []
        self._since = time.thread_time()
        self._active: dict[str, tuple[int, float]] = {}

    def measure(self, owner: object, name: str, duty: str) -> None:
        """Measures a function of a module, or a method of a class, as part of a duty.

        Raises AttributeError where there is none of this name.
        """
        setattr(owner, name, self.measured(getattr(owner, name), duty))

    def measured(self, function: Callable[..., Any], duty: str) -> Callable[..., Any]:
        """Returns the function with the measurement around it."""
        if asyncio.iscoroutinefunction(function):

            @functools.wraps(function)
            async def awaited(*arguments: Any, **named: Any) -> Any:
                self._begin(duty)
                try:
                    return await _Steps(self, duty, function(*arguments, **named))
                finally:
                    self._end(duty)

            return awaited

        @functools.wraps(function)
        def called(*arguments: Any, **named: Any) -> Any:
            self._begin(duty)
            self.enter(duty)
            try:
                return function(*arguments, **named)
            finally:
                self.leave()
                self._end(duty)

        return called

    def task_factory(
        self, loop: asyncio.AbstractEventLoop, work: Coroutine[Any, Any, Any], **named: Any
    ) -> asyncio.Task[Any]:
        """Makes the tasks of the loop. A task that a duty starts counts for it."""
        duty = _current.get()
        return asyncio.Task(work if duty is None else self._follow(duty, work), loop=loop, **named)

    async def _follow(self, duty: str, work: Coroutine[Any, Any, Any]) -> Any:
        return await _Steps(self, duty, work)

    def enter(self, duty: str) -> None:
        """Counts the CPU from now on for this duty, until `leave`."""
        self._count()
        self._stack.append(duty)

    def leave(self) -> None:
        """Counts the CPU from now on for the duty around."""
        self._count()
        self._stack.pop()

    def _count(self) -> None:
        now = time.thread_time()
        if self._stack:
            self._cost(self._stack[-1]).cpu_s += now - self._since
        self._since = now

    def _begin(self, duty: str) -> None:
        count, since = self._active.get(duty, (0, 0.0))
        self._active[duty] = (count + 1, since if count else time.perf_counter())
        self._cost(duty).calls += 1

    def _end(self, duty: str) -> None:
        count, since = self._active[duty]
        self._active[duty] = (count - 1, since)
        if count == 1:
            self._cost(duty).wall_s += time.perf_counter() - since

    def _cost(self, duty: str) -> DutyCost:
        found = self.costs.get(duty)
        if found is None:
            found = self.costs[duty] = DutyCost()
        return found


class _Steps:
    """Awaits some work, and counts each step of it for a duty."""

    def __init__(self, meter: DutyMeter, duty: str, work: Coroutine[Any, Any, Any] | Awaitable[Any]) -> None:
        self._meter = meter
        self._duty = duty
        self._work = work

    def __await__(self) -> Generator[Any, Any, Any]:
        steps = self._work.__await__()
        error: BaseException | None = None
        value: Any = None
        while True:
            token = _current.set(self._duty)
            self._meter.enter(self._duty)
            try:
                found = steps.send(value) if error is None else steps.throw(error)
            except StopIteration as ended:
                return ended.value
            finally:
                self._meter.leave()
                _current.reset(token)
            error = None
            try:
                value = yield found
            except BaseException as raised:  # noqa: BLE001 - passed on to the work, which decides
                error = raised
