"""How fast one slot copies, and what it costs: the loop alone, in this process, without Spark or a driver.

python -m tests.bench.bench_slot [--megabytes 1000] [--rounds 3] [--profile FILE]

On a lab of its own: dc1 is filled by librdkafka and copied exactly once to dc2. Then: how long a slot with
1,000 partitions takes to resume, and what it costs while nothing comes. CPU is this process's and, beside
it, the brokers'.
"""

from __future__ import annotations

import argparse
import asyncio
import cProfile
import gc
import time
from contextlib import nullcontext, suppress
from pathlib import Path

import uvloop

from runtime.contract.spec.jobspec import CopySettings, ProvenanceMode
from runtime.kafka.errors import BrokerError
from runtime.lab.cluster import LabClusterSpec
from tests.bench.bench_wire import PARTITIONS, Load, fill, measured
from tests.bench.lab import Brokers, bench_lab
from tests.runtime.slot.world import Driver, Side, assigned, at_end, flow_spec, until

LOADS: tuple[tuple[Load, ProvenanceMode], ...] = (
    (Load("1 KB, none", 1024, "none", 1.0), "off"),
    (Load("1 KB, headers", 1024, "none", 1.0), "headers"),
    (Load("100 B, lz4", 100, "lz4", 0.3), "off"),
)
MANY = 1_000
IDLE_S = 10.0


async def copy_once(driver: Driver, brokers: Brokers, topic: str, mode: ProvenanceMode, what: str) -> None:
    """Into a topic of its own each time, so that rounds are alike."""
    mirror = f"{topic}-{time.monotonic_ns()}"
    driver.sides["dc2"].create(mirror, PARTITIONS)
    flow = flow_spec(mirror, provenance=mode)
    partitions = assigned(flow.name, topic, PARTITIONS, destination_topic=mirror)
    assignment = await driver.take_over(flow, partitions)
    ends = [end for _, end in driver.sides["dc1"].ends(topic, PARTITIONS)]
    with measured(brokers) as row:
        async with driver.running(assignment) as slot:
            await until(slot, at_end(ends), 600)
            status = slot.status()
            line = row(what, sum(ends), sum(one.bytes for one in status.flows))
        print(f"{line}   {status.rss_bytes / 1e6:.0f} MB RSS", flush=True)
    driver.sides["dc2"].delete(mirror)


async def many_partitions(driver: Driver) -> None:
    flow, topic = flow_spec("many"), "many"
    for side in driver.sides.values():
        side.create(topic, MANY)
    assignment = None
    while assignment is None:  # a single broker takes its time to lead so many
        with suppress(BrokerError):
            assignment = await driver.take_over(flow, assigned(flow.name, topic, MANY))
    driver.sides["dc1"].write(topic, ({"value": b"%d" % one, "partition": one} for one in range(MANY)))
    for what in ("first start", "resume"):
        began, cpu = time.perf_counter(), time.process_time()
        async with driver.running(assignment) as slot:
            await until(slot, lambda one: one.position == 1 and one.source_end == 1, 120)
            took, cost = time.perf_counter() - began, time.process_time() - cpu
            print(f"{what} with {MANY} partitions: {took:.1f} s, {cost:.2f} CPU-s", flush=True)
            await asyncio.sleep(2)
            cpu = time.process_time()
            await asyncio.sleep(IDLE_S)
            print(f"idle: {(time.process_time() - cpu) / IDLE_S:.1%} of a core", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--megabytes", type=int, default=1000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--profile", type=Path, help="cProfile's output, to be read with pstats")
    options = parser.parse_args()
    with bench_lab(*(LabClusterSpec(name, heap="768m") for name in ("dc1", "dc2"))) as (lab, _):
        sides = {name: Side(name, one.bootstrap, one.client) for name, one in lab.clusters.items()}
        for side in sides.values():
            side.create_internal()
        driver = Driver(sides, settings=CopySettings())
        profile = cProfile.Profile() if options.profile else None
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner, profile or nullcontext():
            for load, mode in LOADS:
                topic = f"load-{load.value_bytes}-{load.compression}-{mode}"
                sides["dc1"].create(topic, PARTITIONS)
                fill(lab.clusters["dc1"].client, topic, load, options.megabytes)
                for _ in range(options.rounds):
                    work = copy_once(driver, Brokers(lab), topic, mode, f"slot   {load.name}")
                    runner.run(work)
                    gc.collect()  # else the ended slot's memory makes the next round take fresh pages
            runner.run(many_partitions(driver))
        if profile is not None:
            profile.dump_stats(options.profile)


if __name__ == "__main__":
    main()
