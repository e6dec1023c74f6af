"""How `repl ui` bears 10,000 partitions: first paint, update, many viewers at once, and memory.

python -m tests.bench.bench_ui [--partitions 10000] [--viewers 50]

The server runs in a process of its own. What it reads is made up: facts as clusters and a ledger tell them, a
new reading every two seconds, from which the status is derived as ever. So the time of the clusters' answers
is not in the figures, and the client's buffers are not in the memory. The table is printed,
build/bench-ui.json keeps it.
"""

import argparse
import asyncio
import http.client
import os
import random
import subprocess
import sys
import time
from collections.abc import AsyncGenerator, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlencode

from msgspec.structs import replace

from planner.ui.access import AccessPolicy
from planner.ui.app import Site
from planner.ui.feed import StatusFeed, now_ms
from planner.ui.server import listen, serve
from planner.workflows.requests import TopologyRequest
from runtime.audit.status.facts import (
    ClusterFacts,
    LedgerFacts,
    StatusRequest,
    StatusSnapshot,
    TopicFacts,
)
from runtime.audit.status.join import join
from runtime.contract.client.endpoint import ClusterEndpoint
from runtime.contract.records.advance import first_progress
from runtime.contract.records.job_status import (
    FlowStats,
    FlowView,
    JobStatus,
    JobStatusTable,
    PartitionState,
    PartitionStatus,
    SlotReport,
    SlotView,
)
from runtime.contract.records.latency import TopicLatency
from runtime.contract.records.ledger import Generation, PartitionKey
from runtime.contract.results.status import ReplicationStatus
from runtime.contract.spec.jobspec import FlowSpec, Route
from runtime.contract.spec.naming import TopicPartition
from runtime.contract.spec.route import Router
from runtime.contract.spec.selection import SelectionSpec
from tests.bench.results import keep

RESULTS = Path("build/bench-ui.json")
PARTITIONS = 10  # of a topic
SLOTS = 4
EVERY_S = 2.0
UPDATES = 10
ID = b"i" * 16
FLOW = "dc1-to-dc2"


@dataclass(frozen=True, slots=True)
class Row:
    what: str
    value: float
    unit: str
    most: float | None = None

    @property
    def within(self) -> bool:
        return self.most is None or self.value <= self.most


class MadeUpClusters:
    """Two clusters, and a flow of so many partitions between them; half of them lag."""

    def __init__(self, partitions: int) -> None:
        self._random = random.Random(7)
        self.topics = [f"orders.{number:05}" for number in range(max(partitions // PARTITIONS, 1))]
        topics = SelectionSpec(("orders\\..*",))
        flow = FlowSpec(name=FLOW, source="dc1", destination="dc2", topics=topics, rpo_ms=5_000)
        router = Router([Route(FLOW, "dc1", "dc2", topics)])
        access = {name: ClusterEndpoint(name, "") for name in ("dc1", "dc2")}
        self.asked = StatusRequest("bench", access, [flow], router, {FLOW: "dc2"})
        self._position = 1_000

    def look(self) -> StatusSnapshot:
        """Returns what an inspection would have found now."""
        now, self._position = now_ms(), self._position + 500
        at = [TopicPartition(topic, number) for topic in self.topics for number in range(PARTITIONS)]
        lags = [self._random.choice((0, self._random.randrange(400))) for _ in at]
        listed = {topic: TopicFacts(ID, PARTITIONS) for topic in self.topics}
        ends = {one: self._position + lag for one, lag in zip(at, lags, strict=True)}
        source = ClusterFacts("dc1", True, "", "id-1", listed, dict.fromkeys(at, 0), ends, ends)
        there = dict.fromkeys(at, self._position)
        destination = ClusterFacts("dc2", True, "", "id-2", listed, dict.fromkeys(at, 0), there, there)
        begun = first_progress(
            generation=1,
            source_topic_id=ID,
            destination_topic="",
            destination_topic_id=ID,
            position=self._position,
            destination_end=self._position,
            now_ms=now - 900,
        )
        progress = {
            PartitionKey(FLOW, one.topic, one.partition): replace(
                begun, destination_topic=one.topic, records=self._position, last_timestamp=now - 900
            )
            for one in at
        }
        ledger = LedgerFacts(
            progress={FLOW: progress},
            generations={FLOW: Generation(1, "dc2", "active", "me", [], "id-1", "id-2", now)},
            reported=JobStatusTable(
                jobs={"dc2": self._job(now)},
                reports={("dc2", slot): self._report(slot, at, lags, now) for slot in range(SLOTS)},
            ),
        )
        return StatusSnapshot(now, {"dc1": source, "dc2": destination}, {"dc2": ledger})

    def _job(self, now: int) -> JobStatus:
        return JobStatus(
            job="dc2",
            topology="bench",
            driver="me",
            state="running",
            at_ms=now - 300,
            started_ms=now - 3_600_000,
            slots=[SlotView(slot, "running", now - 3_600_000, 1, 1) for slot in range(SLOTS)],
            flows=[FlowView(FLOW, "active", 1, "id-1", "id-2", True, 1, 1)],
        )

    def _report(self, slot: int, at: Sequence[TopicPartition], lags: Sequence[int], now: int) -> SlotReport:
        partitions = [
            PartitionStatus(
                FLOW,
                one.topic,
                one.partition,
                PartitionState.COPYING if lag else PartitionState.CAUGHT_UP,
                now - 30_000,
                position=self._position,
                source_end=self._position + lag,
                last_fetch_ms=now - 200,
            )
            for number, (one, lag) in enumerate(zip(at, lags, strict=True))
            if number % SLOTS == slot
        ]
        latencies = [
            TopicLatency(topic, 100, 1_200, 4, 28, [0, 10, 60, 25, 5])
            for topic in {one.topic for number, one in enumerate(at) if number % SLOTS == slot}
        ]
        stats = FlowStats(FLOW, latency_counts=[0, 10, 60, 25, 5, *([0] * 13)], latencies=latencies)
        return SlotReport(slot, now - 500, 1, "me", 1, flows=[stats], partitions=partitions)


def served(partitions: int) -> None:
    """The server's process: it prints its port."""
    clusters = MadeUpClusters(partitions)

    async def readings() -> AsyncGenerator[ReplicationStatus, None]:
        before = clusters.look()
        while True:
            now = clusters.look()
            begun = time.process_time()
            status = join(clusters.asked, now, before)
            print(f"join {(time.process_time() - begun) * 1000:.0f}", flush=True)
            before = now
            yield status
            await asyncio.sleep(EVERY_S)

    site = Site(TopologyRequest(Path("bench.yaml")), StatusFeed(readings), AccessPolicy())
    listening = listen(0)
    print(f"port {listening.getsockname()[1]}", flush=True)
    serve(site, listening)


class Viewer:
    """A browser with one connection that stays."""

    def __init__(self, port: int) -> None:
        self._connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)

    def ask(self, path: str) -> tuple[float, int, str]:
        """Returns the milliseconds, the bytes on the wire, and the first part of the text."""
        begun = time.perf_counter()
        self._connection.request("GET", path, headers={"Accept": "text/html", "Accept-Encoding": "gzip"})
        answer = self._connection.getresponse()
        body = answer.read()
        assert answer.status == 200, (path, answer.status)
        return (time.perf_counter() - begun) * 1000, len(body), answer.getheader("content-type", "")


@contextmanager
def changes(port: int) -> Iterator[Iterator[None]]:
    """One item after each reading."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
    connection.request("GET", "/events")
    answer = connection.getresponse()
    try:
        yield (None for line in iter(answer.readline, b"") if line == b"event: change\n")
    finally:
        connection.close()


def pages(topic: str) -> dict[str, str]:
    return {
        "overview": "/",
        "flow, 100 of its topics": f"/flow?{urlencode({'name': FLOW})}",
        "topic": f"/topic?{urlencode({'flow': FLOW, 'topic': topic})}",
    }


def median(values: Sequence[float]) -> float:
    return sorted(values)[len(values) // 2]


def measure(port: int, viewers: int) -> list[Row]:
    paths = pages("orders.00003")
    rows = []
    with changes(port) as changed:
        next(changed)
        first = Viewer(port)
        parts = [first.ask(path) for path in ("/", "/static/ui.css", "/static/ui.js")]
        rows.append(Row("first paint: overview, style and script", sum(one[0] for one in parts), "ms", 1_000))
        rows.append(Row("first paint, bytes on the wire", sum(one[1] for one in parts) / 1000, "kB"))
        for name, path in paths.items():
            times = []
            for _ in range(UPDATES):
                next(changed)
                times.append(first.ask(path)[0])
            rows.append(Row(f"update: {name}, median", median(times), "ms", 200))
            rows.append(Row(f"update: {name}, worst of {UPDATES}", max(times), "ms"))
        all_viewers = [Viewer(port) for _ in range(viewers)]
        next(changed)
        with ThreadPoolExecutor(viewers) as pool:
            many = list(pool.map(lambda one: one.ask("/")[0], all_viewers))
        rows.append(Row(f"update: overview, the last of {viewers} viewers at once", max(many), "ms"))
    return rows


def memory_mb(pid: int) -> float:
    text = Path(f"/proc/{pid}/status").read_text()
    return int(text.split("VmHWM:")[1].split()[0]) / 1024


def table(rows: Sequence[Row]) -> str:
    lines = []
    for row in rows:
        limit = f"  at most {row.most:g}: {'ok' if row.within else 'OVER'}" if row.most is not None else ""
        lines.append(f"{row.what:58} {row.value:>8,.0f} {row.unit:3}{limit}")
    return "\n".join(lines)


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--partitions", type=int, default=10_000)
    parser.add_argument("--viewers", type=int, default=50)
    parser.add_argument("--serve", action="store_true", help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.serve:
        served(given.partitions)
        return 0
    load = os.getloadavg()
    command = [sys.executable, "-m", "tests.bench.bench_ui", "--serve", "--partitions", str(given.partitions)]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdout is not None
        port = int(process.stdout.readline().removeprefix("port "))
        rows = measure(port, given.viewers)
        rows.append(Row("memory, highest", memory_mb(process.pid), "MB", 300))
    finally:
        process.terminate()
        rest = process.communicate()[0]
    joins = [float(line.removeprefix("join ")) for line in rest.splitlines() if line.startswith("join ")]
    rows.append(Row("deriving the status, once for all viewers, CPU, median", median(joins), "ms"))
    print(f"{given.partitions:,} partitions; load before: {load[0]:.1f}")
    print(table(rows))
    keep(RESULTS, rows, load)
    return 0 if all(row.within for row in rows) else 1


if __name__ == "__main__":
    raise SystemExit(main())
