"""The lease on a real cluster: one holder, a queue, an end by itself."""

import asyncio
import time
import uuid

import pytest

from planner.kafka import ClusterEndpoint, run_at
from planner.model.diagnostic import Failure
from planner.state import internal_topics
from planner.state.lease import Lease, LeaseHolder, LeaseState, fold, read_entries
from runtime.contract.spec.naming import LEASE
from runtime.contract.spec.topic_settings import InternalSpec
from tests.endpoints import endpoint

pytestmark = pytest.mark.integration

SHORT_MS = 3_000


@pytest.fixture
def place(lab) -> ClusterEndpoint:
    where = endpoint(lab, "dc1")
    run_at(where, lambda client: internal_topics.ensure(client, [LEASE], InternalSpec()))
    return where


def holder(user: str) -> LeaseHolder:
    return LeaseHolder(id=uuid.uuid4().hex, user=user, host="ops1", pid=7, topology="shop", plan="abc")


def nobody(_held):
    raise AssertionError("nobody should be in the way")


def anybody(_held) -> None:
    """Another holder may be in the way."""


async def now(place: ClusterEndpoint) -> LeaseState | None:
    """The holder, as another process reads it."""
    return fold(await asyncio.to_thread(run_at, place, read_entries))


async def test_a_second_one_is_refused_and_told_who_holds_it(place):
    seen: list[LeaseState] = []
    async with await Lease(place, holder("ada")).acquire(60, nobody):
        with pytest.raises(Failure) as refused:
            await Lease(place, holder("bob")).acquire(1, seen.append)
    assert "ada@ops1 (pid 7, topology shop, since 20" in str(refused.value)
    assert "--lock-timeout" in str(refused.value)
    assert [held.holder.user for held in seen] == ["ada"]


async def test_a_dead_holder_loses_it_by_itself_and_learns_so(place):
    dead = await Lease(place, holder("ada"), ttl_ms=SHORT_MS).acquire(60, nobody)
    dead._stop.set()  # its renewals stop, as those of a frozen process do
    began = time.monotonic()
    async with await Lease(place, holder("bob")).acquire(60, anybody) as taken:
        assert time.monotonic() - began < 25  # one of 30 s would not be free yet
        assert await taken.lost() is None
        assert "was last renewed" in (await dead.lost() or "")
        await dead.release()
        held = await now(place)
        assert held is not None
        assert held.holder.user == "bob", "the dead one's release must not free the new holder's lease"


async def test_renewals_keep_it_past_its_time_to_live(place):
    async with await Lease(place, holder("ada"), ttl_ms=2 * SHORT_MS).acquire(60, nobody) as lease:
        with pytest.raises(Failure):
            await Lease(place, holder("bob")).acquire(SHORT_MS / 1000 * 2.5, anybody)
        assert await lease.lost() is None


async def test_many_at_once_take_turns(place):
    inside: list[str] = []
    together: list[int] = []

    async def one(name: str) -> None:
        async with await Lease(place, holder(name)).acquire(60, anybody):
            inside.append(name)
            together.append(len(inside))
            await asyncio.sleep(0)
            inside.remove(name)

    await asyncio.gather(*(one(f"n{index}") for index in range(4)))
    assert together == [1, 1, 1, 1]
