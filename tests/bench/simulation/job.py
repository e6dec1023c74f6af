"""Runs the driver that is measured, and reads what it costs."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Self

import msgspec

from tests.bench.simulation.meter import DriverCost, DutyCost

_POLL_S = 0.5


class DriverProcess:
    """A driver while the block lasts. It is killed at the end, as a machine that fails would do it."""

    def __init__(self, spec: Path, log: Path, options: Sequence[str] = ()) -> None:
        self._log = log
        with log.open("w") as file:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "tests.bench.simulation.driver", str(spec), *options],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=file,
                text=True,
            )

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._process.kill()
        self._process.wait()
        for pipe in (self._process.stdin, self._process.stdout):
            if pipe is not None:
                pipe.close()

    def cost(self) -> DriverCost:
        """Asks the driver what it has cost so far."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write("cost\n")
        self._process.stdin.flush()
        line = self._process.stdout.readline()
        if not line:
            last = "\n".join(self._log.read_text().splitlines()[-10:])
            raise SystemExit(f"the driver ended:\n{last}")
        return msgspec.json.decode(line, type=DriverCost)

    def wait(self, holds: Callable[[DriverCost], bool], within_s: float, what: str) -> DriverCost:
        """Waits until it holds, and returns the cost then."""
        deadline = time.monotonic() + within_s
        while not holds(cost := self.cost()):
            if time.monotonic() > deadline:
                raise SystemExit(
                    f"not within {within_s:g} s: {what}; {cost.assigned:,} partitions are assigned"
                )
            time.sleep(_POLL_S)
        return cost


def spent(after: DriverCost, before: DriverCost | None = None) -> Mapping[str, DutyCost]:
    """Returns what each duty has cost between two moments, the rest of the loop, and the other threads."""
    old = before.duties if before is not None else {}
    found = {}
    for duty, cost in after.duties.items():
        first = old.get(duty, DutyCost())
        found[duty] = DutyCost(cost.cpu_s - first.cpu_s, cost.wall_s - first.wall_s, cost.calls - first.calls)
    loop_s = after.loop_s - (before.loop_s if before is not None else 0.0)
    all_s = after.cpu_s - (before.cpu_s if before is not None else 0.0)
    found["start and loop"] = DutyCost(loop_s - sum(one.cpu_s for one in found.values()))
    found["threads"] = DutyCost(all_s - loop_s)
    return found
