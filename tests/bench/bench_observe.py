"""How long reading the clusters takes, and what it costs: the observing half of a plan, beside librdkafka.

python -m tests.bench.bench_observe [--sizes 1000,10000]

On a lab of its own, dc1 and dc2 with the same topics, read at once as a plan does. CPU is this process's.
"""

import argparse
import gc
import resource
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from confluent_kafka.admin import AdminClient, ConfigResource, NewTopic

from planner.kafka import ClusterEndpoint, run
from planner.model.observed import (
    ClusterDetailsRequest,
    Observed,
    ObservedCluster,
    Request,
)
from planner.model.topology import Cluster
from planner.observe.cluster import ReadOptions
from planner.observe.observer import observe
from runtime.lab.cluster import LabClusterSpec
from runtime.lab.lab import Lab
from tests.fakes.replacing import replace

PARTITIONS = 2
BATCH = 1_000
BROKERS = 2  # of each cluster: one process may not open as many files as 20,000 partitions need
PATIENCE_S = 120.0
KEYS = frozenset({"retention.ms", "cleanup.policy", "max.message.bytes"})


@dataclass(frozen=True, slots=True)
class Row:
    what: str
    topics: int
    seconds: float
    cpu_seconds: float
    megabytes: float


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--sizes", default="1000,10000")
    parser.add_argument("--rounds", type=int, default=3)
    given = parser.parse_args()
    rows: list[Row] = []
    with tempfile.TemporaryDirectory() as folder:
        lab = Lab(Path(folder) / "lab")
        lab.up([LabClusterSpec(name, brokers=BROKERS, heap="1g") for name in ("dc1", "dc2")])
        try:
            there = 0
            for size in (int(text) for text in given.sizes.split(",")):
                create(lab, there, size)
                there = size
                rows += measured(lab, size, given.rounds)
        finally:
            lab.down(purge=True)
    print(f"{'':44} {'topics':>8} {'seconds':>8} {'CPU s':>7} {'MB':>6}")
    for row in rows:
        print(
            f"{row.what:44} {row.topics:>8,} {row.seconds:>8.2f}"
            f" {row.cpu_seconds:>7.2f} {row.megabytes:>6.0f}"
        )
    return 0


def create(lab: Lab, first: int, last: int) -> None:
    for cluster in lab.clusters.values():
        admin = AdminClient(cluster.client)
        for start in range(first, last, BATCH):
            names = [f"bench.{number:05}" for number in range(start, min(start + BATCH, last))]
            config = {"retention.ms": "86400000", "max.message.bytes": "2000000"}
            asked = admin.create_topics(
                [NewTopic(name, PARTITIONS, 1, config=config) for name in names], request_timeout=PATIENCE_S
            )
            for future in asked.values():
                future.result(2 * PATIENCE_S)
        deadline = time.monotonic() + 600
        while len(admin.list_topics(timeout=PATIENCE_S).topics) < last:
            assert time.monotonic() < deadline, "the broker does not list the topics"
            time.sleep(1)


def measured(lab: Lab, size: int, rounds: int) -> Iterator[Row]:
    """The quickest of some rounds of each: what else runs on this machine is not what is measured."""
    wanted = {
        "here: names, ids, brokers, own defaults": None,
        "here: all that is set explicitly": True,
        "here: three keys": False,
    }
    for what, explicit in wanted.items():
        yield min((here(lab, what, size, explicit) for _ in range(rounds)), key=lambda row: row.seconds)
    yield librdkafka(lab, size)


def here(lab: Lab, what: str, size: int, explicit: bool | None) -> Row:
    endpoints = {name: ClusterEndpoint(name, one.bootstrap) for name, one in lab.clusters.items()}
    clusters = {name: Cluster(name, bootstrap=one.bootstrap) for name, one in endpoints.items()}
    began: list[float] = []

    def wanted(names: Observed) -> Request:
        gc.collect()
        began[:] = [time.perf_counter(), time.process_time()]
        if explicit is None:
            return {}
        return {
            name: ClusterDetailsRequest(dict.fromkeys(live.topics, KEYS), explicit=explicit)
            for name, live in live_ones(names)
        }

    row = timed(what, size, lambda: run(observe(clusters, endpoints, wanted, ReadOptions(PATIENCE_S))))
    if explicit is None:
        return row
    return replace(row, seconds=time.perf_counter() - began[0], cpu_seconds=time.process_time() - began[1])


def live_ones(observed: Observed) -> Iterator[tuple[str, ObservedCluster]]:
    for name, one in observed.clusters.items():
        assert isinstance(one, ObservedCluster), one
        yield name, one


def librdkafka(lab: Lab, size: int) -> Row:
    """What it does at most: every setting of every topic, one cluster after the other."""

    def describe() -> None:
        for cluster in lab.clusters.values():
            admin = AdminClient(cluster.client)
            names = list(admin.list_topics(timeout=PATIENCE_S).topics)
            for start in range(0, len(names), BATCH):
                resources = [
                    ConfigResource(ConfigResource.Type.TOPIC, name) for name in names[start : start + BATCH]
                ]
                for future in admin.describe_configs(resources, request_timeout=PATIENCE_S).values():
                    future.result()

    return timed("librdkafka: every setting", size, describe)


def timed(what: str, size: int, work: Callable[[], object]) -> Row:
    gc.collect()
    with clock() as taken:
        work()
    seconds, cpu = taken
    return Row(what, size, seconds, cpu, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024)


@contextmanager
def clock() -> Iterator[list[float]]:
    taken: list[float] = []
    wall, cpu = time.perf_counter(), time.process_time()
    yield taken
    taken += [time.perf_counter() - wall, time.process_time() - cpu]


if __name__ == "__main__":
    raise SystemExit(main())
