"""How throughput grows with the slots of a job, where brokers and the machine are not the bound.

Each slot runs on a Worker of its own and is limited (see `limits`). So a machine with two cores shows what
slots on machines of their own would do, as long as the brokers keep up.
"""

from __future__ import annotations

import asyncio
import itertools
import os
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing, suppress
from dataclasses import dataclass
from typing import Any

import psutil
from confluent_kafka import Consumer, TopicPartition

from runtime.contract.client.settings import wire_settings
from runtime.contract.spec import jobspec
from runtime.kafka.cluster import KafkaCluster
from runtime.kafka.protocol.produce import ProducePartition, ProduceRequest, ProduceResponse
from runtime.launch.command import JVM
from tests.bench.copy import fill
from tests.bench.copy.job import Job
from tests.bench.copy.processes import Running
from tests.bench.copy.run import Run
from tests.bench.copy.workloads import Workload
from tests.bench.lab import Brokers
from tests.bench.workers.limits import Limit
from tests.records import create_topic, wait_for
from tests.spark.cluster_job import Site
from tests.spark.job import statuses
from tests.spark.standalone import Worker

SLOTS = (1, 2, 4, 8)
PARTITIONS = 64
SHAPES = ("uniform", "skewed")  # skewed: one partition has half of the bytes
_START_S, _WARM_S = 240.0, 5.0
_SAMPLE_S = 0.25
_IN_FLIGHT = 8


@dataclass(frozen=True, slots=True)
class Scaled:
    """`used`: how much of their limits the slots used. Where it is less than 95 %, the brokers or the machine
    were the bound. `brokers` is what the brokers used of all cores, `machine` what everything used. `worth`
    is what a second of CPU was worth, where the limit is of CPU (see `Limit`).
    """

    limit: str
    shape: str
    slots: int
    mb_per_s: float
    records_per_s: float
    used: float
    brokers: float
    machine: float
    worth: float | None
    window_s: float


def scaled(
    place: Site, limit: Callable[[], Limit], megabytes: int, window_s: float, shapes: Sequence[str]
) -> Iterator[Scaled]:
    """One row for each shape and number of slots."""
    source, folder = place.client("dc1"), place.folder / "runs"
    folder.mkdir(exist_ok=True)
    with closing(limit()) as bound:  # refuses before anything is written
        workload = bound.workload
    fill.preload(source, workload)
    for shape in shapes:
        topic = f"scale-{shape}-{workload.name}"
        records = asyncio.run(_fill(source, workload, topic, shape, megabytes))
        for slots in SLOTS:
            run = Run(
                f"{shape}-{slots}-{workload.name}",
                workload,
                topic,
                str(source["bootstrap.servers"]),
                str(place.client("dc2")["bootstrap.servers"]),
                folder,
                slots,
            )
            yield _measure(place, run, shape, limit, records, window_s)
        fill.forget(source, topic)
    fill.forget(source, workload.topic)


async def _fill(client: Mapping[str, Any], workload: Workload, topic: str, shape: str, megabytes: int) -> int:
    """Fills the topic with the batches of the workload's; how many records it holds then."""
    create_topic(client, topic, PARTITIONS, config={"retention.ms": "-1"})
    wanted = megabytes * 1_000_000 // workload.value_bytes
    async with await KafkaCluster.open(wire_settings(str(client["bootstrap.servers"]), {})) as cluster:
        pool = await fill.read_pool(cluster, workload.topic)
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


class _SlotJob(Job):
    """A job on the Workers of a site, each of which gets one of its slots."""

    def __init__(self, place: Site) -> None:
        super().__init__()
        self._place = place

    def start(self, run: Run) -> Running:
        conf = {
            "spark.authenticate": "true",
            "spark.driver.host": self._place.address,
            "spark.cores.max": str(run.slots),
            "spark.executor.cores": "1",
            "spark.executor.extraJavaOptions": " ".join(JVM),
        }
        command = self.command(run, self._place.spark.master.url, run.slots, conf)
        environ = {**self.environ(run), **self._place.environ}
        return Running.start(command, run.mirror_topic, run.folder / f"{run.tag}.log", environ)


def _measure(
    place: Site, run: Run, shape: str, limit: Callable[[], Limit], records: int, window_s: float
) -> Scaled:
    brokers = Brokers(place.lab)
    running = _SlotJob(place).start(run)
    ends = Consumer({**place.client("dc2"), "group.id": "bench-ends", "isolation.level": "read_uncommitted"})

    def copied() -> list[int]:
        topic = run.mirror_topic
        partitions = (TopicPartition(topic, number) for number in range(PARTITIONS))
        return [ends.get_watermark_offsets(partition, 30)[1] for partition in partitions]

    try:
        with closing(limit()) as bound:
            slots = _settled(place, run, running, bound, copied)
            began, used, theirs = time.monotonic(), bound.used(), brokers.cpu_s()
            bound.worth()
            psutil.cpu_percent()  # the next call's answer is of the time since this one
            samples = [(began, sum(copied()))]
            while samples[-1][0] < began + window_s:
                time.sleep(_SAMPLE_S)
                samples.append((time.monotonic(), sum(copied())))
            seconds = time.monotonic() - began
            used, theirs, machine = bound.used() - used, brokers.cpu_s() - theirs, psutil.cpu_percent()
            worth = bound.worth()
            running.require_alive()
            if not all(slot.is_running() for slot in slots):
                raise SystemExit(
                    f"{run.tag}: a slot was replaced while it was measured: repeat it, or give it more"
                )
        if samples[-1][1] > 0.95 * records:
            raise SystemExit(f"{run.tag}: all {records} records were copied: give a larger --megabytes")
    finally:
        running.stop()
        ends.close()
        with suppress(Exception):
            fill.forget(place.client("dc2"), run.mirror_topic)
    rate = steady_rate(samples)
    return Scaled(
        limit=bound.text,
        shape=shape,
        slots=run.slots,
        mb_per_s=rate * run.workload.value_bytes / 1e6,
        records_per_s=rate,
        used=used / (seconds * bound.each * run.slots),
        brokers=theirs / (seconds * (os.cpu_count() or 1)),
        machine=machine / 100,
        worth=worth,
        window_s=seconds,
    )


def steady_rate(samples: Sequence[tuple[float, int]]) -> float:
    """The rate between the first and the last growth: a slow slot writes megabytes at once, then nothing for
    seconds. `samples` are times and counts.
    """
    growths = [later for earlier, later in itertools.pairwise(samples) if later[1] > earlier[1]]
    if len(growths) < 2:
        raise SystemExit("hardly anything was copied: give a longer --window")
    (began, before), (ended, after) = growths[0], growths[-1]
    return (after - before) / (ended - began)


def _settled(
    place: Site, run: Run, running: Running, limit: Limit, copied: Callable[[], list[int]]
) -> list[psutil.Process]:
    """Limits each slot as soon as it reports partitions. Returns the slots when all of them have copied.

    A slot whose heartbeats came late with so little CPU is replaced, and its successor is limited, too.
    """
    spec = jobspec.decode((run.folder / f"{run.tag}.json").read_bytes())
    limited: dict[int, psutil.Process] = {}

    def all_limited() -> bool:
        running.require_alive()
        for pid in [pid for pid, slot in limited.items() if not slot.is_running()]:
            limit.remove(limited.pop(pid))
        status, reports = statuses(spec)
        driver = status.driver if status is not None else ""
        for report in reports.values():
            pid = report.process
            if report.driver != driver or not report.partitions or pid in limited:
                continue
            if worker := _worker_of(place, pid):
                limited[pid] = psutil.Process(pid)
                limit.add(limited[pid], worker)
        return len(limited) == run.slots and all(copied())

    wait_for(all_limited, _START_S, 0.2)
    time.sleep(_WARM_S)
    wait_for(all_limited, _START_S, 0.2)
    return list(limited.values())


def _worker_of(place: Site, pid: int) -> Worker | None:
    """None while the process is in no Worker's tree, as one that has just been replaced."""
    for worker in place.spark.workers:
        if pid in {process.pid for process in worker.executors()}:
            return worker
    return None
