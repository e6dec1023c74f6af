"""Runs one standby: it takes the job over on another machine when the job's own machine is gone.

It reads the job's heartbeats in the status topic of the destination, and starts the job here with a launcher
once they end for good. Nothing of the driver lives here.

When a standby takes over, and which of several does, is decided by `StandbyWatch`, which is pure. No clock of
another machine is read: a heartbeat is a new record, whatever time stands in it. The caller passes the
seconds of its own monotonic clock. Of several claims, the offset in the status topic decides, which is the
same for every reader. A wrong decision copies nothing twice: the driver that starts last fences the others
(R3, R10).
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
import time
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from runtime.contract.client.settings import ClientSettingsError
from runtime.contract.launching import LaunchError, LaunchState
from runtime.contract.records import job_status
from runtime.contract.records.control import driver_transactional_id
from runtime.contract.records.job_status import (
    JobStatus,
    StandbyState,
    StandbyStatus,
    StatusKey,
)
from runtime.contract.records.record_values import UnreadableValue
from runtime.contract.spec import naming
from runtime.contract.spec.cluster import ClusterSpec
from runtime.contract.spec.jobspec import JobSpec
from runtime.contract.spec.naming import TopicPartition
from runtime.contract.whole_file import write_private
from runtime.kafka.cluster import KafkaCluster, named, opened
from runtime.kafka.errors import WireError
from runtime.kafka.protocol.metadata import MetadataRequest
from runtime.kafka.protocol.transactions import CoordinatorKind
from runtime.kafka.records import InternalRecord, batches_of, plain
from runtime.kafka.timing import Silence, in_time, now_ms
from runtime.launch.command import archive_classes
from runtime.launch.folder import JobFolder
from runtime.launch.supervision.supervised import SupervisedLauncher
from runtime.ledger.records import READ_FAILURES, InternalTopicScan
from runtime.ledger.transaction_writer import send
from runtime.machine import hold

SILENCE_S = 4.0
"""A job whose heartbeats came in time is started after so long without one.

Nothing is decided by it: the driver that a standby starts looks for heartbeats for 3 s more, while Spark
starts, and ends if one comes. So a job that its own supervisor starts again in 4 to 11 s stays where it is.
"""
UNSURE_S = 10.0
"""The same, where heartbeats were late, or reading or writing the status topic failed.

A driver may then be late again: a request that it sent to a broker that was lost has 5 s.
"""
CLAIM_S = 45.0
"""A claim of another standby is respected for so long; a job starts in 6 to 14 s."""
EVERY_S = 1.0
_SOON_S = 0.1
_GAP_S = 2.0  # a longer silence may be the coordinator's, and a heartbeat after it was late
_IN_TIME = 5  # heartbeats in a row that came in time: the next one is expected in time


class _Claim(NamedTuple):
    """The claim of another standby: its offset, and when this standby first read it."""

    offset: int
    read_at: float


class StandbyWatch:
    """A StandbyWatch counts the silence of one job and knows the claims of the other standbys.

    Silence counts only while the destination answers. How much of it is awaited depends on how regular the
    heartbeats were before.
    """

    def __init__(self, standby: str) -> None:
        self.status: JobStatus | None = None
        self.heartbeats = 0
        self._silence = Silence(_GAP_S)
        self._in_time = 0  # heartbeats in a row
        self._read_at = float("-inf")
        self._standby = standby
        self._claims: dict[str, _Claim] = {}

    def take_heartbeat(self, status: JobStatus | None) -> None:
        """Takes a heartbeat that was read. The silence begins anew.

        None is one that can't be read, as of a newer release: it shows that the job runs, and nothing more.
        """
        self.status = status or self.status
        self.heartbeats += 1
        self._in_time = self._in_time + 1 if self._silence.seconds <= _GAP_S else 0
        self._silence.restart()
        self._claims.clear()

    def end_read(self, now: float) -> None:
        """Ends one complete read of the status topic."""
        if now - self._read_at > _GAP_S + EVERY_S:
            self.disturb()
        self._read_at = now
        self._silence.end_read(now)

    def disturb(self) -> None:
        """Takes a failure at the destination, or of this standby: the next heartbeat may be late.

        A job that is silent already stays so: the standby reads nothing while it starts the job.
        """
        if not self.silent:
            self._in_time = 0

    def restart(self) -> None:
        """Begins the silence anew: no driver could write a heartbeat at this moment."""
        self._silence.restart()
        self.disturb()

    def take_standby(self, status: StandbyStatus, offset: int, now: float) -> None:
        """Takes the report of a standby that was read at `offset`."""
        if status.standby == self._standby:
            return
        if status.state != "taking_over":
            self._claims.pop(status.standby, None)
            return
        claimed = status.claim if status.claim >= 0 else offset
        claim = self._claims.get(status.standby)
        if claim is None or claim.offset != claimed:
            self._claims[status.standby] = _Claim(claimed, now)

    def take_end(self, standby: str) -> None:
        """Takes the tombstone of a standby that ended."""
        self._claims.pop(standby, None)

    @property
    def silent_s(self) -> float:
        """The seconds without a heartbeat."""
        return self._silence.seconds

    @property
    def awaited_s(self) -> float:
        """After so many seconds without a heartbeat the job is taken over."""
        return SILENCE_S if self._in_time >= _IN_TIME else UNSURE_S

    @property
    def silent(self) -> bool:
        """Whether the job sends no heartbeat, though it should."""
        return self.expected and self.silent_s >= self.awaited_s

    @property
    def expected(self) -> bool:
        """Whether a heartbeat of the job is expected: it has run, and repl did not stop it."""
        return self.status is not None and not self.status.stop_requested

    def claimed_by_other(self, now: float) -> str:
        """Returns a standby whose claim is still respected, or an empty text."""
        held = (standby for standby, claim in self._claims.items() if now - claim.read_at < CLAIM_S)
        return next(held, "")

    def may_claim(self, now: float) -> bool:
        """Returns whether this standby may write a claim."""
        return self.silent and not self.claimed_by_other(now)

    def wins(self, offset: int, now: float) -> bool:
        """Returns whether the own claim at `offset` is the first one.

        It is asked after the topic was read to the claim or further: all readers see the same order.
        """
        before = (claim for claim in self._claims.values() if claim.offset < offset)
        return self.silent and not any(now - claim.read_at < CLAIM_S for claim in before)


_REPORT_S = 2.0
_READ_WITHIN_S = 10.0
_COORDINATOR_WITHIN_S = 3.0
_AGAIN_S = 30.0  # after a takeover that failed here
_LEAVE_WITHIN_S = 5.0
_UNREADABLE_SPEC = (
    "its spec can't be read, as one of a newer release — install the release of the job here, or run repl"
    " apply where the topology is"
)


class StandbyRefused(Exception):
    """This machine cannot take the job over; the text says why, and what to do."""


class Standby:
    """A Standby watches one job and takes it over. One of a job runs below one home folder.

    Only an unexpected exception ends it: a destination that does not answer is waited for, and a takeover
    that fails here is left to the other standbys and tried again later.

    `cluster` says how the job's destination is reached; `home` is the folder of this machine's jobs. `spec`
    returns the spec by which the job would be started here, from the spec that the job runs by. It raises
    StandbyRefused. `say` shows a line to the user.
    """

    def __init__(
        self,
        job: str,
        destination: str,
        cluster: ClusterSpec,
        home: Path,
        spec: Callable[[JobSpec], JobSpec],
        say: Callable[[str], None],
        *,
        launcher: SupervisedLauncher | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._job, self._destination, self._settings = job, destination, cluster
        self._spec_here, self._say = spec, say
        self._folder = JobFolder(home, job)
        self._launcher = launcher if launcher is not None else SupervisedLauncher(home)
        self._clock = clock
        self._cluster: KafkaCluster | None = None
        self._scan: InternalTopicScan | None = None
        self._published: JobSpec | None = None
        self._standby = ""
        self._watch = StandbyWatch("")
        self._claim: int | None = None
        self._unable = ""
        self._checked: JobSpec | None = None
        self._again_at = float("-inf")
        self._reported: tuple[StandbyState, str] | None = None
        self._reported_at = float("-inf")
        self._news: dict[str, str] = {}  # what was said last, by subject
        self._coordinator: int | None = None  # as of its last answer
        self._leader: tuple[int, int] | None = None  # of the status topic, with its epoch
        self._claimed_after = -1  # so many heartbeats
        self._archiving: asyncio.Task[None] | None = None  # Spark's classes

    async def run(self, stopping: asyncio.Event) -> None:
        """Watches until `stopping` is set. A job that it started goes on.

        Raises StandbyRefused where a standby of the job runs below the same home folder.
        """
        lock = self._begin()
        try:
            while not stopping.is_set():
                await self._attempt()
                waiting = asyncio.ensure_future(stopping.wait())
                await asyncio.wait([waiting], timeout=self._pause_s)
                waiting.cancel()
            await self._leave()
        finally:
            await self._end_archiving()
            if self._cluster is not None:
                await self._cluster.close()
            os.close(lock)

    @property
    def _pause_s(self) -> float:
        """The next step comes after a second, or sooner: when the silence may be over."""
        left = self._watch.awaited_s - self._watch.silent_s
        return min(max(left, _SOON_S), EVERY_S) if self._watch.expected and left > 0 else EVERY_S

    def _begin(self) -> int:
        """Takes the lock of the standby, and reads its id, which stays the same after a restart."""
        file = self._folder.path / "standby.id"
        try:
            self._folder.make()
            lock = hold(self._folder.path / "standby.lock")
            if lock is None:
                raise StandbyRefused(
                    f"a standby of the job {self._job} runs here already — one machine needs one"
                )
            if not file.exists():
                write_private(file, uuid.uuid4().hex.encode())
            self._standby = file.read_text()
        except OSError as error:
            why = error.strerror or error
            raise StandbyRefused(f"{file} can't be used: {why} — make the folder writable") from error
        except LaunchError as error:
            raise StandbyRefused(str(error)) from error
        self._watch = StandbyWatch(self._standby)
        return lock

    async def _attempt(self) -> None:
        """Makes one step; a failure of the destination is said once and waited for."""
        try:
            await self._step()
        except (WireError, ClientSettingsError, LaunchError, *READ_FAILURES) as error:
            self._scan = None if isinstance(error, READ_FAILURES) else self._scan
            self._watch.disturb()
            self._say_once("trouble", f"nothing is decided, and it is tried again: {error}")
        else:
            if self._news.pop("trouble", ""):
                self._say(f"watching again at {self._destination}")

    def _say_once(self, subject: str, news: str) -> None:
        """Says what is new of a subject."""
        if self._news.get(subject) != news:
            self._news[subject] = news
            self._say(news)

    async def _step(self) -> None:
        """Reads the status topic once, decides, and reports."""
        if self._cluster is None:
            cluster = named(self._settings, f"repl.{self._job}.standby")
            self._cluster = await opened(self._destination, cluster, os.environ)
        await self._read(self._cluster)
        if self._watch.expected and (self._coordinator is None or self._watch.silent_s > _GAP_S):
            await self._ask_coordinator(self._cluster)
        self._say_news()
        await self._check_ability()
        runs_here = await asyncio.to_thread(self._runs_here)
        now = self._clock()
        if not runs_here and not self._unable and now >= self._again_at and self._watch.may_claim(now):
            await self._take_over(self._cluster)
            runs_here = await asyncio.to_thread(self._runs_here)
        await self._report(self._cluster, runs_here)

    async def _read(self, cluster: KafkaCluster) -> None:
        """Reads the status topic to its end."""
        if self._scan is None:
            self._scan = InternalTopicScan(cluster, naming.STATUS, 0)
        await self._scan.refresh(_READ_WITHIN_S)
        now, fold = self._clock(), self._scan.fold
        if (leader := cluster.leader(naming.STATUS, 0)) is not None:
            now_leads = (leader.leader, leader.leader_epoch)
            if now_leads != self._leader:
                self._leader = now_leads
                self._watch.restart()  # a driver may wait for the leader before
        heartbeat = job_status.encode_key(StatusKey("job", self._job))
        # The heartbeat first: a claim that is read with it is not forgotten.
        for stored, value in sorted(fold.news(), key=lambda news: news[0] != heartbeat):
            try:
                match job_status.decode_key(stored):
                    case StatusKey("job", self._job) if value is not None:
                        self._take_heartbeat(value)
                    case StatusKey("spec", self._job) if value is not None:
                        before, self._unable = self._unable, _UNREADABLE_SPEC  # if it can't be read
                        self._published = None
                        self._published = job_status.decode_spec(value)
                        self._unable = before
                    case StatusKey("standby", self._job, str(standby)):
                        if value is None:
                            self._watch.take_end(standby)
                        else:
                            status = job_status.decode_standby(value)
                            self._watch.take_standby(status, fold.offset(stored), now)
                    case _:
                        pass
            except UnreadableValue as error:
                self._say(f"a record of the status topic was skipped: {error}")
        self._watch.end_read(now)

    def _take_heartbeat(self, value: bytes) -> None:
        """Takes a heartbeat, also one that can't be read. Raises UnreadableValue."""
        status: JobStatus | None = None
        try:
            status = job_status.decode_job(value)
        finally:
            self._watch.take_heartbeat(status)

    def _say_news(self) -> None:
        """Says where the job runs, once for each driver, and again after a takeover that came to nothing."""
        if self._watch.silent or self._watch.heartbeats == self._claimed_after:
            return
        status = self._watch.status
        job, destination = self._job, self._destination
        if status is None:
            news = f"the job {job} has never run at {destination}: repl apply starts it the first time"
        elif status.stop_requested:
            news = f"the job {job} was stopped by repl: repl apply starts it again"
        else:
            news = f"the job {job} runs as {status.where}"
        self._say_once("job", news)

    async def _check_ability(self) -> None:
        """Checks for each new spec, and again while it fails, that this machine could start the job."""
        published, now = self._published, self._clock()
        if published is None or (published is self._checked and (not self._unable or now < self._again_at)):
            return
        self._checked = published
        try:
            await asyncio.to_thread(self._check, published)
        except (LaunchError, StandbyRefused) as error:
            self._again_at = now + _AGAIN_S
            if self._unable != str(error):
                self._unable = str(error)
                self._say(f"this machine cannot take the job over: {error}")
            return
        if self._unable:
            self._unable = ""
            self._say("this machine can take the job over now")
        if self._archiving is None:
            self._archiving = asyncio.create_task(self._archive_classes())

    async def _archive_classes(self) -> None:
        """Archives Spark's classes once on this machine, so that a takeover starts sooner."""
        try:
            await archive_classes(self._launcher.environ)
        except (LaunchError, OSError) as error:
            self._say(f"Spark's classes could not be archived, so a takeover takes longer: {error}")

    async def _end_archiving(self) -> None:
        """Stops archiving where it still goes on."""
        if self._archiving is not None:
            self._archiving.cancel()
            await asyncio.wait([self._archiving])
            self._archiving = None

    def _check(self, published: JobSpec) -> None:
        self._launcher.check(self._spec_here(published))

    def _runs_here(self) -> bool:
        """Returns whether a supervisor of this machine looks after the job."""
        state = self._launcher.find(self._job).state
        return state in (LaunchState.RUNNING, LaunchState.RESTARTING)

    async def _take_over(self, cluster: KafkaCluster) -> None:
        """Claims the job, and starts it here if no other standby claimed it before. Raises WireError."""
        job, silent_s = self._job, self._watch.silent_s
        offset = await self._post(cluster, "taking_over")
        await self._read(cluster)
        if not self._watch.wins(offset, self._clock()):
            await self._post(cluster, "watching")
            return
        self._claim, self._claimed_after = offset, self._watch.heartbeats
        self._say(f"no heartbeat of the job {job} for {silent_s:.0f} s: it is started here")
        self._news.pop("job", None)
        await self._end_archiving()  # the job needs the CPU now
        try:
            if self._published is None:
                raise StandbyRefused(_UNREADABLE_SPEC)
            spec = self._spec_here(self._published)
            # It ends where repl has stopped the job meanwhile, or another driver runs it.
            handle = await asyncio.to_thread(self._launcher.launch, spec, gives_way=True)
        except (LaunchError, StandbyRefused) as error:
            self._claim = None
            with contextlib.suppress(WireError, *READ_FAILURES):  # the next step reads again
                await self._read(cluster)
            if self._watch.heartbeats > self._claimed_after:
                return  # it ended because of the driver that sends heartbeats again
            self._again_at = self._clock() + _AGAIN_S
            self._say(f"the job {job} could not be started here: {error}")
            await self._post(cluster, "failed", str(error))
            return
        self._say(f"the job {job} was started: {handle.where}, its log is {handle.log}")

    async def _ask_coordinator(self, cluster: KafkaCluster) -> None:
        """Begins the silence anew where the coordinator of the driver's transactional id does not answer.

        Then no driver could commit a heartbeat, and the silence says nothing of the job. Nor does it where
        another broker has become the coordinator meanwhile.
        """
        kind, key = CoordinatorKind.TRANSACTION, driver_transactional_id(self._job)
        cluster.forget_coordinator(kind, key)
        try:
            node = await in_time(
                cluster.coordinator(kind, key), _COORDINATOR_WITHIN_S, "looking for the job's coordinator"
            )
            await cluster.call(node, MetadataRequest(()), within=_COORDINATOR_WITHIN_S)
        except WireError as error:
            self._coordinator = None
            self._say_once("coordinator", f"the coordinator of the job's driver does not answer: {error}")
        else:
            moved = self._coordinator is not None and node != self._coordinator
            self._coordinator = node
            self._news.pop("coordinator", None)
            if not moved:
                return
        self._watch.restart()

    async def _report(self, cluster: KafkaCluster, runs_here: bool) -> None:
        """Reports the state when it has changed, and every 2 s."""
        if self._claim is not None and not runs_here and self._watch.silent:
            self._again_at = self._clock() + _AGAIN_S
        if not self._watch.silent or not runs_here:
            self._claim = None
        state: StandbyState
        if self._claim is not None:
            state, why = "taking_over", ""
        elif self._unable:
            state, why = "failed", self._unable
        else:
            state, why = "running" if runs_here else "watching", ""
        if self._reported != (state, why) or self._clock() - self._reported_at >= _REPORT_S:
            await self._post(cluster, state, why)

    async def _post(self, cluster: KafkaCluster, state: StandbyState, why: str = "") -> int:
        """Writes a report and returns its offset."""
        status = StandbyStatus(
            standby=self._standby,
            state=state,
            at_ms=now_ms(),
            host=socket.gethostname(),
            process=os.getpid(),
            claim=self._claim if self._claim is not None else -1,
            why=why,
        )
        offset = await self._send(cluster, job_status.encode(status))
        self._reported, self._reported_at = (state, why), self._clock()
        return offset

    async def _send(self, cluster: KafkaCluster, value: bytes | None) -> int:
        record = InternalRecord(job_status.encode_key(StatusKey("standby", self._job, self._standby)), value)
        (batch,) = batches_of([record])
        try:
            return await send(cluster, TopicPartition(naming.STATUS, 0), plain(batch), purpose="standby")
        except WireError:
            self._watch.restart()  # no driver could write a heartbeat either
            raise

    async def _leave(self) -> None:
        """Removes the report of this standby; where that fails, its age shows that it is gone."""
        if self._cluster is None:
            return
        try:
            async with asyncio.timeout(_LEAVE_WITHIN_S):
                await self._send(self._cluster, None)
        except (WireError, TimeoutError):
            return
