"""Topics into files on real brokers and real Spark: every record once, whatever dies, and no file by half."""

import asyncio
import os
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any
from urllib.request import urlopen

import pytest
from confluent_kafka import Producer
from msgspec.structs import replace

from runtime.audit.offsets.locate_file import locate_in_files
from runtime.contract.client.endpoint import ClusterEndpoint
from runtime.contract.records.job_status import JobStatus, PartitionState
from runtime.contract.results.groups import LocatedRecord, LocateResult
from runtime.contract.spec.files import FilesSpec
from runtime.contract.spec.jobspec import FlowSpec, JobExit, JobSpec
from runtime.contract.spec.launch import MetricsSpec
from runtime.driver.duties.checkpoint import EVERY
from runtime.files.manifest import ManifestFolder
from runtime.files.snapshots import SnapshotFolder
from runtime.lab.lab import Lab
from tests import checker
from tests.checker.reader import read as consume
from tests.records import create_topic, wait_for, write
from tests.spark.exported import assert_equal, expected, files_of, lines_of
from tests.spark.job import Running, flow_of, spec_of, start_job

pytestmark = pytest.mark.spark
_STARTS_S = 180


def into_files(name: str, include: list[str], folder: Path, form: Any, **changes: Any) -> FlowSpec:
    """A flow of dc1's topics into files, as the planner declares it: its home is its source."""
    layout = "{topic}/" if form == "raw" else "{topic}/date={date}/"
    files = FilesSpec(
        endpoint="lake", folder=str(folder), format=form, layout=layout, size_bytes=1 << 18, every_ms=300
    )
    settings = {"checkpoints_every_ms": None, "follow_every_ms": None, **changes}
    flow: FlowSpec = flow_of(name, include, destination="dc1", files=files, **settings)
    return flow


def job_of(lab: Lab, job: str, flows: list[FlowSpec]) -> JobSpec:
    return spec_of(lab, job, flows, destination="dc1", slots=2, metrics=MetricsSpec())


def grown(job: Running, folder: Path, before: int) -> None:
    wait_for(lambda: len(files_of(folder)) > before, _STARTS_S, about=job.tail)


def metrics_of(job: Running) -> list[str]:
    """The lines of the metrics endpoint."""
    status = job.wait_for(lambda status: bool(status.metrics) and not status.trouble)
    with urlopen(f"http://{status.metrics}/metrics", timeout=30) as answer:
        lines: list[str] = answer.read().decode().splitlines()
    return lines


def copied(job: Running, client: dict[str, Any], topic: str, folder: Path) -> None:
    """Every committed record of the topic is in the files, once, and nothing else."""
    wanted = expected(consume(client, topic))
    wait_for(lambda: len(lines_of(folder)) >= len(wanted), _STARTS_S, about=job.tail)
    assert lines_of(folder) == wanted


@pytest.mark.parametrize(
    "form",
    [pytest.param("raw", marks=pytest.mark.long), "json", pytest.param("parquet", marks=pytest.mark.long)],
)
def test_every_record_is_in_the_files_once_and_a_job_that_was_killed_goes_on_exactly(
    lab: Lab, fresh: Callable[[str], str], tmp_path: Path, form: str
):
    client = dict(lab.clusters["dc1"].client)
    topic, folder = fresh("exported"), tmp_path / "lake"
    folder.mkdir()
    create_topic(client, topic, 3, config=checker.TOPIC_CONFIG)
    spec = job_of(lab, fresh("job"), [into_files(fresh("flow"), [topic], folder, form)])
    with checker.writing(client, topic, checker.Spec(records=10**9, rate=500, large_every=0)) as writing:
        with start_job(spec, tmp_path) as job:
            grown(job, folder, 0)
        manifest = ManifestFolder(str(folder), spec.flows[0].name)
        add_rounds(manifest, EVERY)  # so many that a checkpoint is due
        with start_job(spec, tmp_path) as job:
            wait_for(lambda: manifest.read().checkpoint is not None, _STARTS_S, about=job.tail)
            writing.wait_for(max(writing.so_far + 500, 3_000))
            writing.stop()
            copied(job, client, topic, folder)
            job.wait_for(lambda status: status.flows[0].partitions == 3)
            wait_for(lambda: {one.state for one in job.partitions().values()} == {PartitionState.CAUGHT_UP})
            metrics = metrics_of(job)
            lag = (
                f'repl_partition_lag_records{{flow="{spec.flows[0].name}",partition="0",topic="{topic}"}} 0.0'
            )
            assert lag in metrics, metrics
            assert job.stop() == JobExit.STOPPED, job.tail()
    assert form != "raw" or SnapshotFolder(str(folder), spec.flows[0].name).times()
    assert_equal(spec, spec.flows[0].name, len(expected(consume(client, topic))))
    assert_located(spec, topic, folder)


def add_rounds(manifest: ManifestFolder, number: int) -> None:
    """Adds the commits of so many rounds without a record, after a driver was killed."""
    state = manifest.read()
    assert state.last is not None
    manifest.publish(state.last.files)  # as the next driver does, which sees only the last of these commits
    for _ in range(number):
        empty = replace(state.last, number=state.last.number + 1, positions=[], files=[], complete=False)
        manifest.add(state, empty)


def assert_located(spec: JobSpec, topic: str, folder: Path) -> None:
    """`repl locate` names the file of a record and its number there, as a reader of the file finds it."""
    (flow,) = spec.flows
    assert flow.files is not None
    source = ClusterEndpoint("dc1", spec.clusters["dc1"].bootstrap)
    for path in files_of(folder):
        partition, offset, *_ = lines_of(path)[-1]
        numbers = [one for one, line in enumerate(lines_of(path), 1) if line[1] == offset]
        record = LocatedRecord(
            flow=flow.name,
            cluster="dc1",
            topic=topic,
            partition=partition,
            offset=offset,
            other_cluster=flow.files.endpoint,
        )
        found = asyncio.run(locate_in_files(record, source, flow.files))
        assert found.found is LocateResult.EXACT
        assert (found.file, found.record) == (str(path.relative_to(folder)), numbers[0])
        first = replace(record, offset=None, timestamp_ms=0)
        moment = asyncio.run(locate_in_files(first, source, flow.files))
        assert moment.record == 1
    behind = asyncio.run(locate_in_files(replace(record, offset=1 << 40), source, flow.files))
    assert (behind.found, behind.file) == (LocateResult.NOT_YET, None)


def test_a_full_disk_a_read_only_folder_and_an_edited_commit_are_named_and_overcome(
    lab: Lab, fresh: Callable[[str], str], tmp_path: Path
):
    """One job meets them in turn, on a small file system of its own, and goes on by itself each time."""
    client = dict(lab.clusters["dc1"].client)
    topic, folder = fresh("faults"), tmp_path / "lake"
    folder.mkdir()
    create_topic(client, topic, 2)
    flow = into_files(fresh("flow"), [topic], folder, "parquet")
    mounted("-t", "tmpfs", "-o", "size=8m", "tmpfs", str(folder))
    job: Running | None = None
    try:
        write(client, topic, [b"first"] * 10)
        job = start_job(job_of(lab, fresh("job"), [flow]), tmp_path)
        copied(job, client, topic, folder)

        filler = folder / "_filler"
        filler.write_bytes(bytes(7_000_000))
        # One partition fits into what is left, the other one does not: nothing of the round is committed.
        # The large one is written first, so that no round has the small one alone.
        producer = Producer({**client, "message.max.bytes": 2_000_000})
        for _ in range(5):
            producer.produce(topic, os.urandom(500_000), partition=1)
        assert producer.flush(60) == 0
        producer.produce(topic, os.urandom(150_000), partition=0)
        assert producer.flush(60) == 0
        job.wait_for(lambda status: "No space left on device" in why(status))
        wait_for(lambda: retries(job) >= 3, about=job.tail)
        # A round that is repeated takes no more space than the first one did.
        assert len(list((folder / "_repl").rglob("*.part"))) <= 2
        assert {one.state for one in job.partitions().values()} == {PartitionState.RETRYING}
        assert "No space left on device" in {one.why.split(": ")[-1] for one in job.partitions().values()}
        filler.unlink()
        copied(job, client, topic, folder)

        wait_for(lambda: remounted(folder, "ro"))  # refused while a file is open for writing
        write(client, topic, [b"read-only"] * 3)
        job.wait_for(lambda status: "Read-only file system" in why(status))
        assert remounted(folder, "rw")
        copied(job, client, topic, folder)

        last = max((folder / "_repl" / flow.name / "log").iterdir())
        whole = last.read_bytes()
        last.write_bytes(whole.replace(topic.encode(), b"x" * len(topic)))
        stopped = job.wait_for(lambda status: why(status).startswith("ledger_missing: "))
        assert "it was cut off or edited; restore the folder" in why(stopped)
        write(client, topic, [b"tampered"] * 3)
        last.write_bytes(whole)
        copied(job, client, topic, folder)
        wait_for(lambda: {one.state for one in job.partitions().values()} == {PartitionState.CAUGHT_UP})
        job.wait_for(lambda status: not why(status))
    finally:
        if job is not None:
            job.kill()
        subprocess.run(["umount", "--lazy", str(folder)], check=True)


def retries(job: Running) -> int:
    return job.tail(10_000).count(" flow_retry ")


def mounted(*arguments: str) -> None:
    done = subprocess.run(["mount", *arguments], capture_output=True, text=True, check=False)
    if done.returncode:
        pytest.skip(f"this user may not mount: {done.stderr}")


def remounted(folder: Path, mode: str) -> bool:
    command = ["mount", "-o", f"remount,{mode}", str(folder)]
    return subprocess.run(command, capture_output=True, check=False).returncode == 0


def why(status: JobStatus) -> str:
    return "".join(flow.why for flow in status.flows)
