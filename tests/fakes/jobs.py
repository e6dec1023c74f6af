"""Jobs without Spark: they tell of themselves and do as they are told, and copy nothing.

Behind the seam `runtime.contract.launching.Launcher`. One lives in a thread; what it says goes through the
real status and control topics.
"""

import threading
import time
import uuid
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import partial

from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic
from msgspec.structs import replace

from planner.kafka import ClusterClient, ClusterEndpoint, run, run_at
from planner.kafka.log import LogReader, LogWriter
from runtime.contract.launching import LaunchError, LaunchHandle, LaunchState, LaunchStatus
from runtime.contract.records import control, job_status
from runtime.contract.records.job_status import (
    FlowView,
    JobState,
    JobStatus,
    PartitionStatus,
    SlotReport,
    StatusKey,
)
from runtime.contract.spec import naming
from runtime.contract.spec.flow import RUNNING
from runtime.contract.spec.jobspec import JobSpec
from runtime.contract.spec.launch import LaunchSpec
from runtime.contract.spec.topic_settings import at_destination

BEAT_S = 0.5
ALL = 1_000_000  # of whatever is asked for


@dataclass
class FakeJobs:
    """A launcher for all jobs. `deaf` jobs never stop by themselves; `silent` ones, once
    they are launched, say nothing and are not there; `mute` ones are there and say nothing but in their log.
    """

    deaf: bool = False
    silent: bool = False
    mute: bool = False
    why: str = ""  # why no flow of a job can start
    waits: str = ""  # why no process of a mute one starts
    state: LaunchState = LaunchState.RUNNING  # of a mute one
    older: Sequence[str] = ()  # the lines of a driver that ran before
    log: Sequence[str] = ("the last line",)
    refuses: str = ""
    keeps: str = ""  # why none can be stopped
    left: str = ""  # what of a job can't be killed
    running: dict[str, "FakeJob"] = field(default_factory=dict)
    calls: list[str] = field(default_factory=list)
    told: list[tuple[str, ClusterEndpoint]] = field(default_factory=list)
    unwritable: str = ""  # why no spec can be stored

    def __call__(self, _launch: LaunchSpec, _destination: str) -> "FakeJobs":
        return self

    def forget(self) -> None:
        """As if they had never been: a real job of the same name would look for their ledgers."""
        for name, place in self.told:
            keys: tuple[StatusKey, ...] = (
                StatusKey("job", name),
                StatusKey("spec", name),
                StatusKey("slot", name, 0),
            )
            gone = [(job_status.encode_key(key), None) for key in keys]
            run_at(place, partial(_append, records=gone))

    def launch(self, spec: JobSpec) -> LaunchHandle:
        self.calls.append(f"launch {spec.job}")
        if self.refuses:
            raise LaunchError(self.refuses, "look at it", ["a line of its log"])
        if not self.silent and not self.mute:
            job = FakeJob(endpoint_of(spec), spec, deaf=self.deaf, why=self.why)
            self.running[spec.job] = job
            self.told.append((spec.job, endpoint_of(spec)))
            job.start()
        return LaunchHandle(spec.job, "a thread", "")

    def update(self, spec: JobSpec) -> None:
        self.calls.append(f"update {spec.job}")
        if self.unwritable:
            raise LaunchError(self.unwritable, "look at it")

    def find(self, job: str) -> LaunchStatus:
        if self.mute:
            return LaunchStatus(self.state, why=self.waits)
        runs = job in self.running and self.running[job].is_alive()
        return LaunchStatus(LaunchState.RUNNING if runs else LaunchState.ENDED, why=self.waits)

    def stop(self, job: str, _grace_s: float) -> str:
        self.calls.append(f"stop {job}")
        if self.keeps:
            raise LaunchError(self.keeps, "look at it")
        if job in self.running and not self.left:
            self.running.pop(job).kill()
        return self.left

    def tail(self, _job: str, lines: int = 20) -> list[str]:
        launched = any(call.startswith("launch") for call in self.calls)
        return [*self.older, *(self.log if launched else ())][-lines:]

    def kill(self) -> None:
        """All of them, without a goodbye."""
        for job in list(self.running):
            self.running.pop(job).kill()


async def _append(client: ClusterClient, records: Sequence[tuple[bytes, bytes | None]]) -> None:
    log = LogWriter(client)
    await log.append(naming.STATUS, records)
    log.close()


def endpoint_of(spec: JobSpec) -> ClusterEndpoint:
    """Of a lab without secrets."""
    cluster = spec.clusters[spec.destination]
    return ClusterEndpoint(
        spec.destination, cluster.bootstrap, {key: str(one) for key, one in cluster.client.items()}
    )


class FakeJob(threading.Thread):
    def __init__(
        self, endpoint: ClusterEndpoint, spec: JobSpec, *, deaf: bool = False, why: str = ""
    ) -> None:
        super().__init__(daemon=True)
        ensure_topics(endpoint)
        self._endpoint = endpoint
        self._spec = spec
        self._deaf = deaf
        self._driver = uuid.uuid4().hex
        self._heard = ""
        self.heard_at = 0.0  # of a command, last
        self._state: JobState = "running"
        self._killed = threading.Event()
        self.stopped: list[PartitionStatus] = []  # what its slot says that stands still
        self._why = why  # why no flow of it can start
        self.accepted: list[tuple[str, str, int]] = []
        self.refusal = ""  # of what it is asked to accept
        self.dies = False  # when it is asked to accept a loss

    def kill(self) -> None:
        self._killed.set()
        self.join(30)

    def run(self) -> None:
        run(self._live())

    async def _live(self) -> None:
        async with ClusterClient(self._endpoint) as client, LogReader(client, naming.CONTROL) as commands:
            self._log = LogWriter(client)
            await commands.read_to_end()
            await self._remember()
            while not self._killed.is_set() and self._state == "running":
                await self._beat()
                mine = control.command_key(self._spec.job)
                for record in await commands.read_more(BEAT_S):
                    if record.key == mine and record.value is not None:
                        await self._obey(control.decode_command(record.value))
            if not self._killed.is_set():
                await self._beat()
            self._log.close()

    async def _obey(self, command: control.Command) -> None:
        match command:
            case control.StopJobCommand():
                self._state = "running" if self._deaf else "stopped"
            case control.Reconfigure(spec=spec):
                self._spec = spec
                await self._remember()
            case control.AcceptLoss() if self.dies:
                self._killed.set()
                return
            case control.AcceptLoss() if self.refusal:
                pass
            case control.AcceptLoss(flow=flow, partitions=partitions):
                self.accepted += [(flow, topic, number) for topic, number in partitions]
        self._heard, self.heard_at = command.id, time.monotonic()

    async def _remember(self) -> None:
        key = job_status.encode_key(StatusKey("spec", self._spec.job))
        await self._log.append(naming.STATUS, [(key, job_status.encode(self._spec))])

    async def _beat(self) -> None:
        now = time.time_ns() // 1_000_000
        views = [
            FlowView(
                flow=one.name,
                state=one.state,
                generation=1,
                ended=one.state not in RUNNING,
                why=self._why,
                attempts=2 if self._why else 0,
            )
            for one in self._spec.flows
        ]
        status = JobStatus(
            job=self._spec.job,
            topology=self._spec.topology,
            driver=self._driver,
            state=self._state,
            at_ms=now,
            started_ms=now,
            answers={self._heard: self.refusal} if self._heard else {},
            flows=[replace(view, topics=ALL) for view in views],
        )
        said: dict[StatusKey, JobStatus | SlotReport] = {StatusKey("job", self._spec.job): status}
        if self.stopped:
            said[StatusKey("slot", self._spec.job, 0)] = SlotReport(
                0, now, 1, self._driver, 1, partitions=self.stopped
            )
        records = [(job_status.encode_key(key), job_status.encode(value)) for key, value in said.items()]
        await self._log.append(naming.STATUS, records)


def ensure_topics(endpoint: ClusterEndpoint) -> None:
    """As the driver makes them."""
    admin = AdminClient({"bootstrap.servers": endpoint.bootstrap, **endpoint.settings})
    there = admin.list_topics(timeout=60).topics
    wanted = [
        NewTopic(one.name, one.partitions, config=dict(one.config))
        for one in at_destination()
        if one.name in (naming.STATUS, naming.CONTROL) and one.name not in there
    ]
    for made in admin.create_topics(wanted).values() if wanted else ():
        made.result(timeout=60)
    while not {naming.STATUS, naming.CONTROL} <= admin.list_topics(timeout=60).topics.keys():
        time.sleep(0.05)
