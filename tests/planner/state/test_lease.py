"""The lease on a real cluster: one holder, a queue, an end by itself."""

import threading
import time
import uuid

import pytest

from planner.model.diagnostic import Failure
from planner.model.topology import Internal
from planner.state import internal_topics
from planner.state.lease import Lease, LeaseHolder, LeaseState, LeaseVerb, current
from runtime.contract.spec.naming import LEASE
from tests.endpoints import endpoint
from tests.records import wait_for

pytestmark = pytest.mark.integration

SHORT_MS = 3_000


@pytest.fixture
def place(lab):
    where = endpoint(lab, "dc1")
    internal_topics.ensure(where, [LEASE], Internal())
    return where


def holder(user: str) -> LeaseHolder:
    return LeaseHolder(id=uuid.uuid4().hex, user=user, host="ops1", pid=7, topology="shop", plan="abc")


def nobody(_held):
    raise AssertionError("nobody should be in the way")


def test_held_then_free(place):
    with Lease(place, holder("ada")).acquire(60, nobody) as lease:
        held = current(place)
        assert held is not None
        assert held.holder.user == "ada"
        assert lease.lost() is None
    assert current(place) is None


def test_a_second_one_is_refused_and_told_who_holds_it(place):
    seen: list[LeaseState] = []
    with Lease(place, holder("ada")).acquire(60, nobody), pytest.raises(Failure) as refused:
        Lease(place, holder("bob")).acquire(1, seen.append)
    assert "ada@ops1 (pid 7, topology shop, since 20" in str(refused.value)
    assert "--lock-timeout" in str(refused.value)
    assert [held.holder.user for held in seen] == ["ada"]


def test_a_second_one_waits_its_turn(place):
    first = Lease(place, holder("ada")).acquire(60, nobody)
    waiting = threading.Event()
    got = threading.Event()

    def second() -> None:
        with Lease(place, holder("bob")).acquire(60, lambda _held: waiting.set()):
            got.set()

    thread = threading.Thread(target=second)
    thread.start()
    assert waiting.wait(60)
    assert not got.is_set()
    first.release()
    assert got.wait(60)
    thread.join(60)


def test_a_dead_holder_loses_it_by_itself_and_learns_so(place):
    dead = Lease(place, holder("ada"), ttl_ms=SHORT_MS)
    dead.acquire(60, nobody)
    dead._stop.set()  # its renewals stop, as those of a frozen process do
    began = time.monotonic()
    with Lease(place, holder("bob")).acquire(60, lambda _held: None) as taken:
        assert time.monotonic() - began < 25  # one of 30 s would not be free yet
        assert taken.lost() is None
        assert "was last renewed" in (dead.lost() or "")
        dead.release()
        held = current(place)
        assert held is not None
        assert held.holder.user == "bob", "the dead one's release must not free the new holder's lease"


def test_one_that_renews_too_late_claims_it_again_if_nobody_took_it(place):
    late = Lease(place, holder("ada"), ttl_ms=1_000).acquire(60, nobody)
    end_of_renewals(late)
    held = current(place)
    assert held is not None
    wait_for(lambda: held.free_in_ms(time.time_ns() // 1_000_000) == 0)
    late._renew()
    again = current(place)
    assert again is not None
    assert again.holder.user == "ada"
    assert again.since_ms > held.renewed_ms + held.ttl_ms, "the late renewal counted"
    assert late.lost() is None
    late.release()
    assert current(place) is None


def test_one_that_renews_too_late_loses_it_to_another_that_is_gone_again(place):
    late = Lease(place, holder("ada"), ttl_ms=1_000).acquire(60, nobody)
    end_of_renewals(late)
    with Lease(place, holder("bob")).acquire(60, lambda _held: None):
        pass
    late._renew()
    assert "another apply took it or may have taken it" in (late.lost() or "")
    assert current(place) is None, "its own late claim holds the lease"


def test_whether_it_is_held_is_waited_for_until_the_user_interrupts(place):
    unsure = Lease(place, holder("ada"), ttl_ms=1_000_000).acquire(60, nobody)
    with unsure:
        unsure._renewed_at -= 900  # too late by the clock, while the next renewal is minutes away
        reasons = iter((None, None, "interrupted"))
        assert unsure.lost(lambda: next(reasons)) == "interrupted"
        waiting = threading.Thread(target=unsure._renew)
        waiting.start()
        assert unsure.lost() is None
        waiting.join(60)


def test_one_that_gave_up_stays_without_it_though_a_renewal_comes_through(place):
    with Lease(place, holder("ada"), ttl_ms=1_000_000).acquire(60, nobody) as silent:
        silent._renewed_at -= 5_000  # more than four times its time to live without an answer
        gave_up = silent.lost()
        assert "was last renewed" in (gave_up or "")
        silent._renew()
        assert silent.lost() == gave_up
    end_of_lease(place, silent)


def end_of_lease(place, lease):
    """Releases a lease in the log that its holder has given up."""
    lease._append_entry(LeaseVerb.RELEASE, 60)
    assert current(place) is None


def end_of_renewals(lease):
    """Ends its renewals for a while, as those of a process that was stopped."""
    lease._stop.set()
    lease._thread.join(60)
    lease._stop.clear()


def test_renewals_keep_it_past_its_time_to_live(place):
    with Lease(place, holder("ada"), ttl_ms=2 * SHORT_MS).acquire(60, nobody) as lease:
        with pytest.raises(Failure):
            Lease(place, holder("bob")).acquire(SHORT_MS / 1000 * 2.5, lambda _held: None)
        assert lease.lost() is None


def test_many_at_once_take_turns(place):
    inside: list[str] = []
    together: list[int] = []

    def one(name: str) -> None:
        with Lease(place, holder(name)).acquire(60, lambda _held: None):
            inside.append(name)
            together.append(len(inside))
            inside.remove(name)

    threads = [threading.Thread(target=one, args=(f"n{index}",)) for index in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(90)
    assert together == [1, 1, 1, 1]
