"""Decides when a standby takes its job over, and which of several standbys does. It is pure.

No clock of another machine is read: a heartbeat is a new record, whatever time stands in it. The caller
passes the seconds of its own monotonic clock. Of several claims, the offset in the status topic decides,
which is the same for every reader. A wrong decision copies nothing twice: the driver that starts last fences
the others (R3, R10).
"""

from __future__ import annotations

from typing import NamedTuple

from runtime.contract.records.job_status import JobStatus, StandbyStatus

SILENCE_S = 12.0
"""A job without a heartbeat for so long is taken over. Its own supervisor starts it again in under 9 s."""
CLAIM_S = 45.0
"""A claim of another standby is respected for so long; a job starts in 6 to 14 s."""
_GAP_S = 3.0


class _Claim(NamedTuple):
    """The claim of another standby: its offset, and when this standby first read it."""

    offset: int
    read_at: float


class StandbyWatch:
    """A StandbyWatch counts the silence of one job and knows the claims of the other standbys.

    Silence counts only while the destination answers: the time between two reads counts for 3 s at most. So
    neither an outage of the destination nor a machine that slept makes a living job seem dead.
    """

    def __init__(self, standby: str) -> None:
        self.status: JobStatus | None = None
        self.silent_s = 0.0
        self._standby = standby
        self._read_at: float | None = None
        self._claims: dict[str, _Claim] = {}

    def take_heartbeat(self, status: JobStatus) -> None:
        """Takes a heartbeat that was read. The silence begins anew."""
        self.status = status
        self.silent_s = 0.0
        self._read_at = None
        self._claims.clear()

    def take_standby(self, found: StandbyStatus, offset: int, now: float) -> None:
        """Takes the report of a standby that was read at `offset`."""
        if found.standby == self._standby:
            return
        if found.state != "taking_over":
            self._claims.pop(found.standby, None)
            return
        claimed = found.claim if found.claim >= 0 else offset
        known = self._claims.get(found.standby)
        if known is None or known.offset != claimed:
            self._claims[found.standby] = _Claim(claimed, now)

    def take_end(self, standby: str) -> None:
        """Takes the tombstone of a standby that ended."""
        self._claims.pop(standby, None)

    def end_read(self, now: float) -> None:
        """Ends one complete read of the status topic at `now`, and counts the silence since the last one."""
        if self._read_at is not None:
            self.silent_s += min(now - self._read_at, _GAP_S)
        self._read_at = now

    @property
    def silent(self) -> bool:
        """Whether the job sends no heartbeat, though it should."""
        return self.expected and self.silent_s >= SILENCE_S

    @property
    def expected(self) -> bool:
        """Whether a heartbeat of the job is expected: it has run, and repl did not stop it."""
        return self.status is not None and not self.status.stop_requested

    def claimed_by_other(self, now: float) -> str:
        """Returns a standby whose claim is still respected, or an empty text."""
        held = (standby for standby, one in self._claims.items() if now - one.read_at < CLAIM_S)
        return next(held, "")

    def may_claim(self, now: float) -> bool:
        """Returns whether this standby may write a claim."""
        return self.silent and not self.claimed_by_other(now)

    def wins(self, offset: int, now: float) -> bool:
        """Returns whether the own claim at `offset` is the first one.

        It is asked after the topic was read to the claim or further: all readers see the same order.
        """
        before = (one for one in self._claims.values() if one.offset < offset)
        return self.silent and not any(now - one.read_at < CLAIM_S for one in before)
