"""This module computes how long a supervisor waits before it restarts a job. It is pure."""

from __future__ import annotations

from dataclasses import dataclass

FIRST_S = 0.2
LONGEST_S = 60.0
STEADY_S = 60.0  # a run this long resets the count of failures


@dataclass(frozen=True, slots=True)
class Backoff:
    """A Backoff counts failures.

    After a steady run the first restart is immediate, because it may have been a kill.
    """

    failures: int = 0

    def failed(self, lived_s: float) -> Backoff:
        """Returns the backoff after one more failure."""
        return Backoff(1 if lived_s >= STEADY_S else self.failures + 1)

    @property
    def delay_s(self) -> float:
        """The pause before the next start, in seconds."""
        return min(FIRST_S * 3.0 ** max(self.failures - 1, 0), LONGEST_S) if self.failures else 0.0
