"""Pure: the holder of a cluster's lease, folded from the lease topic's log.

The topic has one partition and LogAppendTime. Order and time are therefore one broker's, whatever the clocks
of the machines that apply. Every reader folds the same log to the same holder:

- A claim is granted if the lease was free at the claim's append time: never held, released, or not renewed
  within its time to live.
- A renewal by the holder extends the lease if it is in time. A late one changes nothing: another reader may
  already have seen the lease as free.
- A release by the holder frees the lease.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum

TTL_MS = 30_000


class LeaseVerb(StrEnum):
    CLAIM = "claim"
    RENEW = "renew"
    RELEASE = "release"


@dataclass(frozen=True, slots=True)
class LeaseHolder:
    """The apply that holds the lease, with what a waiting user needs to know."""

    id: str
    user: str
    host: str
    pid: int
    topology: str
    plan: str


@dataclass(frozen=True, slots=True)
class LeaseEntry:
    verb: LeaseVerb
    holder: LeaseHolder
    at_ms: int
    ttl_ms: int = TTL_MS


@dataclass(frozen=True, slots=True)
class LeaseState:
    """The present holder, since when, and when the lease was last renewed."""

    holder: LeaseHolder
    since_ms: int
    renewed_ms: int
    ttl_ms: int

    def free_in_ms(self, now_ms: int) -> int:
        """Returns in how many milliseconds the lease ends by itself if its holder is dead."""
        return max(0, self.renewed_ms + self.ttl_ms - now_ms)


def fold(entries: Iterable[LeaseEntry]) -> LeaseState | None:
    """Returns the holder right after the last entry. The caller's own claim tells the time."""
    held: LeaseState | None = None
    for entry in entries:
        if held and entry.at_ms > held.renewed_ms + held.ttl_ms:
            held = None
        mine = held is not None and held.holder.id == entry.holder.id
        match entry.verb:
            case LeaseVerb.CLAIM if held is None:
                held = LeaseState(entry.holder, entry.at_ms, entry.at_ms, entry.ttl_ms)
            case LeaseVerb.CLAIM | LeaseVerb.RENEW if held is not None and mine:
                held = LeaseState(held.holder, held.since_ms, entry.at_ms, entry.ttl_ms)
            case LeaseVerb.RELEASE if mine:
                held = None
            case _:
                pass
    return held
