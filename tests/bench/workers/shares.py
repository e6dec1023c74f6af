"""How throughput grows with the slots of a job, where brokers and the machine are not the bound.

Each slot may use a small share of a core, by the quota of a control group (cgroup v1). So the figures of a
machine with two cores say what slots on machines of their own would do, as long as the brokers keep up.
"""

from __future__ import annotations

import asyncio
import itertools
import os
import time
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil
from confluent_kafka import Consumer, TopicPartition

from runtime.contract.client.settings import wire_settings
from runtime.contract.spec import jobspec
from runtime.kafka.cluster import KafkaCluster
from runtime.kafka.protocol.produce import ProducePartition, ProduceRequest, ProduceResponse
from runtime.lab.lab import Lab
from tests.bench.copy import fill
from tests.bench.copy.job import Job
from tests.bench.copy.processes import Brokers, Running
from tests.bench.copy.run import Run
from tests.bench.copy.workloads import Workload
from tests.records import create_topic, wait_for
from tests.spark.job import statuses

SLOTS = (1, 2, 4, 8)
PARTITIONS = 16
SHAPES = ("uniform", "skewed")  # skewed: one partition has half of the bytes
_POOL = Workload("1k-lz4", 1024, "lz4", 100)
_GROUPS = Path("/sys/fs/cgroup/cpu")
_PERIOD_US, _LEAST_US = 20_000, 1_000  # a quota of less than 1 ms is refused
_START_S, _WARM_S = 240.0, 3.0
_IN_FLIGHT = 8


@dataclass(frozen=True, slots=True)
class Scaled:
    """`used`: how much of their shares the slots used. Where it is less than 95 %, the brokers or the machine
    were the bound. `brokers` is what the brokers used of all cores.
    """

    shape: str
    slots: int
    share: float
    mb_per_s: float
    records_per_s: float
    used: float
    brokers: float
    window_s: float


class CpuShares:
    """A CpuShares limits each process to a share of a core, until it is closed."""

    def __init__(self, share: float) -> None:
        self._share = share
        self._folder = _GROUPS / f"repl-bench-{os.getpid()}"
        try:
            self._folder.mkdir()
            (self._folder / "cpu.cfs_quota_us").read_text()
        except OSError as error:
            raise SystemExit(
                f"{self._folder} can't be used as a control group: {error.strerror} — this measurement needs"
                " cgroup v1 with the cpu controller at /sys/fs/cgroup/cpu, and root"
            ) from error

    def limit(self, pid: int) -> None:
        """Limits all threads of a process."""
        group = self._folder / str(pid)
        group.mkdir()
        period = max(_PERIOD_US, int(_LEAST_US / self._share))
        (group / "cpu.cfs_period_us").write_text(str(period))
        (group / "cpu.cfs_quota_us").write_text(str(max(int(period * self._share), _LEAST_US)))
        (group / "cgroup.procs").write_text(str(pid))

    def close(self) -> None:
        """Lets the processes go, and removes the groups."""
        for group in [path for path in self._folder.iterdir() if path.is_dir()] + [self._folder]:
            for pid in (group / "cgroup.procs").read_text().split():
                with suppress(OSError):
                    (_GROUPS / "cgroup.procs").write_text(pid)
            group.rmdir()


@contextmanager
def cpu_shares(share: float) -> Iterator[CpuShares]:
    shares = CpuShares(share)
    try:
        yield shares
    finally:
        shares.close()


def scaled(
    lab: Lab, folder: Path, share: float, megabytes: int, window_s: float, shapes: Sequence[str]
) -> list[Scaled]:
    """One row for each shape and number of slots."""
    folder.mkdir()
    clients = {name: dict(cluster.client) for name, cluster in lab.clusters.items()}
    with cpu_shares(share):  # refuses before anything is written
        pass
    fill.preload(clients["dc1"], _POOL)
    rows = []
    for shape in shapes:
        topic = f"scale-{shape}"
        records = asyncio.run(_fill(clients["dc1"], topic, shape, megabytes))
        for slots in SLOTS:
            rows.append(_measure(lab, clients, folder, topic, shape, slots, share, records, window_s))
            print(rows[-1], flush=True)
        fill.forget(clients["dc1"], topic)
    return rows


async def _fill(client: Mapping[str, Any], topic: str, shape: str, megabytes: int) -> int:
    """Fills the topic with the batches of the pool; how many records it holds then."""
    create_topic(client, topic, PARTITIONS, config={"retention.ms": "-1"})
    wanted = megabytes * 1_000_000 // _POOL.value_bytes
    async with await KafkaCluster.open(wire_settings(str(client["bootstrap.servers"]), {})) as cluster:
        pool = await fill.read_pool(cluster, _POOL.topic)
        batches = itertools.cycle([batch for some in pool for batch in some])
        leader = (await cluster.topics([topic]))[topic].partitions[0].leader
        connection = await cluster.connection(leader, "fill")
        flying: deque[asyncio.Future[ProduceResponse]] = deque()
        written = 0
        for number in itertools.count():
            if written >= wanted:
                break
            some = range(PARTITIONS) if shape == "uniform" else (0, 1 + number % (PARTITIONS - 1))
            wave = [(partition, next(batches)) for partition in some]
            written += sum(batch.records for _, batch in wave)
            data = [ProducePartition(topic, partition, fill.raw(batch)) for partition, batch in wave]
            if len(flying) >= _IN_FLIGHT:
                _accept(await flying.popleft())
            flying.append(connection.start(ProduceRequest(None, 60_000, data, acks=1)))
        while flying:
            _accept(await flying.popleft())
        return written


def _accept(response: ProduceResponse) -> None:
    for produced in response.partitions:
        assert not produced.error, produced


def _measure(
    lab: Lab,
    clients: Mapping[str, Mapping[str, Any]],
    folder: Path,
    topic: str,
    shape: str,
    slots: int,
    share: float,
    records: int,
    window_s: float,
) -> Scaled:
    source, there = (str(clients[name]["bootstrap.servers"]) for name in ("dc1", "dc2"))
    run = Run(f"{shape}-{slots}", _POOL, topic, source, there, folder, slots)
    brokers = Brokers(lab)
    running = Job().start(run)
    ends = Consumer({**clients["dc2"], "group.id": "bench-ends", "isolation.level": "read_uncommitted"})

    def copied() -> list[int]:
        places = (TopicPartition(run.mirror_topic, number) for number in range(PARTITIONS))
        return [ends.get_watermark_offsets(place, 30)[1] for place in places]

    try:
        with cpu_shares(share) as shares:
            workers = [psutil.Process(pid) for pid in _slot_processes(run, running)]
            for worker in workers:
                shares.limit(worker.pid)
            wait_for(lambda: run.mirror_topic in ends.list_topics(timeout=30).topics, _START_S)
            wait_for(lambda: all(copied()), _START_S)  # every slot copies
            time.sleep(_WARM_S)
            began, before, used, theirs = time.monotonic(), sum(copied()), _cpu_s(workers), brokers.cpu_s()
            time.sleep(window_s)
            after, seconds = sum(copied()), time.monotonic() - began
            used, theirs = _cpu_s(workers) - used, brokers.cpu_s() - theirs
            running.require_alive()
            if after > 0.95 * records:
                raise SystemExit(f"{run.tag}: all {records} records were copied: give a larger --megabytes")
    finally:
        running.stop()
        ends.close()
        with suppress(Exception):
            fill.forget(clients["dc2"], run.mirror_topic)
    rate = (after - before) / seconds
    return Scaled(
        shape=shape,
        slots=slots,
        share=share,
        mb_per_s=rate * _POOL.value_bytes / 1e6,
        records_per_s=rate,
        used=used / (seconds * share * slots),
        brokers=theirs / (seconds * (os.cpu_count() or 1)),
        window_s=seconds,
    )


def _slot_processes(run: Run, running: Running) -> list[int]:
    """The process of each slot, once all of them report."""
    spec = jobspec.decode((run.folder / f"{run.tag}.json").read_bytes())

    def processes() -> list[int]:
        running.require_alive()
        status, reports = statuses(spec)
        driver = status.driver if status is not None else ""
        return [report.status.process for report in reports.values() if report.driver == driver]

    wait_for(lambda: len(processes()) == run.slots, _START_S, 0.2)
    return processes()


def _cpu_s(processes: Sequence[psutil.Process]) -> float:
    return sum(times.user + times.system for times in (process.cpu_times() for process in processes))
