"""What is done to a copy, each at a moment that dice choose: kills with -9, cut links, stopped brokers."""

from __future__ import annotations

import random
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field

from runtime.lab.lab import Lab
from tests.chaos.copiers import Kept
from tests.chaos.links import Links, running

LONGEST_CUT_S = 12.0
_PATIENCE_S = 20.0
WEIGHTS = {
    "worker killed": 8,
    "driver killed": 3,
    "source broker killed": 2,
    "destination broker killed": 2,
    "source link cut": 2,
    "destination link cut": 2,
}


@dataclass
class Blows:
    """`strike` deals one blow; what it broke is mended when it is `due`, and at the end by `mend`."""

    lab: Lab
    links: Links
    kept: Kept
    dice: random.Random
    dealt: Counter[str] = field(default_factory=Counter)
    _mending: list[tuple[float, str, Callable[[], None]]] = field(default_factory=list)

    def strike(self, name: str | None = None) -> str:
        """This one, or one that dice choose (again, where there is nothing to hit for long); its name."""
        while True:
            chosen = name or self.dice.choices([*WEIGHTS], [*WEIGHTS.values()])[0]
            until = time.monotonic() + _PATIENCE_S
            while time.monotonic() < until:
                if self._deal(chosen):
                    self.dealt[chosen] += 1
                    return chosen
                time.sleep(0.05)  # what it would hit is just starting again
                self.mend_due()

    def mend_due(self) -> None:
        now = time.monotonic()
        due = [one for one in self._mending if one[0] <= now]
        self._mending = [one for one in self._mending if one[0] > now]
        for _, _, mend in due:
            mend()

    def mend(self) -> None:
        """All of it, now."""
        mending, self._mending = self._mending, []
        for _, _, act in mending:
            act()

    def _deal(self, name: str) -> bool:
        match name:
            case "worker killed":
                return self.kept.kill("worker", self.dice.choice)
            case "driver killed":
                return self.kept.kill("driver", self.dice.choice)
            case "source broker killed":
                return self._broker("dc1")
            case "destination broker killed":
                return self._broker("dc2")
            case "source link cut":
                return self._link("dc1")
            case "destination link cut":
                return self._link("dc2")
            case _:
                raise AssertionError(name)

    def _broker(self, cluster: str) -> bool:
        if self._broken(cluster):
            return False
        victim = self.dice.choice(running(self.lab, cluster))
        self.lab.kill(victim)
        self._later(f"broker {cluster}", self.dice.uniform(0.0, 4.0), lambda: self.lab.start(victim))
        return True

    def _link(self, cluster: str) -> bool:
        if self._broken(cluster):
            return False
        self.links.cut(self.lab, cluster)
        # Mostly short, sometimes longer than a request's patience.
        seconds = self.dice.choice([0.1, 0.5, 1.0, 3.0, LONGEST_CUT_S])
        self._later(f"link {cluster}", seconds, lambda: self.links.restore(self.lab, cluster))
        return True

    def _broken(self, cluster: str) -> bool:
        """One thing at a time at each cluster; both clusters may be hit at once."""
        return any(what.endswith(cluster) for _, what, _ in self._mending)

    def _later(self, what: str, seconds: float, mend: Callable[[], None]) -> None:
        self._mending.append((time.monotonic() + seconds, what, mend))
