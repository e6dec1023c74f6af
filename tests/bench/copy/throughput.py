"""How fast a side copies in its steady state, by the destination's end offsets; what that costs."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from confluent_kafka import Consumer, KafkaException, TopicPartition

from tests.bench.copy.processes import Running
from tests.bench.copy.run import Run, Side
from tests.bench.copy.workloads import PARTITIONS
from tests.bench.lab import Brokers

FIRST_RECORD_S = 180.0
_EVERY_S = 0.25
_NEVER_CAUGHT_UP = 0.93  # of the source's records; a window that comes so far ends there
_SHORTEST_S = 4.0


@dataclass(frozen=True, slots=True)
class Measured:
    workload: str
    side: str
    records_per_s: float
    mb_per_s: float
    cpu_s_per_gb: float
    brokers_cpu_s_per_gb: float
    rss_mb: float
    python_mb: float
    first_record_s: float
    window_s: float


class Ends:
    """The end of a topic, as a reader of uncommitted records sees it, summed over its partitions."""

    def __init__(self, bootstrap: str, topic: str) -> None:
        self._topic = topic
        self._consumer = Consumer(
            {
                "bootstrap.servers": bootstrap,
                "group.id": "bench-ends",
                "isolation.level": "read_uncommitted",
                "topic.metadata.refresh.interval.ms": 1_000,
                "log_level": 0,
            }
        )

    def sum(self) -> int:
        """0 as long as there is no such topic."""
        try:
            return sum(
                self._consumer.get_watermark_offsets(TopicPartition(self._topic, at), 10)[1]
                for at in range(PARTITIONS)
            )
        except KafkaException:
            return 0

    def close(self) -> None:
        self._consumer.close()


@contextmanager
def ends_of(bootstrap: str, topic: str) -> Iterator[Ends]:
    ends = Ends(bootstrap, topic)
    try:
        yield ends
    finally:
        ends.close()


def measure(side: Side, run: Run, brokers: Brokers, at_source: int, window_s: float) -> Measured:
    running = side.start(run)
    try:
        with ends_of(run.destination, running.topic) as ends:
            first_s = first_record(running, ends)
            return _steady(side, run, running, brokers, ends, at_source, window_s, first_s)
    finally:
        running.stop()


def first_record(running: Running, ends: Ends) -> float:
    """Seconds from the start of the process to the first record at the destination."""
    deadline = running.started + FIRST_RECORD_S
    while not ends.sum():
        running.require_alive()
        if time.monotonic() > deadline:
            raise SystemExit(f"{running.topic}: no record in {FIRST_RECORD_S:.0f} s, see {running.log}")
        time.sleep(0.02)
    return time.monotonic() - running.started


def _steady(
    side: Side,
    run: Run,
    running: Running,
    brokers: Brokers,
    ends: Ends,
    at_source: int,
    window_s: float,
    first_s: float,
) -> Measured:
    time.sleep(side.warm_s)
    began, cpu, theirs, copied = time.monotonic(), running.cpu_s(), brokers.cpu_s(), ends.sum()
    now, end, used, used_there = began, copied, cpu, theirs
    while now - began < window_s:
        time.sleep(_EVERY_S)
        running.require_alive()
        later = ends.sum()
        if later > at_source * run.workload.travels * _NEVER_CAUGHT_UP:
            break
        now, end, used, used_there = time.monotonic(), later, running.cpu_s(), brokers.cpu_s()
    seconds, records = now - began, (end - copied) / run.workload.travels
    if seconds < min(_SHORTEST_S, window_s):
        raise SystemExit(
            f"{run.tag}: the source's {at_source} records were copied before they could be measured: --scale"
        )
    if not records:
        raise SystemExit(
            f"{run.tag}: nothing was copied in {seconds:.0f} s: is the machine too busy to measure?"
        )
    gigabytes = records * run.workload.value_bytes / 1e9
    return Measured(
        workload=run.workload.name,
        side=side.name,
        records_per_s=records / seconds,
        mb_per_s=gigabytes * 1e3 / seconds,
        cpu_s_per_gb=(used - cpu) / gigabytes,
        brokers_cpu_s_per_gb=(used_there - theirs) / gigabytes,
        rss_mb=running.rss_mb(),
        python_mb=running.python_mb(),
        first_record_s=first_s,
        window_s=seconds,
    )
