"""The copy against MirrorMaker 2: python -m tests.bench.copy [--rounds 3] [--quick] [--only 1k-lz4 …]"""

from __future__ import annotations

import argparse
import os
import platform
import pstats
import signal
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

from runtime.contract.spec.schemas import RegistrySpec
from runtime.lab.cluster import LabClusterSpec, Listener
from runtime.lab.lab import Lab
from tests.bench.copy import fill, table
from tests.bench.copy.chain import Chain
from tests.bench.copy.job import Job
from tests.bench.copy.latency import Latency, at_a_thousand
from tests.bench.copy.librdkafka import Librdkafka
from tests.bench.copy.loaded import at_rate
from tests.bench.copy.mirror import MirrorMaker
from tests.bench.copy.run import Run, Side
from tests.bench.copy.slots import Slots
from tests.bench.copy.throughput import Measured, measure
from tests.bench.copy.workloads import LATENCY, SCHEMA_ID, THROUGHPUT, Workload
from tests.bench.lab import Brokers, bench_lab
from tests.fakes.registry import registry_server
from tests.labs import WITH_PARENT
from tests.ports import free_port
from tests.toxiproxy import proxied, toxiproxy

JSON = Path("build/bench-copy.json")
RATE = 1_000
TWO_SLOTS, DELAYED = "1k-none-2-slots", "1k-none-50-ms"
DELAY_MS, JITTER_MS = 50, 3
# What Kafka's own script starts a broker with. A lab's broker has a collector that needs little memory.
JVM = (
    *("-Xms1g", "-server", "-XX:-UseSerialGC", "-XX:+UseG1GC", "-XX:MaxGCPauseMillis=20"),
    *("-XX:InitiatingHeapOccupancyPercent=35", "-XX:+ExplicitGCInvokesConcurrent", "-XX:MaxInlineLevel=15"),
)
LISTENER = "LINK"


class Bench:
    def __init__(self, lab: Lab, options: argparse.Namespace) -> None:
        self.options = options
        self.folder = lab.home.parent
        self.here = lab.clusters["dc1"]
        self.brokers = Brokers(lab)
        quiet = {"log_level": 0}  # clients outlive the brokers by a moment
        self.source, self.destination = (lab.clusters[name].client | quiet for name in ("dc1", "dc2"))
        known: dict[str, Side] = {
            side.name: side
            for side in (
                Job(),
                Slots(profile=options.profile),
                MirrorMaker(exactly_once=False),
                MirrorMaker(exactly_once=True),
                Librdkafka(),
                Chain(),
            )
        }
        self.sides = [known[name] for name in options.sides]
        self.rows: list[table.Row] = []
        self._number = 0

    def run(self) -> None:
        for side in (*self.sides, *self._for_latency()):
            if isinstance(side, MirrorMaker | Librdkafka):
                shown = side.configuration(self._run(LATENCY, "TOPIC", side)).items()
                print(
                    f"\n{side.name}:\n" + "\n".join(f"  {key} = {value}" for key, value in shown), flush=True
                )
        for workload in THROUGHPUT:
            if self._chosen(workload.name):
                self._throughput(workload)
        if self._chosen(DELAYED):
            self._delayed()
        if self._chosen(LATENCY.name):
            self._latency()
        if self._chosen("latency-half"):
            self._half()

    def _chosen(self, name: str) -> bool:
        return not self.options.only or name in self.options.only

    def _throughput(self, workload: Workload, source: str | None = None) -> None:
        with registry_server() as here, registry_server() as there:
            text = {"type": "record", "name": "Order", "fields": []}
            here.add(SCHEMA_ID, text, f"{workload.topic}-value")
            there.add(SCHEMA_ID, {"type": "enum", "name": "Other", "symbols": ["A"]}, "other")
            pair = {"here": RegistrySpec(url=here.url), "there": RegistrySpec(url=there.url)}
            self._copied(workload, source, pair if workload.schemas else {})

    def _copied(self, workload: Workload, source: str | None, registries: Mapping[str, RegistrySpec]) -> None:
        workload = replace(workload, megabytes=int(workload.megabytes * self.options.scale))
        at_source = fill.preload(self.source, workload)
        window_s = 5.0 if self.options.quick else 12.0
        for number in range(-1, self.options.rounds):  # the first is the brokers' warm-up: their JVMs compile
            for side, run in self._runs(workload, number):
                run = replace(run, source=source or run.source, registries=registries)
                measured = measure(side, run, self.brokers, at_source, window_s)
                fill.forget(self.destination, run.mirror_topic)
                if number < 0:
                    print(f"warm-up: {side.name} {measured.mb_per_s:.0f} MB/s", flush=True)
                    break
                self._keep(measured)
                if self.options.profile and isinstance(side, Slots):
                    pstats.Stats(f"{run.folder / run.tag}.profile").sort_stats("tottime").print_stats(45)
        fill.forget(self.source, workload.topic)

    def _runs(self, workload: Workload, number: int) -> Iterator[tuple[Side, Run]]:
        for side in self._order(number):
            yield side, self._run(workload, workload.topic, side)
        if workload.name == "1k-none" and self._chosen(TWO_SLOTS):
            for side in self._order(number):
                if isinstance(side, Job | Slots):
                    run = self._run(replace(workload, name=TWO_SLOTS), workload.topic, side)
                    yield side, replace(run, slots=2)

    def _delayed(self) -> None:
        """The source is reached through a proxy that holds its answers back."""
        binary = toxiproxy()
        if binary is None:
            print(f"{DELAYED}: left out, Go is missing to build toxiproxy", flush=True)
            return
        node, told = next(iter(self.here.spec.listeners[0].advertised.items()))
        with proxied(binary, {told: self.here.listener(LISTENER)[node]}) as proxies:
            proxies.delay(DELAY_MS, JITTER_MS)
            self._throughput(replace(THROUGHPUT[0], name=DELAYED), source=told)

    def _latency(self) -> None:
        warm_s, window_s = (10.0, 10.0) if self.options.quick else (60.0, 30.0)
        for number in range(self.options.rounds):
            for side in _alternating(self._for_latency(), number):
                run = self._run(LATENCY, f"latency-{self._number}", side)
                self._keep(at_a_thousand(side, run, RATE, warm_s, window_s))

    def _for_latency(self) -> list[Side]:
        """Returns the sides whose latency is measured: each of them at its best for that."""
        return [one for side in self.sides for one in _at_its_best(side)]

    def _half(self) -> None:
        """Each side at half of its own maximum of 1k-none, or all at the rate of --rate."""
        most = {
            side: facts["records_per_s"]
            for (workload, side), facts in table.medians(self.rows).items()
            if workload == "1k-none"
        }
        workload = replace(THROUGHPUT[0], name="latency-half", megabytes=60)
        fill.preload(self.source, workload)
        warm_s, window_s = (5.0, 5.0) if self.options.quick else (20.0, 15.0)
        for side in self.sides:
            rate = self.options.rate or (most.get(side.name) or 0.0) / 2
            for one in _at_its_best(side) if rate else ():
                run = self._run(workload, f"half-{self._number}", one)
                self._keep(at_rate(one, run, workload.topic, rate, warm_s, window_s))
                fill.forget(self.destination, run.mirror_topic)
                fill.forget(self.source, run.topic)

    def _order(self, number: int) -> list[Side]:
        return _alternating(self.sides, number)

    def _run(self, workload: Workload, topic: str, side: Side) -> Run:
        self._number += 1
        here, there = (str(client["bootstrap.servers"]) for client in (self.source, self.destination))
        return Run(f"r{self._number}-{side.name}", workload, topic, here, there, self.folder)

    def _keep(self, row: Measured | Latency) -> None:
        self.rows.append(row)
        load, _, _ = os.getloadavg()
        print(f"{row}  (load {load:.1f})", flush=True)
        table.write_json(self.rows, JSON)


def _at_its_best(side: Side) -> Sequence[Side]:
    """Returns the sides whose latency is measured in place of one that is tuned for throughput."""
    return side.for_latency() if isinstance(side, MirrorMaker | Librdkafka) else [side]


def _alternating(sides: list[Side], number: int) -> list[Side]:
    return sides[::-1] if number > 0 and number % 2 else sides


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--quick", action="store_true", help="short windows: a first look, not a result")
    parser.add_argument(
        "--only", nargs="*", default=[], help=f"workloads, {TWO_SLOTS}, {DELAYED}, latency-half"
    )
    parser.add_argument("--sides", nargs="*", default=["repl", "mm2", "mm2-eos", "librdkafka"])
    parser.add_argument("--scale", type=float, default=1.0, help="of the preloaded data")
    parser.add_argument("--rate", type=float, help="records/s of latency-half, the same for all sides")
    parser.add_argument("--profile", action="store_true", help="where the time of the side `slot` goes")
    options = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # the lab and its gigabytes of data are removed
    today, python = datetime.now(UTC).date(), sys.version.split()[0]
    print(f"{today}, {os.cpu_count()} cores, {platform.platform()}, Python {python}")
    properties = {"log.retention.ms": "-1", "file.delete.delay.ms": "1000"}
    link = Listener(LISTENER, {1: f"127.0.0.1:{free_port()}"})
    clusters = (
        LabClusterSpec(
            name, heap="1g", jvm=JVM, prefix=WITH_PARENT, properties=properties, listeners=listeners
        )
        for name, listeners in (("dc1", (link,)), ("dc2", ()))
    )
    with bench_lab(*clusters) as (lab, _):
        bench = Bench(lab, options)
        try:
            bench.run()
        finally:
            if bench.rows:
                print("\n" + table.text(bench.rows, os.cpu_count() or 1))


if __name__ == "__main__":
    main()
