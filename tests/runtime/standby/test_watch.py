"""When a standby takes its job over: by its own clock, and by the order of claims."""

from typing import Any

import pytest

from runtime.contract.records.job_status import JobStatus, StandbyState, StandbyStatus
from runtime.standby import CLAIM_S, SILENCE_S, StandbyWatch

LONG = int(SILENCE_S) + 1


def heartbeat(at_ms: int = 0, **more: Any) -> JobStatus:
    return JobStatus(
        job="dc2", topology="shop", driver="d", state="running", at_ms=at_ms, started_ms=0, **more
    )


def report(standby: str, state: StandbyState = "taking_over", claim: int = -1) -> StandbyStatus:
    return StandbyStatus(standby=standby, state=state, at_ms=0, claim=claim)


def watching(seconds: int = 0, **last: Any) -> StandbyWatch:
    """A standby that read a heartbeat at 0 s, and then nothing, once a second."""
    watch = StandbyWatch("me")
    watch.take_heartbeat(heartbeat(**last))
    read(watch, 0, seconds)
    return watch


def read(watch: StandbyWatch, first: int, last: int) -> None:
    for now in range(first, last + 1):
        watch.end_read(float(now))


@pytest.mark.parametrize(("seconds", "silent"), [(0, False), (11, False), (12, True), (60, True)])
def test_silence_is_counted_from_the_last_heartbeat(seconds: int, silent: bool) -> None:
    assert watching(seconds).may_claim(seconds) is silent


def test_a_job_that_never_ran_is_not_started() -> None:
    watch = StandbyWatch("me")
    read(watch, 0, LONG)
    assert not watch.may_claim(LONG)


@pytest.mark.parametrize(
    ("state", "stop_requested", "taken"),
    [
        ("running", False, True),
        ("stopped", False, True),  # its machine was shut down
        ("stopping", True, False),
        ("stopped", True, False),
    ],
)
def test_a_job_that_repl_stopped_stays_stopped(state: str, stop_requested: bool, taken: bool) -> None:
    watch = StandbyWatch("me")
    watch.take_heartbeat(
        JobStatus(
            job="dc2",
            topology="shop",
            driver="d",
            state=state,  # type: ignore[arg-type]
            at_ms=0,
            started_ms=0,
            stop_requested=stop_requested,
        )
    )
    read(watch, 0, LONG)
    assert watch.may_claim(LONG) is taken


@pytest.mark.parametrize("clock", ["years behind", "years ahead", "going backwards", "standing still"])
def test_a_wrong_clock_does_not_matter(clock: str) -> None:
    """The times in heartbeats are of the driver's clock; nothing is compared with them."""
    at_ms = {
        "years behind": lambda second: second * 1000,
        "years ahead": lambda second: (1 << 42) + second * 1000,
        "going backwards": lambda second: -second * 1000,
        "standing still": lambda second: 7,
    }[clock]
    watch = StandbyWatch("me")
    for second in range(3 * LONG):
        watch.take_heartbeat(heartbeat(at_ms(second)))
        watch.end_read(float(second))
        assert not watch.may_claim(second)
    read(watch, 3 * LONG, 4 * LONG)
    assert watch.may_claim(4 * LONG)


def test_an_outage_of_the_destination_is_no_silence() -> None:
    watch = watching(5)
    watch.end_read(3600.0)  # the destination answers again
    assert watch.silent_s == 5 + 3
    assert not watch.may_claim(3600.0)


def test_a_heartbeat_begins_the_silence_anew() -> None:
    watch = watching(LONG)
    watch.take_heartbeat(heartbeat(1))
    read(watch, LONG, LONG + 11)
    assert not watch.may_claim(LONG + 11)


@pytest.mark.parametrize(
    ("theirs", "mine", "wins"),
    [
        (report("other"), 101, False),  # at offset 100
        (report("other"), 99, True),
        (report("other", claim=98), 99, False),  # a later record of an earlier claim
        (report("other", "watching"), 101, True),  # it gave way
        (report("other", "failed"), 101, True),
        (report("me"), 101, True),
    ],
)
def test_the_first_claim_wins(theirs: StandbyStatus, mine: int, wins: bool) -> None:
    watch = watching(LONG)
    watch.take_standby(theirs, 100, now=LONG)
    assert watch.wins(mine, LONG) is wins


def test_of_two_claims_at_once_each_standby_names_the_same_winner() -> None:
    one, two = StandbyWatch("one"), StandbyWatch("two")
    for watch in (one, two):
        watch.take_heartbeat(heartbeat())
        read(watch, 0, LONG)
        watch.take_standby(report("two"), 7, LONG)
        watch.take_standby(report("one"), 8, LONG)
    assert (one.wins(8, LONG), two.wins(7, LONG)) == (False, True)


def test_a_claim_that_comes_to_nothing_is_respected_for_a_while() -> None:
    watch = watching(LONG)
    watch.take_standby(report("other"), 100, now=LONG)
    assert watch.claimed_by_other(LONG) == "other"
    watch.take_standby(report("other", claim=100), 104, now=LONG + 10)  # the same claim, repeated
    assert not watch.may_claim(LONG + CLAIM_S - 1)
    assert watch.may_claim(LONG + CLAIM_S + 1)
    assert watch.wins(200, LONG + CLAIM_S + 1)


def test_a_heartbeat_ends_every_claim() -> None:
    watch = watching(LONG)
    watch.take_standby(report("other"), 100, now=LONG)
    watch.take_heartbeat(heartbeat(1))
    assert watch.claimed_by_other(LONG) == ""
    assert not watch.wins(99, LONG)


def test_a_standby_that_ended_claims_nothing() -> None:
    watch = watching(LONG)
    watch.take_standby(report("other"), 100, now=LONG)
    watch.take_end("other")
    assert watch.may_claim(LONG)
