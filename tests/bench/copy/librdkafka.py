"""The side of librdkafka alone: one process that consumes and produces with confluent-kafka, at least once.

It copies as a pipe of two kcat processes would, but tuned, and keeps keys, headers, timestamps and
partitions. It has no transactions, no offset map, no provenance, and none of the other duties of a job.
"""

from __future__ import annotations

import sys

import msgspec

from tests.bench.copy.processes import Running
from tests.bench.copy.run import LATENCY_LINGERS_MS, THROUGHPUT_LINGER_MS, Run
from tests.bench.copy.workloads import PARTITIONS
from tests.records import create_topic


class Copy(msgspec.Struct, frozen=True):
    """Says what the process copies: a topic and its mirror, and both clients' settings.

    It waits `gather_s` for more records to copy at once; with 0 it copies what has arrived.
    """

    topic: str
    mirror_topic: str
    consumer: dict[str, str | int | bool]
    producer: dict[str, str | int | bool]
    gather_s: float


class Librdkafka:
    warm_s = 3.0

    def __init__(self, linger_ms: int = THROUGHPUT_LINGER_MS) -> None:
        self._for_latency = linger_ms != THROUGHPUT_LINGER_MS
        self.name = f"librdkafka-linger-{linger_ms}" if self._for_latency else "librdkafka"
        self._linger_ms = linger_ms

    def for_latency(self) -> list[Librdkafka]:
        """Returns the sides whose latency is measured in place of this one's."""
        return [Librdkafka(one) for one in LATENCY_LINGERS_MS]

    def copy(self, run: Run) -> Copy:
        """Returns the copy with tuned settings; the fresh group of a run begins where the topic begins."""
        return Copy(
            run.topic,
            run.mirror_topic,
            {
                "bootstrap.servers": run.source,
                "group.id": run.tag,
                "auto.offset.reset": "earliest",
                "enable.auto.commit": False,
                "enable.auto.offset.store": False,
                "max.partition.fetch.bytes": 4 << 20,
                "queued.max.messages.kbytes": 128 << 10,
            },
            {
                "bootstrap.servers": run.destination,
                "acks": "all",
                "enable.idempotence": True,  # keeps the order of a partition when a request is sent again
                "linger.ms": self._linger_ms,
                "batch.size": 1_000_000,
                "batch.num.messages": 10_000,
                "compression.type": run.workload.compression,
                "queue.buffering.max.messages": 200_000,
                "queue.buffering.max.kbytes": 1 << 20,
                "delivery.report.only.error": True,
            },
            gather_s=0.0 if self._for_latency else 0.005,
        )

    def configuration(self, run: Run) -> dict[str, str]:
        """Returns the settings of both clients, to be shown."""
        copy = self.copy(run)
        sides = {"consumer": copy.consumer, "producer": copy.producer}
        return {f"{side}.{key}": str(value) for side, all_ in sides.items() for key, value in all_.items()}

    def start(self, run: Run) -> Running:
        create_topic({"bootstrap.servers": run.destination}, run.mirror_topic, PARTITIONS)
        return self.start_again(run)

    def start_again(self, run: Run) -> Running:
        """Starts the process of a run whose mirror topic exists: it goes on where its group committed."""
        file = run.folder / f"{run.tag}.json"
        file.write_bytes(msgspec.json.encode(self.copy(run)))
        command = [sys.executable, "-m", "tests.bench.copy.librdkafka_process", str(file)]
        return Running.start(command, run.mirror_topic, run.folder / f"{run.tag}.log")
