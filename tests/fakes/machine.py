"""State machines of hypothesis whose steps act in an event loop of virtual time."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Coroutine, Iterable, Mapping
from typing import Any, TypeVar

from hypothesis.stateful import RuleBasedStateMachine

from tests.fakes.clock import VirtualClock

State = TypeVar("State")


class VirtualTimeMachine(RuleBasedStateMachine):
    """Its time passes only in `run` and `act`."""

    def __init__(self) -> None:
        super().__init__()
        self.loop = VirtualClock()

    def run(self, work: Coroutine[Any, Any, None]) -> None:
        asyncio.set_event_loop(self.loop)
        self.loop.run_until_complete(work)

    def act(self, action: Callable[[], object] = lambda: None, seconds: float = 0.0) -> None:
        """Acts, lets every task that is ready run until it waits, and then lets time pass."""
        self.run(self._act(action, seconds))

    async def _act(self, action: Callable[[], object], seconds: float) -> None:
        action()
        for _ in range(20):
            await asyncio.sleep(0)
        await asyncio.sleep(seconds)


def assert_reachable(
    transitions: Mapping[State, Collection[State]], first: State, last: State, states: Iterable[State]
) -> None:
    """Every state can be reached from the first one, and only the last one is left by no transition."""
    reached, before = {first}, set[State]()
    while reached != before:
        before = set(reached)
        reached |= {after for state in before for after in transitions[state]}
    assert reached == set(states) == set(transitions)
    assert [state for state, after in transitions.items() if not after] == [last]
