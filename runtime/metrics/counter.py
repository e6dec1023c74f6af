"""This module adds up counters that restart from zero with each start of their process."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass, field


@dataclass(slots=True)
class CumulativeCounter:
    """A CumulativeCounter adds up counters over all starts; what an ended start had counted is kept."""

    life: Hashable = None
    ended: list[float] = field(default_factory=list)
    now: Sequence[float] = ()

    def take(self, life: Hashable, counts: Sequence[float]) -> None:
        """Sets the counts of the present start.

        A new start, or a count that shrank, closes the one before.
        """
        if life != self.life or any(new < old for new, old in zip(counts, self.now, strict=False)):
            self.close()
        self.life = life
        self.now = counts

    def close(self) -> None:
        """Ends the present start; its counts are kept, and the next counts start at zero."""
        self.ended = self.total()
        self.now = ()

    def total(self) -> list[float]:
        """Returns the sums over all starts."""
        if not self.now:
            return self.ended
        return [one + more for one, more in zip(self.ended or [0.0] * len(self.now), self.now, strict=True)]
