"""Counts that begin anew with each life of what counts them, added up over all of its lives."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass, field


@dataclass(slots=True)
class Tally:
    """`take` what was counted so far; what a life that ended had counted stays counted."""

    life: Hashable = None
    ended: list[float] = field(default_factory=list)
    now: Sequence[float] = ()

    def take(self, life: Hashable, counts: Sequence[float]) -> None:
        if life != self.life or any(new < old for new, old in zip(counts, self.now, strict=False)):
            self.close()
        self.life = life
        self.now = counts

    def close(self) -> None:
        """This life is over: the next count begins at zero, whatever it says."""
        self.ended = self.total()
        self.now = ()

    def total(self) -> list[float]:
        if not self.now:
            return self.ended
        return [one + more for one, more in zip(self.ended or [0.0] * len(self.now), self.now, strict=True)]
