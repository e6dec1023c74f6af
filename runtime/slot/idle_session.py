"""An idle session fetches from one broker for all intakes of a slot that have had no records for a while.

A slot with many flows has a fetch session for each flow at each leader, and each of them would ask its broker
again and again. One session asks for all of those that are idle. The broker answers it as soon as there is a
record, so no record waits longer than in a session of the flow itself.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Collection, Coroutine, Mapping
from typing import NamedTuple

from msgspec import Struct
from msgspec.structs import replace

from runtime.batch import Batch, walk
from runtime.contract.spec.naming import TopicPartition
from runtime.kafka.cluster import KafkaCluster
from runtime.kafka.errors import WireError
from runtime.kafka.fetch import FetchLimits, FetchSession, Key
from runtime.kafka.protocol.fetch import FetchedPartition, FetchFrom
from runtime.slot.budget import ByteBudget, SessionShares

IDLE_AFTER_S = 2.0  # without records, an intake lets the idle session fetch for it
_WAIT_S = 5.0  # the time of the source's last answer is shown in the status
_COPIED_BYTES = 64 << 10  # more records of one partition are not copied for several members
_HEARTBEATS = TopicPartition("heartbeats", 0)  # only for the text of an error


Start = Callable[[Coroutine[None, None, None]], object]


class IdleAnswer(NamedTuple):
    """News of one partition, with the offset that it was fetched from."""

    offset: int
    partition: FetchedPartition


class IdleMember:
    """A member is one intake in an idle session: the session fetches its partitions, and keeps the answers.

    The session includes a new member in its next request. It is `watched` from then on; until then, the
    intake fetches by itself. It is in the session until it `left`: with an answer that is more than a
    heartbeat, on an error, or because the intake takes it out. `wake` is set for each answer. `on_answer` is
    called with the time, in ms, when the broker answered for all partitions.
    """

    def __init__(self, session: IdleSession, on_answer: Callable[[int], None], wake: asyncio.Event) -> None:
        self.watched = False
        self.left = False
        self._session = session
        self.on_answer = on_answer
        self._wake = wake
        self._arrived: deque[IdleAnswer] = deque()
        self._failure: WireError | None = None

    @property
    def wait_s(self) -> float:
        """The time until the request that is under way ends, if no record comes."""
        return self._session.wait_s

    @property
    def has_answers(self) -> bool:
        """Whether the intake has not taken all answers yet."""
        return bool(self._arrived)

    def position(self, key: Key) -> int | None:
        """Returns the offset from which the session fetches a partition; None after the member left."""
        return None if self.left else self._session.position(key)

    def leave(self) -> None:
        """Takes the intake out of the session. Answers that have arrived are discarded."""
        self._arrived.clear()
        if not self.left:
            self._session.remove(self)

    async def answers(self) -> list[IdleAnswer]:
        """Returns what has arrived; none if the intake is woken for another reason. Raises WireError."""
        if not self._arrived and not self.left:
            await self._wake.wait()
        if not self._arrived and self._failure is not None:
            raise self._failure
        arrived = list(self._arrived)
        self._arrived.clear()
        return arrived

    # What the session calls

    def watch(self) -> None:
        """Handles that the next request fetches the partitions of this intake."""
        self.watched = True

    def removed(self) -> None:
        """Handles that the session has no partition of this intake any more."""
        self.left = True
        self._wake.set()

    def deliver(self, answer: IdleAnswer) -> None:
        """Keeps an answer for the intake."""
        self._arrived.append(answer)
        self._wake.set()

    def fail(self, failure: WireError) -> None:
        """Lets the intake fail as after a request of its own."""
        self._failure = failure
        self._wake.set()


class _Watched(Struct, frozen=True):
    """A partition of the session: from where it is fetched, for whom, and whether it holds heartbeats."""

    start: FetchFrom
    heartbeats: bool
    members: dict[IdleMember, None]


class IdleSession:
    """The fetch session of a broker for all idle intakes.

    Several members may have the same partition, if they read it from the same position: those of flows that
    copy the same topic, and the heartbeats, which every flow copies. Heartbeats end the idleness of no
    member: the session moves behind them by itself. Any other record makes its members leave, and they fetch
    by themselves. So does a member that has not taken its last answers: they do not pile up (R8).

    `run` ends when the last member has left.
    """

    def __init__(self, cluster: KafkaCluster, node: int, budget: ByteBudget, shares: SessionShares) -> None:
        self._session = FetchSession(cluster, node, FetchLimits(), purpose="fetch idle")
        self._budget = budget
        self._shares = shares
        self._members: dict[IdleMember, None] = {}
        self._watched: dict[Key, _Watched] = {}
        self._keys: dict[IdleMember, Collection[Key]] = {}
        self._ends_at = 0.0

    @property
    def wait_s(self) -> float:
        """The time until the request that is under way ends, if no record comes."""
        return max(0.0, self._ends_at - asyncio.get_running_loop().time())

    def position(self, key: Key) -> int | None:
        """Returns the offset from which a partition is fetched."""
        watched = self._watched.get(key)
        return watched.start.offset if watched is not None else None

    def join(
        self,
        starts: Mapping[Key, FetchFrom],
        heartbeats: Collection[Key],
        on_answer: Callable[[int], None],
        wake: asyncio.Event,
    ) -> IdleMember | None:
        """Adds an intake with its partitions; None where another member reads one from elsewhere."""
        if any(self.position(key) not in (None, start.offset) for key, start in starts.items()):
            return None
        member = IdleMember(self, on_answer, wake)
        self._members[member] = None
        self._keys[member] = list(starts)
        for key, start in starts.items():
            watched = self._watched.get(key)
            if watched is None:
                watched = self._watched[key] = _Watched(start, key in heartbeats, {})
                self._session.want(*key, start)
            watched.members[member] = None
        return member

    def remove(self, member: IdleMember) -> None:
        """Takes a member out, with the partitions that no other member has."""
        member.removed()
        del self._members[member]
        for key in self._keys.pop(member):
            watched = self._watched[key]
            del watched.members[member]
            if not watched.members:
                del self._watched[key]
                self._session.forget(*key)

    async def run(self) -> None:
        """Fetches while there are members. Where the broker fails, all of them fail: raises WireError."""
        self._shares.join()
        try:
            while self._members:
                await self._fetch()
        except WireError as error:
            for member in list(self._members):
                self.remove(member)
                member.fail(error)
            raise
        finally:
            self._shares.leave()

    async def close(self) -> None:
        """Closes the session at the broker."""
        await self._session.close()

    async def _fetch(self) -> None:
        """Sends one fetch for all members, and gives each of them its answers. Raises WireError."""
        share = self._shares.least_bytes()
        await self._budget.wait_for_room(share)
        self._session.limits = FetchLimits(round(_WAIT_S * 1000), 1, share)
        self._ends_at = asyncio.get_running_loop().time() + _WAIT_S
        members = list(self._members)
        for member in members:
            member.watch()
        self._budget.take(share)
        try:
            partitions = await self._session.fetch()
        finally:
            self._budget.give(share)
            self._ends_at = 0.0
        for member in members:
            if not member.left:
                member.on_answer(self._session.answered_ms)
                if member.has_answers:
                    self.remove(member)
        for partition in partitions:
            self._deliver(partition)

    def _deliver(self, partition: FetchedPartition) -> None:
        """Gives the news of a partition to its members, each with records of its own."""
        key = (partition.topic_id, partition.partition)
        watched = self._watched.get(key)
        if watched is None:
            return
        offset, members = watched.start.offset, list(watched.members)
        copied = len(partition.records) <= _COPIED_BYTES
        members[0].deliver(IdleAnswer(offset, partition))
        for member in members[1:] if copied else ():  # a flow stamps its batches in place
            records = memoryview(bytearray(partition.records))
            member.deliver(IdleAnswer(offset, replace(partition, records=records)))
        moved = _behind(partition, watched.start) if watched.heartbeats and copied else None
        if moved is not None:
            self._watched[key] = replace(watched, start=moved)
            self._session.want(*key, moved)
        elif partition.records or partition.error or partition.diverging is not None:
            for member in members:
                self.remove(member)


def _behind(partition: FetchedPartition, start: FetchFrom) -> FetchFrom | None:
    """Returns the position behind fetched heartbeats; None where they can't be read."""
    if partition.error or partition.diverging is not None:
        return None
    walked = walk(memoryview(bytes(partition.records)), _HEARTBEATS)
    if walked.failure is not None:
        return None
    if not walked.sets:
        return start
    last = walked.sets[-1]
    epoch = last.leader_epoch if isinstance(last, Batch) else -1
    return replace(start, offset=max(last.next_offset, start.offset), last_fetched_epoch=epoch)


class IdleSessions:
    """The idle sessions of a slot, one for each broker of a source while it has members.

    `spawn` starts a task whose failure ends the slot.
    """

    def __init__(self, budget: ByteBudget, shares: SessionShares, spawn: Start) -> None:
        self._budget = budget
        self._shares = shares
        self._spawn = spawn
        self._by_broker: dict[tuple[KafkaCluster, int], IdleSession] = {}

    def join(
        self,
        cluster: KafkaCluster,
        node: int,
        starts: Mapping[Key, FetchFrom],
        heartbeats: Collection[Key],
        on_answer: Callable[[int], None],
        wake: asyncio.Event,
    ) -> IdleMember | None:
        """Adds an intake to the session of its broker, which begins with the first one."""
        session = self._by_broker.get((cluster, node))
        if session is not None:
            return session.join(starts, heartbeats, on_answer, wake)
        session = self._by_broker[cluster, node] = IdleSession(cluster, node, self._budget, self._shares)
        member = session.join(starts, heartbeats, on_answer, wake)
        self._spawn(self._run(cluster, node, session))
        return member

    async def _run(self, cluster: KafkaCluster, node: int, session: IdleSession) -> None:
        """Runs a session until it has no members; nothing joins it while it is closed."""
        try:
            await session.run()
        except WireError:
            return  # its members have it
        finally:
            del self._by_broker[cluster, node]
        await session.close()
