"""A real job on real Spark, straight from a job-spec file: what tests and benchmarks start."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Self, TypeVar

import psutil
from confluent_kafka import Producer

from runtime.contract.client import settings as client
from runtime.contract.client.secrets import ClientSecrets
from runtime.contract.records import control, job_status
from runtime.contract.records.control import Command
from runtime.contract.records.job_status import (
    JobStatus,
    PartitionStatus,
    SlotReport,
    StatusKey,
)
from runtime.contract.records.ledger import Generation, PartitionKey
from runtime.contract.records.offset_map import EndOfOffsetMap, MappedOffset, OffsetMap
from runtime.contract.spec import jobspec, naming
from runtime.contract.spec.cluster import ClusterSpec
from runtime.contract.spec.jobspec import CopySettings, FlowSpec, JobSpec
from runtime.contract.spec.selection import SelectionSpec
from runtime.kafka.cluster import KafkaCluster
from runtime.kafka.committed_values import CommittedValues
from runtime.lab.lab import Lab
from runtime.launch.command import HEAP, MAIN, java_options
from runtime.ledger.ledger import Ledger
from runtime.ledger.offset_maps import offset_maps_at
from runtime.ledger.records import InternalTopicScan
from tests.processes import below, parent_of, words_of
from tests.records import wait_for

R = TypeVar("R")

SUBMIT = Path(sys.executable).parent / "spark-submit"


def spec_of(
    lab: Lab, job: str, flows: Sequence[FlowSpec], *, destination: str = "dc2", **changes: Any
) -> JobSpec:
    """Quick to resume, quick to follow, so that tests need not wait."""
    clusters = {
        name: ClusterSpec(
            bootstrap=one.bootstrap,
            client={key: str(value) for key, value in one.client.items() if key != "bootstrap.servers"},
        )
        for name, one in lab.clusters.items()
    }
    settings: dict[str, Any] = {
        "copy": CopySettings(retry_ms=50, retry_max_ms=1_000, transaction_timeout_ms=10_000),
        "slots": 1,
        "metrics": None,
        **changes,
    }
    return JobSpec(
        job=job,
        topology="tests",
        destination=destination,
        clusters=clusters,
        flows=list(flows),
        **settings,
    )


def flow_of(name: str, include: Sequence[str], source: str = "dc1", destination: str = "dc2", **changes: Any):
    settings: dict[str, Any] = {"follow_every_ms": 500, "heartbeats_every_ms": None, **changes}
    return FlowSpec(
        name=name,
        source=source,
        destination=destination,
        topics=SelectionSpec(include=tuple(include)),
        **settings,
    )


@dataclass
class Running:
    """`pid` is the JVM's, `driver` the Python driver, `workers` run the slots.

    As a context manager it is killed at the end.
    """

    process: subprocess.Popen[bytes]
    spec: JobSpec
    log: Path
    began_ms: int
    seen: dict[int, psutil.Process] = field(default_factory=dict)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.kill()

    @property
    def pid(self) -> int:
        return self.process.pid

    @property
    def driver(self) -> psutil.Process:
        return next(child for child in self._children() if str(MAIN) in words_of(child))

    @property
    def workers(self) -> list[psutil.Process]:
        """The forks of pyspark's daemon that are at work."""
        python = [child for child in self._children() if "pyspark.worker" in words_of(child)]
        daemons = {child.pid for child in python if parent_of(child) == self.pid}
        return [child for child in python if parent_of(child) in daemons]

    def status(self) -> JobStatus | None:
        """What this life of the job last said of itself."""
        status, _ = statuses(self.spec)
        return status if status is not None and status.started_ms >= self.began_ms else None

    def reports(self) -> dict[int, SlotReport]:
        """What the slots of this job last said."""
        _, slots = statuses(self.spec)
        return slots

    def partitions(self) -> dict[PartitionKey, PartitionStatus]:
        return {one.key: one for report in self.reports().values() for one in report.partitions}

    def tell(self, command: Command) -> None:
        """Through the control topic, as `repl apply` does; returns when the job has carried it out."""
        producer = Producer(_client(self.spec))
        producer.produce(
            naming.CONTROL, key=control.command_key(self.spec.job), value=control.encode(command)
        )
        assert producer.flush(120) == 0
        if isinstance(command, control.Reconfigure):
            self.wait_for(lambda status: command.id in status.answers)
            self.spec = command.spec

    def started(self) -> list[psutil.Process]:
        """Every process that was seen to belong to the job."""
        self._children()
        return list(self.seen.values())

    def wait_for(self, holds: Callable[[JobStatus], bool], within_s: float = 240.0) -> JobStatus:
        status: JobStatus | None = None

        def reached() -> bool:
            nonlocal status
            status = self.status()
            if status is not None and holds(status):
                return True
            assert self.process.poll() is None, f"the job ended: {self.tail()}"
            return False

        wait_for(reached, within_s, every=0.1, about=lambda: f"{status}: {self.tail()}")
        assert status is not None
        return status

    def stop(self) -> int:
        """Gracefully; the exit code."""
        if self.process.poll() is None:
            self.driver.send_signal(signal.SIGTERM)
        return self.ended()

    def ended(self, within_s: float = 180.0) -> int:
        """The exit code, once it has one."""
        wait_for(lambda: self.process.poll() is not None, within_s, about=self.tail)
        return self.process.wait()

    def kill(self) -> None:
        """The JVM, with -9: everything that hangs on it must go by itself."""
        self.process.kill()
        self.process.wait(60)

    def tail(self, lines: int = 40) -> str:
        return "\n".join(self.log.read_text(errors="replace").splitlines()[-lines:])

    def _children(self) -> list[psutil.Process]:
        if self.process.poll() is not None:
            return []
        children = [one for one in below(self.pid) if one.pid != self.pid]
        self.seen.update((child.pid, child) for child in children)
        return children


def start_job(
    spec: JobSpec,
    folder: Path,
    master: str = "local[2]",
    *,
    conf: Mapping[str, str] | None = None,
    environ: Mapping[str, str] | None = None,
) -> Running:
    """Returns at once; what it says goes to a file of its own in `folder`."""
    number = len(list(folder.glob("*.log")))
    file, log = folder / f"{spec.job}-{number}.json", folder / f"{spec.job}-{number}.log"
    file.write_bytes(jobspec.encode(spec))
    settings = {"spark.ui.enabled": "false", **(conf or {})}
    given = [word for key, value in settings.items() for word in ("--conf", f"{key}={value}")]
    command = [
        str(SUBMIT),
        "--master",
        master,
        "--driver-memory",
        HEAP,
        "--driver-java-options",
        " ".join(java_options(spec)),
    ]
    command += [*given, str(MAIN), "--spec", str(file)]
    variables = {
        **os.environ,
        "PYSPARK_PYTHON": sys.executable,
        "SPARK_LOCAL_IP": "127.0.0.1",
        "SPARK_LOCAL_HOSTNAME": "127.0.0.1",
        **(environ or {}),
    }
    began_ms = int(time.time() * 1000)
    with log.open("wb") as output:
        process = subprocess.Popen(command, stdout=output, stderr=output, env=variables)
    return Running(process, spec, log, began_ms)


def statuses(spec: JobSpec) -> tuple[JobStatus | None, dict[int, SlotReport]]:
    """Returns what the status topic holds of the job and of its slots: the newest committed record of each.

    Other tests write records of other jobs into the topic, and some of those can't be read.
    """
    status: JobStatus | None = None
    slots: dict[int, SlotReport] = {}
    for record_key, value in _newest(spec).items():
        match job_status.decode_key(record_key):
            case StatusKey("job", spec.job) if value:
                status = job_status.decode_job(value)
            case StatusKey("slot", spec.job, int(slot)) if value:
                slots[slot] = job_status.decode_slot(value)
    return status, slots


def current_reports(spec: JobSpec) -> dict[int, SlotReport]:
    """The newest report of each slot to the driver that runs."""
    status, slots = statuses(spec)
    return {slot: one for slot, one in slots.items() if status is not None and one.driver == status.driver}


def remembered(spec: JobSpec) -> JobSpec:
    """What the job says that it runs by."""
    return job_status.decode_spec(_newest(spec)[job_status.encode_key(StatusKey("spec", spec.job))])


def generations(spec: JobSpec) -> dict[str, Generation]:
    """By flow."""

    async def read(cluster: KafkaCluster) -> dict[str, Generation]:
        ledger = await Ledger.open(cluster)
        flows = [flow.name for flow in spec.flows]
        await ledger.refresh_all(flows)
        return ledger.generations(flows)

    return _at_destination(spec, read)


def offset_maps(spec: JobSpec, flow: str) -> dict[PartitionKey, OffsetMap]:
    """The offset map of each partition of a flow."""

    async def read(cluster: KafkaCluster) -> dict[PartitionKey, OffsetMap]:
        maps = await offset_maps_at(cluster, fresh=True)
        assert maps is not None
        await maps.decided(flow)
        return maps.all(flow)

    return _at_destination(spec, read)


def assert_translated(spec: JobSpec, at: PartitionKey, end: int, pairs: Sequence[tuple[int, int]]) -> None:
    """Each source offset below `end` is translated to the first copied record at or behind it.

    `pairs` are the offsets of the copied records at the source and at the destination.
    """
    offsets = offset_maps(spec, at.flow)[at]
    behind = 0
    for offset in range(end):
        while behind < len(pairs) and pairs[behind][0] < offset:
            behind += 1
        if behind == len(pairs):
            assert isinstance(offsets.translate(offset), EndOfOffsetMap)
        else:
            here, there = pairs[behind]
            assert offsets.translate(offset) == MappedOffset(there, exact=here == offset)


_READ: dict[tuple[str, str], CommittedValues] = {}  # what was read of the status topic, by cluster and job


def _newest(spec: JobSpec) -> dict[bytes, bytes]:
    """The newest committed value of each key of the status topic. Each call reads only what is new."""

    async def read(cluster: KafkaCluster) -> dict[bytes, bytes]:
        if (await cluster.topics([naming.STATUS]))[naming.STATUS].error:
            return {}
        scan = InternalTopicScan(cluster, naming.STATUS, 0)
        scan.fold = _READ.setdefault((spec.clusters[spec.destination].bootstrap, spec.job), scan.fold)
        await scan.refresh()
        return dict(scan.fold.items())

    return _at_destination(spec, read)


def _at_destination(spec: JobSpec, work: Callable[[KafkaCluster], Awaitable[R]]) -> R:
    destination = spec.clusters[spec.destination]

    async def opened() -> R:
        resolved = ClientSecrets(os.environ).resolve(destination.bootstrap, destination.client)
        async with await KafkaCluster.open(client.wire_settings(destination.bootstrap, resolved)) as cluster:
            return await work(cluster)

    return asyncio.run(opened())


def _client(spec: JobSpec) -> dict[str, Any]:
    destination = spec.clusters[spec.destination]
    return {"bootstrap.servers": destination.bootstrap, **destination.client}
