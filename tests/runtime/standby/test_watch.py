"""When a standby takes its job over: by its own clock, and by the order of claims."""

import itertools
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from msgspec import structs

from runtime.contract.launching import LaunchError, LaunchHandle
from runtime.contract.records import job_status
from runtime.contract.records.job_status import (
    JobStatus,
    StandbyState,
    StandbyStatus,
    StatusKey,
)
from runtime.contract.spec import naming
from runtime.contract.spec.cluster import ClusterSpec
from runtime.contract.spec.jobspec import JobSpec
from runtime.kafka.errors import Disconnected
from runtime.kafka.protocol.metadata import MetadataRequest, Partition
from runtime.kafka.protocol.produce import ProduceRequest
from runtime.kafka.protocol.transactions import CoordinatorKind
from runtime.kafka.records import InternalRecord
from runtime.standby import CLAIM_S, SILENCE_S, UNSURE_S, Standby, StandbyWatch
from tests.fakes.internal_topics import InternalTopics

SOON, LATE = int(SILENCE_S), int(UNSURE_S)
LONG = LATE + 1


def heartbeat(at_ms: int = 0, **more: Any) -> JobStatus:
    facts: dict[str, Any] = {"state": "running", **more}
    return JobStatus(job="dc2", topology="shop", driver="d", at_ms=at_ms, started_ms=0, **facts)


def report(standby: str, state: StandbyState = "taking_over", claim: int = -1) -> StandbyStatus:
    return StandbyStatus(standby=standby, state=state, at_ms=0, claim=claim)


def read(watch: StandbyWatch, first: int, last: int) -> None:
    for now in range(first, last + 1):
        watch.end_read(float(now))


def regular(heartbeats: int = 20, every: int = 1) -> StandbyWatch:
    """A standby that read so many heartbeats, the last one at 0 s, and read once a second."""
    watch = StandbyWatch("me")
    for second in range((1 - heartbeats) * every, 1):
        if second % every == 0:
            watch.take_heartbeat(heartbeat())
        watch.end_read(float(second))
    return watch


def claims_after(watch: StandbyWatch, now: int = 0) -> int:
    """Returns after how many seconds the standby may claim the job, when it reads nothing more."""
    for second in range(1, 100):
        watch.end_read(float(now + second))
        if watch.may_claim(now + second):
            return second
    raise AssertionError("it may never claim the job")


def watching(seconds: int = LONG, last: JobStatus | None = None, name: str = "me") -> StandbyWatch:
    """A standby that read a heartbeat at 0 s, and then nothing, once a second."""
    watch = StandbyWatch(name)
    watch.take_heartbeat(last or heartbeat())
    read(watch, 0, seconds)
    return watch


@pytest.mark.parametrize(
    ("seconds", "last", "claims"),
    [
        (0, heartbeat(), False),
        (9, heartbeat(), False),
        (10, heartbeat(), True),
        (60, heartbeat(), True),
        (LONG, heartbeat(state="stopped"), True),  # its machine was shut down
        # A job that repl stopped stays stopped.
        (LONG, heartbeat(state="stopping", stop_requested=True), False),
        (LONG, heartbeat(state="stopped", stop_requested=True), False),
    ],
)
def test_a_job_is_claimed_after_so_many_seconds_of_silence(
    seconds: int, last: JobStatus, claims: bool
) -> None:
    assert watching(seconds, last).may_claim(seconds) is claims


@pytest.mark.parametrize(
    ("watch", "seconds"),
    [
        (regular(), SOON),
        (regular(every=2), SOON),
        (regular(heartbeats=6), SOON),
        (regular(heartbeats=5), LATE),  # nothing shows how old the first one was
        (regular(every=4), LATE),  # on a slow link, or under much load
    ],
)
def test_a_job_whose_heartbeats_came_in_time_is_claimed_sooner(watch: StandbyWatch, seconds: int) -> None:
    assert claims_after(watch) == seconds


def test_one_late_heartbeat_makes_a_standby_wait_longer_until_five_came_in_time() -> None:
    watch, waits = regular(), []
    read(watch, 1, 4)
    for second in range(5, 11):
        watch.take_heartbeat(heartbeat())
        watch.end_read(float(second))
        waits.append(int(watch.awaited_s))
    assert waits == [LATE] * 5 + [SOON]


def test_a_failure_makes_a_standby_wait_longer() -> None:
    watch = regular()
    watch.disturb()
    assert claims_after(watch) == LATE


def test_where_no_driver_could_write_the_silence_begins_anew() -> None:
    watch = regular()
    read(watch, 1, SOON - 1)
    watch.restart()
    watch.end_read(float(SOON))
    assert claims_after(watch, SOON) == LATE


@pytest.mark.parametrize("still_s", [4, 9, 3600])
def test_a_standby_that_stood_still_waits_longer(still_s: int) -> None:
    """It could read nothing meanwhile, and its machine may be under load."""
    watch = regular()
    watch.end_read(float(still_s))
    assert claims_after(watch, still_s) == LATE - 2


def test_a_start_that_takes_long_makes_a_silent_job_no_less_silent() -> None:
    """The standby reads nothing while it starts the job. If the start fails, the job is still lost."""
    watch = regular()
    read(watch, 1, SOON)
    watch.end_read(float(SOON + 5))
    assert watch.silent
    watch.restart()
    assert not watch.silent


def test_a_job_that_never_ran_is_not_started() -> None:
    watch = StandbyWatch("me")
    read(watch, 0, LONG)
    assert not watch.may_claim(LONG)


@pytest.mark.parametrize(
    "clock",
    [
        lambda second: second * 1000,
        lambda second: (1 << 42) + second * 1000,
        lambda second: -second * 1000,
        lambda _: 7,
    ],
    ids=["years behind", "years ahead", "going backwards", "standing still"],
)
def test_a_wrong_clock_does_not_matter(clock: Callable[[int], int]) -> None:
    """The times in heartbeats are of the driver's clock; nothing is compared with them."""
    watch = StandbyWatch("me")
    for second in range(3 * LONG):
        watch.take_heartbeat(heartbeat(clock(second)))
        watch.end_read(float(second))
        assert not watch.may_claim(second)
    read(watch, 3 * LONG, 4 * LONG)
    assert watch.may_claim(4 * LONG)


def test_an_outage_of_the_destination_is_no_silence_and_a_heartbeat_begins_it_anew() -> None:
    watch = watching(4)
    watch.end_read(3600.0)  # the destination answers again
    assert watch.silent_s == 4 + 2
    assert not watch.may_claim(3600.0)
    watch = watching()
    watch.take_heartbeat(heartbeat(1))
    read(watch, LONG, LONG + 6)
    assert not watch.may_claim(LONG + 6)


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
    watch = watching()
    watch.take_standby(theirs, 100, now=LONG)
    assert watch.wins(mine, LONG) is wins


class Cluster:
    """The coordinator of the job's driver answers, or does not."""

    def __init__(self, *, answers: bool) -> None:
        self.answers, self.node = answers, 3
        self.forgotten: list[str] = []

    def forget_coordinator(self, kind: CoordinatorKind, key: str) -> None:
        self.forgotten.append(key)

    async def coordinator(self, kind: CoordinatorKind, key: str) -> int:
        return self.node

    async def call(self, node: int, request: object, within: float) -> None:
        if not self.answers:
            raise Disconnected(f"broker {node}", "gone", sent=True)


@pytest.mark.parametrize(("answers", "moves", "silent_s"), [(True, 0, LONG), (False, 0, 0), (True, 1, 0)])
async def test_without_the_coordinator_of_its_transactions_no_driver_sends_heartbeats(
    answers: bool, moves: int, silent_s: int, tmp_path: Path
) -> None:
    """So a standby does not take over, and counts anew; also after another broker became the coordinator."""
    spec = ClusterSpec(bootstrap="b:1")
    standby: Any = Standby("dc2", "dc2", spec, tmp_path, lambda spec: spec, print)
    standby._watch = watching()
    cluster = Cluster(answers=True)
    await standby._ask_coordinator(cluster)
    assert cluster.forgotten == ["repl.dc2.driver"]
    cluster.answers, cluster.node = answers, 3 + moves
    await standby._ask_coordinator(cluster)
    assert standby._watch.silent_s == silent_s


async def test_the_coordinator_is_asked_each_second_once_a_job_is_silent(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It was gone for a part of the silence only, and answers again when the job could be taken over."""
    spec = ClusterSpec(bootstrap="b:1")
    standby: Any = Standby("dc2", "dc2", spec, tmp_path, lambda spec: spec, print)
    standby._watch = watching(0)
    standby._cluster = cluster = Cluster(answers=True)
    now, claims = 0.0, 0

    async def nothing(*_: object) -> None: ...

    async def read(_: object) -> None:
        standby._watch.end_read(now)

    async def take_over(_: object) -> None:
        nonlocal claims
        claims += 1

    monkeypatch.setattr(standby, "_clock", lambda: now)
    monkeypatch.setattr(standby, "_read", read)
    monkeypatch.setattr(standby, "_take_over", take_over)
    monkeypatch.setattr(standby, "_report", nothing)
    monkeypatch.setattr(standby, "_runs_here", lambda: False)
    for second in range(30):
        now, cluster.answers = float(second), not 4 <= second < 9
        await standby._step()
        assert claims == max(0, second - 18)


def test_of_two_claims_at_once_each_standby_names_the_same_winner() -> None:
    one, two = watching(name="one"), watching(name="two")
    for watch in (one, two):
        for offset, claimant in ((7, "two"), (8, "one")):
            watch.take_standby(report(claimant), offset, LONG)
    assert (one.wins(8, LONG), two.wins(7, LONG)) == (False, True)


def test_a_claim_that_comes_to_nothing_is_respected_for_a_while_and_a_heartbeat_or_an_end_ends_it() -> None:
    watch = watching()
    watch.take_standby(report("other"), 100, now=LONG)
    assert watch.claimed_by_other(LONG) == "other"
    watch.take_standby(report("other", claim=100), 104, now=LONG + 10)  # the same claim, repeated
    assert not watch.may_claim(LONG + CLAIM_S - 1)
    assert watch.may_claim(LONG + CLAIM_S + 1)
    assert watch.wins(200, LONG + CLAIM_S + 1)

    watch = watching()
    watch.take_standby(report("other"), 100, now=LONG)
    watch.take_heartbeat(heartbeat(1))
    assert watch.claimed_by_other(LONG) == ""
    assert not watch.wins(99, LONG)

    watch = watching()
    watch.take_standby(report("other"), 100, now=LONG)
    watch.take_end("other")
    assert watch.may_claim(LONG)


class StatusTopic(InternalTopics):
    def __init__(self) -> None:
        super().__init__({naming.STATUS: []})

    def write(self, key: StatusKey, value: bytes) -> None:
        self.grow(naming.STATUS, InternalRecord(job_status.encode_key(key), value))


def spec_of(name: str) -> JobSpec:
    return JobSpec(
        job="dc2", topology=name, destination="dc2", clusters={"dc2": ClusterSpec(bootstrap="a:1")}, flows=[]
    )


async def test_heartbeats_of_a_newer_release_are_no_silence(tmp_path: Path) -> None:
    """It would fence a job that runs, while its machine is upgraded first."""
    topic, clock = StatusTopic(), itertools.count()
    standby: Any = Standby(
        *("dc2", "dc2", ClusterSpec(bootstrap="a:1"), tmp_path, lambda spec: spec, print),
        clock=lambda: float(next(clock)),
    )
    topic.write(StatusKey("job", "dc2"), job_status.encode(heartbeat()))
    for _ in range(3 * LONG):
        await standby._read(topic)
        assert not standby._watch.silent
        topic.write(StatusKey("job", "dc2"), b"\x63 of a newer release")


async def test_a_job_is_not_started_by_the_spec_before_one_that_cannot_be_read(tmp_path: Path) -> None:
    topic, launcher = StatusTopic(), Checking()
    said: list[str] = []
    job: Any = ("dc2", "dc2", ClusterSpec(bootstrap="a:1"), tmp_path, lambda spec: spec, said.append)
    standby: Any = Standby(*job, launcher=launcher)  # type: ignore[arg-type]
    able = []
    for value in (
        job_status.encode(spec_of("a")),
        b"\x63 of a newer release",
        job_status.encode(spec_of("b")),
    ):
        topic.write(StatusKey("spec", "dc2"), value)
        await standby._read(topic)
        await standby._check_ability()
        able.append(not standby._unable)
    assert able == [True, False, True]
    assert launcher.checked == ["a", "b"]
    skipped, now = said  # nothing was wrong at the start
    assert skipped.startswith("a record of the status topic was skipped")
    assert now == "this machine can take the job over now"


class Destination(StatusTopic):
    """Its status topic is read and written, or not; `epoch` is that of its leader."""

    def __init__(self) -> None:
        super().__init__()
        self.epoch, self.writable = 5, True

    def leader(self, topic: str, partition: int) -> Partition:
        return structs.replace(super().leader(topic, partition), leader_epoch=self.epoch)

    def doubt(self, topic: str) -> None: ...

    def forget_coordinator(self, kind: CoordinatorKind, key: str) -> None: ...

    async def coordinator(self, kind: CoordinatorKind, key: str) -> int:
        return 1

    async def call(self, node: int, request: Any, purpose: str = "", within: float | None = None) -> Any:
        if isinstance(request, MetadataRequest):
            return None
        if isinstance(request, ProduceRequest) and not self.writable:
            raise Disconnected("broker 1", "gone", sent=True)
        return await super().call(node, request, purpose, within)


@dataclass(frozen=True)
class Loss:
    """Heartbeats come each second until 20, and from `back` on. All are seconds.

    The topic can't be read between `unread`. Another broker leads it from `moved` on.
    """

    back: int = 100
    unread: range = range(0)
    moved: int = 100


@pytest.mark.parametrize(
    ("loss", "taken_over_at"),
    [
        (Loss(), 20 + SOON),  # the machine of the job is lost
        (Loss(back=24), None),  # its supervisor has started the job again
        # The leader of the status topic is down, and the driver waits 5 s for it at most.
        (Loss(unread=range(21, 29), moved=29, back=36), None),
        (Loss(unread=range(21, 29), back=29), None),
        (Loss(moved=21, back=28), None),  # it is down for the driver alone
        (Loss(moved=21), 21 + LATE),
        (Loss(unread=range(21, 22)), 20 + LATE),  # the standby can't read for a while
        (Loss(unread=range(21, 24)), 20 + LATE + 2),
    ],
)
async def test_a_healthy_job_is_not_taken_over_in_an_outage_of_the_status_topic(
    loss: Loss, taken_over_at: int | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    topic, now = Destination(), 0.0
    taken_over: list[float] = []
    standby: Any = Standby(
        *("dc2", "dc2", ClusterSpec(bootstrap="a:1"), tmp_path, lambda spec: spec, print),
        clock=lambda: now,
    )
    standby._cluster = topic

    async def nothing(*_: object) -> None: ...

    async def take_over(_: object) -> None:
        taken_over.append(now)

    monkeypatch.setattr(standby, "_take_over", take_over)
    monkeypatch.setattr(standby, "_report", nothing)
    monkeypatch.setattr(standby, "_runs_here", lambda: False)
    for second in range(60):
        now, topic.epoch = float(second), 5 + (second >= loss.moved)
        if second <= 20 or second >= loss.back:
            topic.write(StatusKey("job", "dc2"), job_status.encode(heartbeat()))
        topic.unlisted = {naming.STATUS} if second in loss.unread else set()
        await standby._attempt()
    assert next(iter(taken_over), None) == taken_over_at


async def test_a_silence_in_which_the_standby_can_t_write_begins_anew(tmp_path: Path) -> None:
    topic = Destination()
    standby: Any = Standby(
        *("dc2", "dc2", ClusterSpec(bootstrap="a:1"), tmp_path, lambda spec: spec, print),
    )
    standby._watch = regular()
    read(standby._watch, 1, SOON - 1)
    topic.writable = False
    with pytest.raises(Disconnected):
        await standby._post(topic, "watching")
    assert (standby._watch.silent_s, standby._watch.awaited_s) == (0, LATE)


@pytest.mark.parametrize("ended_at", [28, 30])
async def test_a_job_that_is_back_before_it_was_fenced_is_watched_at_once(
    ended_at: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The driver here reads another heartbeat and ends. The next silence counts like the first one."""
    topic, launcher, now = Destination(), Checking(), 0.0
    said: list[str] = []
    job: Any = ("dc2", "dc2", ClusterSpec(bootstrap="a:1"), tmp_path, lambda spec: spec, said.append)
    standby: Any = Standby(*job, launcher=launcher, clock=lambda: now)  # type: ignore[arg-type]
    standby._cluster = topic

    async def post(*_: object) -> int:
        return 100

    monkeypatch.setattr(standby, "_post", post)
    monkeypatch.setattr(standby, "_runs_here", lambda: len(launcher.launched) == 1 and now < ended_at)
    topic.write(StatusKey("spec", "dc2"), job_status.encode(spec_of("a")))
    for second in range(47):
        now = float(second)
        if second <= 20 or 28 <= second <= 40:
            topic.write(StatusKey("job", "dc2"), job_status.encode(heartbeat()))
        await standby._attempt()
    there = f"the job dc2 runs as {heartbeat().where}"
    taken = [
        "no heartbeat of the job dc2 for 4 s: it is started here",
        "the job dc2 was started: here, its log is log",
    ]
    assert said == [there, *taken, there, *taken]


@pytest.mark.parametrize("unread", [False, True])
async def test_a_start_that_fails_while_the_topic_changes_is_said(
    unread: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The silence begins anew with another leader, which is no heartbeat of the job."""
    topic, now = Destination(), 0.0
    said, posted = list[str](), list[str]()

    class Failing(Checking):
        def launch(self, spec: JobSpec, *, gives_way: bool) -> LaunchHandle:
            topic.epoch, topic.unlisted = 6, {naming.STATUS} if unread else set()
            raise LaunchError("no java was found", "install it")

    job: Any = ("dc2", "dc2", ClusterSpec(bootstrap="a:1"), tmp_path, lambda spec: spec, said.append)
    standby: Any = Standby(*job, launcher=Failing(), clock=lambda: now)  # type: ignore[arg-type]
    standby._cluster = topic

    async def post(_: object, state: str, *__: object) -> int:
        posted.append(state)
        return 100

    monkeypatch.setattr(standby, "_post", post)
    monkeypatch.setattr(standby, "_runs_here", lambda: False)
    topic.write(StatusKey("spec", "dc2"), job_status.encode(spec_of("a")))
    for second in range(29):
        now = float(second)
        if second <= 20:
            topic.write(StatusKey("job", "dc2"), job_status.encode(heartbeat()))
        await standby._attempt()
        topic.unlisted = set()
    there, claimed, failed = said
    assert there == f"the job dc2 runs as {heartbeat().where}"
    assert claimed == "no heartbeat of the job dc2 for 4 s: it is started here"
    assert failed.startswith("the job dc2 could not be started here: no java was found")
    assert posted[posted.index("taking_over") + 1] == "failed"


class Checking:
    """A launcher that could start every job."""

    def __init__(self) -> None:
        self.checked: list[str] = []
        self.launched: list[str] = []

    def check(self, spec: JobSpec) -> None:
        self.checked.append(spec.topology)

    def launch(self, spec: JobSpec, *, gives_way: bool) -> LaunchHandle:
        assert gives_way
        self.launched.append(spec.topology)
        return LaunchHandle(spec.job, where="here", log="log")
