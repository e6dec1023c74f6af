"""This module writes numbered test records at a steady rate to any number of topics."""

import json
import logging
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field

from confluent_kafka import KafkaError, KafkaException, Producer

from runtime.lab.files import LabError
from runtime.lab.lab import Lab

KEYS = 100
_TICK_S = 0.05
_ACKNOWLEDGED_WITHIN_S = 20.0
# As `logger` it keeps librdkafka's lines off stderr: `OutageReporter` reports each outage once.
_SILENT = logging.Logger("repl.lab.load")
_SILENT.addHandler(logging.NullHandler())


@dataclass
class LoadTarget:
    """A LoadTarget is one topic of one cluster, with its counts of records and its last failure."""

    cluster: str
    topic: str
    written: int = 0
    lost: int = 0
    failed: str = ""

    @property
    def name(self) -> str:
        return f"{self.cluster}:{self.topic}"


def targets_of(words: Sequence[str]) -> list[LoadTarget]:
    """Parses targets of the form `CLUSTER:TOPIC`. Raises LabError."""
    targets = [LoadTarget(*word.partition(":")[::2]) for word in words]
    for target in targets:
        if not target.topic:
            raise LabError(
                f"{target.cluster!r} names no topic", "write CLUSTER:TOPIC, for example dc1:orders"
            )
    return targets


@dataclass
class OutageReporter:
    """Reports the begin and the end of each cluster's outage in one line each."""

    report: Callable[[str], None]
    _down: set[str] = field(default_factory=set)

    def failed(self, cluster: str, failure: KafkaError) -> None:
        if failure.code() == KafkaError._ALL_BROKERS_DOWN and cluster not in self._down:
            self._down.add(cluster)
            self.report(
                f"{cluster} does not answer; each record is tried again for {_ACKNOWLEDGED_WITHIN_S:g} s"
            )

    def acknowledged(self, cluster: str) -> None:
        if cluster in self._down:
            self._down.remove(cluster)
            self.report(f"{cluster} answers again")


@dataclass
class LoadGenerator:
    """Writes records to its targets.

    `run` writes until the time is over, or a Ctrl-C, and then flushes. `report` gets one line when a cluster
    stops answering, and one when it answers again. `passed` gets the seconds that are over.
    """

    lab: Lab
    targets: Sequence[LoadTarget]
    rate: float
    report: Callable[[str], None] = lambda _: None
    passed: Callable[[float], None] = lambda _: None
    _producers: dict[str, Producer] = field(default_factory=dict)
    _outages: OutageReporter = field(init=False)

    def __post_init__(self) -> None:
        self._outages = OutageReporter(self.report)
        for target in self.targets:
            self._producer(target)

    def run(self, seconds: float) -> None:
        """Writes for so many seconds, and waits at the end for outstanding acknowledgements."""
        try:
            for number in self._numbers(seconds):
                for target in self.targets:
                    self._write(target, number)
        finally:
            for producer in self._producers.values():
                producer.flush(_ACKNOWLEDGED_WITHIN_S)

    def _numbers(self, seconds: float) -> Iterator[int]:
        """Yields the numbers 0, 1, 2 … at the given rate: as many as fit the time, even after a delay."""
        began, number, passed = time.monotonic(), 0, 0.0
        while passed < seconds:
            time.sleep(_TICK_S)
            passed = min(time.monotonic() - began, seconds)
            self.passed(passed)
            while number < passed * self.rate:
                yield number
                number += 1
            for producer in self._producers.values():
                producer.poll(0)

    def _write(self, target: LoadTarget, number: int) -> None:
        def delivered(failure: KafkaError | None, _record: object) -> None:
            if failure is None:
                target.written += 1
                self._outages.acknowledged(target.cluster)
            else:
                target.lost += 1
                target.failed = failure.str()

        value = {"from": target.cluster, "number": number, "at": time.strftime("%H:%M:%S")}
        producer = self._producers[target.cluster]
        while True:
            try:
                producer.produce(
                    target.topic, json.dumps(value), f"key-{number % KEYS}", on_delivery=delivered
                )
                return
            except BufferError:  # the local queue is full: the cluster is slower than the rate
                producer.poll(_TICK_S)

    def _producer(self, target: LoadTarget) -> None:
        cluster = self.lab.clusters.get(target.cluster)
        if cluster is None:
            names = ", ".join(self.lab.clusters) or "none; repl lab up makes dc1 and dc2"
            raise LabError(f"the lab has no cluster {target.cluster!r}", f"it has {names}")
        producer = self._producers.get(target.cluster)
        if producer is None:
            # A flush takes no longer than this, even when the cluster does not answer.
            producer = Producer(
                {
                    **cluster.client,
                    "enable.idempotence": True,
                    "linger.ms": 5,
                    "message.timeout.ms": int(_ACKNOWLEDGED_WITHIN_S * 1000),
                    "reconnect.backoff.max.ms": 1_000,
                    "logger": _SILENT,
                    "error_cb": lambda failure: self._outages.failed(target.cluster, failure),
                }
            )
            self._producers[target.cluster] = producer
        try:
            topics = producer.list_topics(timeout=10).topics
        except KafkaException as failure:
            raise LabError(
                f"{target.cluster} does not answer: {failure.args[0].str()}",
                "repl lab status shows what runs",
            ) from failure
        if target.topic not in topics:
            raise LabError(
                f"{target.cluster} has no topic {target.topic!r}", "create it, by a topology and repl apply"
            )
