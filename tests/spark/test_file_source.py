"""Lines and rows of files into a topic, on a real broker and real Spark: each once, whatever happens."""

import subprocess
import sys
from collections.abc import Callable, Iterable
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from runtime.contract.records.control import AcceptLoss
from runtime.contract.records.job_status import PartitionState as S
from runtime.contract.records.job_status import PartitionStatus
from runtime.contract.spec.files import LinesSpec
from runtime.contract.spec.jobspec import FlowSpec, JobExit, JobSpec
from runtime.contract.spec.launch import MetricsSpec
from runtime.lab.lab import Lab
from tests.commands import repl
from tests.records import Record, create_topic, read, recreate_topic, wait_for
from tests.runtime.files.source.rows import values_of
from tests.spark.exported import assert_equal
from tests.spark.job import Running, flow_of, spec_of, start_job
from tests.topologies import Topology

pytestmark = pytest.mark.spark
_WITHIN_S = 180


def from_files(name: str, topic: str, folder: Path, form: Any = "text", **changes: Any) -> FlowSpec:
    """A flow from files into a topic of dc1, as the planner declares it: its home is its destination."""
    recursive = changes.pop("recursive", False)
    lines = LinesSpec(
        endpoint="inbox", folder=str(folder), format=form, topic=topic, every_ms=200, recursive=recursive
    )
    settings = {"checkpoints_every_ms": None, "follow_every_ms": None, **changes}
    flow: FlowSpec = flow_of(name, [], "dc1", "dc1", lines=lines, **settings)
    return flow


def job_of(lab: Lab, job: str, flow: FlowSpec) -> JobSpec:
    return spec_of(lab, job, [flow], destination="dc1", metrics=MetricsSpec())


def append(path: Path, lines: Iterable[str]) -> None:
    with path.open("a") as file:
        file.writelines(f"{line}\n" for line in lines)


def assert_holds(job: Running, client: dict[str, Any], topic: str, wanted: Iterable[str]) -> list[Record]:
    """Waits until the topic has as many lines, compares them with their counts, and returns its records."""
    expected = sorted(line.encode() for line in wanted)
    wait_for(lambda: len(read(client, topic)) >= len(expected), _WITHIN_S, about=job.tail)
    records = read(client, topic)
    assert sorted(record.value or b"" for record in records) == expected
    assert {record.key for record in records} <= {None}
    return records


@pytest.fixture
def started() -> Iterable[Callable[..., Running]]:
    jobs: list[Running] = []

    def start(spec: JobSpec, folder: Path, **more: Any) -> Running:
        jobs.append(start_job(spec, folder, **more))
        return jobs[-1]

    yield start
    for job in jobs:
        job.kill()


def test_every_line_arrives_once_although_tasks_die_in_their_transactions(
    lab: Lab, fresh: Callable[[str], str], tmp_path: Path, started: Callable[..., Running]
):
    """A task dies behind each of its first transactions, or within its second one; then the job dies (R1)."""
    client = dict(lab.clusters["dc1"].client)
    topic, folder = fresh("lines"), tmp_path / "in"
    folder.mkdir()
    create_topic(client, topic, 3)
    spec = job_of(lab, fresh("job"), from_files(fresh("flow"), topic, folder))
    wanted: dict[str, list[str]] = {}
    for failpoint, failures in (("after_end:1", 2), ("after_ledger:2", 1)):
        for name in ("a.log", "b.log"):
            lines = [f"{name} {failpoint} {number} {'x' * 100}" for number in range(3_000)]
            append(folder / name, lines)
            wanted.setdefault(name, []).extend(lines)
        job = started(spec, tmp_path, environ={"REPL_FAILPOINT": failpoint})
        wait_for(partial(_failed, job, failures), _WITHIN_S, about=job.tail)
        job.kill()
    job = started(spec, tmp_path)
    records = assert_holds(job, client, topic, [line for lines in wanted.values() for line in lines])
    for name, lines in wanted.items():  # in order, in one partition
        of_file = [(one.partition, (one.value or b"").decode()) for one in records]
        of_file = [(partition, line) for partition, line in of_file if line.startswith(name)]
        assert of_file == [(of_file[0][0], line) for line in lines]
    assert job.stop() == JobExit.STOPPED, job.tail()
    assert_verified(spec, folder, sum(map(len, wanted.values())))


def assert_verified(spec: JobSpec, folder: Path, lines: int) -> None:
    """`repl verify` finds all lines equal, in this process and on Spark."""
    flow = spec.flows[0].name
    assert_equal(spec, flow, lines)
    done = repl("verify", flow, str(topology_of(spec, folder)))  # on Spark: these are many
    assert done.returncode == 0, done.stdout + done.stderr
    assert f"Equal: {lines:,} records compared" in done.stdout


def topology_of(spec: JobSpec, folder: Path) -> Path:
    """A topology that declares the flow of this job, in a file beside its folder."""
    (flow,) = spec.flows
    assert flow.lines is not None
    source = {"file": str(folder), "format": "text"}
    declared = {"name": flow.name, "from": source, "to": "dc1", "topics": {"to": flow.lines.topic}}
    clusters = {"dc1": {"bootstrap": spec.clusters["dc1"].bootstrap}}
    return Topology(flow.name, folder.with_name("t.yaml"), clusters, more={"flows": [declared]}).write()


def _failed(job: Running, times: int) -> bool:
    return job.log.read_text().count("decision=retry") >= times


class Inbox:
    """The files of a flow that a job copies, its topic, and the values that must be in the topic."""

    job: Running

    def __init__(self, flow: str, client: dict[str, Any], topic: str, folder: Path) -> None:
        self.wanted: list[str] = []
        self._client, self._topic = client, topic
        self._flow, self._folder = flow, folder

    def write(self, name: str, *lines: str) -> None:
        append(self._folder / name, lines)
        self.wanted += lines

    def arrived(self) -> None:
        assert_holds(self.job, self._client, self._topic, self.wanted)

    def status(self, name: str) -> PartitionStatus | None:
        states = self.job.partitions()
        return next((one for key, one in states.items() if (key.flow, key.topic) == (self._flow, name)), None)

    def awaited(self, name: str, state: S, why: str) -> None:
        """Waits until the file has this state, for a reason with these words."""

        def entered() -> bool:
            status = self.status(name)
            return status is not None and status.state is state and why in status.why

        wait_for(entered, _WITHIN_S, about=lambda: f"{self.status(name)}: {self.job.tail()}")

    def accept_loss(self, name: str) -> None:
        status = self.status(name)
        assert status is not None
        command = f"accept-{name}-{status.since_ms}"
        self.job.tell(AcceptLoss(id=command, flow=self._flow, partitions=[(name, status.partition)]))


@pytest.fixture
def inbox(lab: Lab, fresh: Callable[[str], str], tmp_path: Path, started: Callable[..., Running]) -> Inbox:
    client = dict(lab.clusters["dc1"].client)
    topic, flow = fresh("inbox"), fresh("flow")
    create_topic(client, topic, 2)
    found = Inbox(flow, client, topic, tmp_path / "in")
    found.job = started(job_of(lab, fresh("job"), from_files(flow, topic, tmp_path / "in")), tmp_path)
    return found


def test_files_that_are_damaged_and_files_that_vanish(inbox: Inbox, tmp_path: Path):
    folder = tmp_path / "in"
    folder.mkdir()

    # A line that is no text holds up its file until it is mended.
    (folder / "bad.log").write_bytes(b"good\nb\xffd\nlater\n")
    inbox.write("fine.log", "fine")
    inbox.wanted.append("good")
    inbox.awaited("bad.log", S.RECORD_CORRUPT, "the line at byte 5 is not UTF-8")
    inbox.arrived()
    (folder / "bad.log").write_bytes(b"good\nmended\nlater\n")
    inbox.wanted += ["mended", "later"]
    inbox.arrived()

    # A file that goes with unread bytes is named; one that was read to its end goes silently.
    (folder / "gone.log").write_bytes(b"begin\nunfinished")
    inbox.wanted.append("begin")
    inbox.awaited("gone.log", S.CAUGHT_UP, "10 bytes wait for a line feed")
    inbox.awaited("fine.log", S.CAUGHT_UP, "")
    (folder / "gone.log").unlink()
    (folder / "fine.log").unlink()
    inbox.awaited("gone.log", S.FILE_VANISHED, "its last 10 bytes were not read")
    wait_for(lambda: inbox.status("fine.log") is None, _WITHIN_S, about=inbox.job.tail)
    inbox.accept_loss("gone.log")
    wait_for(lambda: inbox.status("gone.log") is None, _WITHIN_S, about=inbox.job.tail)
    inbox.arrived()

    # A file of which nothing was read leaves no trace.
    (folder / "unread.log").write_bytes(b"\xff is no text\n")
    inbox.awaited("unread.log", S.RECORD_CORRUPT, "the line at byte 0 is not UTF-8")
    (folder / "unread.log").unlink()
    wait_for(lambda: inbox.status("unread.log") is None, _WITHIN_S, about=inbox.job.tail)

    # A file that was overwritten waits until that is accepted, and is then read from its beginning.
    inbox.write("short.log", "one", "two")
    inbox.arrived()
    (folder / "short.log").write_text("ONE\ntwo\nthree\n")
    inbox.awaited("short.log", S.FILE_TRUNCATED, "does not hold the 8 bytes that were read")
    inbox.write("other.log", "goes on")
    inbox.arrived()
    inbox.wanted += ["ONE", "two", "three"]
    inbox.accept_loss("short.log")
    inbox.arrived()
    inbox.awaited("short.log", S.CAUGHT_UP, "")

    # A new file that takes the name of one that was deleted is read from its beginning.
    inbox.write("fine.log", "a new file", "of the same name")
    inbox.arrived()
    assert "file_name_reused" in inbox.job.log.read_text()


@pytest.mark.long
def test_a_topic_that_was_made_again_waits_and_then_gets_what_is_new(
    lab: Lab, fresh: Callable[[str], str], tmp_path: Path, started: Callable[..., Running]
):
    """Lines that were read are not read again (R4)."""
    client = dict(lab.clusters["dc1"].client)
    topic, flow, folder = fresh("again"), fresh("flow"), tmp_path / "in"
    folder.mkdir()
    create_topic(client, topic, 1)
    append(folder / "a.log", ["one", "two"])
    inbox = Inbox(flow, client, topic, folder)
    inbox.job = job = started(job_of(lab, fresh("job"), from_files(flow, topic, folder)), tmp_path)
    assert_holds(job, client, topic, ["one", "two"])
    recreate_topic(client, topic)
    append(folder / "a.log", ["three"])
    inbox.awaited("a.log", S.RECREATED, f"{topic} was deleted and made again, without its records")
    assert read(client, topic) == []
    inbox.accept_loss("a.log")
    assert_holds(job, client, topic, ["three"])
    inbox.awaited("a.log", S.CAUGHT_UP, "")
    assert job.stop() == JobExit.STOPPED, job.tail()


_AS_SPARK_WRITES_IT = """
import sys
from pyspark.sql import SparkSession

spark = SparkSession.builder.master("local[1]").config("spark.ui.enabled", "false").getOrCreate()
spark.conf.set("spark.sql.session.timeZone", "UTC")
spark.conf.set("spark.sql.parquet.outputTimestampType", sys.argv[2])
rows = spark.sql('''
  select id, cast(id + 0.5 as float) f, cast(0.1 as float) tenth, id / 4 d, cast(1.50 as decimal(9, 2)) price,
    cast(0 as decimal(20, 10)) zero, encode('é', 'UTF-8') bytes, timestamp'2026-01-31 12:00:00.123' at,
    timestamp'1969-12-31 23:59:59' early, timestamp_ntz'2026-01-31 12:00:00' local, date'2026-01-31' day,
    map('k', 1, 'l', null) m, map(1, array(date'2026-01-31')) n, array(1, null) l,
    named_struct('x', id, 'y', cast(null as string), 'z', array(named_struct('t', date'2026-01-31'))) s,
    cast(null as int) nothing, cast('NaN' as double) nan, cast('-Infinity' as float) low,
    if(id = 1, null, concat('"', id, 'é')) text, true yes, cast(id as tinyint) tiny
  from range(0, 3, 1, 1)
''')
rows.write.parquet(sys.argv[1])
spark.read.parquet(sys.argv[1]).selectExpr("to_json(struct(*))").write.text(sys.argv[1] + ".json")
"""


@pytest.mark.long
@pytest.mark.parametrize("timestamps", ["INT96", "TIMESTAMP_MICROS"])
def test_rows_are_written_as_sparks_to_json_writes_them(tmp_path: Path, timestamps: str):
    folder = tmp_path / "rows"
    subprocess.run(
        [sys.executable, "-c", _AS_SPARK_WRITES_IT, str(folder), timestamps], check=True, timeout=300
    )
    (parquet,) = folder.glob("part-*.parquet")
    (text,) = (tmp_path / "rows.json").glob("part-*.txt")
    assert values_of(parquet) == text.read_bytes().splitlines()
