"""The lease is arithmetic over a log: claims, renewals and releases at the broker's append times."""

import asyncio

import pytest
from hypothesis import given
from hypothesis import strategies as st

from planner.kafka import ClusterEndpoint
from planner.kafka.log import Appended
from planner.state import lease
from planner.state.lease import (
    Lease,
    LeaseEntry,
    LeaseHolder,
    LeaseVerb,
    decode_lease,
    fold,
    held_without_another,
)

TTL = 30_000


def holder(who: str) -> LeaseHolder:
    return LeaseHolder(id=who, user=who, host="h", pid=1, topology="t", plan="p")


def log(*lines: tuple[int, str, LeaseVerb]) -> list[LeaseEntry]:
    return [LeaseEntry(verb, holder(who), at_ms, TTL) for at_ms, who, verb in lines]


C, X = LeaseVerb.CLAIM, LeaseVerb.RELEASE
HOUR = 3_600_000

CASES = {
    "an empty log: free": ([], None),
    "the first claim holds": ([(0, "a", C)], "a"),
    "a second claim is refused while the first lives": ([(0, "a", C), (29_999, "b", C)], "a"),
    "a refused claim prolongs nothing": ([(0, "a", C), (20_000, "b", C), (45_000, "c", C)], "c"),
    "at the very end of its time the holder still holds": ([(0, "a", C), (30_000, "b", C)], "a"),
    "a dead holder loses it by itself": ([(0, "a", C), (30_001, "b", C)], "b"),
    "a renewal prolongs": ([(0, "a", C), (20_000, "a", C), (45_000, "b", C)], "a"),
    "the newest renewals are enough": ([(30 * HOUR, "a", C), (30 * HOUR + 1, "b", C)], "a"),
    "a zombie's renewal after a takeover changes nothing": (
        [(0, "a", C), (40_000, "b", C), (41_000, "a", C)],
        "b",
    ),
    "a release frees at once": ([(0, "a", C), (10, "a", X), (11, "b", C)], "b"),
    "only the holder releases": ([(0, "a", C), (10, "b", X), (11, "b", C)], "a"),
    "a claim said twice is one": ([(0, "a", C), (1, "a", C), (2, "b", C)], "a"),
    "after its release a holder may claim again": ([(0, "a", C), (1, "a", X), (2, "a", C)], "a"),
}


@pytest.mark.parametrize(("lines", "expected"), CASES.values(), ids=CASES.keys())
def test_who_holds(lines, expected):
    held = fold(log(*lines))
    assert (held.holder.id if held else None) == expected


def test_since_is_the_claim_and_the_end_counts_from_the_last_renewal():
    held = fold(log((1_000, "a", C), (11_000, "a", C)))
    assert held is not None
    assert (held.since_ms, held.renewed_ms, held.ttl_ms) == (1_000, 11_000, 30_000)


WITHOUT_ANOTHER = {
    "claimed again after its end": ([(0, "a", C), (40_000, "a", C)], True),
    "taken and released": ([(0, "a", C), (40_000, "b", C), (40_001, "b", X), (40_002, "a", C)], False),
    "held by another before": ([(-9, "b", C), (-8, "b", X), (0, "a", C), (40_000, "a", C)], True),
    "its entry is not in the log": ([(40_000, "a", C)], False),
}


@pytest.mark.parametrize(
    ("lines", "expected"), WITHOUT_ANOTHER.values(), ids=[f"log: {one}" for one in WITHOUT_ANOTHER]
)
def test_held_without_another_since_its_first_entry(lines, expected):
    assert held_without_another(log(*lines), "a", since_ms=0) is expected


ENTRIES = st.lists(
    st.tuples(st.integers(1, 40_000), st.sampled_from("abc"), st.sampled_from(LeaseVerb)), max_size=12
)


@given(ENTRIES)
def test_whoever_is_told_that_it_held_alone_was_the_only_holder(steps):
    at_ms, lines = 0, [(0, "a", C)]
    for after_ms, who, verb in steps:
        at_ms += after_ms
        lines.append((at_ms, who, verb))
    entries = log(*lines)
    holders = [fold(entries[: count + 1]) for count in range(len(entries))]
    alone = all(held is None or held.holder.id == "a" for held in holders) and holders[-1] is not None
    assert held_without_another(entries, "a", since_ms=0) is alone


class FakeLog:
    """The lease's log in memory, which appends at the time `now_ms`."""

    def __init__(self) -> None:
        self.entries: list[LeaseEntry] = []
        self.now_ms = 0

    async def append(self, _topic: str, records: list[tuple[bytes, bytes]], **_: float) -> list[Appended]:
        self.entries += [decode_lease(value, self.now_ms) for _key, value in records]
        return [Appended(len(self.entries) - 1, self.now_ms)]

    async def read(self, _client: object) -> list[LeaseEntry]:
        return self.entries

    def close(self) -> None: ...


@pytest.fixture
def memory(monkeypatch: pytest.MonkeyPatch) -> FakeLog:
    log = FakeLog()
    monkeypatch.setattr(lease, "LogWriter", lambda _client: log)
    monkeypatch.setattr(lease, "read_entries", log.read)
    return log


async def held(ttl_ms: int = TTL) -> Lease:
    """The lease of `a`."""
    place = ClusterEndpoint("dc1", "127.0.0.1:1")
    return await Lease(place, holder("a"), ttl_ms=ttl_ms).acquire(1, lambda _: None)


async def test_whether_it_is_held_is_waited_for_until_the_user_interrupts(memory: FakeLog) -> None:
    unsure = await held(1_000_000)
    unsure._renewed_at -= 900  # too late by the clock, while the next renewal is minutes away
    reasons = iter((None, None, "interrupted"))
    assert await unsure.lost(lambda: next(reasons)) == "interrupted"
    renewal = asyncio.create_task(unsure._renew())
    assert await unsure.lost() is None
    await renewal
    await unsure.release()


async def test_one_that_gave_up_stays_without_it_though_a_renewal_comes_through(memory: FakeLog) -> None:
    silent = await held(1_000_000)
    silent._renewed_at -= 5_000  # more than four times its time to live without an answer
    gave_up = await silent.lost()
    assert "was last renewed" in (gave_up or "")
    await silent._renew()
    assert await silent.lost() == gave_up
    await silent._append_entry(LeaseVerb.RELEASE, 60)  # its holder has given up, so a release writes nothing
    await silent.release()
    assert fold(memory.entries) is None


GONE = "the lease of dc1 was in a log that is gone: __repl.lease was recreated, and another apply took it"


@pytest.mark.parametrize(
    ("recreated", "by_another", "later_ms", "why", "left"),
    [
        (False, [], 5_000, None, None),
        (True, [C], 5_000, f"{GONE} or may have taken it", "b"),
        (False, [], TTL + 1, None, None),  # too late, and nobody took it: it is claimed again
        (False, [C], TTL + 1, "another apply took it or may have taken it", "b"),
        # Its own late claim, behind one that is released, does not hold the lease.
        (False, [C, X], TTL + 1, "another apply took it or may have taken it", None),
    ],
)
async def test_a_holder_that_renews_late_knows_whether_another_may_hold_the_lease(
    recreated, by_another, later_ms, why, left, memory
):
    late = await held()
    memory.now_ms += 5_000
    await late._renew()
    assert await late.lost() is None
    memory.now_ms += later_ms
    before = [] if recreated else memory.entries
    memory.entries = before + [LeaseEntry(verb, holder("b"), memory.now_ms) for verb in by_another]
    await late._renew()
    found = await late.lost()
    await late.release()

    assert (found is None) == (why is None)
    assert (why or "") in (found or "")
    holding = fold(memory.entries)
    assert (holding and holding.holder.id) == left
