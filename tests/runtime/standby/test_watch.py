"""When a standby takes its job over: by its own clock, and by the order of claims."""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from msgspec import structs

from runtime.batch import Batch, records, walk
from runtime.contract.launching import LaunchError, LaunchHandle, LaunchState, LaunchStatus
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
from runtime.kafka.errors import Disconnected, ErrorCode
from runtime.kafka.protocol.metadata import MetadataRequest, Partition
from runtime.kafka.protocol.produce import ProducedPartition, ProduceRequest, ProduceResponse
from runtime.kafka.protocol.transactions import CoordinatorKind
from runtime.kafka.records import InternalRecord
from runtime.standby import CLAIM_S, SILENCE_S, UNSURE_S, Standby, StandbyWatch
from tests.fakes.internal_topics import InternalTopics
from tests.runtime.batch.forge import HERE

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


def after(*steps: Callable[[StandbyWatch], object]) -> StandbyWatch:
    """A standby whose job was regular, and to which this happened since."""
    watch = regular()
    for step in steps:
        step(watch)
    return watch


def read_up_to(second: int) -> Callable[[StandbyWatch], None]:
    return lambda watch: read(watch, 1, second)


def read_at(second: int) -> Callable[[StandbyWatch], None]:
    return lambda watch: watch.end_read(float(second))


@pytest.mark.parametrize(
    ("watch", "now", "seconds"),
    [
        (regular(), 0, SOON),
        (regular(every=2), 0, SOON),
        (regular(heartbeats=6), 0, SOON),
        (regular(heartbeats=5), 0, LATE),  # nothing shows how old the first one was
        (regular(every=4), 0, LATE),  # on a slow link, or under much load
        (after(StandbyWatch.disturb), 0, LATE),
        # Where no driver could write, the silence begins anew.
        (after(read_up_to(SOON - 1), StandbyWatch.restart, read_at(SOON)), SOON, LATE),
        # It stood still: it could read nothing meanwhile, and its machine may be under load.
        *((after(read_at(second)), second, LATE - 2) for second in (4, 9, 3600)),
    ],
)
def test_a_job_whose_heartbeats_came_in_time_is_claimed_sooner(
    watch: StandbyWatch, now: int, seconds: int
) -> None:
    assert claims_after(watch, now) == seconds


def test_one_late_heartbeat_makes_a_standby_wait_longer_until_five_came_in_time() -> None:
    watch, waits = regular(), []
    read(watch, 1, 4)
    for second in range(5, 11):
        watch.take_heartbeat(heartbeat())
        watch.end_read(float(second))
        waits.append(int(watch.awaited_s))
    assert waits == [LATE] * 5 + [SOON]


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


class Destination(InternalTopics):
    """Its status topic is read and written, or not. `epoch` is that of its leader."""

    def __init__(self) -> None:
        super().__init__({naming.STATUS: []})
        self.epoch, self.writable = 5, True
        self.coordinates, self.answers = 1, True  # the broker that is the coordinator, and whether it does
        self.looked_up: int | None = None  # the coordinator as the client knows it, until it forgets it
        self.posted: list[str] = []  # the states of standbys

    def write(self, kind: Any, value: bytes) -> None:
        self.grow(naming.STATUS, InternalRecord(job_status.encode_key(StatusKey(kind, "dc2")), value))

    def leader(self, topic: str, partition: int) -> Partition:
        return structs.replace(super().leader(topic, partition), leader_epoch=self.epoch)

    def doubt(self, topic: str) -> None: ...

    def forget_coordinator(self, kind: CoordinatorKind, key: str) -> None:
        assert (kind, key) == (CoordinatorKind.TRANSACTION, "repl.dc2.driver")
        self.looked_up = None

    async def coordinator(self, kind: CoordinatorKind, key: str) -> int:
        if self.looked_up is None:
            self.looked_up = self.coordinates
        return self.looked_up

    async def call(self, node: int, request: Any, purpose: str = "", within: float | None = None) -> Any:
        if isinstance(request, MetadataRequest):
            if not self.answers:
                raise Disconnected(f"broker {node}", "gone", sent=True)
            return None
        if not isinstance(request, ProduceRequest):
            return await super().call(node, request, purpose, within)
        if not self.writable:
            raise Disconnected("broker 1", "gone", sent=True)
        (part,) = request.partitions
        (batch,) = walk(b"".join(bytes(piece) for piece in part.records), HERE).sets
        assert isinstance(batch, Batch)
        self.posted += [job_status.decode_standby(one.value or b"").state for one in records(batch, HERE)]
        return ProduceResponse(0, (ProducedPartition(part.topic, 0, ErrorCode.NONE, 100, -1, 0),))


class Machine:
    """A launcher that could start every job. What it started runs while `runs` is true."""

    def __init__(self) -> None:
        self.checked: list[str] = []
        self.launched: list[str] = []
        self.runs = False
        self.on_launch: Callable[[], None] = lambda: None

    def check(self, spec: JobSpec) -> None:
        self.checked.append(spec.topology)

    def find(self, job: str) -> LaunchStatus:
        return LaunchStatus(LaunchState.RUNNING if self.runs else LaunchState.UNKNOWN, None)

    def launch(self, spec: JobSpec, *, gives_way: bool) -> LaunchHandle:
        assert gives_way
        self.on_launch()
        self.launched.append(spec.topology)
        self.runs = True
        return LaunchHandle(spec.job, where="here", log="log")


def spec_of(name: str) -> bytes:
    clusters = {"dc2": ClusterSpec(bootstrap="a:1")}
    return job_status.encode(
        JobSpec(job="dc2", topology=name, destination="dc2", clusters=clusters, flows=[])
    )


class Life:
    """The seconds of a standby of a job whose spec is known."""

    def __init__(self, folder: Path) -> None:
        self.topic, self.machine = Destination(), Machine()
        self.said: list[str] = []
        self.now = 0.0
        cluster: Any = self.topic
        launcher: Any = self.machine
        self.standby: Any = Standby(
            *("dc2", "dc2", ClusterSpec(bootstrap="a:1"), folder, lambda spec: spec, self.said.append),
            launcher=launcher,
            clock=lambda: self.now,
        )
        self.standby._cluster = cluster
        self.standby._archiving = asyncio.ensure_future(asyncio.sleep(0))  # Spark's classes are archived
        self.topic.write("spec", spec_of("a"))

    async def pass_second(self, second: int, *, heartbeat_comes: bool) -> None:
        self.now = float(second)
        if heartbeat_comes:
            self.topic.write("job", job_status.encode(heartbeat()))
        await self.standby._attempt()


RUNS_THERE = f"the job dc2 runs as {heartbeat().where}"
CLAIMED = "no heartbeat of the job dc2 for 4 s: it is started here"


async def test_heartbeats_of_a_newer_release_are_no_silence(tmp_path: Path) -> None:
    """It would fence a job that runs, while its machine is upgraded first."""
    life = Life(tmp_path)
    life.topic.write("job", job_status.encode(heartbeat()))
    for second in range(3 * LONG):
        await life.pass_second(second, heartbeat_comes=False)
        assert not life.standby._watch.silent
        life.topic.write("job", b"\x63 of a newer release")


async def test_a_job_is_not_started_by_the_spec_before_one_that_cannot_be_read(tmp_path: Path) -> None:
    life, able = Life(tmp_path), []
    for value in (spec_of("a"), b"\x63 of a newer release", spec_of("b")):
        life.topic.write("spec", value)
        await life.standby._read(life.topic)
        await life.standby._check_ability()
        able.append(not life.standby._unable)
    assert able == [True, False, True]
    assert life.machine.checked == ["a", "b"]
    skipped, now = life.said  # nothing was wrong at the start
    assert skipped.startswith("a record of the status topic was skipped")
    assert now == "this machine can take the job over now"


@dataclass(frozen=True)
class Loss:
    """Heartbeats come each second until 20, and from `back` on. All are seconds.

    The topic can't be read between `unread`. Another broker leads it from `moved` on. The coordinator of the
    driver's transactions does not answer between `unanswered`, and is another broker from `handed_over` on.
    """

    back: int = 100
    unread: range = range(0)
    moved: int = 100
    unanswered: range = range(0)
    handed_over: int = 100


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
        # Without the coordinator no driver sends heartbeats. It is asked each second of a silence.
        (Loss(unanswered=range(21, 45)), None),
        (Loss(unanswered=range(23, 26)), 26 + LATE),
        (Loss(handed_over=23), 24 + LATE),
    ],
)
async def test_a_healthy_job_is_not_taken_over_in_an_outage_of_the_destination(
    loss: Loss, taken_over_at: int | None, tmp_path: Path
) -> None:
    life = Life(tmp_path)
    topic = life.topic
    for second in range(45):
        topic.epoch = 5 + (second >= loss.moved)
        topic.unlisted = {naming.STATUS} if second in loss.unread else set()
        topic.answers, topic.coordinates = second not in loss.unanswered, 1 + (second >= loss.handed_over)
        await life.pass_second(second, heartbeat_comes=second <= 20 or second >= loss.back)
        if life.machine.launched:
            break
    assert (second if life.machine.launched else None) == taken_over_at


async def test_a_silence_in_which_the_standby_can_t_write_begins_anew(tmp_path: Path) -> None:
    life = Life(tmp_path)
    life.standby._watch = regular()
    read(life.standby._watch, 1, SOON - 1)
    life.topic.writable = False
    with pytest.raises(Disconnected):
        await life.standby._post(life.topic, "watching")
    assert (life.standby._watch.silent_s, life.standby._watch.awaited_s) == (0, LATE)


@pytest.mark.parametrize("ended_at", [28, 30])
async def test_a_job_that_is_back_before_it_was_fenced_is_watched_at_once(
    ended_at: int, tmp_path: Path
) -> None:
    """The driver here reads another heartbeat and ends. The next silence counts like the first one."""
    life = Life(tmp_path)
    for second in range(47):
        if second == ended_at:
            life.machine.runs = False
        await life.pass_second(second, heartbeat_comes=second <= 20 or 28 <= second <= 40)
    taken = [CLAIMED, "the job dc2 was started: here, its log is log"]
    assert life.said == [RUNS_THERE, *taken, RUNS_THERE, *taken]


@pytest.mark.parametrize("unread", [False, True])
async def test_a_start_that_fails_while_the_topic_changes_is_said(unread: bool, tmp_path: Path) -> None:
    """The silence begins anew with another leader, which is no heartbeat of the job."""
    life = Life(tmp_path)

    def fail() -> None:
        life.topic.epoch, life.topic.unlisted = 6, {naming.STATUS} if unread else set()
        raise LaunchError("no java was found", "install it")

    life.machine.on_launch = fail
    for second in range(29):
        await life.pass_second(second, heartbeat_comes=second <= 20)
        life.topic.unlisted = set()
    there, claimed, failed = life.said
    assert (there, claimed) == (RUNS_THERE, CLAIMED)
    assert failed.startswith("the job dc2 could not be started here: no java was found")
    posted = life.topic.posted
    assert posted[posted.index("taking_over") + 1] == "failed"
