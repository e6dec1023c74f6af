"""What is done to a copy, each at a moment that dice choose: kills with -9, cut, slow and narrow links,
leaders that move, and a second driver beside the first.
"""

from __future__ import annotations

import random
import time
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from runtime.lab.lab import Lab
from tests.chaos.copiers import Kept
from tests.chaos.leaders import move_leaders
from tests.chaos.links import Links, running
from tests.toxiproxy import Proxies

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
# A driver that stands as a machine does that hangs, is replaced, and goes on; and one that was thought dead.
TWO_DRIVERS = {"driver frozen and replaced": 1, "driver replaced while it runs": 1}
EXECUTOR = {"executor killed": 4}  # where Spark has executors of their own
LEADERS = {"source leaders moved": 1, "destination leaders moved": 1}  # where there are several brokers
DOORS = {  # where there are proxies
    "source link slow": 1,
    "destination link slow": 1,
    "source link narrow": 1,
    "destination link narrow": 1,
    "source connections reset": 1,
    "destination connections reset": 1,
}
_CLUSTERS = {"source": "dc1", "destination": "dc2"}


@dataclass
class Blows:
    """`strike` deals one blow; what it broke is mended when it is `due`, and at the end by `mend`."""

    lab: Lab
    links: Links
    doors: Mapping[str, Proxies]
    kept: Kept
    dice: random.Random
    weights: Mapping[str, int]
    dealt: Counter[str] = field(default_factory=Counter)
    _mending: list[tuple[float, str, Callable[[], None]]] = field(default_factory=list)

    def strike(self, name: str | None = None) -> str:
        """This one, or one that dice choose (again, where there is nothing to hit for long); its name."""
        while True:
            chosen = name or self.dice.choices([*self.weights], [*self.weights.values()])[0]
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
        match name.split(maxsplit=1):
            case ["worker" | "executor" as role, "killed"]:
                return self.kept.kill(role, self.dice.choice)
            case ["driver", "killed"]:
                return self.kept.kill("driver", self.dice.choice)
            case ["driver", how]:
                return self._another_driver(frozen=how.startswith("frozen"))
            case [side, what]:
                cluster = _CLUSTERS[side]
                return not self._broken(cluster) and self._at(cluster, what)
            case _:
                raise AssertionError(name)

    def _at(self, cluster: str, what: str) -> bool:
        match what:
            case "broker killed":
                self._broker(cluster)
            case "link cut":
                self._link(cluster)
            case "leaders moved":
                return move_leaders(self.lab.clusters[cluster].client, self.dice)
            case "link slow":
                self._door(cluster, lambda door: door.delay(50, 20))
            case "link narrow":
                rate = self.dice.choice([64, 256, 1_024])
                self._door(cluster, lambda door: door.narrow(rate))
            case "connections reset":
                self._door(cluster, lambda door: door.reset())
            case _:
                raise AssertionError(what)
        return True

    def _another_driver(self, *, frozen: bool) -> bool:
        wake = self.kept.leave_behind(frozen=frozen)
        if wake is not None:
            self._later("driver", self.dice.uniform(5.0, 25.0) if frozen else 0.0, wake)
        return wake is not None

    def _broker(self, cluster: str) -> None:
        victim = self.dice.choice(running(self.lab, cluster))
        self.lab.kill(victim)
        self._later(f"broker {cluster}", self.dice.uniform(0.0, 4.0), lambda: self.lab.start(victim))

    def _link(self, cluster: str) -> None:
        self.links.cut(self.lab, cluster)
        self._later(f"link {cluster}", self._while(), lambda: self.links.restore(self.lab, cluster))

    def _door(self, cluster: str, act: Callable[[Proxies], None]) -> None:
        door = self.doors[cluster]
        act(door)
        self._later(f"door {cluster}", self._while(), door.heal)

    def _while(self) -> float:
        """Mostly short, sometimes longer than a request's patience."""
        return self.dice.choice([0.1, 0.5, 1.0, 3.0, LONGEST_CUT_S])

    def _broken(self, cluster: str) -> bool:
        """One thing at a time at each cluster; both clusters may be hit at once."""
        return any(what.endswith(cluster) for _, what, _ in self._mending)

    def _later(self, what: str, seconds: float, mend: Callable[[], None]) -> None:
        self._mending.append((time.monotonic() + seconds, what, mend))
