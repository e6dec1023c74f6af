"""What happens on a day: operators apply changes, groups read on, leaders move, and processes are killed."""

from __future__ import annotations

import random
import time
from collections import Counter
from collections.abc import Callable, Mapping

from tests.chaos.copiers import processes_of
from tests.chaos.leaders import move_leaders
from tests.chaos.links import running
from tests.processes import kill_together
from tests.soak.town import AWAY, FLOW, HOME, TOPICS, SoakTown

_MOST_PARTITIONS = 8
_MOST_TOPICS = 20
_LONGEST_RESTART_S = 4.0
_LONGEST_PAUSE_S = 5.0
WEIGHTS: Mapping[str, int] = {
    "group reads": 6,
    "topic added": 1,
    "partition added": 1,
    "setting changed": 2,
    "flow paused": 1,
    "worker killed": 3,
    "driver killed": 1,
    "source broker killed": 2,
    "destination broker killed": 2,
    "source leaders moved": 2,
    "destination leaders moved": 2,
}


class Life:
    """Draws events with dice, and counts them. It goes on while producers write to dc1."""

    def __init__(self, town: SoakTown, dice: random.Random) -> None:
        self.count = Counter[str]()
        self._town = town
        self._dice = dice
        self._acts: Mapping[str, Callable[[], bool]] = {
            "group reads": self._read,
            "topic added": self._add_topic,
            "partition added": self._add_partition,
            "setting changed": self._change_setting,
            "flow paused": self._pause,
            "worker killed": lambda: self._kill("worker"),
            "driver killed": lambda: self._kill("driver"),
            "source broker killed": lambda: self._kill_broker(HOME),
            "destination broker killed": lambda: self._kill_broker(AWAY),
            "source leaders moved": lambda: self._move_leaders(HOME),
            "destination leaders moved": lambda: self._move_leaders(AWAY),
        }

    def go_on(self, seconds: float, pause_s: float) -> None:
        """Lets events happen for so long, with up to `pause_s` between two of them."""
        until = time.monotonic() + seconds
        while time.monotonic() < until:
            time.sleep(min(self._dice.uniform(0, pause_s), max(until - time.monotonic(), 0)))
            name = self._dice.choices([*WEIGHTS], [*WEIGHTS.values()])[0]
            if self._acts[name]():
                self.count[name] += 1
                self._town.say(name)

    def _read(self) -> bool:
        self._town.group_reads(HOME, self._dice.randrange(100, 2_000))
        return True

    def _add_topic(self) -> bool:
        town = self._town
        if len(town.partitions) >= _MOST_TOPICS:
            return False
        name = f"extra.{len(town.partitions)}"
        town.edit(lambda body: body["topics"].append({"name": name, "cluster": HOME, "partitions": 1}))
        town.partitions[name] = 1
        town.await_known(name)
        town.restart_load()
        return True

    def _add_partition(self) -> bool:
        town = self._town
        name = self._dice.choice(sorted(TOPICS))
        if town.partitions[name] >= _MOST_PARTITIONS:
            return False
        more = town.partitions[name] + 1
        town.edit(lambda body: _topic(body, name).update(partitions=more))
        town.partitions[name] = more
        town.await_known(name)
        town.restart_load()
        return True

    def _change_setting(self) -> bool:
        name, days = self._dice.choice(sorted(TOPICS)), self._dice.randrange(7, 30)
        self._town.edit(lambda body: _topic(body, name).update(config={"retention.ms": f"{days}d"}))
        return True

    def _pause(self) -> bool:
        self._town.repl("pause", FLOW)
        time.sleep(self._dice.uniform(0, _LONGEST_PAUSE_S))
        self._town.repl("resume", FLOW)
        return True

    def _kill(self, role: str) -> bool:
        application = self._town.town.processes(AWAY).get("application")
        found = processes_of(application).get(role, []) if application is not None else []
        if not found:
            return False
        kill_together([self._dice.choice(found)])
        return True

    def _kill_broker(self, cluster: str) -> bool:
        alive = running(self._town.lab, cluster)
        if not alive:
            return False
        victim = self._dice.choice(alive)
        self._town.lab.kill(victim)
        time.sleep(self._dice.uniform(0, _LONGEST_RESTART_S))
        self._town.lab.start(victim)
        return True

    def _move_leaders(self, cluster: str) -> bool:
        return move_leaders(self._town.lab.clusters[cluster].client, self._dice)


def _topic(body: dict, name: str) -> dict:  # type: ignore[type-arg]
    return next(one for one in body["topics"] if one["name"] == name)
