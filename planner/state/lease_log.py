"""Pure: who holds the lease of a cluster, folded from the lease topic's log.

The topic has one partition and LogAppendTime, so order and time are one broker's, whatever the clocks of
the machines that apply. Every reader folds the same log to the same holder:

- a claim is granted if, at its own append time, the lease was free (never held, released, or not renewed
  for its time to live);
- a renewal by the holder, in time, prolongs; one that comes too late changes nothing, for somebody may
  already have seen the lease as free;
- a release by the holder frees.
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
    """Who applies, in words for the colleague who waits."""

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
    holder: LeaseHolder
    since_ms: int
    renewed_ms: int
    ttl_ms: int

    def free_in_ms(self, now_ms: int) -> int:
        """How long until it ends by itself if its holder is dead."""
        return max(0, self.renewed_ms + self.ttl_ms - now_ms)


def fold(entries: Iterable[LeaseEntry]) -> LeaseState | None:
    """The holder right after the last entry; the caller's own claim is the clock."""
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
