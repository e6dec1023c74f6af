"""End to end, read_committed, warm: from a record's production to its consumption."""

from __future__ import annotations

import itertools
import struct
import threading
import time
from bisect import bisect_left
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Protocol

from confluent_kafka import Consumer, Producer, TopicPartition

from tests.bench.copy.processes import Running
from tests.bench.copy.run import Run, Side
from tests.bench.copy.throughput import ends_of, first_record
from tests.bench.copy.workloads import PARTITIONS, values
from tests.records import create_topic

_STAMP = struct.Struct(">q")
_DRAIN_S = 5.0

Headers = list[tuple[str, bytes]]


class Stamps(Protocol):
    """The records of a workload, each with the nanosecond at which it was sent."""

    def made(self, number: int, sent_ns: int) -> tuple[bytes, Headers]: ...
    def sent_ns(self, value: bytes) -> int: ...


class _Opaque:
    """The time, and padding behind it."""

    def __init__(self, value_bytes: int) -> None:
        self._padding = values(value_bytes - _STAMP.size, 64)

    def made(self, number: int, sent_ns: int) -> tuple[bytes, Headers]:
        return _STAMP.pack(sent_ns) + self._padding[number % 64], []

    def sent_ns(self, value: bytes) -> int:
        (sent,) = _STAMP.unpack_from(value)
        return int(sent)


@dataclass(frozen=True, slots=True)
class Latency:
    workload: str
    side: str
    records_per_s: float
    p50_ms: float
    p99_ms: float
    p999_ms: float
    cores: float
    rss_mb: float


def quantile(weighted: list[tuple[float, int]], share: float) -> float:
    """Of (value, how many records)."""
    weighted = sorted(weighted)
    sums = list(itertools.accumulate(weight for _, weight in weighted))
    return weighted[bisect_left(sums, share * sums[-1])][0]


def summary(
    side: str, run: Run, took: list[tuple[float, int]], seconds: float, cpu_s: float, rss_mb: float
) -> Latency:
    if not took:
        raise SystemExit(f"{run.tag}: {side} brought no record in the measured time")
    p50, p99, p999 = (quantile(took, share) for share in (0.5, 0.99, 0.999))
    rate = sum(weight for _, weight in took) / seconds
    return Latency(run.workload.name, side, rate, p50, p99, p999, cpu_s / seconds, rss_mb)


def at_a_thousand(
    side: Side, run: Run, rate: int, warm_s: float, window_s: float, stamps: Stamps | None = None
) -> Latency:
    """Through librdkafka on both ends; what is produced in the first `warm_s` seconds counts for nothing."""
    stamps = stamps or _Opaque(run.workload.value_bytes)
    create_topic({"bootstrap.servers": run.source}, run.topic, PARTITIONS)
    stop = threading.Event()
    producing = threading.Thread(target=_produce, args=(run, rate, stop, stamps), daemon=True)
    producing.start()
    running = side.start(run)
    try:
        with ends_of(run.destination, running.topic) as ends:
            first_record(running, ends)
        took, cpu = _consume(run, running, warm_s, window_s, stamps)
    finally:
        stop.set()
        producing.join()
        rss = running.rss_mb()
        running.stop()
    return summary(side.name, run, [(one, 1) for one in took], window_s, cpu, rss)


def _produce(run: Run, rate: int, stop: threading.Event, stamps: Stamps) -> None:
    producer = Producer({"bootstrap.servers": run.source, "linger.ms": 0, "log_level": 0})
    began = time.monotonic()
    for number in itertools.count():
        due = began + number / rate
        while (wait := due - time.monotonic()) > 0:
            if stop.wait(wait):
                return
        if stop.is_set():
            return
        value, headers = stamps.made(number, time.time_ns())
        producer.produce(run.topic, value, partition=number % PARTITIONS, headers=[*headers])
        producer.poll(0)


def _consume(
    run: Run, running: Running, warm_s: float, window_s: float, stamps: Stamps
) -> tuple[list[float], float]:
    began = time.time_ns() + int(warm_s * 1e9)
    until = began + int(window_s * 1e9)
    took: list[float] = []
    cpu: float | None = None
    with _reader(run.destination, running.topic) as consumer:
        while (now := time.time_ns()) < until + _DRAIN_S * 1e9:
            if cpu is None and now > began:
                cpu = running.cpu_s()
            running.require_alive()
            message = consumer.poll(0.05)  # one by one: who waits for many sees the first of them late
            if message is None or message.error() is not None:
                continue
            now = time.time_ns()
            sent = stamps.sent_ns(message.value() or b"")
            if began <= sent < until:
                took.append((now - sent) / 1e6)
            elif sent >= until:
                return took, running.cpu_s() - (cpu or 0.0)
    return took, running.cpu_s() - (cpu or 0.0)


@contextmanager
def _reader(bootstrap: str, topic: str) -> Iterator[Consumer]:
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "bench-latency",
            "isolation.level": "read_committed",
            "enable.auto.commit": False,
            "auto.offset.reset": "earliest",
            "fetch.wait.max.ms": 500,
        }
    )
    consumer.assign([TopicPartition(topic, at, 0) for at in range(PARTITIONS)])
    try:
        yield consumer
    finally:
        consumer.close()
