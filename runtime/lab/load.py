"""Records for trying things: numbered, at a steady rate, to any number of topics at once."""

import json
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from confluent_kafka import KafkaException, Producer

from runtime.lab.errors import LabError
from runtime.lab.lab import Lab

KEYS = 100
_TICK = 0.05
_PATIENCE = 20.0


@dataclass
class Target:
    """One topic of one cluster, and how many of its records were acknowledged."""

    cluster: str
    topic: str
    written: int = 0
    failed: str = ""

    @property
    def name(self) -> str:
        return f"{self.cluster}:{self.topic}"


def targets_of(words: Sequence[str]) -> list[Target]:
    """`CLUSTER:TOPIC` each."""
    targets = [Target(*word.partition(":")[::2]) for word in words]
    for target in targets:
        if not target.topic:
            raise LabError(
                f"{target.cluster!r} names no topic", "write CLUSTER:TOPIC, for example dc1:orders"
            )
    return targets


@dataclass
class Load:
    """`run` writes until the time is over, or a Ctrl-C; what is on its way is waited for."""

    lab: Lab
    targets: Sequence[Target]
    rate: float
    _producers: dict[str, Producer] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for target in self.targets:
            self._producer(target)

    def run(self, seconds: float) -> None:
        try:
            for number in self._beats(seconds):
                for target in self.targets:
                    self._write(target, number)
        finally:
            for producer in self._producers.values():
                producer.flush(_PATIENCE)

    def _beats(self, seconds: float) -> Iterator[int]:
        """The numbers 0, 1, 2 … at the pace of the rate: as many as the time holds, whatever held us up."""
        began, number, passed = time.monotonic(), 0, 0.0
        while passed < seconds:
            time.sleep(_TICK)
            passed = min(time.monotonic() - began, seconds)
            while number < passed * self.rate:
                yield number
                number += 1
            for producer in self._producers.values():
                producer.poll(0)

    def _write(self, target: Target, number: int) -> None:
        def told(failure: object, _record: object) -> None:
            if failure is None:
                target.written += 1
            else:
                target.failed = str(failure)

        value = {"from": target.cluster, "number": number, "at": time.strftime("%H:%M:%S")}
        producer = self._producers[target.cluster]
        while True:
            try:
                producer.produce(target.topic, json.dumps(value), f"key-{number % KEYS}", on_delivery=told)
                return
            except BufferError:  # the cluster is slower than the rate
                producer.poll(_TICK)

    def _producer(self, target: Target) -> None:
        cluster = self.lab.clusters.get(target.cluster)
        if cluster is None:
            known = ", ".join(self.lab.clusters) or "none; repl lab up makes dc1 and dc2"
            raise LabError(f"the lab has no cluster {target.cluster!r}", f"it has {known}")
        producer = self._producers.get(target.cluster)
        if producer is None:
            # A flush never takes longer than this, however dead the cluster is.
            producer = Producer(
                {
                    **cluster.client,
                    "enable.idempotence": True,
                    "linger.ms": 5,
                    "message.timeout.ms": int(_PATIENCE * 1000),
                    "log_level": 3,  # what passes by itself is no news
                }
            )
            self._producers[target.cluster] = producer
        try:
            found = producer.list_topics(timeout=10).topics
        except KafkaException as failure:
            raise LabError(
                f"{target.cluster} does not answer: {failure.args[0].str()}",
                "repl lab status shows what runs",
            ) from failure
        if target.topic not in found:
            raise LabError(
                f"{target.cluster} has no topic {target.topic!r}", "create it, by a topology and repl apply"
            )
