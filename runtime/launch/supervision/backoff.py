"""How long a supervisor waits before it starts a job again. Pure."""

from __future__ import annotations

from dataclasses import dataclass

FIRST_S = 0.2
LONGEST_S = 60.0
STEADY_S = 60.0  # a life this long forgives the failures before it


@dataclass(frozen=True, slots=True)
class Backoff:
    """The first crash after a steady life is answered at once: nobody waits for what may have been a kill."""

    failures: int = 0

    def failed(self, lived_s: float) -> Backoff:
        return Backoff(1 if lived_s >= STEADY_S else self.failures + 1)

    @property
    def delay_s(self) -> float:
        return min(FIRST_S * 3.0 ** max(self.failures - 1, 0), LONGEST_S) if self.failures else 0.0
