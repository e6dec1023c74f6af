"""Topics into files on real brokers and real Spark: every record once, whatever dies, and no file by half."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from runtime.contract.records.status import PartitionState
from runtime.contract.spec.files import FilesSpec
from runtime.contract.spec.jobspec import FlowSpec, JobExit, JobSpec
from runtime.lab.lab import Lab
from tests import checker
from tests.checker.reader import read as consume
from tests.records import create_topic, wait_for
from tests.spark.exported import expected, files_of, lines_of
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
    return spec_of(lab, job, flows, destination="dc1", slots=2)


def grown(job: Running, folder: Path, before: int) -> None:
    wait_for(lambda: len(files_of(folder)) > before, _STARTS_S, about=job.tail)


def copied(job: Running, client: dict[str, Any], topic: str, folder: Path) -> None:
    """Every committed record of the topic is in the files, once, and nothing else."""
    wanted = expected(consume(client, topic))
    wait_for(lambda: len(lines_of(folder)) >= len(wanted), _STARTS_S, about=job.tail)
    assert lines_of(folder) == wanted


@pytest.mark.parametrize("form", ["raw", "json", "parquet"])
def test_every_record_is_in_the_files_once_and_a_job_that_was_killed_goes_on_exactly(
    lab: Lab, fresh: Callable[[str], str], tmp_path: Path, form: str
):
    client = dict(lab.clusters["dc1"].client)
    topic, folder = fresh("exported"), tmp_path / "lake"
    folder.mkdir()
    create_topic(client, topic, 3, config=checker.TOPIC_CONFIG)
    spec = job_of(lab, fresh("job"), [into_files(fresh("flow"), [topic], folder, form)])
    with checker.writing(client, topic, checker.Spec(records=10**9, rate=500, large_every=0)) as writing:
        for _ in range(2):
            before = len(files_of(folder))
            job = start_job(spec, tmp_path)
            try:
                grown(job, folder, before)
            finally:
                job.kill()
        job = start_job(spec, tmp_path)
        try:
            wait_for(lambda: writing.written.records > 3_000)
            writing.stop()
            copied(job, client, topic, folder)
            job.wait_for(lambda status: status.flows[0].partitions == 3)
            wait_for(lambda: {one.state for one in job.partitions().values()} == {PartitionState.CAUGHT_UP})
            assert job.stop() == JobExit.STOPPED, job.tail()
        finally:
            job.kill()
