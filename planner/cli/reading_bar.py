"""How far the reading of the clusters is: a bar on stderr, on a terminal alone, and only after a second."""

import threading
from types import TracebackType

from rich.console import Console
from rich.progress import BarColumn, Progress, TaskID, TextColumn, TimeElapsedColumn

from planner.cli.printing import progress_console
from planner.render.escape import one_line

DELAY_S = 1.0


class ReadingBar:
    """A line a cluster. Called from the threads that read."""

    def __init__(self, console: Console | None = None, delay_s: float = DELAY_S) -> None:
        self._console = console or progress_console()
        self._delay_s = delay_s
        self._lock = threading.Lock()
        self._timer: threading.Timer | None = None
        self._bar: Progress | None = None
        self._state: dict[str, tuple[str, int, int]] = {}
        self._tasks: dict[str, TaskID] = {}

    def __enter__(self) -> "ReadingBar":
        if self._console.is_terminal:
            self._timer = threading.Timer(self._delay_s, self._begin)
            self._timer.daemon = True
            self._timer.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, failure: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._timer is not None:
            self._timer.cancel()
        with self._lock:
            self._timer = None
            if self._bar is not None:
                self._bar.stop()
                self._bar = None

    def __call__(self, cluster: str, what: str, done: int, total: int) -> None:
        with self._lock:
            self._state[cluster] = (what, done, total)
            self._show(cluster)

    def _begin(self) -> None:
        with self._lock:
            if self._timer is None:  # it ended just now
                return
            # transient: a finished bar leaves nothing behind on the screen
            self._bar = Progress(
                TextColumn("{task.description}", markup=False),
                BarColumn(bar_width=20),
                TextColumn("{task.completed:,.0f}/{task.total:,.0f}"),
                TimeElapsedColumn(),
                console=self._console,
                transient=True,
            )
            self._bar.start()
            for cluster in sorted(self._state):
                self._show(cluster)

    def _show(self, cluster: str) -> None:
        if self._bar is None:
            return
        what, done, total = self._state[cluster]
        if cluster not in self._tasks:
            self._tasks[cluster] = self._bar.add_task(cluster, total=total)
        self._bar.update(
            self._tasks[cluster],
            description=one_line(f"{cluster}: {what}"),
            completed=done,
            total=max(total, 1),
        )
