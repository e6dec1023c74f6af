"""A flow that filters and masks, against MirrorMaker 2 with SMTs on the same brokers: `make bench-sql`.

Both sides drop the records with the header `test`, mask one field and remove another. MirrorMaker 2 needs
ParseJson for that, because Kafka's MaskField refuses bytes. `mm2-filter` only filters, which needs none.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import platform
import random
import shutil
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import asdict, replace
from datetime import UTC, datetime
from pathlib import Path
from statistics import median
from typing import Any

import msgspec
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient

from runtime.contract.spec.jobspec import FlowSpec
from runtime.contract.spec.selection import SelectionSpec
from runtime.contract.spec.transform import FormatSpec, TransformSpec
from runtime.java import find_java
from runtime.lab import kit
from runtime.lab.cluster import LabClusterSpec
from runtime.lab.lab import Lab
from tests.bench.copy.fill import multiply, preload
from tests.bench.copy.job import Job
from tests.bench.copy.latency import Headers, Latency, at_a_thousand
from tests.bench.copy.mirror import MirrorMaker
from tests.bench.copy.run import LATENCY_LINGERS_MS, THROUGHPUT_LINGER_MS, Run, Side
from tests.bench.copy.throughput import Measured, measure
from tests.bench.copy.workloads import PARTITIONS, THROUGHPUT, Workload
from tests.bench.lab import Brokers, bench_lab
from tests.bench.results import keep
from tests.labs import WITH_PARENT, mirror_maker
from tests.records import create_topic

JSON = Path("build/bench-sql.json")
SMT = Path(__file__).with_name("ParseJson.java")
BYTES, POOL, RATE = 300, 100_000, 1_000
SQL = Workload("sql", BYTES, "lz4", 600, travels=0.9)
LATENCY = Workload("sql-latency-1000", BYTES, "none", 0, linger_ms=0, travels=0.9)
MASK = TransformSpec(
    value=FormatSpec(format="json", schema="id BIGINT, email STRING, country STRING, card STRING"),
    where="headers['test'] IS NULL",
    set={"value.email": "'****'"},
    drop=("value.card",),
)
IDLE = "idle"
Row = Measured | Latency
SHOWN = (
    *("records_per_s", "mb_per_s", "cpu_s_per_gb", "brokers_cpu_s_per_gb", "rss_mb", "python_mb"),
    *("p50_ms", "p99_ms", "p999_ms", "cores", "first_record_s"),
)
HASH = msgspec.structs.replace(MASK, set={"value.email": "sha2(value.email, 256)"})


class Customers:
    """JSON of 300 bytes. Each tenth record has the header `test`."""

    def __init__(self) -> None:
        dice = random.Random(7)
        self._others = [_others(dice) for _ in range(1_024)]

    def made(self, number: int, sent_ns: int) -> tuple[bytes, Headers]:
        text = f'{{"id": {sent_ns}, {self._others[number % 1_024]}}}'
        return text.encode(), [("test" if number % 10 == 9 else "source", b"bench")]

    def sent_ns(self, value: bytes) -> int:
        return int(json.loads(value)["id"])


def _others(dice: random.Random) -> str:
    fields: dict[str, Any] = {"email": f"user{dice.randrange(10**6)}@example.com"}
    fields |= {"country": dice.choice(["DE", "FR", "US", "IT"]), "card": f"4111 {dice.randrange(10**12)}"}
    fields |= {"amount": dice.randrange(10**5) / 4, "open": True}
    while len(text := json.dumps(fields)) < BYTES - 30:
        fields[f"field{len(fields)}"] = f"{dice.getrandbits(64):016x}"
    return text[1:-1]


class SqlJob(Job):
    """The job, with a transform of its flow; `beside` is the raw flow that is measured beside an idle one."""

    def __init__(
        self, name: str, transform: TransformSpec | None, *, beside: bool = False, slots: int = 1
    ) -> None:
        super().__init__()
        self.name = name
        self.warm_s = 15.0  # the JVM compiles the query
        self._transform = transform
        self._beside = beside
        self._slots = slots

    def slots(self, run: Run) -> int:
        return super().slots(run) + self._slots - 1

    def flows(self, run: Run) -> list[FlowSpec]:
        (flow,) = super().flows(run)
        if not self._beside:
            return [msgspec.structs.replace(flow, transform=self._transform)]
        topics = SelectionSpec(include=(IDLE,))
        return [flow, msgspec.structs.replace(flow, name="idle", topics=topics, transform=MASK)]


class MirrorWithSmts(MirrorMaker):
    """MirrorMaker 2 with Kafka's SMTs; without `classes` it only filters, and copies values as bytes."""

    def __init__(self, name: str, classes: Path | None, linger_ms: int = THROUGHPUT_LINGER_MS) -> None:
        super().__init__(exactly_once=False, linger_ms=linger_ms)
        self.name = name
        self._classes = classes

    def for_latency(self) -> Sequence[MirrorMaker]:
        """Returns the sides whose latency is measured in place of this one's."""
        return [MirrorWithSmts(f"{self.name}-linger-{one}", self._classes, one) for one in LATENCY_LINGERS_MS]

    def configuration(self, run: Run) -> dict[str, str]:
        kafka = "org.apache.kafka.connect.transforms"
        steps = {"test": {"type": f"{kafka}.Filter", "predicate": "isTest"}}
        flow = f"{run.tag}->dst"
        config = super().configuration(run) | {
            f"{flow}.predicates": "isTest",
            f"{flow}.predicates.isTest.type": f"{kafka}.predicates.HasHeaderKey",
            f"{flow}.predicates.isTest.name": "test",
            # Their records have no JSON.
            "emit.checkpoints.enabled": "false",
            "emit.heartbeats.enabled": "false",
        }
        if self._classes is not None:
            steps["parse"] = {"type": "bench.ParseJson"}
            steps["mask"] = {"type": f"{kafka}.MaskField$Value", "fields": "email", "replacement": "****"}
            steps["card"] = {"type": f"{kafka}.ReplaceField$Value", "exclude": "card"}
            config |= {
                f"{flow}.value.converter": "org.apache.kafka.connect.json.JsonConverter",
                f"{flow}.value.converter.schemas.enable": "false",
            }
        config[f"{flow}.transforms"] = ",".join(steps)
        for step, settings in steps.items():
            config |= {f"{flow}.transforms.{step}.{key}": value for key, value in settings.items()}
        return config

    def command(self, run: Run) -> list[str]:
        words = super().command(run)
        if self._classes is not None:
            at = words.index("-cp") + 1
            words[at] = f"{self._classes}{os.pathsep}{words[at]}"
        return words


def compiled(folder: Path) -> Path | None:
    """The classes of ParseJson; None where there is no Java compiler."""
    if shutil.which("javac") is None:
        return None
    jar = kit.classpath(str(find_java(os.environ)), mirror_maker.JARS)
    subprocess.run(["javac", "-cp", jar, "-d", str(folder), str(SMT)], check=True)
    return folder


class Bench:
    def __init__(self, lab: Lab, options: argparse.Namespace) -> None:
        self._options = options
        self._folder = lab.home.parent
        self._brokers = Brokers(lab)
        clients = [lab.clusters[name].client | {"log_level": 0} for name in ("dc1", "dc2")]
        self._source, self._destination = clients
        self._rows: list[Row] = []
        self._number = 0

    def run(self, only: Sequence[str]) -> None:
        load = os.getloadavg()
        classes = compiled(self._folder)
        if classes is None:
            print("mm2-smts: left out, there is no Java compiler (javac) for ParseJson", flush=True)
        sides: list[Side] = [SqlJob("repl", MASK), SqlJob("repl-two-slots", MASK, slots=2)]
        sides += [SqlJob("repl-sha2", HASH)]
        sides += [MirrorWithSmts("mm2-smts", classes)] if classes is not None else []
        sides += [MirrorWithSmts("mm2-filter", None)]
        raw: list[Side] = [SqlJob("repl-raw", None), SqlJob("repl-raw-beside", None, beside=True)]
        for_latency = [
            one for side in sides for one in (side.for_latency() if isinstance(side, MirrorMaker) else [side])
        ]
        for workload, parts in ((SQL, sides), (LATENCY, for_latency), (THROUGHPUT[1], raw)):
            if not only or workload.name in only:
                self._rounds(
                    workload, [one for one in parts if one.name in (self._options.sides or [one.name])]
                )
        if self._rows:
            keep(JSON, self._rows, load)
            print("\n" + text(self._rows))

    def _rounds(self, workload: Workload, sides: Sequence[Side]) -> None:
        quick = self._options.quick
        at_source = 0
        if workload is SQL:
            at_source = self._fill()
        elif workload is not LATENCY:
            create_topic(self._source, IDLE, 1)
            at_source = preload(self._source, replace(workload, megabytes=6_000))
        for number in range(self._options.rounds):
            for side in sides[::-1] if number % 2 else sides:
                self._number += 1
                topic = workload.topic if workload is not LATENCY else f"latency-{self._number}"
                here, there = (str(one["bootstrap.servers"]) for one in (self._source, self._destination))
                run = Run(f"r{self._number}-{side.name}", workload, topic, here, there, self._folder)
                found: Measured | Latency
                if workload is LATENCY:
                    warm_s, window_s = (15.0, 10.0) if quick else (60.0, 30.0)
                    found = at_a_thousand(side, run, RATE, warm_s, window_s, Customers())
                else:
                    found = measure(side, run, self._brokers, at_source, 5.0 if quick else 12.0)
                    admin = AdminClient(self._destination)
                    admin.delete_topics([run.mirror_topic])[run.mirror_topic].result(30)
                print(f"{found}  (load {os.getloadavg()[0]:.1f})", flush=True)
                self._rows.append(found)

    def _fill(self) -> int:
        create_topic(self._source, SQL.topic, PARTITIONS, config={"retention.ms": "-1"})
        producer = Producer(
            {**self._source, "compression.type": SQL.compression, "linger.ms": 20, "batch.size": 131_072}
        )
        customers = Customers()
        for number in range(POOL):
            value, headers = customers.made(number, number)
            producer.produce(SQL.topic, value, partition=number % PARTITIONS, headers=[*headers])
            if not number % 1_000:
                producer.poll(0.01)
        assert producer.flush(60) == 0
        wanted = int(self._options.scale * 1e6 * SQL.megabytes) // BYTES
        return asyncio.run(multiply(str(self._source["bootstrap.servers"]), SQL.topic, wanted))


def text(rows: Sequence[Row]) -> str:
    """Markdown: the median of each figure over the rounds."""
    lines = [f"| workload | side | {' | '.join(SHOWN)} |", "| --- | --- |" + " ---: |" * len(SHOWN)]
    together: dict[tuple[str, str], list[dict[str, Any]]] = {}
    for row in rows:
        together.setdefault((row.workload, row.side), []).append(asdict(row))
    for (workload, side), found in together.items():
        cells = [f"{median(row[name] for row in found):,.1f}" if name in found[0] else "" for name in SHOWN]
        lines.append(f"| {workload} | {side} | {' | '.join(cells)} |")
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--quick", action="store_true", help="short windows: a first look, not a result")
    parser.add_argument(
        "--only", nargs="*", default=[], help=f"{SQL.name}, {LATENCY.name}, {THROUGHPUT[1].name}"
    )
    parser.add_argument("--sides", nargs="*", default=[])
    parser.add_argument("--scale", type=float, default=1.0, help="of the preloaded data")
    options = parser.parse_args()
    today, python = datetime.now(UTC).date(), sys.version.split()[0]
    print(f"{today}, {os.cpu_count()} cores, {platform.platform()}, Python {python}")
    properties = {"log.retention.ms": "-1", "file.delete.delay.ms": "1000"}
    clusters = (
        LabClusterSpec(name, heap="1g", prefix=WITH_PARENT, properties=properties) for name in ("dc1", "dc2")
    )
    with bench_lab(*clusters) as (lab, _):
        Bench(lab, options).run(options.only)


if __name__ == "__main__":
    main()
