"""Runs the same work for each cluster at once, in daemon threads."""

import queue
import threading
from collections.abc import Callable, Mapping
from typing import TypeVar

Result = TypeVar("Result")


def for_each(work: Mapping[str, Callable[[], Result]]) -> dict[str, Result]:
    """Returns every result by name, in the order of `work`. Raises the first exception at once.

    The threads are daemons: an interrupted program does not wait for a silent broker.
    """
    results: queue.SimpleQueue[tuple[str, Result | None, BaseException | None]] = queue.SimpleQueue()

    def run(name: str, task: Callable[[], Result]) -> None:
        try:
            results.put((name, task(), None))
        except BaseException as failure:  # noqa: BLE001  raised in the caller's thread
            results.put((name, None, failure))

    for name, task in work.items():
        threading.Thread(target=run, args=(name, task), name=f"observe-{name}", daemon=True).start()
    found: dict[str, Result] = {}
    for _ in work:
        name, result, failure = results.get()
        if failure is not None:
            raise failure
        found[name] = result  # type: ignore[assignment]  # None only where Result is None
    return {name: found[name] for name in work}
