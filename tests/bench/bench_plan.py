"""How long `repl plan` takes, and what it costs: topics of dc1 mirrored to dc2, on a lab of its own.

python -m tests.bench.bench_plan [--sizes 1000,10000] [--subjects 10000]

For each size: a plan that creates every mirror, one without changes after they were applied, one that
changes a setting of each. For the subjects: a plan of a flow with 100 topics that registers all of them, and
one at whose destination they are. The registries are those of the tests, in processes of their own. Wall
time is the whole command's, from the shell's point of view; memory is its largest resident set. The table is
printed, build/bench-plan.json keeps it.
"""

import argparse
import multiprocessing
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from multiprocessing.connection import Connection
from pathlib import Path

from confluent_kafka.admin import AdminClient, NewTopic

from planner.diff.differ import diff
from planner.kafka import ClusterEndpoint, run_at
from planner.observe.metadata import list_topics
from runtime.lab.cluster import LabClusterSpec
from runtime.lab.lab import Lab
from tests.bench.lab import REPL, bench_lab
from tests.bench.results import keep
from tests.fakes.registry import registry_server
from tests.fakes.states import cluster, desired, live, observed, owned, wanted

RESULTS = Path("build/bench-plan.json")
PARTITIONS = 2
BATCH = 1_000
WITHOUT_JOB = 2  # the job and its flow are planned again each time
WITH_TOPIC = WITHOUT_JOB + 1  # and the one topic that is declared
SUBJECT_TOPICS = 100
BROKERS = 4  # of each cluster: one process may not open as many files as 20,000 partitions need


@dataclass(frozen=True, slots=True)
class Row:
    what: str
    topics: int
    seconds: float
    megabytes: float
    most_seconds: float | None = None  # what it may take
    most_megabytes: float | None = None

    @property
    def within(self) -> bool:
        slow = self.most_seconds is not None and self.seconds > self.most_seconds
        large = self.most_megabytes is not None and self.megabytes > self.most_megabytes
        return not (slow or large)


def timed(*arguments: str, codes: Sequence[int] = (0, 2)) -> tuple[float, float, str]:
    """Seconds, megabytes and output of one command."""
    begun = time.perf_counter()
    with tempfile.TemporaryFile("w+") as output:
        process = subprocess.Popen([str(REPL), *arguments], stdout=output, stderr=subprocess.STDOUT)
        _, status, usage = os.wait4(process.pid, 0)
        seconds = time.perf_counter() - begun
        output.seek(0)
        text = output.read()
    code = os.waitstatus_to_exitcode(status)
    if code not in codes:
        raise SystemExit(f"repl {' '.join(arguments)} ended with {code}:\n{text[-2000:]}")
    cpu = usage.ru_utime + usage.ru_stime
    print(f"{seconds:8.2f} s, {cpu:.2f} s of them working: repl {arguments[0]}", file=sys.stderr, flush=True)
    return seconds, usage.ru_maxrss / 1024, text


def applied(file: str) -> tuple[float, float]:
    """A busy broker shows so many new topics too late for one apply: the next finishes the rest.

    The topics alone: the job's launcher is one that this machine does not have, so nothing copies meanwhile.
    """
    whole, most = 0.0, 0.0
    for _ in range(10):
        seconds, megabytes, text = timed("apply", "--auto-approve", file, codes=(0, 1))
        whole, most = whole + seconds, max(most, megabytes)
        if "Failed (1):\n  launch job.dc2:" in text:
            return whole, most
    raise SystemExit(f"the apply does not come to its end:\n{text[-2000:]}")


def best(rounds: int, *arguments: str) -> tuple[float, float, str]:
    """The quickest of some: what else runs on this machine is not what is measured."""
    return min((timed(*arguments) for _ in range(rounds)), key=lambda one: one[0])


def topology(lab: Lab, folder: Path, retention: str = "7d") -> Path:
    file = folder / "bench.yaml"
    clusters = "".join(f"  {name}: {{bootstrap: '{one.bootstrap}'}}\n" for name, one in lab.clusters.items())
    file.write_text(
        f"apiVersion: repl/v1\nname: bench\nclusters:\n{clusters}"
        "jobs: {dc2: {launcher: kubernetes, master: 'k8s://127.0.0.1:1'}}\n"
        "flows:\n"
        "  - {name: dc1-to-dc2, from: dc1, to: dc2, topics: {include: ['bench\\..*']}}\n"
        "topics:\n"
        f"  - {{name: one, cluster: dc1, config: {{retention.ms: {retention}}}}}\n",
        encoding="utf-8",
    )
    return file


def create(lab: Lab, first: int, last: int) -> None:
    """What the source holds; each topic has two settings of its own."""
    admin = AdminClient(lab.clusters["dc1"].client)
    for start in range(first, last, BATCH):
        names = [f"bench.{number:05}" for number in range(start, min(start + BATCH, last))]
        config = {"retention.ms": "86400000", "max.message.bytes": "2000000"}
        asked = admin.create_topics(
            [NewTopic(name, PARTITIONS, 1, config=config) for name in names], request_timeout=120
        )
        for future in asked.values():
            future.result(180)
    # A broker says "created" long before every broker lists what was created.
    deadline = time.monotonic() + 600
    for broker in lab.clusters["dc1"].bootstrap.split(","):
        while listed(broker) < last:
            assert time.monotonic() < deadline, f"{broker} does not list the topics"
            time.sleep(1)


def listed(broker: str) -> int:
    """By this very broker: an admin client asks whichever of them it likes."""
    return len(run_at(ClusterEndpoint("bench", broker), list_topics, 60).topics)


def measure(sizes: Sequence[int]) -> list[Row]:
    rows = [*small(), *diffing()]
    clusters = (LabClusterSpec(name, brokers=BROKERS, heap="1g") for name in ("dc1", "dc2"))
    with bench_lab(*clusters) as (lab, folder):
        there = 0
        for size in sizes:
            create(lab, there, size)
            rows += of_size(lab, folder, size, there)
            there = size
    return rows


def small() -> list[Row]:
    with tempfile.TemporaryDirectory() as folder:
        timed("init", folder)
        validate = best(3, "validate", folder)
        begun = best(3, "--help")
    return [Row("--help", 0, *begun[:2], 0.4), Row("validate, small", 0, *validate[:2], 0.6)]


def diffing(count: int = 10_000) -> list[Row]:
    """The pure core alone: as wanted, and with a value of its own that differs in every topic."""
    want = desired(*(wanted(f"t{number:05}", 6, 3, retention_ms=str(number)) for number in range(count)))
    entries = [owned(one) for one in want.topics]
    rows = []
    for what, step in (("diff alone, no changes", 1), ("diff alone, all different", 2)):
        topics = (live(f"t{number:05}", 6, 3, retention_ms=str(number * step)) for number in range(count))
        seen = observed(cluster(*topics, owned=entries))
        begun = time.process_time()
        diff(want, seen)
        rows.append(Row(what, count, time.process_time() - begun, 0.0, 1.0))
    return rows


def of_size(lab: Lab, folder: Path, size: int, there: int) -> list[Row]:
    most = {"most_megabytes": 500.0}
    file = str(topology(lab, folder))
    seconds, megabytes, text = timed("plan", file)
    expected = f"{size - there + (there == 0) + WITHOUT_JOB} to add"
    assert expected in text, f"{expected!r} is not in: {text[-500:]}"
    limit = 20.0 * (size - there) / 10_000 if size >= 10_000 else None
    rows = [Row(f"plan, {size - there:,} creates", size, seconds, megabytes, limit, **most)]
    seconds, megabytes = applied(file)
    rows.append(Row(f"apply, {size - there:,} creates", size, seconds, megabytes))
    seconds, megabytes, text = best(2, "plan", file)
    assert f"Plan: {WITHOUT_JOB} to add, 0 to change, 0 to destroy." in text, text[-500:]
    rows.append(Row("plan, no changes", size, seconds, megabytes, 15.0 if size >= 10_000 else None, **most))
    return rows


def of_subjects(count: int) -> list[Row]:
    rows = []
    with bench_lab(LabClusterSpec("dc1"), LabClusterSpec("dc2")) as (lab, folder):
        create(lab, 0, SUBJECT_TOPICS)
        for what, there in ((f"plan, {count:,} subjects to add", 0), ("plan, no subject changes", count)):
            with registry(count) as source, registry(there) as destination:
                file = topology(lab, folder)
                with file.open("a", encoding="utf-8") as added:
                    added.write(
                        f"registries: {{dc1: {{url: '{source}'}}, dc2: {{url: '{destination}'}}}}\n"
                        "defaults: {flow: {schemas: {sync: true, subjects: topic_record_name}}}\n"
                    )
                seconds, megabytes, text = best(3, "plan", str(file))
                expected = f"Plan: {count - there + WITH_TOPIC + SUBJECT_TOPICS} to add,"
                assert expected in text, f"{expected!r} is not in: {text[-500:]}"
                rows.append(Row(what, count, seconds, megabytes, 10.0, 500.0))
    return rows


@contextmanager
def registry(subjects: int) -> Iterator[str]:
    """Yields the URL of a registry with so many subjects of the topics."""
    here, there = multiprocessing.Pipe()
    process = multiprocessing.Process(target=serve, args=(there, subjects), daemon=True)
    process.start()
    try:
        yield here.recv()
    finally:
        here.send(None)
        process.join()


def serve(pipe: Connection, subjects: int) -> None:
    with registry_server() as server:
        for number in range(subjects):
            subject = f"bench.{number % SUBJECT_TOPICS:05}-Order{number}"
            fields = [{"name": "id", "type": "string"}, {"name": "note", "type": ["null", "string"]}]
            schema = {"type": "record", "name": f"Order{number}", "fields": fields}
            server.add(number + 1, schema, subject, 1)
        pipe.send(server.url)
        pipe.recv()


def table(rows: Sequence[Row]) -> str:
    lines = [f"{'':32} {'topics':>8} {'seconds':>9} {'MB':>7}  limit"]
    for row in rows:
        limits = [f"{row.most_seconds:g} s"] if row.most_seconds is not None else []
        limits += [f"{row.most_megabytes:g} MB"] if row.most_megabytes is not None else []
        verdict = f"{', '.join(limits)}: {'ok' if row.within else 'OVER'}" if limits else ""
        lines.append(f"{row.what:32} {row.topics:>8,} {row.seconds:>9.2f} {row.megabytes:>7.0f}  {verdict}")
    return "\n".join(lines)


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--sizes", default="1000,10000")
    parser.add_argument("--subjects", type=int, default=10_000)
    options = parser.parse_args()
    load = os.getloadavg()
    rows = measure([int(size) for size in options.sizes.split(",") if size])
    rows += of_subjects(options.subjects) if options.subjects else []
    print(table(rows))
    keep(RESULTS, rows, load)
    return 0 if all(row.within for row in rows) else 1


if __name__ == "__main__":
    raise SystemExit(main())
