"""The lease of a cluster: one apply at a time, across machines. Its log decides who holds it.

The topic has one partition and LogAppendTime. Order and time are therefore one broker's, whatever the clocks
of the machines that apply. Every reader folds the same log to the same holder:

- A claim is granted if the lease was free at the claim's append time: never held, released, or not renewed
  within its time to live.
- The holder claims it again and again, which extends it. So the newest entries alone say who holds it, and
  retention may delete the older ones.
- A holder whose claim is late, or whose log is no longer the one that it wrote to, continues only if the log
  shows that no other apply held the lease in between.
- A release by the holder frees the lease.

Kafka does not fence admin requests, so the holder asks `lost()` before each one. Its clock continues during a
SIGSTOP and while a laptop is suspended: a holder that slept past its time sends nothing before it has read in
the log that it still holds the lease.
"""

import asyncio
import time
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass, replace
from enum import StrEnum
from types import TracebackType
from typing import Annotated, Self

import msgspec

from planner.kafka.client import ClusterClient
from planner.kafka.failures import ClusterFailure
from planner.kafka.log import Appended, LogWriter, read
from planner.model.diagnostic import Diagnostic, Failure, error
from planner.model.times import ISO, utc
from planner.state.internal_topics import decode, encode, shaped
from runtime.contract.client.endpoint import ClusterEndpoint
from runtime.contract.records.record_values import UnreadableValue
from runtime.contract.spec.naming import LEASE

TTL_MS = 30_000


class LeaseVerb(StrEnum):
    """What an entry of the lease's log does."""

    CLAIM = "claim"
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


_LONGEST_TTL_MS = 3_600_000  # the longest lease without a renewal, whatever a record says


class LeaseEntry(msgspec.Struct, frozen=True):
    """A record of the lease's log. `at_ms` is its append time at the broker, which its bytes don't have."""

    verb: LeaseVerb
    holder: LeaseHolder
    at_ms: int = 0
    ttl_ms: Annotated[int, msgspec.Meta(ge=1, le=_LONGEST_TTL_MS)] = TTL_MS


@dataclass(frozen=True, slots=True)
class LeaseState:
    """The present holder, since when, and when the lease was last renewed.

    It ends by itself `ttl_ms` after that, if its holder is dead.
    """

    holder: LeaseHolder
    since_ms: int
    renewed_ms: int
    ttl_ms: int


def _after(held: LeaseState | None, entry: LeaseEntry) -> LeaseState | None:
    """Returns the holder after one more entry."""
    if held is not None and entry.at_ms > held.renewed_ms + held.ttl_ms:
        held = None
    if held is not None and held.holder.id != entry.holder.id:
        return held
    if entry.verb is LeaseVerb.RELEASE:
        return None
    if held is None:
        return LeaseState(entry.holder, entry.at_ms, entry.at_ms, entry.ttl_ms)
    return replace(held, renewed_ms=entry.at_ms, ttl_ms=entry.ttl_ms)


def fold(entries: Iterable[LeaseEntry]) -> LeaseState | None:
    """Returns the holder right after the last entry. The caller's own claim tells the time."""
    held: LeaseState | None = None
    for entry in entries:
        held = _after(held, entry)
    return held


def held_without_another(entries: Iterable[LeaseEntry], holder: str, since_ms: int) -> bool:
    """Returns whether `holder` holds the lease, and no other apply held it since the entry of `since_ms`."""
    held: LeaseState | None = None
    seen = False
    for entry in entries:
        held = _after(held, entry)
        if entry.holder.id == holder and entry.at_ms == since_ms:
            seen = True
        elif seen and held is not None and held.holder.id != holder:
            return False
    return seen and held is not None and held.holder.id == holder


def encode_lease(verb: LeaseVerb, holder: LeaseHolder, ttl_ms: int) -> bytes:
    """Returns a lease entry's bytes."""
    return encode({"verb": verb.value, "ttl_ms": ttl_ms, "holder": msgspec.to_builtins(holder)})


def decode_lease(data: bytes, at_ms: int) -> LeaseEntry:
    """Returns a lease entry. Raises UnknownVersion or UnreadableValue."""
    return msgspec.structs.replace(shaped(decode("the lease", data), LeaseEntry), at_ms=at_ms)


_KEY = b"lease"


_ASK_AGAIN_SECONDS = 1.0


_MARGIN = 0.2  # the last part of the time to live: no request is sent, and those under way arrive
_GIVE_UP_AFTER_TTLS = 4  # without an answer since the last renewal
_LOOK_SECONDS = 0.2


def _clock() -> float:
    """Returns seconds that continue while the process is stopped or the machine sleeps."""
    return time.clock_gettime(getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC))


async def read_entries(client: ClusterClient) -> list[LeaseEntry]:
    """Returns the lease's entries. Every reader skips the same unreadable records; they grant nothing."""
    entries: list[LeaseEntry] = []
    for record in await read(client, LEASE):
        if record.value is not None:
            with suppress(UnreadableValue):
                entries.append(decode_lease(record.value, record.timestamp))
    return entries


class Lease:
    """The lease from `acquire` to `release`. A task of its own renews it, over connections of its own."""

    def __init__(self, endpoint: ClusterEndpoint, holder: LeaseHolder, ttl_ms: int = TTL_MS) -> None:
        self.cluster = endpoint.cluster
        self._client = ClusterClient(endpoint)
        self._log = LogWriter(self._client)
        self._holder = holder
        self._ttl_ms = ttl_ms
        self._renewed_at = 0.0
        self._renewal = Appended(-1, 0)  # the newest claim that extended the lease
        self._lost: str | None = None
        self._answered = asyncio.Event()  # the log answered a renewal: the lease is held, or lost
        self._stop = asyncio.Event()
        self._renewals: asyncio.Task[None] | None = None

    async def acquire(self, timeout_seconds: float, waiting: Callable[[LeaseState], None]) -> Self:
        """Claims the lease until it is granted. `waiting` is called once for each other holder.

        Raises Failure after `timeout_seconds`.
        """
        deadline = _clock() + timeout_seconds
        other: LeaseState | None = None
        try:
            while True:
                held = await self._claim()  # None: the holder released it just after the claim was refused
                if held is not None and held.holder.id == self._holder.id:
                    self._renewals = asyncio.create_task(self._renew_on_time(), name=f"lease-{self.cluster}")
                    return self
                if held is not None and (other is None or held.holder.id != other.holder.id):
                    waiting(held)
                other = held or other
                if _clock() >= deadline:
                    raise Failure(_refusal(self.cluster, other, timeout_seconds))
                await asyncio.sleep(min(_ASK_AGAIN_SECONDS, max(0.05, deadline - _clock())))
        except BaseException:
            self._close()
            raise

    async def _claim(self) -> LeaseState | None:
        """Writes a claim and returns the holder after it: the log's order decides between two claims."""
        sent_at = _clock()
        try:
            claim = await self._append_entry(LeaseVerb.CLAIM, self._ttl_ms / 1000)
        except ClusterFailure as failure:
            raise Failure(
                error(
                    f"the lease of {self.cluster} can't be requested: {failure.why}",
                    "the brokers must answer, and the principal must be allowed to write to " + LEASE,
                )
            ) from failure
        held = fold(await read_entries(self._client))
        self._renewed_at, self._renewal = sent_at, claim
        return held

    async def _append_entry(self, verb: LeaseVerb, seconds: float) -> Appended:
        value = encode_lease(verb, self._holder, self._ttl_ms)
        return (await self._log.append(LEASE, [(_KEY, value)], seconds=seconds))[0]

    async def _renew_on_time(self) -> None:
        every = self._ttl_ms / 1000 / 6
        while self._lost is None:
            with suppress(TimeoutError):
                await asyncio.wait_for(self._stop.wait(), every)
                return
            with suppress(ClusterFailure, Failure):  # the next turn tries again
                await self._renew()

    async def _renew(self) -> None:
        sent_at = _clock()
        lost: str | None = None
        claim = await self._append_entry(LeaseVerb.CLAIM, self._ttl_ms / 1000)
        late = claim.at_ms - self._renewal.at_ms > self._ttl_ms
        recreated = claim.offset <= self._renewal.offset  # or truncated, or its records were deleted
        if (late or recreated) and not held_without_another(
            await read_entries(self._client), self._holder.id, self._renewal.at_ms
        ):
            await self._append_entry(LeaseVerb.RELEASE, self._ttl_ms / 1000)  # if the claim was granted
            what = "was not renewed in time" if late else f"was in a log that is gone: {LEASE} was recreated"
            lost = f"the lease of {self.cluster} {what}, and another apply took it or may have taken it"
        self._renewed_at, self._renewal = sent_at, claim
        self._lost = self._lost or lost  # who gave up does not begin again
        self._answered.set()

    async def lost(self, interrupted: Callable[[], str | None] = lambda: None) -> str | None:
        """Returns None while the lease is certainly held, otherwise why it is not. Ask before every request.

        While the brokers do not answer a renewal in time, it waits for them, or until `interrupted` returns
        a reason.
        """
        ttl_seconds = self._ttl_ms / 1000
        while self._lost is None and (idle := _clock() - self._renewed_at) > ttl_seconds * (1 - _MARGIN):
            if self._stop.is_set() or idle > _GIVE_UP_AFTER_TTLS * ttl_seconds:
                self._lost = (
                    f"the lease of {self.cluster} was last renewed {idle:.0f} s ago, "
                    f"and ends by itself after {self._ttl_ms // 1000} s"
                )
            elif (reason := interrupted()) is not None:
                return reason
            else:
                self._answered.clear()
                with suppress(TimeoutError):
                    await asyncio.wait_for(self._answered.wait(), _LOOK_SECONDS)
        return self._lost

    async def release(self) -> None:
        """Releases the lease at once, unless it is lost already, also where its task is being cancelled."""
        releasing = asyncio.ensure_future(self._release())
        try:
            await asyncio.shield(releasing)
        except asyncio.CancelledError:
            await asyncio.wait({releasing})
            raise

    async def _release(self) -> None:
        self._stop.set()
        renewals, self._renewals = self._renewals, None
        try:
            if renewals is not None:
                await asyncio.wait({renewals})  # it may be cancelled: the lease is released all the same
                if self._lost is None:
                    await self._append_entry(LeaseVerb.RELEASE, 5.0)
                if not renewals.cancelled():
                    renewals.result()
        except ClusterFailure:
            self._lost = "the cluster does not answer; the lease ends by itself"
        finally:
            self._close()

    def _close(self) -> None:
        self._log.close()
        self._client.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.release()


def _refusal(cluster: str, held: LeaseState | None, seconds: float) -> Diagnostic:
    if held is None:
        return error(
            f"other applies to {cluster} took turns; waited {seconds:.0f} s", "give a longer --lock-timeout"
        )
    who = held.holder
    since = utc(held.since_ms, ISO)
    return error(
        f"{cluster} is being applied to by {who.user}@{who.host} (pid {who.pid}, topology {who.topology}, "
        f"since {since}); waited {seconds:.0f} s",
        "wait for it to end, or give a longer --lock-timeout; the lease of a dead apply ends by itself "
        f"within {held.ttl_ms // 1000} s",
    )
